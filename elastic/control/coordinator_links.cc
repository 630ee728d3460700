// Who reaches whom. When a world fails or stands still although all its members are there, they try each other; where
// links are cut, the run continues without as few as possible, who keep their state and come back when they reach the
// others again.

#include <algorithm>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elastic/control/coordinator.h"
#include "elastic/control/departures.h"
#include "elastic/control/state_source.h"
#include "framework/base/join_first.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookForReturn{2000};
constexpr size_t kMaxTried = 512;    // in one round, by each other
constexpr size_t kMaxReported = 16;  // pairs of hosts of which a round finds the links cut
constexpr size_t kMaxLeftOut = 32;   // names of those left out that are told

std::map<std::string, int> NumbersOfEnds(const std::vector<Link>& links) {
  std::map<std::string, int> numbers;
  for (const auto& [a, b] : links) {
    for (const std::string& end : {a, b}) numbers.emplace(end, static_cast<int>(numbers.size()));
  }
  return numbers;
}

}  // namespace

/// False if there is nobody to be tried, or there are too many. Where many are, one of each node stands for all of it.
/// Those that are cut off and still too many are tried in turn: thousands may be, of several rounds.
bool Coordinator::BeginProbe(LinkWatch::Purpose purpose) {
  const bool returns = purpose == LinkWatch::Purpose::kReturn;
  std::vector<const Member*> all;
  for (const auto& [name, worker] : roster_.workers()) {
    const bool counts = returns ? links_.IsCutOff(worker.member, roster_) : worker.rank >= 0;
    if (counts && !worker.member.probe_address.empty()) all.push_back(&worker.member);
  }
  const bool one_of_each = all.size() > kMaxTried;
  std::set<std::string> nodes;
  std::vector<std::pair<std::string, std::string>> targets;
  for (const Member* member : all) {
    if (one_of_each && !nodes.insert(member->node).second) continue;
    targets.emplace_back(member->id.name, member->probe_address);
  }
  if (returns && targets.size() > kMaxTried) targets = OfTurn(targets, kMaxTried, links_.TakeTurn());
  if (targets.size() < 2 || targets.size() > kMaxTried) return false;
  const LinkWatch::Probe& probe =
      links_.Begin(now_, purpose, one_of_each, open_.has_value() ? open_->world.generation : 0, std::move(targets));
  for (const std::string& name : probe.round.asked()) {
    Send(roster_.Find(name)->connection, probe.round.MessageFor(name));
  }
  return true;
}

/// True while it is worth waiting for what members find.
bool Coordinator::TriesLinks() { return links_.probing() || BeginProbe(LinkWatch::Purpose::kWorld); }

void Coordinator::Handle(Connection from, const ReachMessage& reach) {
  const JoinedWorker* worker = roster_.FindByConnection(from);
  if (end_.over() || worker == nullptr || !links_.probing()) return;
  links_.Add(worker->member.id.name, reach);
  if (links_.IsOver(now_)) JudgeLinks();
}

// Nobody computes and nobody is absent, but nothing arrives.
bool Coordinator::EverybodyWaits() const {
  Instant last = open_->published;
  for (const auto& [name, worker] : roster_.workers()) {
    if (worker.rank < 0) continue;
    if (worker.beat.generation != open_->world.generation || !WaitsForOthers(worker.beat.phase)) return false;
    last = std::max(last, worker.progressed);
  }
  const Instant wait =
      milliseconds(options_.elastic.heartbeat_timeout_ms) * (int64_t{1} << std::min<int64_t>(open_->link_rounds, 5));
  return now_ - last >= wait;
}

void Coordinator::WatchLinks() {
  if (links_.IsOver(now_)) JudgeLinks();
  if (end_.over() || links_.probing()) return;
  if (open_.has_value() && !open_->failed_since.has_value() && EverybodyWaits()) {
    ++open_->link_rounds;
    if (BeginProbe(LinkWatch::Purpose::kWorld)) return;
  }
  if (!links_.any_cut() || now_ - links_.last_end() < kLookForReturn) return;
  if (!BeginProbe(LinkWatch::Purpose::kReturn)) TakeBack({.round = {0, now_, {}, {}}});
}

void Coordinator::JudgeLinks() {
  const LinkWatch::Probe probe = links_.End(now_);
  const std::set<Link> cut = probe.round.cut();
  if (probe.purpose == LinkWatch::Purpose::kReturn) {
    TakeBack(probe);
  } else if (open_.has_value() && open_->world.generation == probe.generation) {
    open_->links_are_known = true;
    if (!cut.empty()) {
      LeaveOut(probe.one_of_each_node ? BetweenNodes(cut) : cut);
    } else if (pace_.slow()) {
      ReportSlowLink(probe.round);
    }
  }
  Advance();
}

std::set<Link> Coordinator::BetweenNodes(const std::set<Link>& links) const {
  const auto node = [&](const std::string& name) { return NodeAsEnd(roster_.workers().at(name).member.node); };
  std::set<Link> between;
  for (const auto& [a, b] : links) between.insert(LinkBetween(node(a), node(b)));
  return between;
}

// Of which members at these ends of links the others cannot do without all at once, by the ends' numbers.
std::vector<std::vector<int>> Coordinator::LastHoldersAt(const std::map<std::string, int>& numbers) const {
  const World& source = state_.source();
  if (source.generation == 0) return {};
  std::vector<bool> here;
  std::vector<int> part_of;
  for (const Member& member : source.members) {
    const auto found = roster_.workers().find(member.id.name);
    here.push_back(found != roster_.workers().end() && found->second.holds_state);
    auto number = numbers.end();
    if (here.back() && found->second.rank >= 0) {
      number = numbers.find(member.id.name);
      if (number == numbers.end()) number = numbers.find(NodeAsEnd(found->second.member.node));
    }
    part_of.push_back(number == numbers.end() ? kStays : number->second);
  }
  return LastHolders(source, PlacementOf(source, options_.parallel), options_.used_cells, here, part_of);
}

void Coordinator::LeaveOut(const std::set<Link>& cut) {
  const std::vector<Link> links(cut.begin(), cut.end());
  std::map<std::string, std::vector<std::string>> members;  // by end of a link
  for (const auto& [name, worker] : roster_.workers()) {
    if (worker.rank < 0) continue;
    members[name].push_back(name);
    members[NodeAsEnd(worker.member.node)].push_back(name);
  }
  const auto worth = [&](const std::string& end) {  // who holds state is dearer, and who has been there for longer
    double sum = 0;
    for (const std::string& name : members[end]) {
      const JoinedWorker& worker = *roster_.Find(name);
      sum += (worker.holds_state ? 2.0 : 1.0) - 1e-9 * static_cast<double>(worker.arrival);
    }
    return sum;
  };
  const auto workers_at = [&](const auto& ends) {
    std::set<std::string> names;
    for (const std::string& end : ends) names.insert(members[end].begin(), members[end].end());
    return names;
  };
  const std::map<std::string, int> numbers = NumbersOfEnds(links);
  const std::vector<std::vector<int>> last_holders = LastHoldersAt(numbers);
  const auto can_go = [&](const std::set<std::string>& ends) {
    std::vector<bool> goes(numbers.size(), false);
    size_t going = 0;
    for (const std::string& end : ends) {
      goes[static_cast<size_t>(numbers.at(end))] = true;
      going += members[end].size();
    }
    const auto all_go = [&](const std::vector<int>& holders) {
      return std::all_of(holders.begin(), holders.end(), [&](int number) { return goes[static_cast<size_t>(number)]; });
    };
    return static_cast<int>(going) < open_->size() && std::none_of(last_holders.begin(), last_holders.end(), all_go);
  };
  const auto ends = FewestToLeaveOut(links, worth, can_go);
  const std::set<std::string> names = workers_at(ends.value_or(std::vector<std::string>()));
  const std::string without = JoinFirst(names, kMaxLeftOut);
  ReportLinks<event::LinkCut>(cut, without);
  links_.Cut(cut);
  if (names.empty()) return;
  Instant last = open_->published;
  for (const auto& [name, worker] : roster_.workers()) {
    if (worker.rank >= 0) last = std::max(last, worker.progressed);
  }
  for (const std::string& name : names) {
    JoinedWorker& worker = *roster_.Find(name);
    worker.left_out = true;
    RecordFailure(worker, /*at_fault=*/false);
  }
  blame_.Drop();
  damaged_data_.Drop();
  CloseWorld(absl::StrCat("no link between ", cut.begin()->first, " and ", cut.begin()->second,
                          cut.size() > 1 ? absl::StrCat(" (and ", cut.size() - 1, " more)") : "",
                          ": continuing without ", without),
             std::chrono::duration<double>(now_ - last).count());
}

// One event for all links between two machines; of two halves of a cluster some stand for all. What was said to be cut
// is said to be back, and nothing else.
template <class Event>
void Coordinator::ReportLinks(const std::set<Link>& links, const std::string& without) {
  struct End {
    const JoinedWorker* first = nullptr;
    int64_t workers = 0;
  };
  std::map<std::string, End> ends;
  for (const auto& [name, worker] : roster_.workers()) {
    ends[name] = {&worker, 1};
    End& node = ends[NodeAsEnd(worker.member.node)];
    if (node.workers++ == 0) node.first = &worker;
  }
  struct Between {
    const JoinedWorker *a = nullptr, *b = nullptr;
    int64_t links = 0;
  };
  std::map<std::pair<std::string, std::string>, Between> by_hosts;
  for (const Link& link : links) {
    if (std::is_same_v<Event, event::LinkCut> && links_.IsCut(link)) continue;
    const End a = ends[link.first], b = ends[link.second];
    if (a.workers == 0 || b.workers == 0) continue;
    Between& between = by_hosts[{a.first->member.host, b.first->member.host}];
    if (between.links == 0) between = {a.first, b.first, 0};
    between.links += a.workers * b.workers;
  }
  size_t reported = 0;
  for (const auto& [hosts, between] : by_hosts) {
    if (std::is_same_v<Event, event::LinkCut>) {
      if (++reported > kMaxReported) break;
      told_cuts_.Add(hosts, roster_);
    } else if (!told_cuts_.Has(hosts)) {
      continue;
    }
    Report(Event{{.host = hosts.first,
                  .peer_host = hosts.second,
                  .worker = between.a->member.id.name,
                  .peer = between.b->member.id.name,
                  .links = between.links,
                  .step = committed_ + 1,
                  .without = without}});
  }
}

void Coordinator::TakeBack(const LinkWatch::Probe& probe) {
  ReportLinks<event::LinkBack>(links_.TakeBack(probe, roster_), "");
  for (auto& [name, worker] : roster_.workers()) {
    if (!worker.left_out || links_.IsCutOff(worker.member, roster_)) continue;
    worker.left_out = false;
    formation_.OnNewcomer(now_);
  }
}

// All links of one worker, or those between two hosts. Where others are slow, too, no cause is found. A machine may be
// late once, so it takes two rounds in a row that find the same.
void Coordinator::ReportSlowLink(const ProbeRound& round) {
  const auto host_of = [&](const std::string& name) {
    const JoinedWorker* worker = roster_.Find(name);
    return worker == nullptr ? std::string() : worker->member.host;
  };
  const std::string suspected = std::exchange(suspected_link_, "");
  std::string link;
  event::LinkSlow found;
  found.step = committed_ + 1;
  if (const auto slow = round.Slowest(); slow.has_value()) {
    found.worker = slow->worker;
    found.milliseconds = 1000 * slow->seconds;
    found.usual_milliseconds = 1000 * slow->usual_seconds;
    link = slow->worker;
  } else {
    const ProbeRound::SlowLinks links = round.FarSlowerLinks();
    std::set<std::pair<std::string, std::string>> between;
    for (const auto& [a, b] : links.links) between.insert(std::minmax(host_of(a), host_of(b)));
    if (between.size() != 1) return;
    std::tie(found.worker, found.peer) = links.links.front();
    found.peer_host = host_of(found.peer);
    found.milliseconds = 1000 * links.seconds;
    found.usual_milliseconds = 1000 * links.usual_seconds;
    link = absl::StrCat(between.begin()->first, " ", between.begin()->second);
  }
  if (link != suspected) {
    if (suspected.empty() && BeginProbe(LinkWatch::Purpose::kWorld)) suspected_link_ = link;
    return;
  }
  pace_.OnCauseFound();
  found.host = host_of(found.worker);
  Report(std::move(found));
}

}  // namespace holdfast
