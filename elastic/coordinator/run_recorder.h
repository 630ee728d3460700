#pragma once
// What a run leaves for people: one line of metrics.jsonl for each committed step, events.jsonl, and the console.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "elastic/control/coordinator.h"
#include "elastic/coordinator/coordinator_state.h"
#include "elastic/coordinator/run_console.h"
#include "framework/config/config.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// Thread-safety: none.
class RunRecorder {
 public:
  /// Appends to the files of `directory`. `config` and `directory` must outlive the recorder. `flops_per_token`: what
  /// model FLOPs utilisation counts. `last_step`: that is recorded there; 0 = none.
  static absl::StatusOr<std::unique_ptr<RunRecorder>> Open(const Config& config, const RunDirectory& directory,
                                                           double flops_per_token, int64_t last_step = 0);

  /// Durable when it returns. Internal, and nothing is written, if it is not the step after the last one.
  absl::Status Record(const RecordAction& step);
  /// Durable when it returns.
  absl::Status Persist(const CoordinatorState& state) { return state_.WriteDurably(CoordinatorStateLine(state)); }
  /// An event that cannot be written is missing in events.jsonl, and said to be on the console: no reason to stop.
  void Report(const RunEvent& event);
  /// The run goes on after `step`; what was recorded of later ones is gone. DataLoss if steps up to it are missing.
  absl::Status Rewind(int64_t step);
  /// A checkpoint is being loaded.
  void Loading(double done_bytes, double total_bytes) { console_.Loading(done_bytes, total_bytes); }
  /// Clears the progress bar.
  void Finish() { console_.Finish(); }

  std::optional<double> validation_loss() const { return validation_loss_; }
  int64_t last_step() const { return last_step_; }

 private:
  RunRecorder(const Config& config, const RunDirectory& directory, double flops_per_token, JsonLinesWriter metrics,
              JsonLinesWriter events, JsonLinesWriter state, int64_t last_step)
      : config_(config),
        directory_(directory),
        flops_per_token_(flops_per_token),
        metrics_(std::move(metrics)),
        events_(std::move(events)),
        state_(std::move(state)),
        console_(config.train.steps, config.log.every_steps, /*show_memory=*/config.elastic.workers == 1),
        last_step_(last_step) {}

  const Config& config_;
  const RunDirectory& directory_;
  double flops_per_token_;
  JsonLinesWriter metrics_, events_, state_;
  RunConsole console_;
  std::chrono::steady_clock::time_point last_commit_ = std::chrono::steady_clock::now();
  std::optional<double> validation_loss_;
  int64_t last_step_;
  bool events_are_lost_ = false;
};

}  // namespace holdfast
