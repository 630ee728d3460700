#pragma once
// Which links between workers are cut, and the round in which they are being tried.
//
// Thread-safety: none.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastic/control/links.h"
#include "elastic/control/roster.h"

namespace holdfast {

/// What a link that is cut ends at: a worker, by its name, or, where one of each node has tried for all of it, a node,
/// by this. Two halves of some thousands of workers have millions of links between them, and far fewer between nodes.
std::string NodeAsEnd(const std::string& node);

/// Somebody is connected whose end it is; `but_left_out`: and is not left out for cut links.
bool IsThere(const Roster& roster, const std::string& end, bool but_left_out = false);

class LinkWatch {
 public:
  using Instant = std::chrono::nanoseconds;

  enum class Purpose {
    kWorld,   // it failed or stands still: is a link cut?
    kPace,    // its steps take far longer than usual: is a link slow?
    kReturn,  // do those that are cut off reach the others again?
  };
  struct Probe {
    Purpose purpose = Purpose::kWorld;
    bool one_of_each_node = false;  // one worker of each stands for all of it
    uint64_t generation = 0;        // of the world that was open; 0 = none
    ProbeRound round;
  };

  /// `targets` by name, with their addresses; all of them try the others.
  const Probe& Begin(Instant now, Purpose purpose, bool one_of_each_node, uint64_t generation,
                     std::vector<std::pair<std::string, std::string>> targets);
  bool probing() const { return probe_.has_value(); }
  void Add(const std::string& from, const ReachMessage& answer) { probe_->round.Add(from, answer); }
  /// It is gone.
  void Drop(const std::string& name);
  /// The coordinator itself was away for so long, and could read no answer.
  void Forgive(Instant gap) {
    if (probe_.has_value()) probe_->round.Forgive(gap);
  }
  /// All that were asked have answered, or had the time to.
  bool IsOver(Instant now) const { return probe_.has_value() && probe_->round.IsOver(now); }
  Probe End(Instant now);
  Instant last_end() const { return last_end_; }

  /// Until they are reached again.
  void Cut(const std::set<Link>& links);
  bool IsCut(const Link& link) const;
  bool any_cut() const { return !peers_.empty(); }
  /// From somebody who is there; `but_left_out`: and is not left out for that.
  bool IsCutOff(const Member& member, const Roster& roster, bool but_left_out = false) const;
  /// Where too many are cut off to be tried at once: whose turn it is, another one each time.
  uint64_t TakeTurn() { return turns_++; }
  /// Forgets those of which one end is gone, and those whose ends reach each other, which are returned.
  std::set<Link> TakeBack(const Probe& probe, const Roster& roster);

 private:
  std::optional<Probe> probe_;  // under way
  uint64_t rounds_ = 0, turns_ = 0;
  Instant last_end_{0};
  std::map<std::string, std::set<std::string>> peers_;  // by end of a link that is cut: the other ends
};

/// Pairs of hosts of which an event has said that the links between them are cut, so that one may say that they are
/// back. Machines come and go under ever new names: some of those that are gone are forgotten, or whatever there is.
class ToldCuts {
 public:
  using Hosts = std::pair<std::string, std::string>;
  static constexpr size_t kMax = 1024;

  void Add(const Hosts& hosts, const Roster& roster);
  bool Has(const Hosts& hosts) const { return told_.contains(hosts); }
  size_t size() const { return told_.size(); }

 private:
  std::set<Hosts> told_;
};

}  // namespace holdfast
