#include "elastic/control/link_watch.h"

#include <algorithm>
#include <string_view>

namespace holdfast {

namespace {

constexpr char kAllOfNode[] = "/*";

}  // namespace

std::string NodeAsEnd(const std::string& node) { return node + kAllOfNode; }

bool IsThere(const Roster& roster, const std::string& end, bool but_left_out) {
  const auto counts = [&](const std::string& name) {
    const auto worker = roster.workers().find(name);
    return worker != roster.workers().end() && !(but_left_out && worker->second.left_out);
  };
  if (counts(end)) return true;
  std::string_view node = end;
  if (!node.ends_with(kAllOfNode)) return false;
  node.remove_suffix(sizeof(kAllOfNode) - 1);
  const std::set<std::string>& workers = roster.WorkersOf(std::string(node));
  return std::any_of(workers.begin(), workers.end(), counts);
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

bool LinkWatch::IsCutOff(const Member& member, const Roster& roster, bool but_left_out) const {
  for (const std::string& end : {member.id.name, NodeAsEnd(member.node)}) {
    const auto found = peers_.find(end);
    if (found == peers_.end()) continue;
    const std::set<std::string>& peers = found->second;
    const auto is_there = [&](const std::string& peer) { return IsThere(roster, peer, but_left_out); };
    if (std::any_of(peers.begin(), peers.end(), is_there)) return true;
  }
  return false;
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
  const std::set<Link> cut = round.cut();
  std::set<Link> back, over;
  for (const auto& [end, peers] : peers_) {
    const bool is_there = IsThere(roster, end);
    for (auto peer = peers.upper_bound(end); peer != peers.end(); ++peer) {
      const std::string a = who_tried(end), b = who_tried(*peer);
      const bool is_gone = !is_there || !IsThere(roster, *peer);
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
