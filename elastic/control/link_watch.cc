#include "elastic/control/link_watch.h"

#include <algorithm>

namespace holdfast {

std::string NodeAsEnd(const std::string& node) { return node + "/*"; }

LinkEnds EndsOf(const Roster& roster, bool but_left_out) {
  LinkEnds ends;
  for (const auto& [name, worker] : roster.workers()) {
    if (but_left_out && worker.left_out) continue;
    ends.insert(name);
    ends.insert(NodeAsEnd(worker.member.node));
  }
  return ends;
}

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

void LinkWatch::Cut(const std::set<Link>& links) {
  for (const auto& [a, b] : links) {
    peers_[a].insert(b);
    peers_[b].insert(a);
  }
}

bool LinkWatch::IsCut(const Link& link) const {
  const auto found = peers_.find(link.first);
  return found != peers_.end() && found->second.count(link.second) > 0;
}

bool LinkWatch::IsCutOff(const Member& member, const LinkEnds& there) const {
  for (const std::string& end : {member.id.name, NodeAsEnd(member.node)}) {
    const auto found = peers_.find(end);
    if (found == peers_.end()) continue;
    const LinkEnds& peers = found->second;
    if (std::any_of(peers.begin(), peers.end(), [&](const std::string& peer) { return there.count(peer) > 0; })) {
      return true;
    }
  }
  return false;
}

bool LinkWatch::IsCutOffFromMembers(const Member& member, const Roster& roster) const {
  const bool has_cut = peers_.count(member.id.name) > 0 || peers_.count(NodeAsEnd(member.node)) > 0;
  return has_cut && IsCutOff(member, EndsOf(roster, /*but_left_out=*/true));
}

std::set<Link> LinkWatch::TakeBack(const Probe& probe, const Roster& roster) {
  const ProbeRound& round = probe.round;
  std::map<std::string, std::string> tried;  // by end: who did
  for (const std::string& name : round.asked()) {
    const auto worker = roster.workers().find(name);
    if (worker == roster.workers().end()) continue;
    tried[name] = name;
    tried.emplace(NodeAsEnd(worker->second.member.node), name);
  }
  const auto who_tried = [&](const std::string& end) {
    auto found = tried.find(end);
    const auto worker = roster.workers().find(end);
    if (found == tried.end() && probe.one_of_each_node && worker != roster.workers().end()) {
      found = tried.find(NodeAsEnd(worker->second.member.node));
    }
    return found == tried.end() ? end : found->second;
  };
  const LinkEnds there = EndsOf(roster);
  const std::set<Link> cut = round.cut();
  std::set<Link> back, over;
  for (const auto& [end, peers] : peers_) {
    for (auto peer = peers.upper_bound(end); peer != peers.end(); ++peer) {
      const std::string a = who_tried(end), b = who_tried(*peer);
      const bool is_gone = there.count(end) == 0 || there.count(*peer) == 0;
      const bool reached =
          a == b || (cut.count(LinkBetween(a, b)) == 0 && (round.Reached(a, b) || round.Reached(b, a)));
      if (is_gone || reached) over.emplace(end, *peer);
      if (!is_gone && reached) back.emplace(end, *peer);
    }
  }
  for (const auto& [a, b] : over) {
    peers_[a].erase(b);
    peers_[b].erase(a);
  }
  std::erase_if(peers_, [](const auto& entry) { return entry.second.empty(); });
  return back;
}

void ToldCuts::Add(const Hosts& hosts, const Roster& roster) {
  if (told_.size() >= kMax) {
    std::set<std::string> here;
    for (const auto& [name, worker] : roster.workers()) here.insert(worker.member.host);
    std::erase_if(told_, [&](const Hosts& told) { return !here.contains(told.first) || !here.contains(told.second); });
    if (told_.size() >= kMax) told_.erase(told_.begin());
  }
  told_.insert(hosts);
}

}  // namespace holdfast
