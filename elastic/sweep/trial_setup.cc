#include "elastic/sweep/trial_setup.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "elastic/coordinator/run_digests.h"
#include "framework/base/status.h"
#include "framework/config/decides.h"
#include "framework/train/trainer.h"
#include "models/experts.h"
#include "models/runtime/data_places.h"
#include "models/runtime/trained_parameters.h"
#include "models/runtime/training_data.h"
#include "models/runtime/training_runtime.h"
#include "xxhash.h"

namespace holdfast {
namespace {

/// Another value of any of this is another curve, or another metric of it.
uint64_t DigestOf(const Config& config, uint64_t data) {
  Config curve = config;
  curve.train.steps = 1;  // how much of it is trained is another matter
  if (curve.schedule.name == ScheduleKind::kConstant) {
    curve.schedule = {.name = ScheduleKind::kConstant, .warmup_steps = curve.schedule.warmup_steps};
  }
  const RunDigests run = DigestsOf(config);
  const std::string text = absl::StrCat(BitsDigest(curve), " ", data, " ", run.build, " ", run.arithmetic, " ",
                                        run.kernels, " ", config.train.validation_microbatches);
  return XXH3_64bits(text.data(), text.size());
}

/// Up to where its decay begins, a trial with `wsd` is one with a constant rate.
std::shared_ptr<const TrialSetup> TrunkOf(const TrialSetup& trial, uint64_t data) {
  const ScheduleConfig& schedule = trial.config.schedule;
  const int64_t decay = schedule.decay_steps > 0 ? schedule.decay_steps : schedule.total_steps / 5;
  const int64_t constant = schedule.total_steps - decay;
  if (schedule.name != ScheduleKind::kWsd || constant <= 0 || constant >= trial.steps()) return nullptr;
  auto trunk = std::make_shared<TrialSetup>(trial);
  trunk->config.schedule = {.name = ScheduleKind::kConstant, .warmup_steps = schedule.warmup_steps};
  trunk->config.train.steps = trunk->config.schedule.total_steps = constant;
  trunk->digest = DigestOf(trunk->config, data);
  return trunk;
}

/// What a run of the config measures, whatever its data.
std::vector<std::string> MetricsOf(const Config& config) {
  std::vector<std::string> names{kTrainingLoss};
  if (!config.data.validation.empty()) names.emplace_back(kValidationLoss);
  const std::vector<std::string> of_routers = RouterFigureNames(config.model);
  names.insert(names.end(), of_routers.begin(), of_routers.end());
  return names;
}

absl::Status CheckMetric(const std::string& metric, const Config& config, const std::stop_token& stop) {
  if (metric == kValidationLoss && config.data.validation.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("sweep.metric is ", kValidationLoss,
                                                   ", and data.validation is empty; name token files there, or take ",
                                                   kTrainingLoss));
  }
  std::vector<std::string> metrics = MetricsOf(config);
  if (std::ranges::find(metrics, metric) != metrics.end()) return absl::OkStatus();
  const bool learns_every_token = LearnsEveryToken(config, stop);  // by the headers of token files
  if (metric == kLearnedTokens && !learns_every_token) return absl::OkStatus();
  if (metric == kLearnedTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("sweep.metric is ", kLearnedTokens,
                     ", and every token of data.train is learned: no file has marks (holdfast data pack --documents or "
                     "--chat), and data.document_mask is false; a trial's run has ",
                     absl::StrJoin(metrics, ", ")));
  }
  if (!learns_every_token) metrics.emplace_back(kLearnedTokens);
  return absl::InvalidArgumentError(absl::StrCat("sweep.metric: there is no metric '", metric, "'; a trial's run has ",
                                                 absl::StrJoin(metrics, ", ")));
}

/// What a sweep asks of a trial's config, beyond what training does.
absl::Status CheckForSweep(const SweepConfig& sweep, const Config& config, const std::stop_token& stop) {
  if (config.train.early_stop_patience > 0) {
    return absl::InvalidArgumentError(
        "train.early_stop_patience is not for sweeps, which compare trials at the ends of their train.steps; leave it "
        "out (sweep.strategy: asha ends bad trials early)");
  }
  return CheckMetric(sweep.metric, config, stop);
}

/// Few points in which every choice of every dimension is there once at least, but for those that another one decides.
std::vector<search::Point> SomeOfAll(const search::SearchSpace& space) {
  size_t count = 2;
  for (const search::Dimension& dimension : space.dimensions()) count = std::max(count, dimension.choices.size());
  std::vector<search::Point> points;
  for (size_t i = 0; i < count; ++i) {
    const double place = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    points.push_back(space.FromUnit(std::vector<double>(space.dimensions().size(), place)));
  }
  return points;
}

/// How many sequences of data.validation each validation asks for.
int64_t ValidatedSequences(const Config& config) {
  const int64_t limit = config.train.validation_microbatches;
  return limit == 0 ? std::numeric_limits<int64_t>::max() : limit * config.batch.microbatch_size;
}

/// And how many there are.
int64_t SequencesOfValidation(const Config& config, const std::stop_token& stop) {
  Places places(DataPlaces(config.data, stop));
  const auto size = Dataset::Measure(config.data.validation, config.batch.sequence_length, {.files = &places});
  return size.ok() ? size->samples : std::numeric_limits<int64_t>::max();
}

}  // namespace

std::string NumberText(double value) {
  char text[32];
  const auto end = std::to_chars(std::begin(text), std::end(text), value);
  return {text, end.ptr};
}

std::string ValueText(const search::PointValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return NumberText(*number);
  if (const auto* whole = std::get_if<int64_t>(&value)) return absl::StrCat(*whole);
  return std::get<std::string>(value);
}

std::vector<std::string> OverridesOf(const search::Point& point) {
  std::vector<std::string> overrides;
  for (const auto& [name, value] : point) {
    if (absl::StrContains(name, '.')) {
      overrides.push_back(absl::StrCat(name, "=", ValueText(value)));
      continue;
    }
    for (const absl::string_view each : absl::StrSplit(ValueText(value), ' ', absl::SkipEmpty())) {
      overrides.emplace_back(each);
    }
  }
  return overrides;
}

int64_t StepsOfRung(int64_t steps, int64_t rung, int64_t rungs, double reduction) {
  double part = static_cast<double>(steps);
  for (int64_t above = rung + 1; above < rungs; ++above) part /= reduction;
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(part + 0.5)));
}

absl::StatusOr<TrialSetup> SetUpTrial(const SweepConfig& sweep, const LoadTrialFn& load, const search::Point& point,
                                      int64_t rung, const std::stop_token& stop) {
  TrialSetup trial;
  ASSIGN_OR_RETURN(trial.config, load(OverridesOf(point)));
  Config& config = trial.config;
  config.train.epochs = 0;  // they are train.steps, of which a rung is a part
  RETURN_IF_ERROR(CheckForSweep(sweep, config, stop));
  config.schedule.total_steps = config.schedule.length(config.train.steps);
  config.train.steps = StepsOfRung(config.train.steps, rung, sweep.strategy.rungs, sweep.strategy.reduction);
  RETURN_IF_ERROR(CheckTraining(config, /*workers_here=*/0, stop).status());
  ASSIGN_OR_RETURN(const TrainingData data, OpenTrainingData(config, stop));
  trial.digest = DigestOf(config, data.digest());
  trial.tokens_per_step = static_cast<double>(config.batch.step_tokens());
  trial.flops_per_step = trial.tokens_per_step * TrainedFlopsPerToken(config);
  trial.trunk = TrunkOf(trial, data.digest());
  return trial;
}

absl::Status CheckEveryTrial(const SweepConfig& sweep, const LoadTrialFn& load, const search::SearchSpace& space,
                             const std::stop_token& stop) {
  std::vector<search::Point> points = SomeOfAll(space);
  points.insert(points.begin(), search::Point());  // the base config alone
  std::vector<std::string> wrong;                  // in all of them
  for (size_t i = 0; i < points.size(); ++i) {
    const absl::StatusOr<Config> config = load(OverridesOf(points[i]));
    const absl::Status status = config.ok() ? CheckForSweep(sweep, *config, stop) : config.status();
    if (!absl::IsInvalidArgument(status)) return absl::OkStatus();  // or what another look may find otherwise
    const std::vector<std::string> lines = absl::StrSplit(status.message(), '\n', absl::SkipEmpty());
    if (i == 0) wrong = lines;
    std::erase_if(wrong, [&](const std::string& line) { return std::ranges::find(lines, line) == lines.end(); });
  }
  return wrong.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(wrong, "\n"));
}

std::string ValidationDifference(const SweepConfig& sweep, const LoadTrialFn& load, const search::SearchSpace& space,
                                 const std::stop_token& stop) {
  if (sweep.metric != kValidationLoss) return "";
  std::optional<Config> first;
  for (const search::Point& point : SomeOfAll(space)) {
    const absl::StatusOr<Config> config = load(OverridesOf(point));
    if (!config.ok() || config->data.validation.empty()) continue;
    if (!first.has_value()) first = *config;
    if (config->batch.sequence_length != first->batch.sequence_length) {
      return "trials differ in batch.sequence_length, and a token of a longer sequence has more before it: their "
             "validation losses are not of the same thing";
    }
    if (ValidatedSequences(*config) == ValidatedSequences(*first)) continue;
    const int64_t all = SequencesOfValidation(*config, stop);
    const int64_t here = std::min(all, ValidatedSequences(*config)), there = std::min(all, ValidatedSequences(*first));
    if (here == there) continue;
    return absl::StrCat("trials are validated on ", std::min(here, there), " and on ", std::max(here, there),
                        " sequences of data.validation, train.validation_microbatches of the size that theirs have: ",
                        "set it to 0, so that all are validated on the same");
  }
  return "";
}

}  // namespace holdfast
