#pragma once
// What the coordinators of one run know of each other. The one that leads holds the run's lock and says in it that it
// is there (framework/metrics/run_lock.h); each that stands by says so in a file of its own. Pure: time and texts are
// given.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "elastic/control/coordinator.h"
#include "framework/metrics/run_lock.h"

namespace holdfast {

/// What the one that leads says in the lock, in one line.
struct LeaderWords {
  uint64_t beat = 0;               // another each time
  std::optional<int> exit_code{};  // of the run, once it has ended; nobody is to lead it any more
  std::string reason{};            // why it has

  std::string Line() const;
  /// Absent if it is none, or not whole: whoever holds the lock does not beat.
  static std::optional<LeaderWords> Read(const std::string& line);
};

/// Whether the one that leads is silent. Not to be asked of an owner that has never beaten: a process that trains alone
/// holds the lock, too, and says nothing. Thread-safety: none.
class LeaderWatch {
 public:
  explicit LeaderWatch(Instant lease) : lease_(lease) {}

  /// This was read at `now`. True if it beats, and has said nothing new for the lease, in which we looked all the time:
  /// time in which this process itself was frozen, or could read nothing, says nothing of another.
  bool IsSilent(Instant now, const LockText& text);
  /// The lock could not be read.
  void CouldNotLook() { looked_.reset(); }

 private:
  const Instant lease_;
  LockText text_;
  Instant since_{0};               // that it says so
  std::optional<Instant> looked_;  // the last time
};

/// What each that stands by says, by the name of its file.
using Notices = std::map<std::string, std::string>;

/// Whether one has said something new since `then`. Files of those that were killed stay, and say nothing new.
bool SaysSomethingNew(const Notices& then, const Notices& now);

}  // namespace holdfast
