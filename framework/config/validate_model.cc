#include "framework/config/validate_model.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/config/config_table.h"
#include "framework/config/enums.h"
#include "framework/config/field_text.h"
#include "framework/config/model_size.h"

namespace holdfast {
namespace {

using Violations = std::vector<Violation>;

constexpr int64_t kMaxExpertsInAll = int64_t{1} << 20;  // keeps the bytes of all parameters in int64_t

int64_t HeadDimOf(const ModelConfig& model) {
  return model.head_dim != 0 ? model.head_dim : model.hidden_size / model.num_heads;
}

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
  const int64_t head_dim = HeadDimOf(model);
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
  if (model.activation != ActivationKind::kSwiglu || model.HasMlpBias()) {
    violations->push_back({{"model.num_experts", "model.activation", "model.bias", "model.mlp_bias"},
                           "experts are SwiGLU layers, which have biases by model.expert_bias; set model.activation to "
                           "swiglu, model.bias and model.mlp_bias to false, or leave num_experts out"});
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

void CheckWindows(const ModelConfig& model, Violations* violations) {
  if (model.sliding_window == 0) return;
  if (model.first_window_layer > model.num_layers) {
    violations->push_back({{"model.first_window_layer", "model.num_layers"},
                           absl::StrCat("first_window_layer ", model.first_window_layer,
                                        " is beyond the last of num_layers ", model.num_layers)});
  }
  if (model.full_attention_step == 1) {
    violations->push_back(
        {{"model.full_attention_step", "model.sliding_window"},
         "with 1 no layer has the window; set it to 0 or to 2 or more, or model.sliding_window to 0"});
  }
}

void CheckTurned(const ModelConfig& model, Violations* violations) {
  const int64_t head_dim = HeadDimOf(model);
  if (model.rope_dim % 2 == 0 && model.rope_dim <= head_dim) return;
  violations->push_back(
      {{"model.rope_dim", "model.head_dim"},
       absl::StrCat("rope_dim must be even and at most head_dim ", head_dim, ", got ", model.rope_dim)});
}

void CheckLongRope(const ModelConfig& model, Violations* violations) {
  const int64_t frequencies = (model.rope_dim != 0 ? model.rope_dim : HeadDimOf(model)) / 2;
  const auto check = [&](const char* key, const std::vector<double>& factors) {
    if (static_cast<int64_t>(factors.size()) == frequencies) return;
    violations->push_back({{absl::StrCat("model.", key), "model.rope_scaling", "model.rope_dim", "model.head_dim"},
                           absl::StrCat("rope_scaling longrope takes a number for each of the ", frequencies,
                                        " rotary frequencies of a head, ", key, " has ", factors.size())});
  };
  check("rope_short_factors", model.rope_short_factors);
  check("rope_long_factors", model.rope_long_factors);
  if (model.rope_original_length == 1) {
    violations->push_back({{"model.rope_original_length", "model.rope_scaling"},
                           "longrope divides by its logarithm, which is 0; make it more than 1"});
  }
}

void CheckRope(const ModelConfig& model, Violations* violations) {
  CheckTurned(model, violations);
  if (model.window_rope_theta > 0 && model.window_rope_theta < 1) {
    violations->push_back(
        {{"model.window_rope_theta"}, absl::StrCat("must be 0 or at least 1, got ", model.window_rope_theta)});
  }
  if (model.rope_scaling == RopeScaling::kNone) return;
  if (model.position != PositionKind::kRope) {
    violations->push_back({{"model.rope_scaling", "model.position"},
                           "there are no rotary angles to scale; leave it out or set model.position to rope"});
  }
  if (model.rope_scaling == RopeScaling::kLlama3 && model.rope_low_freq_factor >= model.rope_high_freq_factor) {
    violations->push_back({{"model.rope_low_freq_factor", "model.rope_high_freq_factor"},
                           absl::StrCat("rope_low_freq_factor ", model.rope_low_freq_factor,
                                        " must be less than rope_high_freq_factor ", model.rope_high_freq_factor)});
  }
  if (model.rope_scaling == RopeScaling::kLongRope) CheckLongRope(model, violations);
  if (model.rope_scaling != RopeScaling::kYarn) return;
  if (model.rope_beta_slow > model.rope_beta_fast) {
    violations->push_back({{"model.rope_beta_slow", "model.rope_beta_fast"},
                           absl::StrCat("rope_beta_slow ", model.rope_beta_slow,
                                        " must not be more than rope_beta_fast ", model.rope_beta_fast)});
  }
  const bool window_is_scaled = model.rope_scaling_layers == RopeScalingLayers::kAll;
  if (model.rope_theta == 1 || (window_is_scaled && model.window_rope_theta == 1)) {
    violations->push_back(
        {{model.rope_theta == 1 ? "model.rope_theta" : "model.window_rope_theta", "model.rope_scaling"},
         "with base 1 all frequencies are one, of which yarn cannot scale some; make it more than 1"});
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

/// Attention multiplies by 1 / sqrt(head_dim), where 1 / head_dim is wanted: the rest is a factor of the norm's weight.
void CheckBaseHeads(const ModelConfig& model, Violations* violations) {
  const int64_t head_dim = HeadDimOf(model);
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
  if (depth && model.norm_position != NormPosition::kBefore) {
    violations->push_back({{"model.norm_position", "model.parametrization"},
                           "a norm at the end of a branch undoes what parametrization completep multiplies the branch "
                           "by; set model.norm_position to before or model.parametrization to mup"});
  }
  if (width && model.scale_embeddings) {
    violations->push_back(
        {{"model.scale_embeddings", "model.parametrization"},
         absl::StrCat("embeddings that are multiplied by sqrt(hidden_size) grow with the width, which "
                      "parametrization ",
                      Name(model.parametrization),
                      " does not make up for; set model.scale_embeddings to false or "
                      "model.parametrization to standard")});
  }
  if (model.zero_init_head && model.tie_embeddings) {
    violations->push_back(
        {{"model.zero_init_head", "model.tie_embeddings"},
         "the head is the table of embeddings, which cannot begin with zeros; set one of both to false"});
  }
}

std::vector<Field> ModelFields(Config* config) {
  for (Section& section : ConfigTable(config)) {
    if (section.name == "model") return std::move(section.fields);
  }
  return {};
}

/// The same biases, said in one way.
void SimplifyBiases(ModelConfig* model) {
  const bool qkv = model->HasQkvBias(), out = model->HasAttentionOutBias(), mlp = model->HasMlpBias();
  model->bias = out && mlp;
  model->attention_bias = out && !mlp;
  model->qkv_bias = qkv && !out;
  model->mlp_bias = mlp && !out;
}

/// The same layers with a window, those with scaled angles and the angles' bases, said in one way.
void SimplifyWindows(ModelConfig* model) {
  if (model->sliding_window == 0) {
    model->first_window_layer = 1;
    model->rope_scaling_layers = RopeScalingLayers::kAll;
  }
  if (model->sliding_window == 0 || model->window_rope_theta == model->rope_theta) model->window_rope_theta = 0;
  const int64_t first_full = model->first_window_layer - 1 + model->full_attention_step;
  if (model->sliding_window == 0 || first_full > model->num_layers) model->full_attention_step = 0;
}

/// "" or the range that the value of `field` is outside of.
std::string RangeOf(const Field& field) {
  if (const auto* numbers = std::get_if<NumbersValue>(&field.value)) {
    for (const double number : *numbers->value) {
      if (number >= numbers->min && number <= numbers->max) continue;
      return absl::StrCat("must hold numbers between ", numbers->min, " and ", numbers->max, ", got ", number);
    }
    return "";
  }
  if (const auto* number = std::get_if<IntValue>(&field.value)) {
    if (*number->value >= number->min && *number->value <= number->max) return "";
    return absl::StrCat("must be between ", number->min, " and ", number->max, ", got ", *number->value);
  }
  const auto* number = std::get_if<DoubleValue>(&field.value);
  if (number == nullptr || (*number->value >= number->min && *number->value <= number->max)) return "";
  return absl::StrCat("must be between ", number->min, " and ", number->max, ", got ", *number->value);
}

}  // namespace

std::vector<Violation> ModelViolations(const ModelConfig& model) {
  Violations violations;
  CheckHeads(model, &violations);
  CheckNorms(model, &violations);
  CheckExperts(model, &violations);
  CheckWindows(model, &violations);
  CheckRope(model, &violations);
  CheckParameters(model, &violations);
  return violations;
}

std::vector<Violation> ParametrizationViolations(const ModelConfig& model) {
  Violations violations;
  CheckParametrization(model, &violations);
  return violations;
}

void ResolveDerived(ModelConfig* model) {
  if (model->num_kv_heads == 0) model->num_kv_heads = model->num_heads;
  model->head_dim = HeadDimOf(*model);
  if (model->rope_dim == model->head_dim) model->rope_dim = 0;
  if (model->intermediate_size == 0) model->intermediate_size = 4 * model->hidden_size;
  if (model->expert_intermediate_size == 0 && model->num_experts > 0) {
    model->expert_intermediate_size = model->intermediate_size;
  }
}

std::vector<ModelDifference> ArithmeticDifferences(const ModelConfig& ours, const ModelConfig& theirs) {
  const bool rope = theirs.position == PositionKind::kRope;
  const bool scaled = ours.rope_scaling != RopeScaling::kNone && theirs.rope_scaling != RopeScaling::kNone;
  const bool dense_layers = theirs.NumExpertLayers() < theirs.num_layers;
  const auto decides = [rope, scaled, dense_layers](const std::string& key) {
    if (key == "max_sequence_length") return !rope;
    if (key == "intermediate_size") return dense_layers;
    if (key == "rope_dim" || key == "rope_theta" || key == "window_rope_theta" || key == "rope_scaling") return rope;
    if (key.starts_with("rope_")) return scaled;
    return key != "family" && key != "dropout" && key != "init_std" && key != "zero_init_head" &&
           key != "router_balance_loss" && key != "router_z_loss" && key != "router_bias_rate" &&
           key != "expert_capacity" && key != "router_jitter" && key != "router_balance" && key != "parametrization" &&
           !key.starts_with("base_");
  };
  Config a, b;
  a.model = ours;
  b.model = theirs;
  for (ModelConfig* model : {&a.model, &b.model}) {
    SimplifyBiases(model);
    SimplifyWindows(model);
  }
  const std::vector<Field> our_fields = ModelFields(&a), their_fields = ModelFields(&b);
  std::vector<ModelDifference> differences;
  for (size_t i = 0; i < our_fields.size(); ++i) {
    ModelDifference difference{our_fields[i].key, PrintValue(our_fields[i]), PrintValue(their_fields[i])};
    if (difference.ours != difference.theirs && decides(difference.key)) differences.push_back(std::move(difference));
  }
  return differences;
}

absl::Status CheckModel(const ModelConfig& model) {
  Config config;
  config.model = model;
  std::vector<std::string> problems;
  for (const Field& field : ModelFields(&config)) {
    const std::string range = RangeOf(field);
    if (!range.empty()) problems.push_back(absl::StrCat("model.", field.key, ": ", range));
  }
  const std::vector<Violation> violations = problems.empty() ? ModelViolations(model) : std::vector<Violation>();
  for (const Violation& violation : violations) {
    problems.push_back(absl::StrCat(violation.keys.front(), ": ", violation.message));
  }
  return problems.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(problems, "; "));
}

}  // namespace holdfast
