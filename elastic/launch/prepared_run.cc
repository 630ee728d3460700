#include "elastic/launch/prepared_run.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/model_directory.h"
#include "checkpoint/place/checkpoint_place.h"
#include "elastic/control/checkpoint_schedule.h"
#include "elastic/control/run_event.h"
#include "elastic/coordinator/event_json.h"
#include "elastic/coordinator/run_alerts.h"
#include "elastic/coordinator/run_id.h"
#include "elastic/launch/resume_check.h"
#include "elastic/lease/directory_lease.h"
#include "framework/base/counted.h"
#include "framework/base/log.h"
#include "framework/base/seconds.h"
#include "framework/base/status.h"
#include "framework/config/load.h"
#include "framework/metrics/run_lock.h"
#include "framework/optim/optimizer.h"
#include "models/experts.h"
#include "models/families/families.h"
#include "models/runtime/initial_weights.h"
#include "models/runtime/trained_parameters.h"

namespace holdfast {
namespace {

absl::Status CannotGoOn(const RunDirectory& directory, const CoordinatorHistory& history, const Catalog& catalog) {
  std::string why;
  for (const RejectedCheckpoint& rejected : catalog.rejected) {
    absl::StrAppend(&why, "; ", rejected.name, ": ", rejected.reason);
  }
  for (const CatalogEntry& entry : catalog.valid) {
    absl::StrAppend(&why, "; ", entry.manifest.name.ToString(), ": not of the steps that ", directory.metrics(),
                    " has");
  }
  return absl::AlreadyExistsError(absl::StrCat(directory.root(), " holds a run that ",
                                               history.finished ? "is done, up to step " : "was stopped after step ",
                                               history.recorded_step, ", and has no checkpoint to resume from", why,
                                               ": choose another --run-dir, or pass --overwrite to start a new run"));
}

bool HasCheckpointsElsewhere(const CheckpointConfig& config, const Catalog& found) {
  const auto exists = [](const RejectedCheckpoint& rejected) { return !rejected.unfinished; };
  return !config.directory.empty() &&
         (!found.valid.empty() || std::any_of(found.rejected.begin(), found.rejected.end(), exists));
}

/// The one that --resume names.
std::optional<int64_t> StepOf(const PrepareOptions& options) {
  int64_t step = 0;
  return absl::SimpleAtoi(options.resume, &step) ? std::optional(step) : std::nullopt;
}

absl::Status NoCheckpointOf(int64_t step, const std::string& place) {
  return absl::NotFoundError(absl::StrCat("there is no checkpoint of step ", step, " in ", place,
                                          " that the run can resume from; `holdfast ckpt list` shows which there are"));
}

std::string PlaceOfCheckpoints(const Config& config, const RunDirectory& directory) {
  return config.checkpoint.directory.empty() ? directory.checkpoints() : config.checkpoint.directory;
}

/// A run that began with a checkpoint beyond its end would never come to it.
absl::Status CheckStep(const Config& config, const CheckpointChoice& first) {
  if (first.step <= config.train.steps) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the run would begin with checkpoint ", first.name, ", of step ", first.step,
                   ", and train.steps is ", config.train.steps, ": raise ", config.train.length_key(),
                   ", name an earlier one with --resume STEP, or choose another ", "checkpoint.directory"));
}

std::vector<StoredTensor> TensorsOf(const Config& config, const ParameterLayout& layout) {
  return StoredTensorsOf(LayoutOf(*MakeOptimizer(config.optimizer), layout));
}

const Manifest& ManifestOf(const Catalog& found, const CheckpointChoice& choice) {
  const auto entry = std::find_if(found.valid.begin(), found.valid.end(), [&](const CatalogEntry& each) {
    return each.manifest.name.ToString() == choice.name;
  });
  return entry->manifest;
}

/// Whether the run, as it is configured now, can resume from the checkpoint.
absl::Status CheckFits(const Config& config, const std::vector<StoredTensor>& tensors, const Catalog& found,
                       const CheckpointChoice& choice) {
  RETURN_IF_ERROR(CheckStep(config, choice));
  const Manifest& manifest = ManifestOf(found, choice);
  RETURN_IF_ERROR(CheckImported(config, manifest));
  RETURN_IF_ERROR(CheckFrozenWeights(config, manifest));
  RETURN_IF_ERROR(CheckSameModel(config, manifest, tensors));
  return CheckOptimizer(config, manifest, tensors);
}

/// What was done after a checkpoint, or the run before it, is given up only for one that is whole.
absl::Status CheckWhole(const CheckpointVerifiedEvent& read) {
  if (read.cause.empty()) return absl::OkStatus();
  const std::string message =
      absl::StrCat("checkpoint ", read.name, read.damaged ? " is damaged (" : " cannot be read (", read.cause,
                   "), so nothing was given up for it: choose another --resume STEP, or --resume auto");
  return read.damaged ? absl::DataLossError(message) : absl::UnavailableError(message);
}

/// A place that several runs may name is not ours to empty. The checkpoint to begin with, if one is named, is there,
/// can be begun with, and stays when the old run goes.
absl::Status CheckPlace(const Config& config, const RunDirectory& directory, const std::vector<StoredTensor>& tensors,
                        const PrepareOptions& options) {
  const std::optional<int64_t> step = StepOf(options);
  const std::string place = PlaceOfCheckpoints(config, directory);
  const bool resumes = step.has_value() || options.resume == "auto";
  if (resumes && directory.HoldsRun() && directory.IsRemovedWithOldRun(place)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--overwrite removes the checkpoints in ", place, ", so there is none ",
                     step.has_value() ? absl::StrCat("of step ", *step, " ") : "", "to resume from: leave --overwrite ",
                     step.has_value() ? "out to go back to that step" : "out to resume the run"));
  }
  if (config.checkpoint.directory.empty()) return step.has_value() ? NoCheckpointOf(*step, place) : absl::OkStatus();
  ASSIGN_OR_RETURN(const auto storage, OpenCheckpointStorage(config.checkpoint, directory.root(), options.stop));
  ASSIGN_OR_RETURN(const Catalog found, ScanCheckpoints(*storage));
  const std::vector<CheckpointChoice> choices = ChoicesOf(found);
  const auto check = [&](const CheckpointChoice& choice) {  // a run that keeps none begins with none
    return CheckpointSchedule(config.checkpoint).enabled() ? CheckFits(config, tensors, found, choice)
                                                           : CheckStep(config, choice);
  };
  if (step.has_value()) {
    const auto is_it = [&](const CheckpointChoice& choice) { return choice.step == *step; };
    const auto it = std::find_if(choices.begin(), choices.end(), is_it);
    if (it == choices.end()) return NoCheckpointOf(*step, storage->Describe());
    RETURN_IF_ERROR(check(*it));
    return options.overwrite ? CheckWhole(ReadWhole(*storage, it->name, tensors, config.checkpoint.threads))
                             : absl::OkStatus();
  }
  const bool told = options.overwrite ? !options.resume.empty() : options.resume != "never";
  if (told || !HasCheckpointsElsewhere(config.checkpoint, found)) {
    const bool resumes_newest = options.resume != "never" && !choices.empty();
    return resumes_newest ? check(choices.front()) : absl::OkStatus();
  }
  return absl::AlreadyExistsError(absl::StrCat(
      storage->Describe(), " holds checkpoints, which a new run would take over: choose another checkpoint.directory, ",
      "or pass --overwrite with --resume auto to resume from the newest, or with --resume never to ignore them"));
}

/// What the new run reads is not removed with the old one.
absl::Status CheckInputsStay(const Config& config, const RunDirectory& directory) {
  std::vector<std::pair<std::string, std::string>> inputs = {{"train.init_from", config.train.init_from},
                                                             {"lora.init_from", config.lora.init_from},
                                                             {"data.tokenizer", config.data.tokenizer},
                                                             {"train.gemm_table", config.train.gemm_table}};
  if (!config.train.init_from.empty()) inputs.emplace_back("train.init_from", config.train.init_from + "/model");
  for (const std::string& file : config.data.train) inputs.emplace_back("data.train", file);
  for (const std::string& file : config.data.validation) inputs.emplace_back("data.validation", file);
  for (const auto& [key, path] : inputs) {
    std::error_code error;
    if (path.empty() || !std::filesystem::exists(path, error) || !directory.IsRemovedWithOldRun(path)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(key, " reads ", path, ", which --overwrite would remove with the run ", "in ", directory.root(),
                     ": choose another --run-dir, or copy it elsewhere"));
  }
  return absl::OkStatus();
}

/// Of several that took over from a silent one, or if this process was frozen since, another one may have the run. To
/// be asked right before each change, for what comes before it may take long.
absl::Status StillOurs(const Lead& lead) {
  const absl::Status ours = lead.Check();
  return absl::IsFailedPrecondition(ours) ? absl::AbortedError(ours.message()) : ours;
}

/// Makes the directory one of a new run. The generations of the run that it held go on, so that its workers understand
/// ours. What can be checked is checked before that is removed.
absl::StatusOr<CoordinatorHistory> BeginRun(const Config& config, const RunDirectory& directory,
                                            const std::vector<StoredTensor>& tensors, const PrepareOptions& options,
                                            const PreparedRun& run) {
  RETURN_IF_ERROR(CheckPlace(config, directory, tensors, options));
  if (directory.HoldsRun()) RETURN_IF_ERROR(CheckInputsStay(config, directory));
  if (directory.HoldsRun() && options.overwrite) RETURN_IF_ERROR(ReadInitialWeights(config));
  RETURN_IF_ERROR(StillOurs(*run.lead));
  if (directory.HoldsRun()) RETURN_IF_ERROR(RunIdOf(directory).status());  // it is kept: too late to fail afterwards
  RETURN_IF_ERROR(directory.Create(options.overwrite));
  // Before anything else is made: it marks the directory as a run's.
  RETURN_IF_ERROR(directory.WriteConfig(PrintConfig(config)));
  CoordinatorHistory history;
  const absl::StatusOr<CoordinatorState> old = ReadCoordinatorState(directory);
  if (old.ok()) history.state = *old;  // else it is broken, which is why it is overwritten
  return history;
}

/// The run goes back to `step`.
absl::Status GoBack(const RunDirectory& directory, int64_t step, PreparedRun* run) {
  run->history.state.branch.GoBack({.generation = run->history.state.generation, .step = step});
  RETURN_IF_ERROR(StillOurs(*run->lead));
  RETURN_IF_ERROR(WriteCoordinatorState(directory, run->history.state));
  run->keeper->GoBack(run->history.state.branch);
  run->history.recorded_step = std::min(run->history.recorded_step, step);
  run->history.finished = false;
  RETURN_IF_ERROR(StillOurs(*run->lead));
  return directory.CutMetrics(run->history.recorded_step, [run] { return StillOurs(*run->lead); });
}

/// For whoever reads the events. As any other, one that cannot be written is lost.
void RecordRewind(const RunDirectory& directory, const event::Rewind& rewind) {
  const double now = SecondsSinceEpoch();
  absl::StatusOr<JsonLinesWriter> events = JsonLinesWriter::Open(directory.events());
  const absl::Status written = events.ok() ? events->Write(EventLine(now, rewind)) : events.status();
  if (!written.ok()) LogWarning("cannot write events: ", written.message());
}

/// Tells those to resume from and those that are not. One whose step was never recorded would leave a hole in the
/// record; that of a run which has recorded nothing begins with the first step after its checkpoint.
void FindUsable(const RunDirectory& directory, PreparedRun* run) {
  const int64_t recorded = run->history.recorded_step;
  for (const CheckpointChoice& choice : ChoicesOf(run->keeper->found())) {
    if (recorded == 0 || choice.step <= recorded) {
      run->usable.push_back(choice);
    } else {
      run->unrecorded.push_back(
          {.name = choice.name, .reason = absl::StrCat(directory.metrics(), " ends at step ", recorded)});
    }
  }
}

/// Whether the run, as it is configured now, can go on from the newest that is usable.
absl::Status CheckNewest(const Config& config, const std::vector<StoredTensor>& tensors, PreparedRun* run) {
  const Catalog& found = run->keeper->found();
  RETURN_IF_ERROR(CheckFits(config, tensors, found, run->usable.front()));
  const Manifest& newest = ManifestOf(found, run->usable.front());
  for (std::string& change : std::vector<std::string>{Differences(config, newest), ScheduleChange(config, newest),
                                                      DataChange(config, newest), ValidationChange(config, newest)}) {
    if (!change.empty()) run->warnings.push_back(std::move(change));
  }
  return absl::OkStatus();
}

/// Chooses the checkpoints that --resume allows, and gives up whatever was done after them.
absl::Status Choose(const Config& config, const RunDirectory& directory, const std::vector<StoredTensor>& tensors,
                    const PrepareOptions& options, PreparedRun* run) {
  const std::optional<int64_t> step = StepOf(options);
  bool gives_up = options.overwrite;
  if (options.resume == "never") {
    gives_up = gives_up || !run->keeper->found().valid.empty();
  } else {
    FindUsable(directory, run);
  }
  int64_t from_step = run->history.recorded_step;
  run->step_is_named = step.has_value();
  if (step.has_value()) {
    if (!run->usable.empty()) from_step = std::max(from_step, run->usable.front().step);
    const auto is_later = [&](const CheckpointChoice& c) { return c.step > *step; };
    gives_up = gives_up || run->history.recorded_step > *step || std::erase_if(run->usable, is_later) > 0;
    std::erase_if(run->usable, [&](const CheckpointChoice& c) { return c.step != *step; });
    if (run->usable.empty()) return NoCheckpointOf(*step, run->keeper->storage().Describe());
  }
  if (!run->usable.empty()) {
    RETURN_IF_ERROR(CheckNewest(config, tensors, run));
    if (run->history.recorded_step == 0 && run->history.has_saved) {
      run->warnings.push_back(absl::StrCat(
          directory.metrics(), " has no step of this run, which has saved checkpoints: the record begins after step ",
          run->usable.front().step));
    }
  }
  if (step.has_value() && gives_up && !options.overwrite) {  // else it was read before the old run was removed
    RETURN_IF_ERROR(CheckWhole(run->keeper->Read(run->usable.front().name)));
  }
  if (!gives_up) return absl::OkStatus();
  RETURN_IF_ERROR(GoBack(directory, run->usable.empty() ? 0 : run->usable.front().step, run));
  if (step.has_value() && !options.overwrite) {
    RecordRewind(directory, {.from_step = from_step,
                             .step = *step,
                             .name = run->usable.front().name,
                             .reason = absl::StrCat("--resume ", *step)});
  }
  return absl::OkStatus();
}

absl::Status OpenCheckpoints(const Config& config, const RunDirectory& directory,
                             const std::vector<StoredTensor>& tensors, const PrepareOptions& options,
                             PreparedRun* run) {
  std::stop_source storage_stop;
  const std::stop_callback at_start(options.stop, [&] { storage_stop.request_stop(); });
  ASSIGN_OR_RETURN(std::unique_ptr<Storage> storage,
                   OpenCheckpointStorage(config.checkpoint, directory.root(), storage_stop.get_token()));
  // Asked right before they are claimed: from another one that leads by then nothing is taken.
  ASSIGN_OR_RETURN(run->keeper, CheckpointKeeper::Open(
                                    config, directory, std::move(storage), tensors, run->history.state,
                                    [lead = run->lead] { return StillOurs(*lead); }, storage_stop));
  run->history.state = run->keeper->state();
  RETURN_IF_ERROR(StillOurs(*run->lead));
  RETURN_IF_ERROR(WriteCoordinatorState(directory, run->history.state));
  RETURN_IF_ERROR(Choose(config, directory, tensors, options, run));
  if (!run->usable.empty() || run->history.recorded_step == 0) return absl::OkStatus();
  if (options.workers_are_new) {
    // Before its first checkpoint nothing is lost by beginning anew: the bits will be the same. A run that is done may
    // have had none, and another config. That one was saved may be known by the checkpoint alone: events are not
    // synced.
    const auto& rejected = run->keeper->found().rejected;
    const bool is_damaged = std::any_of(rejected.begin(), rejected.end(), [](const RejectedCheckpoint& checkpoint) {
      return !checkpoint.unfinished && !checkpoint.given_up;
    });
    const bool began = CheckpointSchedule(config.checkpoint).enabled() && !run->history.has_saved &&
                       !run->history.finished && !is_damaged;
    if (!began) return CannotGoOn(directory, run->history, run->keeper->found());
    RETURN_IF_ERROR(GoBack(directory, 0, run));
    run->warnings = {"the run has saved no checkpoint: starting from step 0"};
    return absl::OkStatus();
  }
  const std::string changes = ChangesToWorkers(config, directory);
  if (!changes.empty()) {
    run->warnings = {
        absl::StrCat("the run has no checkpoint to resume from, and this is not the config that it had last (", changes,
                     "): workers that have that one are refused, and the state they hold with them")};
  }
  return absl::OkStatus();
}

absl::StatusOr<PreparedRun> PrepareLed(std::shared_ptr<Lead> lead, const Config& config, const RunDirectory& directory,
                                       const ParameterLayout& layout, const PrepareOptions& options) {
  PreparedRun run{.lead = std::move(lead), .history = {}, .keeper = nullptr, .usable = {}, .warnings = {}};
  run.leader = RunLock::Read(directory).value_or(LockText()).owner;
  RETURN_IF_ERROR(CheckAlerts(config.alerts));
  RETURN_IF_ERROR(directory.TakeOver([&run] { return StillOurs(*run.lead); }));
  const std::vector<StoredTensor> tensors = TensorsOf(config, layout);
  const bool goes_on = directory.HoldsRun() && !options.overwrite && options.resume != "never";
  if (goes_on) {
    ASSIGN_OR_RETURN(run.history, ReadCoordinatorHistory(directory));
    ASSIGN_OR_RETURN(run.history.run, RunIdOf(directory));
    const std::optional<int64_t> step = StepOf(options);
    const bool goes_back = step.has_value() && *step < run.history.recorded_step;
    if (!goes_back && IsDone(config, run.history)) {
      if (!options.workers_are_new) return run;  // somebody may not have heard of it
      if (step.has_value() && *step > run.history.recorded_step) {
        return NoCheckpointOf(*step, PlaceOfCheckpoints(config, directory));
      }
      const std::string changes = ChangesToWorkers(config, directory);
      const std::string replace = ": choose another --run-dir, or pass --overwrite to replace it";
      if (!changes.empty()) {
        return absl::AlreadyExistsError(
            absl::StrCat(directory.root(), " holds a run of another config (", changes, ") that is done", replace));
      }
      return absl::AlreadyExistsError(absl::StrCat(
          directory.root(), " holds a run that is done", replace, ", or raise ",
          run.history.recorded_step < config.train.steps ? "train.early_stop_patience" : config.train.length_key(),
          " to resume it"));
    }
    if ((goes_back ? *step : run.history.recorded_step) > config.train.steps) {
      return absl::FailedPreconditionError(
          absl::StrCat(directory.root(), " holds a run with ", Counted(run.history.recorded_step, "step"),
                       " recorded, and train.steps is ", config.train.steps, ": raise ", config.train.length_key(),
                       run.history.has_saved ? ", or go back to a step with --resume STEP"
                                             : ", or pass --overwrite to start a new run"));
    }
    // At its end it could not save its adapters (SaveAdapterFiles).
    if (config.lora.rank > 0 && HoldsConfigAndWeights(directory.model())) {
      return absl::AlreadyExistsError(absl::StrCat(directory.model(), " holds a model, and the run saves its adapters ",
                                                   "there: move the model elsewhere"));
    }
    RETURN_IF_ERROR(StillOurs(*run.lead));
    RETURN_IF_ERROR(directory.CutMetrics(run.history.recorded_step, [&run] { return StillOurs(*run.lead); }));
  } else {
    ASSIGN_OR_RETURN(run.history, BeginRun(config, directory, tensors, options, run));
    ASSIGN_OR_RETURN(run.history.run, RunIdOf(directory));
  }
  run.history.workers_are_new = options.workers_are_new;
  run.history.used_cells = UsedCells(layout);
  if (goes_on || CheckpointSchedule(config.checkpoint).enabled()) {
    RETURN_IF_ERROR(OpenCheckpoints(config, directory, tensors, options, &run));
  }
  if (!goes_on) return run;
  RETURN_IF_ERROR(StillOurs(*run.lead));
  RETURN_IF_ERROR(directory.WriteConfig(PrintConfig(config)));
  return run;
}

}  // namespace

absl::StatusOr<PreparedRun> PrepareRun(const Config& config, const RunDirectory& directory,
                                       const ParameterLayout& layout, const PrepareOptions& options,
                                       std::shared_ptr<Lead> lead) {
  if (lead != nullptr) return PrepareLed(std::move(lead), config, directory, layout, options);
  auto lease = std::make_unique<DirectoryLease>(directory);
  RETURN_IF_ERROR(lease->Take({}, /*begins=*/true));
  lead = std::make_shared<Lead>(std::move(lease), std::chrono::milliseconds(0));
  absl::StatusOr<PreparedRun> run = PrepareLed(lead, config, directory, layout, options);
  if (!run.ok() && !directory.HoldsRun()) lead->UndoTake();
  return run;
}

std::string ResumeText(const PreparedRun& run) {
  std::string text;
  const auto say = [&text](const RejectedCheckpoint& rejected) {
    absl::StrAppend(&text, "not used    ", rejected.name, ": ", rejected.reason, "\n");
  };
  std::for_each(run.unrecorded.begin(), run.unrecorded.end(), say);
  if (run.keeper != nullptr) {
    std::for_each(run.keeper->found().rejected.begin(), run.keeper->found().rejected.end(), say);
  }
  if (!run.usable.empty()) {
    absl::StrAppend(&text, "checkpoint  ", run.usable.front().name,
                    run.step_is_named ? ", of the step of --resume\n" : ", the newest that can be used\n");
  }
  if (run.keeper != nullptr && run.history.recorded_step > 0) {
    absl::StrAppend(&text, "resuming    after generation ", run.history.state.generation, "; ",
                    Counted(run.history.recorded_step, "step"), " recorded\n");
  }
  for (const std::string& warning : run.warnings) absl::StrAppend(&text, "warning: ", warning, "\n");
  return text;
}

RunStart StartOf(const Config& config, const PreparedRun& run, const DatasetSize& data) {
  const double whole = ModelFlopsPerToken(config.model, config.batch.sequence_length);
  const double trained = TrainedFlopsPerToken(config) / whole;  // about that part of what is dropped, too
  return {.history = run.history,
          .is_ours = [lead = run.lead] { return lead->Check(); },
          .flops_per_token =
              [&model = config.model, whole, trained](const std::vector<Figure>& figures) {
                return (whole - DroppedFlopsPerToken(model, figures)) * trained;
              },
          .keeper = run.keeper.get(),
          .usable = run.usable,
          .leader = run.leader,
          .data_tokens = data.samples * config.batch.sequence_length};
}

}  // namespace holdfast
