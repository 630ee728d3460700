#include "models/runtime/coordinate_check.h"

#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/counted.h"
#include "framework/base/status.h"
#include "framework/config/validate.h"
#include "models/observing_device.h"
#include "models/runtime/make_model.h"
#include "models/runtime/run_device.h"
#include "models/runtime/trainer_options.h"

namespace holdfast {
namespace {

enum Activation : size_t { kEmbedding, kAttention, kMlp, kHalfWay, kEnd, kLogits };

/// By kActivations, all values.
using Values = std::array<std::vector<float>, kActivations.size()>;

absl::Status Grow(const char* key, int64_t wider, int64_t narrower, int64_t* size) {
  if (*size * wider % narrower != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("hidden_size ", wider, ": model.", key, " ", *size, " of hidden_size ", narrower, " would become ",
                     static_cast<double>(*size * wider) / static_cast<double>(narrower),
                     "; widths that are multiples of ", narrower / std::gcd(*size, narrower), " keep it whole"));
  }
  *size = *size * wider / narrower;
  return absl::OkStatus();
}

/// A small one mostly.
uint64_t Frequent(std::mt19937_64& random, uint64_t vocabulary) {
  for (int i = 0; i < 2; ++i) vocabulary = 1 + random() % vocabulary;
  return random() % vocabulary;
}

/// Like text, so that there is something to learn from the first step on: some tokens are frequent, and many follow
/// from the one before.
Microbatch MadeUp(const Config& config) {
  Microbatch made{
      .batch = config.batch.microbatch_size, .sequence = config.batch.sequence_length, .inputs = {}, .targets = {}};
  const auto vocabulary = static_cast<uint64_t>(config.model.vocab_size);
  std::mt19937_64 random(1);
  uint64_t token = 0;
  for (int64_t i = 0; i < config.batch.microbatch_tokens(); ++i) {
    made.inputs.push_back(static_cast<int32_t>(token));
    token = random() % 2 == 0 ? (token * 7 + 3) % vocabulary : Frequent(random, vocabulary);
    made.targets.push_back(static_cast<int32_t>(token));
  }
  made.step = 1;
  return made;
}

/// What the check leaves of a config.
Config Checked(Config config, int64_t steps) {
  config.model.dropout = 0;
  config.batch.microbatches = 1;
  config.train.steps = steps;
  config.train.compute_dtype = ComputeDType::kF32;
  config.schedule = {.name = ScheduleKind::kConstant};
  config.parallel = {.mirrors = 0};
  return config;
}

void AddTo(std::vector<float>& sum, absl::Span<const float> values) {
  sum.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
}

absl::StatusOr<Values> Look(Trainer& trainer, ObservingDevice& device, const Microbatch& microbatch,
                            int64_t num_layers) {
  Values seen;
  int64_t branches = 0;
  device.Observe([&](Observed what, absl::Span<const float> values) {
    const std::vector<float> copy(values.begin(), values.end());
    if (what == Observed::kEmbedding) seen[kEmbedding] = copy;
    if (what == Observed::kAttention) AddTo(seen[kAttention], values);
    if (what == Observed::kMlp) AddTo(seen[kMlp], values);
    if (what == Observed::kStream) {
      ++branches;
      if (branches == num_layers + num_layers % 2) seen[kHalfWay] = copy;
      seen[kEnd] = copy;
    }
    if (what == Observed::kLogits) seen[kLogits].insert(seen[kLogits].end(), values.begin(), values.end());
  });
  const auto source = [&](int64_t) -> absl::StatusOr<CpuBatch> { return CpuBatch(microbatch); };
  const absl::Status status = trainer.Evaluate(1, source, {}).status();
  device.Observe(nullptr);
  RETURN_IF_ERROR(status);
  return seen;
}

absl::StatusOr<Changes> MeasureOnce(const Config& config) {
  ASSIGN_OR_RETURN(const auto inner, MakeDevice(config.train));
  RETURN_IF_ERROR(CheckHeads(config));
  ObservingDevice device(*inner);
  ASSIGN_OR_RETURN(const auto model, MakeModel(config, device));
  ASSIGN_OR_RETURN(TrainerOptions options, MakeTrainerOptions(config, *model));
  ASSIGN_OR_RETURN(const auto trainer, Trainer::Create(*model, device, std::move(options)));
  RETURN_IF_ERROR(trainer->EnterWorld({}, {}).status());
  const Microbatch microbatch = MadeUp(config);
  const auto source = [&](int64_t) -> absl::StatusOr<CpuBatch> { return CpuBatch(microbatch); };
  ASSIGN_OR_RETURN(const Values before, Look(*trainer, device, microbatch, config.model.num_layers));
  for (int64_t step = 1; step <= config.train.steps; ++step) {
    ASSIGN_OR_RETURN(const StepResult result, trainer->Prepare({.step = step, .microbatches = {1}}, source, {}));
    trainer->Commit(result);
  }
  ASSIGN_OR_RETURN(const Values after, Look(*trainer, device, microbatch, config.model.num_layers));
  Changes changes{};
  for (size_t a = 0; a < changes.size(); ++a) {
    double sum = 0;
    for (size_t i = 0; i < before[a].size(); ++i) {
      sum += std::pow(static_cast<double>(after[a][i]) - static_cast<double>(before[a][i]), 2);
    }
    changes[a] = std::sqrt(sum / static_cast<double>(before[a].size()));
  }
  return changes;
}

}  // namespace

absl::StatusOr<ModelConfig> Resized(const ModelConfig& model, int64_t hidden_size, int64_t num_layers) {
  ModelConfig resized = model;
  resized.hidden_size = hidden_size;
  resized.num_layers = num_layers;
  const auto grow = [&](const char* key, int64_t* size) { return Grow(key, hidden_size, model.hidden_size, size); };
  RETURN_IF_ERROR(grow("num_heads", &resized.num_heads));
  RETURN_IF_ERROR(grow("num_kv_heads", &resized.num_kv_heads));
  RETURN_IF_ERROR(grow("intermediate_size", &resized.intermediate_size));
  RETURN_IF_ERROR(grow("expert_intermediate_size", &resized.expert_intermediate_size));
  RETURN_IF_ERROR(grow("shared_expert_intermediate_size", &resized.shared_expert_intermediate_size));
  RETURN_IF_ERROR(CheckModel(resized));
  return resized;
}

absl::StatusOr<Changes> MeasureChanges(const Config& config, int64_t steps, int64_t seeds) {
  Config checked = Checked(config, steps);
  Changes logs{};
  for (int64_t seed = 0; seed < seeds; ++seed) {
    ASSIGN_OR_RETURN(const Changes changes, MeasureOnce(checked));
    ++checked.run.seed;
    for (size_t a = 0; a < changes.size(); ++a) {
      if (!(changes[a] > 0) || !std::isfinite(changes[a])) {
        return absl::FailedPreconditionError(absl::StrCat(
            "hidden_size ", config.model.hidden_size, ", num_layers ", config.model.num_layers, ": ", kActivations[a],
            " has changed by ", changes[a], " in ", Counted(steps, "step"), "; optimizer.lr is ", config.optimizer.lr));
      }
      logs[a] += std::log(changes[a]) / static_cast<double>(seeds);
    }
  }
  for (double& value : logs) value = std::exp(value);
  return logs;
}

double LogSlope(absl::Span<const int64_t> sizes, absl::Span<const double> values) {
  HOLDFAST_CHECK(sizes.size() == values.size() && sizes.size() > 1);
  const auto n = static_cast<double>(sizes.size());
  double x = 0, y = 0, xx = 0, xy = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const double at = std::log(static_cast<double>(sizes[i])), value = std::log(values[i]);
    x += at / n;
    y += value / n;
    xx += at * at / n;
    xy += at * value / n;
  }
  return (xy - x * y) / (xx - x * x);
}

}  // namespace holdfast
