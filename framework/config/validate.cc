#include "framework/config/validate.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/config/config_table.h"
#include "framework/config/enums.h"
#include "framework/config/field_text.h"
#include "framework/config/model_size.h"
#include "framework/config/printable.h"

namespace holdfast {
namespace {

using Violations = std::vector<Violation>;

// Bounds the products inside one microbatch: with the ranges in config_table.cc, attention scores (tokens * length *
// heads = 2^28 * 2^20 * 2^10) and bytes of logits (2^28 * 2^24 * 4) stay below 2^63.
constexpr int64_t kMaxMicrobatchTokens = int64_t{1} << 28;
constexpr int64_t kMaxExpertsInAll = int64_t{1} << 20;  // keeps the bytes of all parameters in int64_t

void CheckHeads(const ModelConfig& model, Violations* violations) {
  if (model.num_kv_heads != 0 && model.num_heads % model.num_kv_heads != 0) {
    violations->push_back(
        {{"model.num_kv_heads", "model.num_heads"},
         absl::StrCat("num_heads ", model.num_heads, " is not a multiple of num_kv_heads ", model.num_kv_heads)});
  }
  if (model.head_dim == 0 && model.hidden_size % model.num_heads != 0) {
    violations->push_back({{"model.num_heads", "model.hidden_size", "model.head_dim"},
                           absl::StrCat("hidden_size ", model.hidden_size, " is not a multiple of num_heads ",
                                        model.num_heads, "; change one of them or set head_dim")});
    return;
  }
  const int64_t head_dim = model.head_dim != 0 ? model.head_dim : model.hidden_size / model.num_heads;
  // Also gives RoPE the even head_dim it needs.
  if (head_dim == 0 || head_dim % 8 != 0 || head_dim > 256) {
    const std::string source =
        model.head_dim != 0 ? ""
                            : absl::StrCat(" (hidden_size ", model.hidden_size, " / num_heads ", model.num_heads, ")");
    violations->push_back({{"model.head_dim", "model.num_heads", "model.hidden_size"},
                           absl::StrCat("head_dim must be a multiple of 8 from 8 to 256, got ", head_dim, source)});
  }
}

void CheckNorms(const ModelConfig& model, Violations* violations) {
  if (!model.qk_norm_joint || model.qk_norm) return;
  violations->push_back({{"model.qk_norm_joint", "model.qk_norm"},
                         "there is no norm of query and key; leave it out or set model.qk_norm to true"});
}

void CheckSharedExpert(const ModelConfig& model, Violations* violations) {
  if (model.shared_expert_intermediate_size > 0 && model.num_experts == 0) {
    violations->push_back({{"model.shared_expert_intermediate_size", "model.num_experts"},
                           "a shared expert stands beside others; leave it out or set model.num_experts"});
  }
  if (model.shared_expert_gate && model.shared_expert_intermediate_size == 0) {
    violations->push_back(
        {{"model.shared_expert_gate", "model.shared_expert_intermediate_size"},
         "shared_expert_gate is true (as family qwen2_moe presets it), but there is no shared expert; set "
         "model.shared_expert_intermediate_size, or model.shared_expert_gate to false"});
  }
}

void CheckExperts(const ModelConfig& model, Violations* violations) {
  CheckSharedExpert(model, violations);
  if (model.num_experts == 0) return;
  if (model.activation != ActivationKind::kSwiglu || model.bias) {
    violations->push_back({{"model.num_experts", "model.activation", "model.bias"},
                           "experts are SwiGLU layers without bias; set model.activation to swiglu and model.bias to "
                           "false, or leave num_experts out"});
  }
  if (model.num_layers * model.num_experts > kMaxExpertsInAll) {
    violations->push_back({{"model.num_layers", "model.num_experts"},
                           absl::StrCat(model.num_layers, " layers of ", model.num_experts, " experts; at most ",
                                        kMaxExpertsInAll, " experts in all")});
  }
  if (model.experts_per_token > model.num_experts) {
    violations->push_back(
        {{"model.experts_per_token", "model.num_experts"},
         absl::StrCat("experts_per_token ", model.experts_per_token, " is more than num_experts ", model.num_experts)});
  }
  if (model.first_expert_layer > model.num_layers) {
    violations->push_back({{"model.first_expert_layer", "model.num_layers"},
                           absl::StrCat("first_expert_layer ", model.first_expert_layer,
                                        " is beyond the last of num_layers ", model.num_layers)});
  }
  if (model.num_experts % model.router_groups != 0) {
    violations->push_back(
        {{"model.router_groups", "model.num_experts"},
         absl::StrCat("num_experts ", model.num_experts, " is not a multiple of router_groups ", model.router_groups)});
  } else if (model.router_groups_chosen > model.router_groups ||
             (model.router_groups > 1 &&
              model.num_experts / model.router_groups * model.router_groups_chosen < model.experts_per_token)) {
    violations->push_back(
        {{"model.router_groups_chosen", "model.router_groups", "model.experts_per_token"},
         absl::StrCat(model.router_groups_chosen, " of ", model.router_groups, " groups of ",
                      model.num_experts / model.router_groups,
                      " experts cannot be chosen, or have fewer than experts_per_token ", model.experts_per_token)});
  }
}

/// Attention multiplies by 1 / sqrt(head_dim), where 1 / head_dim is wanted: the rest is a factor of the norm's weight.
void CheckBaseHeads(const ModelConfig& model, Violations* violations) {
  const int64_t head_dim = model.head_dim != 0 ? model.head_dim : model.hidden_size / model.num_heads;
  if (model.base_head_dim == 0 || model.base_head_dim == head_dim) return;
  if (model.qk_norm && model.clip_qkv == 0) return;
  violations->push_back(
      {{"model.base_head_dim", "model.head_dim", "model.qk_norm", "model.clip_qkv"},
       absl::StrCat("heads of ", head_dim, " where the base model has ", model.base_head_dim,
                    " take a norm of query and key, and no limit behind it; set model.qk_norm to true and "
                    "model.clip_qkv to 0, or keep head_dim and have more heads")});
}

void CheckParametrization(const ModelConfig& model, Violations* violations) {
  const auto check = [&](const char* key, int64_t value, bool wanted, bool allowed) {
    const std::string name = absl::StrCat("model.", key);
    if (wanted && value == 0) {
      violations->push_back({{name, "model.parametrization"},
                             absl::StrCat("parametrization ", Name(model.parametrization), " needs the ", key,
                                          " of the model that learning rate and init_std are for")});
    } else if (!allowed && value != 0) {
      violations->push_back({{name, "model.parametrization"},
                             absl::StrCat("nothing follows from it with parametrization ", Name(model.parametrization),
                                          "; leave it out or set model.parametrization")});
    }
  };
  const bool width = model.parametrization != Parametrization::kStandard;
  const bool depth = model.parametrization == Parametrization::kCompleteP;
  check("base_hidden_size", model.base_hidden_size, width, width);
  check("base_num_layers", model.base_num_layers, depth, depth);
  check("base_head_dim", model.base_head_dim, false, width);
  if (width) CheckBaseHeads(model, violations);
  if (model.zero_init_head && model.tie_embeddings) {
    violations->push_back(
        {{"model.zero_init_head", "model.tie_embeddings"},
         "the head is the table of embeddings, which cannot begin with zeros; set one of both to false"});
  }
}

void CheckRope(const ModelConfig& model, Violations* violations) {
  if (model.rope_scaling == RopeScaling::kNone) return;
  if (model.position != PositionKind::kRope) {
    violations->push_back({{"model.rope_scaling", "model.position"},
                           "there are no rotary angles to scale; leave it out or set model.position to rope"});
  }
  if (model.rope_low_freq_factor >= model.rope_high_freq_factor) {
    violations->push_back({{"model.rope_low_freq_factor", "model.rope_high_freq_factor"},
                           absl::StrCat("rope_low_freq_factor ", model.rope_low_freq_factor,
                                        " must be less than rope_high_freq_factor ", model.rope_high_freq_factor)});
  }
}

/// Of a model that is otherwise right: what is wrong with a size is said by its own check.
void CheckParameters(ModelConfig model, Violations* violations) {
  if (!violations->empty()) return;
  ResolveDerived(&model);
  const int64_t parameters = MatrixElements(model);
  if (parameters <= kMaxParameters) return;
  const std::vector<MatrixKind> kinds = MatrixKindsOf(model);
  const MatrixKind& most = *std::max_element(
      kinds.begin(), kinds.end(), [](const MatrixKind& a, const MatrixKind& b) { return a.elements < b.elements; });
  Violation violation;
  std::vector<std::string> sizes;
  for (const auto& [key, value] : most.sizes) {
    violation.keys.push_back(absl::StrCat("model.", key));
    sizes.push_back(absl::StrCat(key, " ", value));
  }
  violation.message = absl::StrFormat("a model of about %.3g parameters; at most %.3g (most of them are in %s: %s)",
                                      static_cast<double>(parameters), static_cast<double>(kMaxParameters), most.name,
                                      absl::StrJoin(sizes, ", "));
  violations->push_back(std::move(violation));
}

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
  const bool without_dropout = std::any_of(config.lora.targets.begin(), config.lora.targets.end(),
                                           [](const auto& t) { return t == "experts" || t == "router"; });
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

std::vector<Field> ModelFields(Config* config) {
  for (Section& section : ConfigTable(config)) {
    if (section.name == "model") return std::move(section.fields);
  }
  return {};
}

/// "" or the range that the value of `field` is outside of.
std::string RangeOf(const Field& field) {
  if (const auto* number = std::get_if<IntValue>(&field.value)) {
    if (*number->value >= number->min && *number->value <= number->max) return "";
    return absl::StrCat("must be between ", number->min, " and ", number->max, ", got ", *number->value);
  }
  const auto* number = std::get_if<DoubleValue>(&field.value);
  if (number == nullptr || (*number->value >= number->min && *number->value <= number->max)) return "";
  return absl::StrCat("must be between ", number->min, " and ", number->max, ", got ", *number->value);
}

}  // namespace

void ResolveDerived(ModelConfig* model) {
  if (model->num_kv_heads == 0) model->num_kv_heads = model->num_heads;
  if (model->head_dim == 0) model->head_dim = model->hidden_size / model->num_heads;
  if (model->intermediate_size == 0) model->intermediate_size = 4 * model->hidden_size;
  if (model->expert_intermediate_size == 0 && model->num_experts > 0) {
    model->expert_intermediate_size = model->intermediate_size;
  }
}

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
  Violations violations;
  CheckHeads(config.model, &violations);
  CheckNorms(config.model, &violations);
  CheckNormOnGpu(config, &violations);
  CheckExperts(config.model, &violations);
  CheckRope(config.model, &violations);
  CheckParameters(config.model, &violations);
  CheckParametrization(config.model, &violations);
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

std::vector<ModelDifference> ArithmeticDifferences(const ModelConfig& ours, const ModelConfig& theirs) {
  const bool rope = theirs.position == PositionKind::kRope;
  const bool scaled = ours.rope_scaling != RopeScaling::kNone && theirs.rope_scaling != RopeScaling::kNone;
  const bool dense_layers = theirs.NumExpertLayers() < theirs.num_layers;
  const auto decides = [rope, scaled, dense_layers](const std::string& key) {
    if (key == "max_sequence_length") return !rope;
    if (key == "intermediate_size") return dense_layers;
    if (key == "rope_theta" || key == "rope_scaling") return rope;
    if (key.starts_with("rope_")) return scaled;
    return key != "family" && key != "dropout" && key != "init_std" && key != "zero_init_head" &&
           key != "router_balance_loss" && key != "router_z_loss" && key != "router_bias_rate" &&
           key != "expert_capacity" && key != "router_jitter" && key != "router_balance" && key != "parametrization" &&
           !key.starts_with("base_");
  };
  Config a, b;
  a.model = ours;
  b.model = theirs;
  const std::vector<Field> our_fields = ModelFields(&a), their_fields = ModelFields(&b);
  std::vector<ModelDifference> differences;
  for (size_t i = 0; i < our_fields.size(); ++i) {
    ModelDifference difference{our_fields[i].key, PrintValue(our_fields[i]), PrintValue(their_fields[i])};
    if (difference.ours != difference.theirs && decides(difference.key)) differences.push_back(std::move(difference));
  }
  return differences;
}

std::string IdleWorkersWarning(const Config& config) {
  const int64_t idle = config.elastic.workers - config.batch.microbatches;
  if (idle <= 0) return "";
  return absl::StrCat(idle, " of ", config.elastic.workers, " workers ", idle == 1 ? "has" : "have",
                      " nothing to compute: batch.microbatches is ", config.batch.microbatches);
}

absl::Status CheckModel(const ModelConfig& model) {
  Config config;
  config.model = model;
  std::vector<std::string> problems;
  for (const Field& field : ModelFields(&config)) {
    const std::string range = RangeOf(field);
    if (!range.empty()) problems.push_back(absl::StrCat("model.", field.key, ": ", range));
  }
  Violations violations;
  if (problems.empty()) {
    CheckHeads(model, &violations);
    CheckNorms(model, &violations);
    CheckExperts(model, &violations);
    CheckRope(model, &violations);
    CheckParameters(model, &violations);
  }
  for (const Violation& violation : violations) {
    problems.push_back(absl::StrCat(violation.keys.front(), ": ", violation.message));
  }
  return problems.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(problems, "; "));
}

}  // namespace holdfast
