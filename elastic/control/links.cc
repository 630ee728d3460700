#include "elastic/control/links.h"

#include <algorithm>
#include <tuple>

#include "elastic/control/median.h"

namespace holdfast {
namespace {

constexpr std::chrono::milliseconds kProbeTimeout{5000};  // a worker tries for two seconds
constexpr double kFarSlower = 10, kLeastSlow = 0.02;      // times what others take; seconds

/// Sets of workers that leave no link: whoever has most of those that are left goes, or else stays, and all at their
/// other ends go. So of two halves that do not reach each other the first set found is one of them, at once.
class Search {
 public:
  Search(const std::vector<Link>& links, const std::function<double(const std::string&)>& worth,
         const std::function<bool(const std::set<std::string>&)>& can_go)
      : can_go_(can_go) {
    std::map<std::string, std::vector<std::string>> peers;
    for (const Link& link : links) {
      peers[link.first].push_back(link.second);
      peers[link.second].push_back(link.first);
    }
    std::map<std::string, int> numbers;
    for (const auto& [name, others] : peers) {
      numbers.emplace(name, static_cast<int>(workers_.size()));
      workers_.push_back({.name = name, .worth = worth(name), .links = others.size()});
    }
    for (Worker& worker : workers_) {
      for (const std::string& peer : peers[worker.name]) worker.peers.push_back(numbers[peer]);
    }
  }

  std::optional<std::vector<std::string>> Best() {
    Look(0);
    if (!best_.has_value()) return std::nullopt;
    return std::vector<std::string>(best_->begin(), best_->end());
  }

 private:
  struct Worker {
    std::string name;
    double worth = 0;
    size_t links = 0;  // that are left
    bool is_out = false;
    std::vector<int> peers{};
    std::optional<bool> can_go{};  // alone
  };

  void Look(double worth) {
    constexpr int kMaxSets = 20'000, kMaxAsked = 2'000;  // whether they can go, which takes longer
    if (++looked_ > kMaxSets || asked_ > kMaxAsked) return;
    const int most = WithMostLinks();
    if (most < 0) return Judge(worth);
    LookWithout({most}, worth);
    std::vector<int> peers;
    for (const int peer : At(most).peers) {
      if (!At(peer).is_out) peers.push_back(peer);
    }
    LookWithout(peers, worth);
  }

  void LookWithout(const std::vector<int>& going, double worth) {
    if (best_.has_value() && num_out_ + going.size() > best_->size()) return;
    // Most often all can. Where the state has no mirrors nobody can, and no set needs to be asked about.
    const auto can_go = [this](int worker) { return CanGoAlone(At(worker)); };
    if (is_any_refused_ && !std::all_of(going.begin(), going.end(), can_go)) return;
    for (const int worker : going) {
      worth += At(worker).worth;
      At(worker).is_out = true;
      for (const int peer : At(worker).peers) --At(peer).links;
    }
    num_out_ += going.size();
    Look(worth);
    num_out_ -= going.size();
    for (const int worker : going) {
      At(worker).is_out = false;
      for (const int peer : At(worker).peers) ++At(peer).links;
    }
  }

  /// Of several the one that is worth least, then the last; -1: no link is left.
  int WithMostLinks() const {
    int most = -1;
    std::tuple<size_t, double> best{0, 0};
    for (size_t i = 0; i < workers_.size(); ++i) {
      const Worker& worker = workers_[i];
      const std::tuple rank{worker.links, -worker.worth};
      if (worker.is_out || worker.links == 0 || (most >= 0 && rank < best)) continue;
      most = static_cast<int>(i);
      best = rank;
    }
    return most;
  }

  void Judge(double worth) {
    if (best_.has_value() && std::tuple(num_out_, worth) >= std::tuple(best_->size(), best_worth_)) return;
    std::set<std::string> out;
    for (const Worker& worker : workers_) {
      if (worker.is_out) out.insert(worker.name);
    }
    ++asked_;
    if (!can_go_(out)) {
      is_any_refused_ = true;
      return;
    }
    best_ = std::move(out);
    best_worth_ = worth;
  }

  bool CanGoAlone(Worker& worker) {
    if (!worker.can_go.has_value()) {
      ++asked_;
      worker.can_go = can_go_({worker.name});
    }
    return *worker.can_go;
  }

  Worker& At(int worker) { return workers_[static_cast<size_t>(worker)]; }

  const std::function<bool(const std::set<std::string>&)>& can_go_;
  std::vector<Worker> workers_;  // in the order of their names
  size_t num_out_ = 0;
  int looked_ = 0, asked_ = 0;
  bool is_any_refused_ = false;
  std::optional<std::set<std::string>> best_;
  double best_worth_ = 0;
};

}  // namespace

Link LinkBetween(const std::string& a, const std::string& b) { return a < b ? Link(a, b) : Link(b, a); }

std::optional<std::vector<std::string>> FewestToLeaveOut(
    const std::vector<Link>& links, const std::function<double(const std::string&)>& worth,
    const std::function<bool(const std::set<std::string>&)>& can_go) {
  return Search(links, worth, can_go).Best();
}

// Two halves of a turn each: all pairs of halves.
std::vector<std::pair<std::string, std::string>> OfTurn(const std::vector<std::pair<std::string, std::string>>& targets,
                                                        size_t most, uint64_t turn) {
  if (targets.size() <= most) return targets;
  const size_t half = most / 2, halves = (targets.size() + half - 1) / half;
  size_t first = 0, after = turn % (halves * (halves - 1) / 2);
  while (after >= halves - 1 - first) after -= halves - 1 - first++;
  std::vector<std::pair<std::string, std::string>> chosen;
  for (const size_t which : {first, first + 1 + after}) {
    const size_t end = std::min(targets.size(), (which + 1) * half);
    for (size_t i = which * half; i < end; ++i) chosen.push_back(targets[i]);
  }
  return chosen;
}

ProbeRound::ProbeRound(uint64_t round, Instant now, std::vector<std::pair<std::string, std::string>> targets,
                       std::set<std::string> asked)
    : round_(round), begun_(now), targets_(std::move(targets)), asked_(std::move(asked)) {}

ProbeMessage ProbeRound::MessageFor(const std::string& asked) const {
  ProbeMessage message{round_, {}};
  for (const auto& [name, address] : targets_) {
    if (name != asked) message.addresses.push_back(address);
  }
  return message;
}

void ProbeRound::Add(const std::string& from, const ReachMessage& answer) {
  if (answer.round != round_ || asked_.count(from) == 0) return;
  size_t next = 0;
  for (const auto& [name, address] : targets_) {
    if (name == from) continue;
    if (next == answer.seconds.size()) return;
    const double seconds = answer.seconds[next++];
    if (gone_.count(name) > 0) continue;
    if (seconds < 0) {
      cut_.insert(LinkBetween(from, name));
    } else {
      seconds_[{from, name}] = seconds;
    }
  }
  answered_.insert(from);
}

void ProbeRound::Drop(const std::string& name) {
  asked_.erase(name);
  answered_.erase(name);
  gone_.insert(name);
}

std::set<Link> ProbeRound::cut() const {
  std::set<Link> cut = cut_;
  std::erase_if(cut, [&](const Link& link) { return gone_.contains(link.first) || gone_.contains(link.second); });
  return cut;
}

bool ProbeRound::IsOver(Instant now) const {
  return answered_.size() >= asked_.size() || now - begun_ >= kProbeTimeout;
}

std::optional<ProbeRound::Slow> ProbeRound::Slowest() const {
  std::vector<double> all;
  std::map<std::string, std::vector<double>> by_worker;
  for (const auto& [ends, seconds] : seconds_) {
    all.push_back(seconds);
    by_worker[ends.first].push_back(seconds);
    by_worker[ends.second].push_back(seconds);
  }
  if (by_worker.size() < 3) return std::nullopt;  // of two nobody knows whose it is
  Slow slow;
  for (const auto& [worker, times] : by_worker) {
    const double median = UpperMedian(times);
    if (median > slow.seconds) slow = {worker, median, 0};
  }
  // Of the others among themselves.
  std::vector<double> others;
  for (const auto& [ends, seconds] : seconds_) {
    if (ends.first != slow.worker && ends.second != slow.worker) others.push_back(seconds);
  }
  slow.usual_seconds = UpperMedian(others.empty() ? all : others);
  if (slow.seconds < std::max(kLeastSlow, kFarSlower * slow.usual_seconds)) return std::nullopt;
  return slow;
}

// Sorted by time, the slow ones come after the first gap that is wide enough.
ProbeRound::SlowLinks ProbeRound::FarSlowerLinks() const {
  std::vector<std::pair<double, Link>> links;
  for (const auto& [ends, seconds] : seconds_) {
    const auto back = seconds_.find({ends.second, ends.first});
    if (ends.first < ends.second && back != seconds_.end()) links.emplace_back(std::min(seconds, back->second), ends);
  }
  std::sort(links.begin(), links.end());
  size_t slow = 1;
  while (slow < links.size() && links[slow].first < std::max(kLeastSlow, kFarSlower * links[slow - 1].first)) ++slow;
  if (slow >= links.size()) return {};
  SlowLinks found{{}, links[slow + (links.size() - slow) / 2].first, links[slow / 2].first};
  for (size_t i = slow; i < links.size(); ++i) found.links.push_back(links[i].second);
  return found;
}

}  // namespace holdfast
