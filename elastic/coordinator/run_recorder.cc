#include "elastic/coordinator/run_recorder.h"

#include <bit>
#include <optional>
#include <utility>

#include "elastic/control/ballot.h"
#include "framework/base/files.h"
#include "framework/base/seconds.h"
#include "framework/base/status.h"

namespace holdfast {
absl::StatusOr<std::unique_ptr<RunRecorder>> RunRecorder::Open(const Config& config, const RunDirectory& directory,
                                                               FlopsPerToken flops_per_token, int64_t last_step) {
  ASSIGN_OR_RETURN(JsonLinesWriter metrics, JsonLinesWriter::Open(directory.metrics()));
  ASSIGN_OR_RETURN(JsonLinesWriter state, JsonLinesWriter::Open(directory.coordinator_state()));
  RETURN_IF_ERROR(SyncDirectory(directory.root()));
  return std::unique_ptr<RunRecorder>(
      new RunRecorder(config, directory, std::move(flops_per_token), std::move(metrics), std::move(state), last_step));
}

absl::StatusOr<StepMetrics> RunRecorder::Record(const RecordAction& step) {
  if (step.step != last_step_ + 1) {
    return absl::InternalError(absl::StrCat(directory_.metrics(), " ends with step ", last_step_, ", so step ",
                                            step.step, " cannot be recorded: start the run again"));
  }
  RETURN_IF_ERROR(metrics_.KeepInPlace());  // what it says so far is read by its name
  if (!tokens_.has_value()) {
    ASSIGN_OR_RETURN(tokens_, RecordedTokens());
  }
  const auto now = std::chrono::steady_clock::now();
  const int64_t step_tokens = config_.batch.step_tokens();
  StepMetrics m;
  m.step = step.step;
  m.loss = std::bit_cast<float>(step.loss_bits);
  m.grad_norm = std::bit_cast<float>(step.grad_norm_bits);
  m.lr = step.lr;
  m.validation = step.validation;
  m.figures = step.figures;
  m.tokens = *tokens_ + step_tokens;
  m.world_size = step.world_size;
  m.checkpoint_stall_seconds = step.stall_seconds;
  m.exchanged = step.exchanged;
  m.generation = static_cast<int64_t>(step.generation);
  m.step_seconds = std::chrono::duration<double>(now - last_commit_).count();
  m.tokens_per_second = static_cast<double>(step_tokens) / m.step_seconds;
  if (flops_per_token_ != nullptr) {
    m.mfu = ModelFlopsUtilisation(flops_per_token_(step.figures), m.tokens_per_second, step.peak_flops);
  }
  m.time = SecondsSinceEpoch();
  if (!step.digests.empty()) m.state_digest = StateDigest(step.digests);
  RETURN_IF_ERROR(metrics_.WriteDurably(m.ToJson()));
  last_commit_ = now;
  last_step_ = m.step;
  tokens_ = m.tokens;
  return m;
}

absl::Status RunRecorder::Persist(const CoordinatorState& state) {
  RETURN_IF_ERROR(state_.KeepInPlace());
  return state_.WriteDurably(CoordinatorStateLine(state));
}

// Steps may have been made of other numbers of tokens than those to come.
absl::StatusOr<int64_t> RunRecorder::RecordedTokens() const {
  ASSIGN_OR_RETURN(const std::optional<StepMetrics> last, directory_.ReadLastMetrics());
  if (last.has_value() && last->step == last_step_) return last->tokens;
  return last_step_ * config_.batch.step_tokens();
}

absl::Status RunRecorder::Rewind(int64_t step) {
  tokens_.reset();
  RETURN_IF_ERROR(metrics_.KeepInPlace());  // where to cut it off as well
  ASSIGN_OR_RETURN(const int64_t end, directory_.MetricsEnd(step));
  RETURN_IF_ERROR(metrics_.CutTo(end));
  last_step_ = step;
  return absl::OkStatus();
}

}  // namespace holdfast
