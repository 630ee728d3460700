#pragma once
// The record of a run, which decides what is committed: one line of metrics.jsonl for each committed step, and
// coordinator.json. What a run leaves for people besides (events.jsonl, the console) its observers write
// (run_observer.h).

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "elastic/control/coordinator.h"
#include "elastic/coordinator/coordinator_state.h"
#include "framework/config/config.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// What model FLOPs utilisation counts for a token of a step of which the model says this.
using FlopsPerToken = std::function<double(const std::vector<Figure>& figures)>;

/// Thread-safety: none.
class RunRecorder {
 public:
  /// Appends to the files of `directory`. `config` and `directory` must outlive the recorder. Without
  /// `flops_per_token` there is no utilisation. `last_step`: that is recorded there; 0 = none.
  static absl::StatusOr<std::unique_ptr<RunRecorder>> Open(const Config& config, const RunDirectory& directory,
                                                           FlopsPerToken flops_per_token, int64_t last_step = 0);

  /// Durable when it returns; what the line says. Internal, and nothing is written, if it is not the step after the
  /// last one. Nothing is written either where nobody would find it (JsonLinesWriter::KeepInPlace): somebody has moved
  /// the file or cut it off, or another coordinator has put a copy in its place.
  absl::StatusOr<StepMetrics> Record(const RecordAction& step);
  /// Durable when it returns; else as above.
  absl::Status Persist(const CoordinatorState& state);
  /// The run resumes after `step`; what was recorded of later ones is gone. DataLoss if steps up to it are missing; and
  /// nothing is cut off where nothing would be written.
  absl::Status Rewind(int64_t step);

  int64_t last_step() const { return last_step_; }

 private:
  RunRecorder(const Config& config, const RunDirectory& directory, FlopsPerToken flops_per_token,
              JsonLinesWriter metrics, JsonLinesWriter state, int64_t last_step)
      : config_(config),
        directory_(directory),
        flops_per_token_(std::move(flops_per_token)),
        metrics_(std::move(metrics)),
        state_(std::move(state)),
        last_step_(last_step) {}
  /// Of the steps up to last_step_: as its line says, or as many as they have now if there is none.
  absl::StatusOr<int64_t> RecordedTokens() const;

  const Config& config_;
  const RunDirectory& directory_;
  FlopsPerToken flops_per_token_;
  JsonLinesWriter metrics_, state_;
  std::chrono::steady_clock::time_point last_commit_ = std::chrono::steady_clock::now();
  int64_t last_step_;
  std::optional<int64_t> tokens_;  // of the steps up to it; absent until it is needed
};

}  // namespace holdfast
