#include "elastic/control/links.h"

#include <algorithm>
#include <tuple>

#include "elastic/control/median.h"

namespace holdfast {
namespace {

constexpr std::chrono::milliseconds kProbeTimeout{5000};  // a worker tries for two seconds
constexpr double kFarSlower = 10, kLeastSlow = 0.02;      // times what others take; seconds

/// Sets of workers that leave no link, by branching on the ends of one that is left.
class Search {
 public:
  Search(const std::vector<Link>& links, const std::function<double(const std::string&)>& worth,
         const std::function<bool(const std::set<std::string>&)>& can_go)
      : links_(links), worth_(worth), can_go_(can_go) {
    for (const Link& link : links_) {
      ++degree_[link.first];
      ++degree_[link.second];
    }
  }

  std::optional<std::vector<std::string>> Best() {
    std::set<std::string> none;
    Look(none, 0);
    if (!best_.has_value()) return std::nullopt;
    return std::vector<std::string>(best_->begin(), best_->end());
  }

 private:
  void Look(std::set<std::string>& out, double worth) {
    constexpr int kMaxSets = 20'000;
    if (++looked_ > kMaxSets || (best_.has_value() && out.size() > best_->size())) return;
    const Link* left = nullptr;
    for (const Link& link : links_) {
      if (out.count(link.first) > 0 || out.count(link.second) > 0) continue;
      if (left == nullptr || Degree(link) > Degree(*left)) left = &link;
    }
    if (left == nullptr) {
      const bool better = !best_.has_value() || std::tuple(out.size(), worth) < std::tuple(best_->size(), best_worth_);
      if (!better || !can_go_(out)) return;
      best_ = out;
      best_worth_ = worth;
      return;
    }
    std::vector<std::string> ends{left->first, left->second};
    std::sort(ends.begin(), ends.end(), [&](const std::string& a, const std::string& b) {
      return std::tuple(-degree_[a], worth_(a), b) < std::tuple(-degree_[b], worth_(b), a);
    });
    for (const std::string& end : ends) {
      out.insert(end);
      Look(out, worth + worth_(end));
      out.erase(end);
    }
  }
  int Degree(const Link& link) { return std::max(degree_[link.first], degree_[link.second]); }

  const std::vector<Link>& links_;
  const std::function<double(const std::string&)>& worth_;
  const std::function<bool(const std::set<std::string>&)>& can_go_;
  std::map<std::string, int> degree_;
  int looked_ = 0;
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
  std::erase_if(cut_, [&](const Link& link) { return link.first == name || link.second == name; });
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
