#include "models/runtime/epochs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/counted.h"
#include "framework/base/status.h"
#include "framework/config/config_table.h"
#include "framework/config/load.h"
#include "framework/config/validate.h"
#include "models/families/families.h"
#include "models/runtime/training_data.h"

namespace holdfast {
namespace {

constexpr uint64_t kParts = 1'000'000;  // of an epoch

/// What the same passes are in the run that is there; 0 if there is none, or it has others.
int64_t StepsOfRun(const Config& config, const std::string& run_config) {
  std::error_code error;
  if (run_config.empty() || !std::filesystem::exists(run_config, error)) return 0;
  const absl::StatusOr<Config> run = LoadStoredConfig(run_config, FamilyPresets());
  const bool same = run.ok() && run->train.epochs == config.train.epochs &&
                    run->batch.sequence_length == config.batch.sequence_length &&
                    run->batch.step_sequences() == config.batch.step_sequences();
  return same ? run->train.steps : 0;
}

/// What could not be checked before the steps were known.
absl::Status CheckSteps(const Config& config) {
  const std::vector<Violation> violations = ValidateConfig(config);
  if (violations.empty()) return absl::OkStatus();
  const auto message = [](std::string* out, const Violation& violation) { *out += violation.message; };
  return absl::InvalidArgumentError(absl::StrCat("train.epochs: ", config.train.epochs, " is ",
                                                 Counted(config.train.steps, "step"), ": ",
                                                 absl::StrJoin(violations, "; ", message)));
}

}  // namespace

int64_t StepsOfEpochs(double epochs, int64_t samples, const BatchConfig& batch) {
  const absl::uint128 parts = absl::uint128(static_cast<uint64_t>(std::llround(epochs * static_cast<double>(kParts)))) *
                              static_cast<uint64_t>(samples);
  const absl::uint128 of_step = absl::uint128(kParts) * static_cast<uint64_t>(batch.step_sequences());
  const absl::uint128 steps = (parts + of_step - 1) / of_step;
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return std::max<int64_t>(1, static_cast<int64_t>(std::min<absl::uint128>(steps, kMost)));
}

double EpochsOfSteps(const Config& config, int64_t samples) {
  return static_cast<double>(config.train.steps) * static_cast<double>(config.batch.step_sequences()) /
         static_cast<double>(samples);
}

absl::Status ResolveSteps(Config* config, const std::string& run_config, const std::stop_token& stop) {
  TrainConfig& train = config->train;
  if (train.epochs == 0) return absl::OkStatus();
  if (const int64_t of_run = StepsOfRun(*config, run_config);
      of_run > 0 && (train.steps == 0 || train.steps == of_run)) {
    train.steps = of_run;
    return CheckSteps(*config);
  }
  const auto size = MeasureTraining(*config, stop);
  RETURN_IF_ERROR(size.status());
  const int64_t steps = StepsOfEpochs(train.epochs, size->samples, config->batch);
  const std::string found = absl::StrCat("train.epochs ", train.epochs, " of ", Counted(size->samples, "sample"),
                                         " is ", Counted(steps, "step"), " of ", config->batch.step_sequences());
  if (steps > kMaxSteps) return absl::InvalidArgumentError(absl::StrCat(found, "; at most ", kMaxSteps));
  if (train.steps != 0 && train.steps != steps) {
    return absl::InvalidArgumentError(
        absl::StrCat("train.steps is ", train.steps, ", but ", found, ": leave one of both out, or set it to 0"));
  }
  train.steps = steps;
  return CheckSteps(*config);
}

}  // namespace holdfast
