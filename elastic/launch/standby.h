#pragma once
// Coordinators of one run, of which one leads and the others wait for their turn (elastic/coordinator/leader_watch.h).
//
// Example:
//   ASSIGN_OR_RETURN(const Turn turn, WaitForTurn(directory, lease, /*has_led=*/false, stop.token(), report));
//   if (turn.lead == nullptr) return turn.exit_code.value_or(128 + stop.received());
//   ...PrepareRun(config, directory, layout, options, turn.lead)...

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "elastic/coordinator/leader_watch.h"
#include "framework/metrics/run_directory.h"
#include "framework/metrics/run_lock.h"

namespace holdfast {

/// The run's lock, and that its holder is there: said from the start to the end of this, five times a lease; with a
/// lease of 0 nothing is said, and nobody takes it away. Thread-safe.
class Lead {
 public:
  Lead(RunLock lock, std::chrono::milliseconds lease);
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

  /// RunLock::Check
  absl::Status Check() const { return lock_.Check(); }
  /// The last that is said: the run has ended, and nobody is to take it over.
  void EndsWith(int exit_code, const std::string& reason);

 private:
  void Beat(const std::stop_token& stop);

  const RunLock lock_;
  const std::chrono::milliseconds interval_;
  std::jthread beats_;  // last: it uses everything above
};

/// What has become of waiting.
struct Turn {
  std::shared_ptr<Lead> lead{};    // null: there is nothing to lead
  std::string from{};              // who led before, and what became of it; empty if there was nobody to wait for
  std::optional<int> exit_code{};  // of the run, if it has ended; absent without a lead: asked to stop
  std::string reason{};            // why it has ended
};

/// Waits until nobody leads the run any more, or who does is silent for `lease`, or the run has ended. Who finds at
/// once that nobody leads is to begin the run, or resume it, unless it `has_led` it before. The one that leads sees
/// meanwhile that somebody stands by (SomebodyStandsBy). `report` hears who leads. Errors of the directory are returned
/// if the first look meets them, and waited out later. FailedPrecondition if the lock has been removed meanwhile, say
/// with the directory.
absl::StatusOr<Turn> WaitForTurn(const RunDirectory& directory, std::chrono::milliseconds lease, bool has_led,
                                 const std::stop_token& stop, const std::function<void(const std::string&)>& report);

/// Whether somebody waits in WaitForTurn now. Takes until one says so, at most a second.
bool SomebodyStandsBy(const RunDirectory& directory);

}  // namespace holdfast
