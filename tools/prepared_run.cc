#include "tools/prepared_run.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "elastic/control/checkpoint_schedule.h"
#include "elastic/coordinator/run_digests.h"
#include "framework/base/status.h"
#include "framework/config/decides.h"
#include "framework/config/load.h"
#include "framework/config/validate.h"
#include "framework/optim/optimizer.h"
#include "framework/storage/atomic_file.h"
#include "models/families/families.h"
#include "tools/checkpoint_storage.h"

namespace holdfast {
namespace {

/// "section.key" -> "value", of a printed config.
std::map<std::string, std::string> Values(const std::string& printed) {
  std::map<std::string, std::string> values;
  std::string section;
  for (const absl::string_view line : absl::StrSplit(printed, '\n')) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(": ", 1));
    if (!line.empty() && line[0] != ' ') section = std::string(line.substr(0, line.find(':')));
    if (line.size() > 2 && line[0] == ' ') values[absl::StrCat(section, ".", parts.first.substr(2))] = parts.second;
  }
  return values;
}

/// Of the program that goes on, against the one that wrote the checkpoint, for the same config; what is not known is
/// not compared.
std::string ProgramDifferences(const Config& config, const Manifest& manifest) {
  const RunDigests now = DigestsOf(config);
  if (now.kernels != 0 && manifest.kernel_digest != 0 && now.kernels != manifest.kernel_digest) {
    return absl::StrCat("kernels compute other bits than those that wrote the checkpoint (build ", manifest.build,
                        ", this is ", now.build, "): the run may differ from one that was never stopped");
  }
  if (manifest.build.empty() || manifest.build == now.build) return "";
  return absl::StrCat("build ", manifest.build, " of Holdfast wrote the checkpoint, this is ", now.build);
}

/// What decides the bits of a run and is not as it was when the checkpoint was written.
std::string Differences(const Config& config, const Manifest& manifest) {
  if (manifest.config_digest == BitsDigest(config)) return ProgramDifferences(config, manifest);
  // An earlier build did not have every key: what it left out has its default.
  const auto stored = ParseConfig(manifest.config, manifest.name.ToString(), {}, {.families = FamilyPresets()});
  if (stored.ok() && BitsDigest(*stored) == BitsDigest(config)) return ProgramDifferences(config, manifest);
  const auto was = Values(manifest.config), is = Values(PrintConfig(config));
  std::vector<std::string> changes;
  for (const auto& [key, value] : is) {
    const auto before = was.find(key);
    if (WhatDecides(key) == Decides::kBits && before != was.end() && before->second != value) {
      changes.push_back(absl::StrCat(key, " was ", before->second, " and is ", value));
    }
  }
  return absl::StrCat("this is not the config that wrote the checkpoint (", absl::StrJoin(changes, "; "),
                      "): the run may differ from one that was never stopped");
}

/// An imported model has no run of its own that a change could be meant for: its weights mean what its files say.
absl::Status CheckImported(const Config& config, const Manifest& manifest) {
  if (manifest.sharding != kImported) return absl::OkStatus();
  const auto imported = ParseConfig(manifest.config, manifest.name.ToString(), {}, {.families = FamilyPresets()});
  if (!imported.ok()) return absl::OkStatus();  // of a later build: as with any other checkpoint, there is a warning
  std::vector<std::string> differences;
  for (const ModelDifference& difference : ArithmeticDifferences(config.model, imported->model)) {
    differences.push_back(
        absl::StrCat("model.", difference.key, " is ", difference.ours, " and was ", difference.theirs));
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      manifest.name.ToString(), " holds an imported model that computes something else than the config's (",
      absl::StrJoin(differences, "; "), "): set these keys as they were, or train.init_from to the saved model"));
}

absl::Status CannotGoOn(const RunDirectory& directory, const CoordinatorHistory& history, const Catalog& catalog) {
  std::string why;
  for (const RejectedCheckpoint& rejected : catalog.rejected) {
    absl::StrAppend(&why, "; ", rejected.name, ": ", rejected.reason);
  }
  return absl::AlreadyExistsError(absl::StrCat(directory.root(), " holds a run that was stopped after step ",
                                               history.recorded_step, " and has no checkpoint to go on from", why,
                                               ": choose another --run-dir, or pass --overwrite to begin anew"));
}

bool HasCheckpointsElsewhere(const CheckpointConfig& config, const Catalog& found) {
  const auto exists = [](const RejectedCheckpoint& rejected) { return !rejected.unfinished; };
  return !config.directory.empty() &&
         (!found.valid.empty() || std::any_of(found.rejected.begin(), found.rejected.end(), exists));
}

/// A place that several runs may name is not ours to empty.
absl::Status CheckPlace(const Config& config, const RunDirectory& directory, const PrepareOptions& options) {
  const bool told = options.overwrite ? !options.resume.empty() : options.resume != "never";
  if (told || config.checkpoint.directory.empty()) return absl::OkStatus();
  HF_ASSIGN_OR_RETURN(const auto storage, OpenCheckpointStorage(config.checkpoint, directory.root()));
  HF_ASSIGN_OR_RETURN(const Catalog found, ScanCheckpoints(*storage));
  if (!HasCheckpointsElsewhere(config.checkpoint, found)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      storage->Describe(), " holds checkpoints, which a new run would take over: choose another checkpoint.directory, ",
      "or pass --overwrite with --resume auto to begin from the newest or with --resume never to give them up"));
}

/// Makes the directory one of a new run. The generations of the run that it held go on, so that its workers understand
/// ours.
absl::StatusOr<CoordinatorHistory> BeginRun(const Config& config, const RunDirectory& directory,
                                            const PrepareOptions& options) {
  HF_RETURN_IF_ERROR(CheckPlace(config, directory, options));
  HF_RETURN_IF_ERROR(directory.Create(options.overwrite));
  // Before anything else is made: it marks the directory as a run's.
  HF_RETURN_IF_ERROR(WriteFileAtomically(directory.config(), PrintConfig(config)));
  CoordinatorHistory history;
  const absl::StatusOr<CoordinatorState> old = ReadCoordinatorState(directory);
  if (old.ok()) history.state = *old;  // else it is broken, which is why it is overwritten
  return history;
}

/// The run goes back to `step`.
absl::Status GoBack(const RunDirectory& directory, int64_t step, PreparedRun* run) {
  run->history.state.branch.GoBack({.generation = run->history.state.generation, .step = step});
  HF_RETURN_IF_ERROR(WriteCoordinatorState(directory, run->history.state));
  run->keeper->GoBack(run->history.state.branch);
  run->history.recorded_step = std::min(run->history.recorded_step, step);
  return directory.CutMetrics(run->history.recorded_step);
}

/// Those to go on from. One whose step was never recorded would leave a hole in the record; that of a run which has
/// recorded nothing begins with the first step after its checkpoint.
std::vector<CheckpointChoice> Usable(const PreparedRun& run) {
  std::vector<CheckpointChoice> choices = ChoicesOf(run.keeper->found());
  const int64_t recorded = run.history.recorded_step;
  if (recorded > 0) std::erase_if(choices, [&](const CheckpointChoice& c) { return c.step > recorded; });
  return choices;
}

/// Chooses the checkpoints that --resume allows, and gives up whatever was done after them.
absl::Status Choose(const RunDirectory& directory, const PrepareOptions& options, PreparedRun* run) {
  int64_t step = 0;
  bool gives_up = options.overwrite;
  if (options.resume == "never") {
    gives_up = gives_up || !run->keeper->found().valid.empty();
  } else {
    run->usable = Usable(*run);
  }
  if (absl::SimpleAtoi(options.resume, &step)) {
    const auto is_later = [&](const CheckpointChoice& c) { return c.step > step; };
    gives_up = gives_up || run->history.recorded_step > step || std::erase_if(run->usable, is_later) > 0;
    std::erase_if(run->usable, [&](const CheckpointChoice& c) { return c.step != step; });
    if (run->usable.empty()) {
      return absl::NotFoundError(absl::StrCat("there is no checkpoint of step ", step, " in ",
                                              run->keeper->storage().Describe(), " that the run can go on from; `",
                                              "holdfast ckpt list` shows which there are"));
    }
  }
  return gives_up ? GoBack(directory, run->usable.empty() ? 0 : run->usable.front().step, run) : absl::OkStatus();
}

absl::Status OpenCheckpoints(const Config& config, const RunDirectory& directory, const ParameterLayout& layout,
                             const PrepareOptions& options, PreparedRun* run) {
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Storage> storage, OpenCheckpointStorage(config.checkpoint, directory.root()));
  const std::vector<StoredTensor> tensors = StoredTensorsOf(LayoutOf(*MakeOptimizer(config.optimizer), layout));
  HF_ASSIGN_OR_RETURN(run->keeper,
                      CheckpointKeeper::Open(config, directory, std::move(storage), tensors, run->history.state));
  run->history.state = run->keeper->state();
  HF_RETURN_IF_ERROR(WriteCoordinatorState(directory, run->history.state));
  HF_RETURN_IF_ERROR(Choose(directory, options, run));
  const Catalog& found = run->keeper->found();
  if (!run->usable.empty()) {
    const auto chosen = std::find_if(found.valid.begin(), found.valid.end(), [&](const CatalogEntry& entry) {
      return entry.manifest.name.ToString() == run->usable.front().name;
    });
    HF_RETURN_IF_ERROR(CheckImported(config, chosen->manifest));
    HF_RETURN_IF_ERROR(CheckPlanes(chosen->manifest, tensors));
    run->warning = Differences(config, chosen->manifest);
  } else if (options.workers_are_new && run->history.recorded_step > 0) {
    // Before its first checkpoint nothing is lost by beginning anew: the bits will be the same.
    const bool began = CheckpointSchedule(config.checkpoint).enabled() && !run->history.has_saved;
    if (!began) return CannotGoOn(directory, run->history, found);
    HF_RETURN_IF_ERROR(GoBack(directory, 0, run));
    run->warning = "the run was stopped before its first checkpoint: it begins anew";
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PreparedRun> PrepareRun(const Config& config, const RunDirectory& directory,
                                       const ParameterLayout& layout, const PrepareOptions& options) {
  HF_ASSIGN_OR_RETURN(RunLock lock, RunLock::Take(directory));
  HF_RETURN_IF_ERROR(directory.TakeOver());
  PreparedRun run{.lock = std::move(lock), .history = {}, .keeper = nullptr, .usable = {}, .warning = ""};
  const bool goes_on = directory.HoldsRun() && !options.overwrite && options.resume != "never";
  if (goes_on) {
    HF_ASSIGN_OR_RETURN(run.history, ReadCoordinatorHistory(directory));
    if (run.history.finished && run.history.recorded_step >= config.train.steps) {
      if (!options.workers_are_new) return run;  // somebody may not have heard of it
      return absl::AlreadyExistsError(
          absl::StrCat(directory.root(), " holds a run that is done: choose another --run-dir, pass --overwrite to ",
                       "replace it, or raise train.steps to go on with it"));
    }
    HF_RETURN_IF_ERROR(directory.CutMetrics(run.history.recorded_step));
  } else {
    HF_ASSIGN_OR_RETURN(run.history, BeginRun(config, directory, options));
  }
  run.history.workers_are_new = options.workers_are_new;
  run.history.used_cells = UsedCells(layout);
  if (goes_on || CheckpointSchedule(config.checkpoint).enabled()) {
    HF_RETURN_IF_ERROR(OpenCheckpoints(config, directory, layout, options, &run));
  }
  if (goes_on) HF_RETURN_IF_ERROR(WriteFileAtomically(directory.config(), PrintConfig(config)));
  return run;
}

void PrintResume(const PreparedRun& run) {
  if (run.keeper != nullptr) {
    for (const RejectedCheckpoint& rejected : run.keeper->found().rejected) {
      std::printf("not used    %s: %s\n", rejected.name.c_str(), rejected.reason.c_str());
    }
  }
  if (!run.usable.empty()) {
    std::printf("checkpoint  %s, the newest that can be used\n", run.usable.front().name.c_str());
  }
  if (run.keeper != nullptr && run.history.recorded_step > 0) {
    std::printf("goes on     after generation %d; %d steps are recorded\n",
                static_cast<int>(run.history.state.generation), static_cast<int>(run.history.recorded_step));
  }
  if (!run.warning.empty()) std::printf("warning: %s\n", run.warning.c_str());
  std::fflush(stdout);
}

void AddResumeOption(CLI::App& command, std::string& resume) {
  const auto check = [](const std::string& text) {
    int64_t step = 0;
    const bool good = text == "auto" || text == "never" || (absl::SimpleAtoi(text, &step) && step >= 0);
    return good ? std::string() : "auto, never or a step is expected, not '" + text + "'";
  };
  command
      .add_option("--resume", resume,
                  "auto: go on with the run that is in the run directory; never: refuse to; STEP: from its checkpoint")
      ->type_name("auto|never|STEP")
      ->check(check);
}

}  // namespace holdfast
