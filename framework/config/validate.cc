#include "framework/config/validate.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/counted.h"
#include "framework/config/enums.h"
#include "framework/config/printable.h"
#include "framework/config/validate_model.h"

namespace holdfast {
namespace {

using Violations = std::vector<Violation>;

// Bounds the products inside one microbatch: with the ranges in config_table.cc, attention scores (tokens * length *
// heads = 2^28 * 2^20 * 2^10) and bytes of logits (2^28 * 2^24 * 4) stay below 2^63.
constexpr int64_t kMaxMicrobatchTokens = int64_t{1} << 28;

void CheckBatch(const Config& config, Violations* violations) {
  const BatchConfig& batch = config.batch;
  if (batch.sequence_length > config.model.max_sequence_length) {
    violations->push_back(
        {{"batch.sequence_length", "model.max_sequence_length"},
         absl::StrCat("sequence_length ", batch.sequence_length, " is longer than model.max_sequence_length ",
                      config.model.max_sequence_length)});
  }
  const int64_t microbatch_tokens = batch.microbatch_tokens();
  if (microbatch_tokens > kMaxMicrobatchTokens) {
    violations->push_back({{"batch.microbatch_size", "batch.sequence_length"},
                           absl::StrCat("a microbatch of ", microbatch_tokens, " tokens; at most ",
                                        kMaxMicrobatchTokens, " (use more microbatches of fewer sequences)")});
  }
  const ModelConfig& model = config.model;
  if (model.num_experts > 0 && microbatch_tokens <= kMaxMicrobatchTokens &&
      microbatch_tokens * model.experts_per_token > INT32_MAX) {
    violations->push_back({{"batch.microbatch_size", "batch.sequence_length", "model.experts_per_token"},
                           absl::StrCat("a microbatch in which ", microbatch_tokens, " tokens choose ",
                                        model.experts_per_token, " experts each; at most 2^31 - 1 choices in all")});
  }
  int64_t run_tokens = 0;
  if (__builtin_mul_overflow(microbatch_tokens * batch.microbatches, config.train.steps, &run_tokens)) {
    violations->push_back(
        {{"train.steps", "batch.microbatches", "batch.microbatch_size", "batch.sequence_length"},
         "the tokens of the whole run (steps * microbatches * microbatch_size * sequence_length) exceed 2^63"});
  }
}

void CheckLength(const TrainConfig& train, Violations* violations) {
  if (train.steps > 0 || train.epochs > 0) return;
  violations->push_back({{"train.steps", "train.epochs"}, "one of train.steps and train.epochs must be more than 0"});
}

void CheckLrFactors(const OptimizerConfig& optimizer, Violations* violations) {
  for (const std::string& item : optimizer.lr_factors) {
    if (ParseLrFactor(item).has_value()) continue;
    violations->push_back(
        {{"optimizer.lr_factors"},
         absl::StrCat("expected PATTERN=FACTOR, the factor from 0 to 1000, got '", Printable(item, 60), "'")});
  }
}

void CheckSchedule(const Config& config, Violations* violations) {
  const ScheduleConfig& schedule = config.schedule;
  const int64_t steps = schedule.length(config.train.steps);
  if (steps == 0) return;  // train.epochs says it, which is resolved later
  if (steps < config.train.steps) {
    violations->push_back({{"schedule.total_steps", "train.steps"},
                           absl::StrCat("total_steps ", steps, " is less than train.steps ", config.train.steps,
                                        ": nothing says which learning rate comes after it")});
    return;
  }
  const char* const length = schedule.total_steps > 0 ? "total_steps " : "train.steps ";
  if (schedule.warmup_steps > steps) {
    violations->push_back({{"schedule.warmup_steps", "train.steps"},
                           absl::StrCat("warmup_steps ", schedule.warmup_steps, " is more than ", length, steps)});
    return;
  }
  const int64_t decay = schedule.decay_steps != 0 ? schedule.decay_steps : steps / 5;
  if (schedule.name == ScheduleKind::kWsd && schedule.warmup_steps + decay > steps) {
    violations->push_back(
        {{"schedule.decay_steps", "schedule.warmup_steps", "train.steps", "schedule.name"},
         absl::StrCat("warmup_steps ", schedule.warmup_steps, " and the final decay of ", decay,
                      schedule.decay_steps != 0 ? "" : " (20% of steps)", " do not fit into ", length, steps)});
  }
}

void CheckValidation(const Config& config, Violations* violations) {
  if (config.train.validate_every_steps > 0 && config.data.validation.empty()) {
    violations->push_back({{"train.validate_every_steps", "data.validation"},
                           "there is nothing to validate on; set data.validation, or validate_every_steps to 0"});
  }
  if (config.train.early_stop_patience > 0 && config.train.validate_every_steps == 0) {
    violations->push_back({{"train.early_stop_patience", "train.validate_every_steps"},
                           "a run ends early by the losses of its validations; set train.validate_every_steps"});
  }
  if (config.train.early_stop_patience > 0 && config.checkpoint.keep_best == 0 && config.checkpoint.enabled()) {
    violations->push_back({{"train.early_stop_patience", "checkpoint.keep_best"},
                           "the state with the lowest loss would be deleted before the run ends; set "
                           "checkpoint.keep_best: 1"});
  }
}

/// What is frozen is read, not made.
void CheckTrainedPart(const Config& config, Violations* violations) {
  const bool patterns = !config.train.freeze.empty() || !config.train.only.empty();
  if (config.trains_part() && config.train.init_from.empty()) {
    violations->push_back({{config.lora.rank > 0          ? "lora.rank"
                            : config.train.freeze.empty() ? "train.only"
                                                          : "train.freeze",
                            "train.init_from"},
                           "weights that are not trained are those of train.init_from, which is not set"});
  }
  if (config.lora.rank > 0 && patterns) {
    violations->push_back({{"lora.rank", "train.freeze", "train.only"},
                           "with adapters nothing else is trained; leave train.freeze and train.only out, or lora"});
  }
  if (config.lora.rank > 0 && config.model.parametrization != Parametrization::kStandard) {
    violations->push_back({{"lora.rank", "model.parametrization"},
                           absl::StrCat("parametrization ", Name(config.model.parametrization),
                                        " has no rules for adapters; leave one of them out")});
  }
  if (config.lora.rank > 0 && config.lora.targets.empty()) {
    violations->push_back({{"lora.targets"}, "no layer is named that could have an adapter"});
  }
  const bool has_experts = config.model.num_experts > 0;
  const bool without_dropout =
      std::any_of(config.lora.targets.begin(), config.lora.targets.end(), [&](const std::string& target) {
        return target == "experts" || target == "router" || (target == "all-linear" && has_experts);
      });
  if (config.lora.rank > 0 && config.lora.dropout > 0 && without_dropout) {
    violations->push_back(
        {{"lora.dropout"}, "adapters of experts and routers have no dropout, nor have PEFT's; set it to 0"});
  }
  if (config.trains_part() && config.parallel.experts == ExpertPlacement::kMove) {
    violations->push_back(
        {{"parallel.experts"},
         "tokens travel to experts only where all of the model is trained; set it to gather or auto"});
  }
}

void CheckOverlap(const Config& config, Violations* violations) {
  if (!config.parallel.overlap_microbatches) return;
  if (config.model.num_experts == 0 || config.parallel.experts == ExpertPlacement::kGather || config.trains_part()) {
    violations->push_back({{"parallel.overlap_microbatches"},
                           "there are no tokens that travel to experts, beside which another microbatch could be "
                           "computed; set it to false"});
  }
}

void CheckGemmTable(const TrainConfig& train, Violations* violations) {
  if (!train.gemm_table.empty() && train.device == DeviceKind::kCpu) {
    violations->push_back({{"train.gemm_table", "train.device"},
                           "a table of matrix products is for GPUs; leave it out or set train.device to cuda"});
  }
  if (train.gemm_table.empty() && !train.gemm_table_digest.empty()) {
    violations->push_back({{"train.gemm_table_digest", "train.gemm_table"},
                           "there is no file that it is the digest of; set train.gemm_table or leave it out"});
  }
}

void CheckArithmetic(const TrainConfig& train, Violations* violations) {
  if (train.device == DeviceKind::kCpu || train.arithmetic == ArithmeticChoice::kAuto) return;
  violations->push_back({{"train.arithmetic", "train.device"},
                         "a GPU has an arithmetic of its own; leave it out or set train.device to cpu"});
}

/// What kernels/cuda/norm.cu takes.
void CheckNormOnGpu(const Config& config, Violations* violations) {
  constexpr int64_t kMaxColumns = 8192;
  const ModelConfig& model = config.model;
  if (config.train.device == DeviceKind::kCpu) return;
  if (model.hidden_size > kMaxColumns) {
    violations->push_back({{"model.hidden_size", "train.device"},
                           absl::StrCat("on a GPU a norm has ", kMaxColumns, " values at most, not ", model.hidden_size,
                                        "; set it lower, or train.device to cpu")});
  }
  const int64_t joint = model.num_heads * model.head_dim;
  if (model.qk_norm && model.qk_norm_joint && joint > kMaxColumns) {
    violations->push_back({{"model.qk_norm_joint", "train.device"},
                           absl::StrCat("on a GPU a norm has ", kMaxColumns, " values at most, not the ", joint,
                                        " of all heads; set it to false, or train.device to cpu")});
  }
}

void CheckTransport(const Config& config, Violations* violations) {
  if (config.parallel.transport == Transport::kNccl && config.train.device != DeviceKind::kCuda) {
    violations->push_back({{"parallel.transport", "train.device"},
                           "transport nccl is for GPUs only; set train.device to cuda, or transport to gloo"});
  }
  if (config.parallel.encrypt && config.parallel.transport != Transport::kGloo) {
    violations->push_back({{"parallel.encrypt", "parallel.transport"},
                           absl::StrCat("transport ", Name(config.parallel.transport),
                                        " encrypts nothing; set parallel.transport to gloo, or encrypt to false and "
                                        "encrypt the network between the hosts")});
  }
}

void CheckOrder(const char* smaller_key, int64_t smaller, const char* larger_key, int64_t larger,
                Violations* violations) {
  if (smaller >= larger) {
    violations->push_back({{smaller_key, larger_key},
                           absl::StrCat(smaller_key, " ", smaller, " must be less than ", larger_key, " ", larger)});
  }
}

void CheckElastic(const ElasticConfig& elastic, Violations* violations) {
  CheckOrder("elastic.heartbeat_interval_ms", elastic.heartbeat_interval_ms, "elastic.heartbeat_timeout_ms",
             elastic.heartbeat_timeout_ms, violations);
  CheckOrder("elastic.heartbeat_timeout_ms", elastic.heartbeat_timeout_ms, "elastic.collective_timeout_ms",
             elastic.collective_timeout_ms, violations);
  CheckOrder("elastic.collective_timeout_ms", elastic.collective_timeout_ms, "elastic.kill_timeout_ms",
             elastic.kill_timeout_ms, violations);
  if (elastic.max_workers != 0 && elastic.max_workers < elastic.workers) {
    violations->push_back(
        {{"elastic.max_workers", "elastic.workers"},
         absl::StrCat("max_workers ", elastic.max_workers, " is less than workers ", elastic.workers)});
  }
  if (elastic.min_workers > elastic.workers) {
    violations->push_back(
        {{"elastic.min_workers", "elastic.workers"},
         absl::StrCat("min_workers ", elastic.min_workers, " is more than workers ", elastic.workers)});
  }
}

void CheckCheckpointTimes(const CheckpointConfig& checkpoint, Violations* violations) {
  if (checkpoint.every_steps > 0 && checkpoint.every_seconds > 0) {
    violations->push_back({{"checkpoint.every_seconds", "checkpoint.every_steps"},
                           absl::StrCat("every_seconds ", checkpoint.every_seconds, " and every_steps ",
                                        checkpoint.every_steps, " are both set; set one of them")});
    return;
  }
  if (checkpoint.every != CheckpointEvery::kNever) return;
  const bool steps = checkpoint.every_steps > 0;
  if (!steps && checkpoint.every_seconds == 0) return;
  const std::string key = steps ? "every_steps" : "every_seconds";
  violations->push_back(
      {{"checkpoint.every", "checkpoint." + key},
       absl::StrCat("every is never, but ", key, " is set (", steps ? checkpoint.every_steps : checkpoint.every_seconds,
                    "); leave one of them out")});
}

void CheckEndpoint(const std::string& key, const std::string& endpoint, Violations* violations) {
  if (endpoint.empty() || absl::StartsWith(endpoint, "http://") || absl::StartsWith(endpoint, "https://")) return;
  violations->push_back(
      {{key}, absl::StrCat("expected http://HOST[:PORT] or https://HOST[:PORT], got '", endpoint, "'")});
}

// The bucket is not checked further: services differ in what they take, and the first request tells.
void CheckCheckpointPlace(const CheckpointConfig& checkpoint, Violations* violations) {
  const std::string& directory = checkpoint.directory;
  const size_t scheme = directory.find("://");
  if (scheme != std::string::npos && directory.find('/') > scheme) {
    const std::string bucket = directory.substr(scheme + 3, directory.find('/', scheme + 3) - (scheme + 3));
    if (directory.substr(0, scheme) != "s3" || bucket.empty()) {
      violations->push_back(
          {{"checkpoint.directory"}, absl::StrCat("expected a path or s3://bucket/prefix, got '", directory, "'")});
    }
  }
  CheckEndpoint("checkpoint.s3_endpoint", checkpoint.s3.endpoint, violations);
}

void CheckDataPlaces(const DataConfig& data, Violations* violations) {
  for (const auto& [key, paths] : {std::pair("data.train", &data.train), {"data.validation", &data.validation}}) {
    for (const std::string& path : *paths) {
      const size_t scheme = path.find("://");
      if (scheme == std::string::npos || path.find('/') < scheme) continue;
      const size_t bucket_end = path.find('/', scheme + 3);
      const bool fits = path.substr(0, scheme) == "s3" && bucket_end != std::string::npos && bucket_end > scheme + 3 &&
                        path.back() != '/';
      if (fits) continue;
      violations->push_back({{key}, absl::StrCat("expected a path or s3://bucket/name, got '", path, "'")});
    }
  }
  CheckEndpoint("data.s3_endpoint", data.s3.endpoint, violations);
}

}  // namespace

std::optional<LrFactor> ParseLrFactor(const std::string& text) {
  constexpr double kMaxFactor = 1000;
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  LrFactor factor{.pattern = text.substr(0, equals)};
  const std::string number = text.substr(equals + 1);
  const bool plain = !number.empty() && absl::ascii_isdigit(number[0]) &&  // no sign, space, "nan" or "0x"
                     number.find_first_of("xX") == std::string::npos;
  if (!plain || !absl::SimpleAtod(number, &factor.factor) || !(factor.factor <= kMaxFactor)) return std::nullopt;
  return factor;
}

std::vector<Violation> ValidateConfig(const Config& config) {
  Violations violations = ModelViolations(config.model);
  for (Violation& violation : ParametrizationViolations(config.model)) violations.push_back(std::move(violation));
  CheckNormOnGpu(config, &violations);
  CheckLength(config.train, &violations);
  CheckBatch(config, &violations);
  CheckLrFactors(config.optimizer, &violations);
  CheckSchedule(config, &violations);
  CheckValidation(config, &violations);
  CheckTrainedPart(config, &violations);
  CheckOverlap(config, &violations);
  CheckGemmTable(config.train, &violations);
  CheckArithmetic(config.train, &violations);
  CheckTransport(config, &violations);
  CheckElastic(config.elastic, &violations);
  CheckCheckpointTimes(config.checkpoint, &violations);
  CheckCheckpointPlace(config.checkpoint, &violations);
  CheckDataPlaces(config.data, &violations);
  return violations;
}

std::string IdleWorkersWarning(const Config& config) {
  const int64_t idle = config.elastic.workers - config.batch.microbatches;
  if (idle <= 0) return "";
  return absl::StrCat(idle, " of ", Counted(config.elastic.workers, "worker"), " ", idle == 1 ? "has" : "have",
                      " nothing to compute: batch.microbatches is ", config.batch.microbatches);
}

std::string UntrainedPositionsWarning(const Config& config) {
  const int64_t trained = config.batch.sequence_length, all = config.model.max_sequence_length;
  if (config.model.position != PositionKind::kLearned || trained >= all || !config.train.init_from.empty()) return "";
  return absl::StrCat("positions ", trained + 1, " to ", all, " (model.max_sequence_length) are never trained, as ",
                      "batch.sequence_length is ", trained, ": the saved model takes longer texts than it has learned");
}

std::string LongFactorsWarning(const Config& config) {
  const ModelConfig& model = config.model;
  const int64_t trained = config.batch.sequence_length, original = model.rope_original_length;
  if (model.rope_scaling != RopeScaling::kLongRope || model.max_sequence_length <= original || trained > original) {
    return "";
  }
  return absl::StrCat("the run trains with model.rope_long_factors, as model.max_sequence_length is ",
                      model.max_sequence_length, "; for sequences of batch.sequence_length ", trained,
                      " transformers takes model.rope_short_factors: to train with those, set "
                      "model.max_sequence_length to ",
                      original, " (model.rope_original_length)");
}

}  // namespace holdfast
