#include "tools/cli/scaling_runs.h"

#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elastic/sweep/sweep.h"
#include "elastic/sweep/sweep_record.h"
#include "elastic/sweep/trial_reading.h"
#include "framework/base/counted.h"
#include "framework/base/status.h"
#include "framework/config/decides.h"
#include "framework/metrics/run_directory.h"
#include "models/plan.h"
#include "models/runtime/training_data.h"
#include "models/transformer.h"
#include "tools/cli/run_record.h"

namespace holdfast {
namespace {

/// The step with which the course of the learning rate ends.
int64_t EndOfSchedule(const Config& config) {
  const ScheduleConfig& schedule = config.schedule;
  const bool decays = schedule.name == ScheduleKind::kCosine || schedule.name == ScheduleKind::kLinear;
  const int64_t length = schedule.length(config.train.steps);
  return decays && schedule.decay_steps > 0 ? std::max(length, schedule.warmup_steps + schedule.decay_steps) : length;
}

/// Else its loss is that of a rate that has not come down, which says nothing of its size.
bool HasWholeSchedule(const Config& config) {
  return config.schedule.name == ScheduleKind::kConstant || EndOfSchedule(config) == config.train.steps;
}

std::string TrialName(int64_t number) { return absl::StrCat("trial ", number); }

}  // namespace

RunSize RunSizeOf(const Config& config) {
  return {.parameters = static_cast<double>(TransformerLayout(config.model).elements()),
          .active = static_cast<double>(ActiveParameters(config.model)),
          .tokens = static_cast<double>(config.batch.step_tokens()) * static_cast<double>(config.train.steps)};
}

uint64_t RunDigestOf(const Config& config) {
  Config portable = config;
  portable.train.arithmetic = TrainConfig().arithmetic;
  portable.train.gemm_table_digest = TrainConfig().gemm_table_digest;
  return BitsDigest(portable);
}

std::string NoLawBecause(const Config& config) {
  if (config.trains_part()) return "trains a part of its model only";
  if (!config.train.init_from.empty()) return "begins with a saved model (train.init_from)";
  if (HasWholeSchedule(config)) return "";
  return absl::StrCat("ends at step ", config.train.steps, " of ", EndOfSchedule(config), " of its schedule ",
                      "(schedule.total_steps, schedule.decay_steps), before its learning rate has come down");
}

Observation ObservationOf(const Config& config, double tokens, double loss, const std::string& name) {
  Observation seen;
  seen.name = name;
  seen.size = RunSizeOf(config);
  seen.size.tokens = tokens;
  seen.flops = FlopsPerTokenOf(config.model, config.batch.sequence_length) * tokens;
  seen.loss = loss;
  seen.learning_rate = config.optimizer.lr;
  seen.batch_tokens = static_cast<double>(config.batch.step_tokens());
  return seen;
}

std::optional<double> PassTokens::Of(const Config& config) {
  const auto [known, is_new] =
      known_.try_emplace(std::pair(config.data.train, config.batch.sequence_length), std::nullopt);
  if (!is_new) return known->second;
  const absl::StatusOr<DatasetSize> size = MeasureTraining(config);
  if (size.ok()) known->second = static_cast<double>(size->samples * config.batch.sequence_length);
  return known->second;
}

std::vector<Observation> TrialObservations(const SweepConfig& config, const SweepPlan& plan, PassTokens& passes) {
  std::vector<Observation> seen;
  if (config.metric != kValidationLoss && config.metric != kTrainingLoss) return seen;
  for (const PlannedTrial& trial : plan.trials()) {
    if (!trial.ended || !trial.result->measured || !trial.setup.has_value()) continue;
    const Config& of = trial.setup->config;
    if (!of.train.init_from.empty()) continue;
    if (!HasWholeSchedule(of) || of.trains_part()) continue;
    seen.push_back(ObservationOf(of, static_cast<double>(of.batch.step_tokens() * trial.result->steps),
                                 trial.result->value, TrialName(trial.number)));
    seen.back().data_tokens = passes.Of(of);
  }
  return seen;
}

TrialRuns RunsOfTrials(const std::string& sweep_dir, absl::Span<const Observation> trials) {
  TrialRuns of_trials;
  const SweepPlace place{.directory = sweep_dir};
  const absl::StatusOr<SweepConfig> sweep = LoadSweepConfig(place.config());
  const auto record = ReadRecord(place.results());
  if (!sweep.ok() || !record.ok()) return of_trials;
  std::map<std::string, const Observation*> named;
  for (const Observation& trial : trials) named.emplace(trial.name, &trial);
  std::set<uint64_t> read;  // trials may share a run
  bool all_there = true;
  for (const auto& [number, recorded] : *record) {
    const auto trial = named.find(TrialName(number));
    if (trial == named.end() || !read.insert(recorded.digest).second) continue;
    TrialSetup setup;
    setup.digest = recorded.digest;
    const RunDirectory directory(place.run(*sweep, setup));
    absl::StatusOr<Config> config = ReadRunConfig(directory);
    all_there = all_there && config.ok();
    if (!config.ok()) continue;
    of_trials.runs.push_back({*std::move(config), trial->second->data_tokens,
                              absl::StrCat(trial->first, " of ", sweep_dir), ReadEnding(directory).data_digest});
  }
  if (!all_there) of_trials.unknown_keys = MixableKeys(sweep->space);
  return of_trials;
}

absl::StatusOr<FinishedRun> ReadFinishedRun(const std::string& run_dir) {
  const RunDirectory directory(run_dir);
  std::error_code error;
  if (!std::filesystem::exists(directory.config(), error)) {
    return absl::InvalidArgumentError(absl::StrCat(run_dir, " is not the directory of a run"));
  }
  FinishedRun run;
  ASSIGN_OR_RETURN(run.config, ReadRunConfig(directory));
  if (run.config.trains_part()) {
    return absl::InvalidArgumentError(absl::StrCat("run ", run_dir, " trained a part of its model only"));
  }
  if (!run.config.train.init_from.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("run ", run_dir, " began with the weights in ", run.config.train.init_from,
                     " (train.init_from): its loss does not follow from its size and its tokens alone"));
  }
  const RunEnding ending = ReadEnding(directory);
  run.data_digest = ending.data_digest;
  ASSIGN_OR_RETURN(const std::vector<StepMetrics> steps, directory.ReadMetrics());
  const int64_t recorded = steps.empty() ? 0 : steps.back().step;
  if (!ending.finished()) {
    return absl::InvalidArgumentError(absl::StrCat("run ", run_dir, " has not ended: ", recorded, " of ",
                                                   Counted(run.config.train.steps, "step"), " done"));
  }
  if (const int64_t end = std::get<event::RunFinished>(*ending.event).step; recorded < end) {
    return absl::DataLossError(absl::StrCat("run ", run_dir, " ended at step ", end, ", and ", directory.metrics(),
                                            " has been cut off after step ", recorded));
  }
  if (recorded < run.config.train.steps) {
    const bool early = run.config.train.early_stop_patience > 0;
    return absl::InvalidArgumentError(
        absl::StrCat("run ", run_dir, early ? " ended early, at step " : " ended at step ", recorded, " of ",
                     run.config.train.steps, early ? " (train.early_stop_patience)" : " that its config.yaml asks for",
                     ": its learning rate had not come down"));
  }
  if (!HasWholeSchedule(run.config)) {
    const int64_t done = run.config.train.steps;
    return absl::InvalidArgumentError(absl::StrCat(
        "run ", run_dir, " ended at step ", done, " of ", EndOfSchedule(run.config),
        " of its schedule (schedule.total_steps, schedule.decay_steps), before its ", "learning rate had come down"));
  }
  double loss = 0;
  if (ending.validation.has_value() && ending.validation->step == steps.back().step) {
    loss = ending.validation->loss;
    const int64_t limit = run.config.train.validation_microbatches;
    run.validated_on =
        absl::StrCat(limit == 0 ? "all" : absl::StrCat("the first ", limit * run.config.batch.microbatch_size),
                     " sequences of ", run.config.batch.sequence_length, " tokens of data.validation");
    run.loss_from = absl::StrCat("validation after step ", ending.validation->step);
  } else {
    const LastLoss last = LastTrainingLoss(steps);
    loss = last.mean;
    run.loss_from = absl::StrCat("mean of training steps ", last.first_step, " to ", steps.back().step);
  }
  run.observation = ObservationOf(run.config, static_cast<double>(steps.back().tokens), loss, run_dir);
  if (ending.data_tokens > 0) run.observation.data_tokens = static_cast<double>(ending.data_tokens);
  RETURN_IF_ERROR(Annotate(CheckObservation(run.observation), run_dir));
  return run;
}

}  // namespace holdfast
