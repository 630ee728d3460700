#include "framework/config/unused_keys.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/config/load.h"

namespace holdfast {
namespace {

struct Rule {
  bool unused;
  std::string reason;
  std::string decider;  // the key whose value makes the others unused
  std::vector<std::string> keys;
};

bool ScalesSomeLayer(const ModelConfig& model) {
  for (int64_t layer = 1; layer <= model.num_layers; ++layer) {
    if (model.ScalesRope(layer)) return true;
  }
  return false;
}

std::vector<Rule> RulesOf(const Config& c) {
  const bool dense = c.model.num_experts == 0;
  const bool no_muon = c.optimizer.name != OptimizerKind::kMuon, lion = c.optimizer.name == OptimizerKind::kLion;
  // The saved model of a run that was begun before this was checked may have other values.
  const bool no_rope = c.model.position != PositionKind::kRope && c.train.init_from.empty();
  const RopeScaling scaling = c.model.rope_scaling;
  const bool unscaled = scaling == RopeScaling::kNone && c.train.init_from.empty();
  const bool nothing_scaled = c.train.init_from.empty() && !ScalesSomeLayer(c.model);
  const bool all_are_scaled = c.train.init_from.empty() && scaling != RopeScaling::kNone && c.model.sliding_window == 0;
  return {
      {dense,
       "there are no experts",
       "model.num_experts",
       {"model.expert_intermediate_size", "model.expert_bias", "model.swiglu_limit", "model.first_expert_layer",
        "model.expert_layer_step", "model.expert_capacity", "parallel.experts"}},
      {dense,
       "there is no router",
       "model.num_experts",
       {"model.router_score", "model.router_scale", "model.router_groups", "model.router_groups_chosen",
        "model.router_jitter", "model.router_balance", "model.router_balance_loss", "model.router_z_loss",
        "model.router_bias"}},
      {!c.model.router_bias, "routers have no bias", "model.router_bias", {"model.router_bias_rate"}},
      {c.model.bias, "all linear layers have biases", "model.bias", {"model.attention_bias", "model.mlp_bias"}},
      {c.model.sliding_window == 0,
       "no layer has a window",
       "model.sliding_window",
       {"model.first_window_layer", "model.full_attention_step", "model.window_rope_theta"}},
      {no_rope,
       "positions are not rotary",
       "model.position",
       {"model.rope_dim", "model.rope_theta", "model.window_rope_theta"}},
      {unscaled,
       "rotary angles are not scaled",
       "model.rope_scaling",
       {"model.rope_factor", "model.rope_low_freq_factor", "model.rope_high_freq_factor", "model.rope_original_length",
        "model.rope_scaling_layers"}},
      {all_are_scaled, "no layer has a window", "model.sliding_window", {"model.rope_scaling_layers"}},
      {nothing_scaled,
       "rope_scaling_layers is full_attention, and every layer has the window",
       "model.full_attention_step",
       {"model.rope_scaling"}},
      {scaling != RopeScaling::kNone && scaling != RopeScaling::kLlama3,
       "only rope_scaling llama3 has it",
       "model.rope_scaling",
       {"model.rope_low_freq_factor", "model.rope_high_freq_factor"}},
      {scaling == RopeScaling::kLinear,
       "only rope_scaling llama3, yarn and longrope have it",
       "model.rope_scaling",
       {"model.rope_original_length"}},
      {scaling != RopeScaling::kYarn,
       "only rope_scaling yarn has it",
       "model.rope_scaling",
       {"model.rope_beta_fast", "model.rope_beta_slow", "model.rope_truncate"}},
      {scaling != RopeScaling::kYarn && scaling != RopeScaling::kLongRope,
       "only rope_scaling yarn and longrope have it",
       "model.rope_scaling",
       {"model.rope_attention_factor"}},
      {scaling != RopeScaling::kLongRope,
       "only rope_scaling longrope has it",
       "model.rope_scaling",
       {"model.rope_short_factors", "model.rope_long_factors"}},
      {c.batch.gradient_sum == GradientSumKind::kTree,
       "gradients are added in a tree, which has no such blocks",
       "batch.gradient_sum",
       {"batch.gradient_sum_block"}},
      {c.train.early_stop_patience == 0,
       "the run does not end early",
       "train.early_stop_patience",
       {"train.early_stop_min_delta"}},
      {c.lora.rank == 0,
       "there are no adapters",
       "lora.rank",
       {"lora.alpha", "lora.rslora", "lora.dropout", "lora.targets", "lora.init_from"}},
      {c.lora.init_from.empty(), "no adapters are read", "lora.init_from", {"lora.init_digest"}},
      {no_muon, "only optimizer muon has it", "optimizer.name", {"optimizer.momentum"}},
      {lion, "only optimizers adamw and muon have it", "optimizer.name", {"optimizer.eps"}},
      {c.schedule.name == ScheduleKind::kConstant,
       "a constant learning rate does not decay",
       "schedule.name",
       {"schedule.decay_steps", "schedule.min_lr_ratio"}},
      {c.parallel.sharding == Sharding::kNoShard,
       "each worker holds the whole model",
       "parallel.sharding",
       {"parallel.replicas", "parallel.overlap_microbatches"}},
      {c.checkpoint.compression == CheckpointCompression::kNone,
       "nothing is compressed",
       "checkpoint.compression",
       {"checkpoint.compression_level"}},
      {c.data.validation.empty(), "no checkpoint has a validation loss", "data.validation", {"checkpoint.keep_best"}},
  };
}

}  // namespace

std::vector<Violation> UnusedKeys(const Config& config, const ModelConfig& preset) {
  const std::map<std::string, std::string> defaults = ValuesByKey(PrintConfig(Config{}));
  Config family;
  family.model = preset;
  const std::map<std::string, std::string> presets = ValuesByKey(PrintConfig(family));
  const std::map<std::string, std::string> values = ValuesByKey(PrintConfig(config));
  std::vector<Violation> violations;
  for (const Rule& rule : RulesOf(config)) {
    if (!rule.unused) continue;
    for (const std::string& key : rule.keys) {
      if (values.at(key) == defaults.at(key) || values.at(key) == presets.at(key)) continue;
      // The error may stand at the decider, if that was given later.
      violations.push_back({{key, rule.decider},
                            absl::StrCat(key, " is not used: ", rule.reason, "; leave it out or set ", rule.decider)});
    }
  }
  return violations;
}

}  // namespace holdfast
