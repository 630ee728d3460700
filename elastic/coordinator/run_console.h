#pragma once
// What a run says on the console: one line per logged step, its events in words, a live progress bar on a terminal.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "elastic/coordinator/run_observer.h"
#include "framework/base/rare_log.h"
#include "framework/metrics/progress.h"

namespace holdfast {

/// Thread-safety: none.
class RunConsole final : public RunObserver {
 public:
  /// `show_memory`: this process does the work, so its memory is worth a look.
  RunConsole(int64_t total_steps, int64_t every_steps, bool show_memory);

  /// "step  120/2000  loss 2.3456  grad norm 1.234  lr 3.00e-04  12.3K tokens/s", and behind it the model's figures,
  /// what was exchanged, the memory and the MFU, as far as there are any.
  void OnStep(const StepMetrics& step) override;
  /// Of checkpoints that fail one after another, for one cause, tells the first, and then one in a minute to an hour.
  void OnEvent(const RunEvent& event) override;
  /// Shows how far a checkpoint is loaded; clears the progress bar at the end.
  void OnStatus(const RunStatus& status) override;
  void Line(const std::string& text);

 private:
  /// What is to be told of it, if anything is.
  std::optional<std::string> OnFailedCheckpoint(const event::CheckpointFailed& failed);
  void ShowLoading(const LoadProgress& loading);
  void EndLoading();

  int64_t total_steps_, every_steps_;
  bool show_memory_;
  Progress progress_;
  std::optional<Progress> loading_;
  int64_t loading_total_ = 0;
  RareLog failed_checkpoints_{std::chrono::minutes(1), RareLog::Time(0), std::chrono::hours(1)};
  std::string failed_for_;  // the last cause, without its numbers
};

/// Peak resident memory of this process in bytes.
int64_t PeakResidentBytes();

}  // namespace holdfast
