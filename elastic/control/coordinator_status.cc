#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "elastic/control/coordinator.h"
#include "framework/base/format_bytes.h"
#include "framework/base/join_first.h"

namespace holdfast {

std::optional<LoadProgress> Coordinator::LoadingNow() const {
  if (state_.checkpoint().empty() || !open_.has_value() || open_->recovered()) return std::nullopt;
  LoadProgress loading;
  for (const auto& [name, worker] : roster_.workers()) {
    if (worker.rank < 0) continue;
    loading.done_bytes += static_cast<double>(worker.beat.bytes_loaded);
    loading.total_bytes += static_cast<double>(worker.beat.bytes_to_load);
  }
  if (loading.total_bytes == 0) return std::nullopt;
  return loading;
}

RunStatus Coordinator::Status(Instant now) const {
  RunStatus status{.state = RunState::kEnded,
                   .detail = formation_.waiting_for(),
                   .generation = generation_,
                   .world_size = open_.has_value() ? open_->size() : 0,
                   .committed_step = committed_,
                   .total_steps = options_.total_steps,
                   .workers = {},
                   .loading = LoadingNow()};
  if (const EndMessage* end = end_.end(); end != nullptr) {
    status.detail = end->reason;
  } else if (!open_.has_value()) {
    status.state = formation_.missing_since().has_value() || state_.claimed() ? RunState::kRecovering
                                                                              : RunState::kWaitingForWorkers;
  } else if (!open_->recovered()) {
    status.state = RunState::kRecovering;
    status.detail = open_->reason;
    if (const auto& loading = status.loading) {
      absl::StrAppendFormat(&status.detail, ": %.0f%% of %s loaded", 100 * loading->done_bytes / loading->total_bytes,
                            FormatBytes(loading->total_bytes));
    }
  } else {
    status.state = Ending() ? RunState::kFinishing : RunState::kTraining;
    if (!open_->mirrored()) status.detail = "mirrors incomplete: another loss may mean going back to a checkpoint";
  }
  if (room_wait_.has_value() && !end_.over()) status.detail = absl::StrCat("paused, retrying: ", room_wait_->cause);
  std::vector<std::string> kept_out;
  for (const auto& [name, worker] : roster_.workers()) {
    if (worker.kept_out) kept_out.push_back(name);
    status.workers.push_back(
        {.id = worker.member.id,
         .rank = worker.rank,
         .node = worker.member.node,
         .host = worker.member.host,
         .pid = worker.member.pid,
         .step = worker.beat.step,
         .phase = worker.beat.phase,
         .seconds_since_heartbeat = std::chrono::duration<double>(now - worker.last_message).count(),
         .seconds_in_phase = std::chrono::duration<double>(now - worker.progressed).count(),
         .relative_compute_time = stragglers_.FactorOf(name),
         .microbatches = worker.rank < 0 ? 0 : open_->microbatches[static_cast<size_t>(worker.rank)]});
  }
  if (!kept_out.empty() && !end_.over()) {
    constexpr size_t kMaxNamed = 8;
    absl::StrAppend(&status.detail, status.detail.empty() ? "" : "; ",
                    "kept out, as most had other bits: ", JoinFirst(kept_out, kMaxNamed));
  }
  for (const auto& [connection, agent] : roster_.agents()) {
    if (!IsLeaving(agent.node)) status.nodes.push_back(agent.node);
  }
  const auto place = [](const WorkerStatus& w) { return std::pair(w.rank < 0, w.rank); };
  std::stable_sort(status.workers.begin(), status.workers.end(),
                   [&](const WorkerStatus& a, const WorkerStatus& b) { return place(a) < place(b); });
  return status;
}

}  // namespace holdfast
