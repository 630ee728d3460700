#pragma once
// Coordinators of one run, of which one leads and the others wait for their turn (elastic/lease/lease.h).
//
// Example:
//   ASSIGN_OR_RETURN(const Turn turn, WaitForTurn(std::move(lease), options, stop.token(), report));
//   if (turn.lead == nullptr) return turn.exit_code.value_or(128 + stop.received());
//   ...PrepareRun(config, directory, layout, options, turn.lead)...

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "elastic/lease/lease.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// A lease that is held: that its owner is there is said from the start to the end of this, five times in its
/// duration; with a duration of 0 nothing is said, and nobody takes it away. Thread-safe.
class Lead {
 public:
  Lead(std::unique_ptr<Lease> lease, std::chrono::milliseconds duration);
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

  /// Lease::Check
  absl::Status Check() const { return lease_->Check(); }
  /// Where this coordinator is reached, for those that look for it in the lease.
  void ListensAt(const std::string& address);
  /// Lease::UndoTake
  void UndoTake() { lease_->UndoTake(); }
  /// The last that is said: the run has ended, and nobody is to take it over.
  void EndsWith(int exit_code, const std::string& reason);

 private:
  void Beat(const std::stop_token& stop);

  const std::unique_ptr<Lease> lease_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool has_news_ = false;  // under mutex_: something to say now
  std::jthread beats_;     // last: it uses everything above
};

/// What has become of waiting.
struct Turn {
  std::shared_ptr<Lead> lead{};    // null: there is nothing to lead
  std::string from{};              // who led before, and what became of it; empty if there was nobody to wait for
  std::optional<int> exit_code{};  // of the run, if it has ended; absent without a lead: asked to stop
  std::string reason{};            // why it has ended
};

struct TurnOptions {
  RunDirectory directory;                            // where it is said who waits
  std::chrono::milliseconds lease;                   // its duration
  bool has_led = false;                              // this process, the same run
  std::function<absl::Status()> may_lead = nullptr;  // whether this process could, asked before it takes the lead
};

/// Waits until nobody leads the run any more, or who does is silent for the lease, or the run has ended. Who finds that
/// nobody leads is to begin the run, or resume it, unless it has led it before. The one that leads sees meanwhile that
/// somebody stands by (SomebodyStandsBy). `report` is told who leads. Errors are returned if the first look meets them,
/// and waited out later. FailedPrecondition if there is nothing to wait for (Lease::Look), or if the run cannot be led
/// from here (Lease::Take). While `may_lead` says no, nothing is taken from anybody; who begins the run ends with that.
absl::StatusOr<Turn> WaitForTurn(std::unique_ptr<Lease> lease, const TurnOptions& options, const std::stop_token& stop,
                                 const std::function<void(const std::string&)>& report);

/// Whether somebody waits in WaitForTurn now, and still does in half a second: who is told to end at the same time does
/// not. Takes until one says so then, at most another second.
bool SomebodyStandsBy(const RunDirectory& directory);

/// For who begins no run after all: what waiting and taking the lead have made is gone, where the directory holds no
/// run. It stays if somebody waits, also one that is frozen: for whom a lock that is gone is a run that was removed.
/// `lead` may be null.
void LeaveNothing(const RunDirectory& directory, Lead* lead);

}  // namespace holdfast
