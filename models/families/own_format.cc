#include "models/families/own_format.h"

#include "framework/config/enums.h"
#include "models/families/families.h"

namespace holdfast {
namespace {

/// One of an enum's words.
template <class Enum>
Enum ReadEnum(ConfigFields& in, const std::string& key, Enum otherwise) {
  const std::string word = in.String(key, Name(otherwise));
  for (size_t i = 0; i < kWordsOf<Enum>.size(); ++i) {
    if (word == kWordsOf<Enum>[i]) return static_cast<Enum>(i);
  }
  in.Unsupported(key);
  return otherwise;
}

template <class Enum>
Enum ReadRequiredEnum(ConfigFields& in, const std::string& key) {
  if (!in.Has(key)) in.Unsupported(key);
  return ReadEnum(in, key, Enum{});
}

void ReadOwnExperts(ConfigFields& in, ModelConfig* c) {
  c->num_experts = in.Whole("num_experts", 0);
  if (c->num_experts == 0) return;
  c->experts_per_token = in.Size("experts_per_token");
  c->expert_intermediate_size = in.Size("expert_intermediate_size");
  c->expert_bias = in.Bool("expert_bias", false);
  c->swiglu_limit = in.NotNegative("swiglu_limit", 0.0);
  c->first_expert_layer = in.Size("first_expert_layer");
  c->expert_layer_step = in.Size("expert_layer_step");
  c->router_score = ReadRequiredEnum<RouterScoreKind>(in, "router_score");
  c->router_normalize = in.Bool("router_normalize", true);
  c->router_scale = in.Positive("router_scale", 1.0);
  c->router_groups = in.Size("router_groups", 1);
  c->router_groups_chosen = in.Size("router_groups_chosen", 1);
  c->router_bias = in.Bool("router_bias", false);
  c->shared_expert_intermediate_size = in.Whole("shared_expert_intermediate_size", 0);
  c->shared_expert_gate = in.Bool("shared_expert_gate", false);
}

void WriteOwnExperts(const ModelConfig& c, nlohmann::ordered_json* object) {
  if (c.num_experts == 0) return;
  object->update({{"num_experts", c.num_experts},
                  {"experts_per_token", c.experts_per_token},
                  {"expert_intermediate_size", c.expert_intermediate_size},
                  {"expert_bias", c.expert_bias},
                  {"swiglu_limit", c.swiglu_limit},
                  {"first_expert_layer", c.first_expert_layer},
                  {"expert_layer_step", c.expert_layer_step},
                  {"router_score", Name(c.router_score)},
                  {"router_normalize", c.router_normalize},
                  {"router_scale", c.router_scale},
                  {"router_groups", c.router_groups},
                  {"router_groups_chosen", c.router_groups_chosen},
                  {"router_bias", c.router_bias},
                  {"shared_expert_intermediate_size", c.shared_expert_intermediate_size},
                  {"shared_expert_gate", c.shared_expert_gate}});
}

}  // namespace

ModelConfig ReadOwnConfig(ConfigFields& in) {
  ModelConfig c;
  c.family = in.String("family", "");
  if (FindFamily(c.family) == nullptr) in.Unsupported("family");
  c.vocab_size = in.Size("vocab_size");
  c.max_sequence_length = in.Size("max_sequence_length");
  c.num_layers = in.Size("num_layers");
  c.hidden_size = in.Size("hidden_size");
  c.num_heads = in.Size("num_heads");
  c.num_kv_heads = in.Size("num_kv_heads");
  if (c.num_heads % c.num_kv_heads != 0) in.Invalid("num_heads", "is not a multiple of num_kv_heads");
  c.head_dim = in.Size("head_dim");
  c.intermediate_size = in.Size("intermediate_size");
  c.position = ReadRequiredEnum<PositionKind>(in, "position");
  c.norm = ReadRequiredEnum<NormType>(in, "norm");
  c.norm_position = ReadEnum(in, "norm_position", NormPosition::kBefore);
  c.activation = ReadRequiredEnum<ActivationKind>(in, "activation");
  c.bias = in.Bool("bias", false);
  c.attention_bias = in.Bool("attention_bias", false);
  c.qkv_bias = in.Bool("qkv_bias", false);
  c.mlp_bias = in.Bool("mlp_bias", false);
  c.qk_norm = in.Bool("qk_norm", false);
  c.qk_norm_joint = in.Bool("qk_norm_joint", false);
  c.clip_qkv = in.NotNegative("clip_qkv", 0.0);
  c.sliding_window = in.Whole("sliding_window", 0);
  c.first_window_layer = in.Size("first_window_layer", 1);
  c.full_attention_step = in.Whole("full_attention_step", 0);
  c.attention_sinks = in.Bool("attention_sinks", false);
  c.tie_embeddings = in.Bool("tie_embeddings", false);
  c.scale_embeddings = in.Bool("scale_embeddings", false);
  c.norm_eps = in.Positive("norm_eps", c.norm_eps);
  c.rope_dim = in.Whole("rope_dim", 0);
  c.rope_theta = in.Positive("rope_theta", c.rope_theta);
  c.window_rope_theta = in.NotNegative("window_rope_theta", 0.0);
  c.rope_scaling = ReadEnum(in, "rope_scaling", RopeScaling::kNone);
  c.rope_scaling_layers = ReadEnum(in, "rope_scaling_layers", RopeScalingLayers::kAll);
  c.rope_factor = in.Positive("rope_factor", c.rope_factor);
  c.rope_low_freq_factor = in.Positive("rope_low_freq_factor", c.rope_low_freq_factor);
  c.rope_high_freq_factor = in.Positive("rope_high_freq_factor", c.rope_high_freq_factor);
  c.rope_original_length = in.Size("rope_original_length", c.rope_original_length);
  c.rope_beta_fast = in.Positive("rope_beta_fast", c.rope_beta_fast);
  c.rope_beta_slow = in.Positive("rope_beta_slow", c.rope_beta_slow);
  c.rope_truncate = in.Bool("rope_truncate", c.rope_truncate);
  c.rope_attention_factor = in.NotNegative("rope_attention_factor", c.rope_attention_factor);
  c.rope_short_factors = in.Numbers("rope_short_factors");
  c.rope_long_factors = in.Numbers("rope_long_factors");
  c.init_std = in.NotNegative("init_std", c.init_std);
  ReadOwnExperts(in, &c);
  return c;
}

nlohmann::ordered_json WriteOwnConfig(const ModelConfig& c) {
  nlohmann::ordered_json object = {{"model_type", kOwnFormat},
                                   {"family", c.family},
                                   {"vocab_size", c.vocab_size},
                                   {"max_sequence_length", c.max_sequence_length},
                                   {"num_layers", c.num_layers},
                                   {"hidden_size", c.hidden_size},
                                   {"num_heads", c.num_heads},
                                   {"num_kv_heads", c.num_kv_heads},
                                   {"head_dim", c.head_dim},
                                   {"intermediate_size", c.intermediate_size},
                                   {"position", Name(c.position)},
                                   {"norm", Name(c.norm)},
                                   {"norm_position", Name(c.norm_position)},
                                   {"activation", Name(c.activation)},
                                   {"bias", c.bias},
                                   {"attention_bias", c.attention_bias},
                                   {"qkv_bias", c.qkv_bias},
                                   {"mlp_bias", c.mlp_bias},
                                   {"qk_norm", c.qk_norm},
                                   {"qk_norm_joint", c.qk_norm_joint},
                                   {"clip_qkv", c.clip_qkv},
                                   {"sliding_window", c.sliding_window},
                                   {"first_window_layer", c.first_window_layer},
                                   {"full_attention_step", c.full_attention_step},
                                   {"attention_sinks", c.attention_sinks},
                                   {"tie_embeddings", c.tie_embeddings},
                                   {"scale_embeddings", c.scale_embeddings},
                                   {"norm_eps", c.norm_eps},
                                   {"rope_dim", c.rope_dim},
                                   {"rope_theta", c.rope_theta},
                                   {"window_rope_theta", c.window_rope_theta},
                                   {"rope_scaling", Name(c.rope_scaling)},
                                   {"rope_scaling_layers", Name(c.rope_scaling_layers)},
                                   {"rope_factor", c.rope_factor},
                                   {"rope_low_freq_factor", c.rope_low_freq_factor},
                                   {"rope_high_freq_factor", c.rope_high_freq_factor},
                                   {"rope_original_length", c.rope_original_length},
                                   {"rope_beta_fast", c.rope_beta_fast},
                                   {"rope_beta_slow", c.rope_beta_slow},
                                   {"rope_truncate", c.rope_truncate},
                                   {"rope_attention_factor", c.rope_attention_factor},
                                   {"init_std", c.init_std}};
  if (c.rope_scaling == RopeScaling::kLongRope) {
    object.update({{"rope_short_factors", c.rope_short_factors}, {"rope_long_factors", c.rope_long_factors}});
  }
  WriteOwnExperts(c, &object);
  return object;
}

TensorMap OwnTensorMap(const ParameterLayout& layout) {
  TensorMap map;
  for (const ParameterSpec& spec : layout.parameters()) {
    map.push_back({.name = spec.name,
                   .parameter = static_cast<int>(map.size()),
                   .num_rows = spec.is_matrix() ? spec.shape.rows() : spec.shape.elements(),
                   .shape = spec.shape,
                   .fp32 = spec.balance.has_value()});
  }
  return map;
}

}  // namespace holdfast
