#include "elastic/control/link_watch.h"

#include <algorithm>
#include <map>

namespace holdfast {

const LinkWatch::Probe& LinkWatch::Begin(Instant now, Purpose purpose, bool one_of_each_node, uint64_t generation,
                                         std::vector<std::pair<std::string, std::string>> targets) {
  std::set<std::string> asked;
  for (const auto& [name, address] : targets) asked.insert(name);
  return probe_.emplace(Probe{.purpose = purpose,
                              .one_of_each_node = one_of_each_node,
                              .generation = generation,
                              .round = {++rounds_, now, std::move(targets), std::move(asked)}});
}

void LinkWatch::Drop(const std::string& name) {
  if (probe_.has_value()) probe_->round.Drop(name);
}

LinkWatch::Probe LinkWatch::End(Instant now) {
  last_end_ = now;
  return *std::exchange(probe_, std::nullopt);
}

bool LinkWatch::IsCutOff(const std::string& name, const Roster& roster) const {
  return std::any_of(cut_.begin(), cut_.end(), [&](const Link& link) {
    return (link.first == name && roster.workers().count(link.second) > 0) ||
           (link.second == name && roster.workers().count(link.first) > 0);
  });
}

bool LinkWatch::IsCutOffFromMembers(const std::string& name, const Roster& roster) const {
  return std::any_of(cut_.begin(), cut_.end(), [&](const Link& link) {
    if (link.first != name && link.second != name) return false;
    const auto other = roster.workers().find(link.first == name ? link.second : link.first);
    return other != roster.workers().end() && !other->second.left_out;
  });
}

std::set<Link> LinkWatch::TakeBack(const Probe& probe, const Roster& roster) {
  const ProbeRound& round = probe.round;
  std::map<std::string, std::string> tried;  // by node: who did, for all of it
  for (const std::string& name : round.asked()) {
    const auto worker = roster.workers().find(name);
    if (probe.one_of_each_node && worker != roster.workers().end()) tried[worker->second.member.node] = name;
  }
  const auto who_tried = [&](const std::string& name) {
    const auto found = tried.find(roster.workers().at(name).member.node);
    return found == tried.end() ? name : found->second;
  };
  std::set<Link> back;
  std::erase_if(cut_, [&](const Link& link) {
    if (roster.workers().count(link.first) == 0 || roster.workers().count(link.second) == 0) return true;
    const std::string a = who_tried(link.first), b = who_tried(link.second);
    const bool reached =
        a == b || (round.cut().count(LinkBetween(a, b)) == 0 && (round.Reached(a, b) || round.Reached(b, a)));
    if (reached) back.insert(link);
    return reached;
  });
  return back;
}

}  // namespace holdfast
