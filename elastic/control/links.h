#pragma once
// Connections between workers that are tried from both ends, and what to do without those that are cut. A link may be
// cut while both of its ends reach the coordinator, which then asks its members whom they reach.
//
// Thread-safety: none.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastic/control/messages.h"

namespace holdfast {

/// Between two workers, by name; the first comes first in the alphabet.
using Link = std::pair<std::string, std::string>;
Link LinkBetween(const std::string& a, const std::string& b);

/// The fewest workers without which none of `links` is left whose both ends are there, of those sets that `can_go`
/// allows; of sets as small the one whose workers' `worth` is least (a later one in doubt). Nothing if none is allowed.
/// A set cannot go if a part of it cannot. Looks at 20,000 sets at most, and asks about 2,000, so with very many links
/// the set may not be the smallest.
std::optional<std::vector<std::string>> FewestToLeaveOut(
    const std::vector<Link>& links, const std::function<double(const std::string&)>& worth,
    const std::function<bool(const std::set<std::string>&)>& can_go);

/// Of `targets` that are too many to try each other at once, `most` (even) or fewer: with every turn others, until each
/// two have been of one turn, and then again.
std::vector<std::pair<std::string, std::string>> OfTurn(const std::vector<std::pair<std::string, std::string>>& targets,
                                                        size_t most, uint64_t turn);

/// One round of asking.
class ProbeRound {
 public:
  using Instant = std::chrono::nanoseconds;

  /// `targets` by name; `asked` tries all of them but itself.
  ProbeRound(uint64_t round, Instant now, std::vector<std::pair<std::string, std::string>> targets,
             std::set<std::string> asked);

  const std::set<std::string>& asked() const { return asked_; }
  /// What `asked` is to be told.
  ProbeMessage MessageFor(const std::string& asked) const;
  void Add(const std::string& from, const ReachMessage& answer);
  /// It is gone.
  void Drop(const std::string& name);
  void Forgive(Instant gap) { begun_ += gap; }
  /// All have answered, or had the time to.
  bool IsOver(Instant now) const;

  /// Those that were tried in vain from an end that answered, and whose ends are both there still. Made anew each time.
  std::set<Link> cut() const;
  bool Reached(const std::string& from, const std::string& to) const { return seconds_.count({from, to}) > 0; }

  /// A worker that all others reach slowly: its median time, and the median of all.
  struct Slow {
    std::string worker;
    double seconds = 0, usual_seconds = 0;
  };
  std::optional<Slow> Slowest() const;
  /// Links that both ends find far slower than those that are not slow; empty if all are alike.
  struct SlowLinks {
    std::vector<Link> links;
    double seconds = 0, usual_seconds = 0;  // medians of these and of the others
  };
  SlowLinks FarSlowerLinks() const;

 private:
  uint64_t round_;
  Instant begun_;
  std::vector<std::pair<std::string, std::string>> targets_;
  std::set<std::string> asked_, answered_, gone_;
  std::set<Link> cut_;                                             // also of those that have gone since
  std::map<std::pair<std::string, std::string>, double> seconds_;  // from, to
};

}  // namespace holdfast
