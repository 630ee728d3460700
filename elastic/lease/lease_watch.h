#pragma once
// What the coordinators of one run know of each other. The one that leads says in the lease that it is there; each that
// stands by says so in a file of its own in the run directory. Pure: time and texts are given.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "framework/metrics/run_lock.h"

namespace holdfast {

/// What the one that leads says of itself, in one line.
struct LeaderWords {
  uint64_t beat = 0;               // another each time
  std::optional<int> exit_code{};  // of the run, once it has ended; nobody is to lead it any more
  std::string reason{};            // why it has
  bool has_left = false;           // the run has not ended, and anybody may lead it

  std::string Line() const;
  /// Absent if it is none, or not whole: whoever holds the lock does not beat.
  static std::optional<LeaderWords> Read(const std::string& line);
};

/// What one look at a lease shows.
struct LeaseSight {
  enum class Owner { kUnknown, kThere, kGone };  // its process
  LockText text;                                 // empty: nobody has it
  Owner owner = Owner::kUnknown;
  std::string address{};    // HOST:PORT where it listens; empty if it does not say
  std::string lock_before;  // who had the run directory's lock before it, as it stood there
  std::string version{};    // another for each text
};

/// What one that waits is to do.
struct LeaseDecision {
  enum class Step {
    kWait,
    kAsk,   // see whether the owner's process has ended (then decide once more), else MayLive and wait
    kTake,  // the lease
    kEnd,   // the run has ended
  };
  Step step = Step::kWait;
  std::string from{};  // of kTake: who led before, and what became of it; empty for who begins the run, or resumes it
  LeaderWords end{};   // of kEnd
};

/// One that waits for a lease. Thread-safety: none.
class LeaseWatch {
 public:
  using Instant = std::chrono::nanoseconds;
  /// `me`: what would stand there if a write of ours has arrived and its answer has not. `has_led`: it has led this run
  /// before, so it is not to begin it.
  LeaseWatch(Instant lease, std::string me, bool has_led) : lease_(lease), me_(std::move(me)), follows_(has_led) {}

  /// This was seen at `now`. Whoever is silent for the lease, in which we looked all the time, loses it: time in which
  /// this process itself was frozen, or could read nothing, says nothing of another. One that has never beaten (a
  /// process that trains alone) is left alone until it has ended.
  LeaseDecision Decide(Instant now, const LeaseSight& sight);
  /// After kAsk: nothing says that the owner has ended. If it does from now on, its run is taken over, not begun anew.
  void MayLive() { follows_ = true; }
  /// The lease could not be read.
  void CouldNotLook() { looked_.reset(); }

 private:
  LeaseDecision Take(const std::string& what) const;
  Instant Silence(Instant now, const LeaseSight& sight);

  const Instant lease_;
  const std::string me_;
  bool follows_;      // somebody was seen to lead
  std::string last_;  // its name
  LockText text_;
  std::string version_;
  Instant since_{0};               // that it says so
  std::optional<Instant> looked_;  // the last time
};

/// What each that stands by says, by the name of its file.
using Notices = std::map<std::string, std::string>;

/// Whether one has said something new since `then`. Files of those that were killed stay, and say nothing new.
bool SaysSomethingNew(const Notices& then, const Notices& now);

}  // namespace holdfast
