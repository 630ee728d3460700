#include "tools/cli/run_record.h"

#include <fstream>
#include <optional>
#include <string>
#include <variant>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/manifest.h"
#include "elastic/coordinator/coordinator_state.h"
#include "elastic/coordinator/event_json.h"
#include "elastic/coordinator/event_text.h"
#include "elastic/coordinator/run_tally.h"
#include "elastic/sweep/sweep.h"
#include "framework/base/branch.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/config/load.h"
#include "framework/metrics/run_lock.h"
#include "models/families/families.h"

namespace holdfast {
namespace {

bool IsEnd(const RunEvent& event) {
  return std::holds_alternative<event::RunFinished>(event) || std::holds_alternative<event::RunStopped>(event) ||
         std::holds_alternative<event::RunFailed>(event);
}

/// Each line of events.jsonl that is one, in order.
void ForEachEvent(const RunDirectory& directory, absl::FunctionRef<void(const RecordedEvent&)> visit) {
  std::ifstream events = OpenToRead(directory.events());
  for (std::string line; std::getline(events, line);) {
    if (const std::optional<RecordedEvent> recorded = ReadEventLine(line); recorded.has_value()) visit(*recorded);
  }
}

/// What was lost in all lives of the run, as its coordinator counts it: up to the last event.
void AddLosses(const RunDirectory& directory, RunFigures* figures) {
  RunTally tally;
  double time = 0;
  ForEachEvent(directory, [&](const RecordedEvent& recorded) {
    time = recorded.time;
    if (recorded.event.has_value()) tally.OnEvent(time, *recorded.event);
  });
  const RunFigures counted = tally.Figures(time, /*now=*/{}, /*world_size=*/0, /*wanted_workers=*/0);
  figures->workers_lost = counted.workers_lost;
  figures->lost_seconds = counted.lost_seconds;
}

/// "; paused, retrying: CAUSE" if the run waits for what can be mended from outside, a full disk say; else "".
std::string PauseText(const RunDirectory& directory) {
  std::string text;
  ForEachEvent(directory, [&](const RecordedEvent& recorded) {
    const RunEvent* event = recorded.event.has_value() ? &*recorded.event : nullptr;
    if (std::get_if<event::Paused>(event) != nullptr) {
      text = absl::StrCat("; ", EventText(*event));
    } else if (std::get_if<event::Resumed>(event) != nullptr || std::get_if<event::RunStarted>(event) != nullptr ||
               (event != nullptr && IsEnd(*event))) {  // it may have been stopped meanwhile, and is started again
      text.clear();
    }
  });
  return text;
}

/// Without state and detail.
absl::StatusOr<RunStatus> Recorded(const RunDirectory& directory) {
  ASSIGN_OR_RETURN(const Config config, ReadRunConfig(directory));
  RunStatus status;
  AddLosses(directory, &status.figures);
  status.total_steps = config.train.steps;
  status.figures.run = config.run.name;
  status.figures.wanted_workers = config.elastic.workers;
  ASSIGN_OR_RETURN(const std::optional<StepMetrics> last, directory.ReadLastMetrics());
  if (!last.has_value()) return status;
  status.generation = static_cast<uint64_t>(last->generation);
  status.world_size = static_cast<int>(last->world_size);
  status.committed_step = last->step;
  status.figures.loss = static_cast<double>(last->loss);
  status.figures.tokens = last->tokens;
  status.figures.tokens_per_second = last->tokens_per_second;
  if (last->step_seconds > 0) status.figures.steps_per_second = 1 / last->step_seconds;
  return status;
}

std::string HowToResume(const RunEnding& ending) {
  return absl::StrCat("no process leads it any more; ",
                      ending.checkpoint > 0 ? absl::StrCat("its newest checkpoint is of step ", ending.checkpoint)
                                            : "it has written no checkpoint",
                      "; the command that started it resumes it");
}

/// The run has gone back behind it. Events need not say so: they are not synced.
bool IsGivenUp(const event::CheckpointSaved& saved, const Branch& branch) {
  const std::optional<CheckpointName> name = CheckpointName::Parse(saved.name);
  return name.has_value() && !branch.Includes(name->generation, name->step);
}

}  // namespace

RunEnding ReadEnding(const RunDirectory& directory, int64_t recorded_step) {
  RunEnding ending;
  const Branch branch = ReadCoordinatorState(directory).value_or(CoordinatorState()).branch;
  ForEachEvent(directory, [&](const RecordedEvent& recorded) {
    const RunEvent* event = recorded.event.has_value() ? &*recorded.event : nullptr;
    if (std::get_if<event::AlertFailed>(event) != nullptr) return;  // may come after the end
    ending.event = event != nullptr && IsEnd(*event) ? recorded.event : std::nullopt;
    if (const auto* started = std::get_if<event::RunStarted>(event)) {
      ending.data_tokens = started->data_tokens;
      ending.data_digest = started->data_digest;
    } else if (const auto* validation = std::get_if<event::Validation>(event)) {
      ending.validation = {.step = validation->step, .loss = validation->loss};
    } else if (const auto* saved = std::get_if<event::CheckpointSaved>(event)) {
      if (saved->step <= recorded_step && !IsGivenUp(*saved, branch)) ending.checkpoint = saved->step;
    } else if (const auto* rewind = std::get_if<event::Rewind>(event)) {
      ending.checkpoint = rewind->step;
    }
  });
  return ending;
}

absl::StatusOr<Config> ReadRunConfig(const RunDirectory& directory) {
  return LoadStoredConfig(directory.config(), FamilyPresets());
}

absl::StatusOr<RunStatus> StatusAtTheEnd(const RunDirectory& directory) {
  ASSIGN_OR_RETURN(RunStatus status, Recorded(directory));
  const bool has_record = status.committed_step > 0;  // without one, what is saved counts
  const RunEnding ending = has_record ? ReadEnding(directory, status.committed_step) : ReadEnding(directory);
  status.state = ending.event.has_value() ? RunState::kEnded : RunState::kNotRunning;
  status.detail = ending.event.has_value() ? EventText(*ending.event) : HowToResume(ending);
  return status;
}

absl::StatusOr<RunStatus> StatusByRecord(const RunDirectory& directory) {
  ASSIGN_OR_RETURN(const Config config, ReadRunConfig(directory));
  const std::string owner = RunLock::Read(directory).value_or(LockText()).Name();
  if (config.elastic.workers > 1 && config.parallel.transport != Transport::kMpi) {
    return absl::UnavailableError(
        absl::StrCat("the run in ", directory.root(), " is alive, but ", owner, ", who leads it, does not listen yet"));
  }
  ASSIGN_OR_RETURN(RunStatus status, Recorded(directory));
  status.state = RunState::kTraining;
  status.detail = absl::StrCat("in ", owner, PauseText(directory), "; figures as last recorded");
  return status;
}

absl::Status ExplainSweep(const absl::Status& status, const std::string& directory) {
  const SweepPlace sweep{.directory = directory};
  if (!absl::IsNotFound(status) || !HoldsSweep(sweep)) return status;
  return absl::NotFoundError(absl::StrCat(directory,
                                          " holds a sweep, not a run: name the directory of one of its runs, ",
                                          "which results.csv in it lists"));
}

}  // namespace holdfast
