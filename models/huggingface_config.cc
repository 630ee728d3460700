// config.json, written and read.

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "framework/base/status.h"
#include "models/huggingface.h"
#include "models/huggingface_format.h"

namespace holdfast {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr char kTokenizerKey[] = "holdfast_tokenizer";
constexpr int64_t kMaxVocabulary = int64_t{1} << 31;
constexpr int64_t kMaxSize = int64_t{1} << 24;  // of any other dimension: keeps products of two far from overflow
constexpr int64_t kMaxLayers = 4096;

/// Typed access to a JSON object that keeps the first error.
class FieldReader {
 public:
  FieldReader(const json& object, std::string path) : object_(object), path_(std::move(path)) {}

  const absl::Status& status() const { return status_; }
  bool Has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  const json& operator[](const char* key) const { return object_[key]; }

  /// Whole number in [1, max].
  int64_t Size(const char* key, int64_t max) {
    if (!Has(key)) return Invalid(key, "is missing"), 1;
    const json& value = object_[key];
    if (!value.is_number_integer() || value.get<double>() < 1 || value.get<double>() > static_cast<double>(max)) {
      return Invalid(key, absl::StrCat("is ", value.dump(), ", not a whole number from 1 to ", max)), 1;
    }
    return value.get<int64_t>();
  }
  int64_t Size(const char* key, int64_t max, int64_t otherwise) { return Has(key) ? Size(key, max) : otherwise; }

  double Positive(const char* key, double otherwise) {
    if (!Has(key)) return otherwise;
    const json& value = object_[key];
    if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>())) {
      return Invalid(key, absl::StrCat("is ", value.dump(), ", not a positive number")), 1;
    }
    return value.get<double>();
  }

  bool Bool(const char* key, bool otherwise) {
    if (!Has(key)) return otherwise;
    if (!object_[key].is_boolean()) return Invalid(key, "is neither true nor false"), otherwise;
    return object_[key].get<bool>();
  }

  std::string String(const char* key, const std::string& otherwise) {
    if (!Has(key)) return otherwise;
    if (!object_[key].is_string()) return Invalid(key, "is not a string"), otherwise;
    return object_[key].get<std::string>();
  }

  /// One of `names`, by its place in them.
  template <typename Enum>
  Enum Choice(const char* key, std::initializer_list<std::pair<const char*, Enum>> names) {
    const std::string value = String(key, "");
    for (const auto& [name, choice] : names) {
      if (value == name) return choice;
    }
    Unsupported(key, object_.contains(key) ? object_[key].dump() : "missing");
    return names.begin()->second;
  }

  void Invalid(const std::string& key, const std::string& what) {
    status_.Update(absl::InvalidArgumentError(absl::StrCat(path_, ": ", key, " ", what)));
  }
  void Unsupported(const std::string& key, const std::string& value) {
    status_.Update(absl::UnimplementedError(absl::StrCat(path_, ": ", key, " = ", value, " is not supported")));
  }

 private:
  const json& object_;
  std::string path_;
  absl::Status status_;
};

ordered_json Gpt2Json(const ModelConfig& c) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", c.vocab_size},
          {"n_positions", c.max_sequence_length},
          {"n_embd", c.hidden_size},
          {"n_layer", c.num_layers},
          {"n_head", c.num_heads},
          {"n_inner", c.intermediate_size},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", c.norm_eps},
          {"resid_pdrop", c.dropout},
          {"embd_pdrop", c.dropout},
          {"attn_pdrop", c.dropout},
          {"initializer_range", c.init_std},
          {"bos_token_id", nullptr},  // the defaults lie beyond a small vocabulary
          {"eos_token_id", nullptr},
          {"tie_word_embeddings", c.tie_embeddings}};
}

ordered_json LlamaJson(const ModelConfig& c) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", c.vocab_size},
          {"max_position_embeddings", c.max_sequence_length},
          {"hidden_size", c.hidden_size},
          {"intermediate_size", c.intermediate_size},
          {"num_hidden_layers", c.num_layers},
          {"num_attention_heads", c.num_heads},
          {"num_key_value_heads", c.num_kv_heads},
          {"head_dim", c.head_dim},
          {"hidden_act", "silu"},
          {"rms_norm_eps", c.norm_eps},
          {"rope_theta", c.rope_theta},  // where transformers before 5 look
          {"rope_parameters", {{"rope_theta", c.rope_theta}, {"rope_type", "default"}}},
          {"attention_bias", c.bias},
          {"mlp_bias", c.bias},
          {"attention_dropout", c.dropout},
          {"initializer_range", c.init_std},
          {"bos_token_id", nullptr},  // the defaults lie beyond a small vocabulary
          {"eos_token_id", nullptr},
          {"tie_word_embeddings", c.tie_embeddings}};
}

ordered_json OwnJson(const ModelConfig& c) {
  return {{"model_type", "holdfast"},
          {"family", c.family == Family::kGpt2 ? "gpt2" : "llama"},
          {"vocab_size", c.vocab_size},
          {"max_sequence_length", c.max_sequence_length},
          {"num_layers", c.num_layers},
          {"hidden_size", c.hidden_size},
          {"num_heads", c.num_heads},
          {"num_kv_heads", c.num_kv_heads},
          {"head_dim", c.head_dim},
          {"intermediate_size", c.intermediate_size},
          {"position", c.position == PositionKind::kLearned ? "learned" : "rope"},
          {"norm", c.norm == NormType::kLayerNorm ? "layernorm" : "rmsnorm"},
          {"activation", c.activation == ActivationKind::kGelu ? "gelu" : "swiglu"},
          {"bias", c.bias},
          {"tie_embeddings", c.tie_embeddings},
          {"norm_eps", c.norm_eps},
          {"rope_theta", c.rope_theta},
          {"init_std", c.init_std}};
}

ModelConfig ReadGpt2(FieldReader& in) {
  ModelConfig c{.family = Family::kGpt2};
  c.vocab_size = in.Size("vocab_size", kMaxVocabulary);
  c.max_sequence_length = in.Size("n_positions", kMaxSize);
  c.hidden_size = in.Size("n_embd", kMaxSize);
  c.num_layers = in.Size("n_layer", kMaxLayers);
  c.num_heads = c.num_kv_heads = in.Size("n_head", kMaxSize);
  c.head_dim = c.hidden_size / c.num_heads;
  if (c.head_dim * c.num_heads != c.hidden_size) in.Invalid("n_embd", "is not a multiple of n_head");
  c.intermediate_size = in.Size("n_inner", kMaxSize, 4 * c.hidden_size);
  c.norm_eps = in.Positive("layer_norm_epsilon", 1e-5);
  c.init_std = in.Positive("initializer_range", 0.02);
  c.tie_embeddings = in.Bool("tie_word_embeddings", true);
  const std::string activation = in.String("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    in.Unsupported("activation_function", activation);
  }
  if (!in.Bool("scale_attn_weights", true)) in.Unsupported("scale_attn_weights", "false");
  for (const char* feature : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (in.Bool(feature, false)) in.Unsupported(feature, "true");
  }
  return c;
}

/// The angle base and a refusal of everything that bends the angles. transformers 5 keeps both in "rope_parameters",
/// earlier ones in "rope_theta" and "rope_scaling".
double ReadRope(FieldReader& in, const std::string& path) {
  double theta = in.Positive("rope_theta", 10000.0);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!in.Has(key)) continue;
    if (!in[key].is_object()) {
      in.Invalid(key, "is not an object");
      continue;
    }
    FieldReader rope(in[key], absl::StrCat(path, ": ", key));
    theta = rope.Positive("rope_theta", theta);
    const std::string type = rope.String("rope_type", rope.String("type", "default"));
    if (type != "default") in.Unsupported(absl::StrCat(key, ".rope_type"), type);
    if (rope.Positive("partial_rotary_factor", 1) != 1) in.Unsupported(key, in[key].dump());
    if (!rope.status().ok()) in.Invalid(key, std::string(rope.status().message()));
  }
  if (in.Positive("partial_rotary_factor", 1) != 1) in.Unsupported("partial_rotary_factor", "other than 1");
  return theta;
}

ModelConfig ReadLlama(FieldReader& in, const std::string& path) {
  ModelConfig c{.family = Family::kLlama,
                .position = PositionKind::kRope,
                .norm = NormType::kRmsNorm,
                .activation = ActivationKind::kSwiglu};
  c.vocab_size = in.Size("vocab_size", kMaxVocabulary);
  c.max_sequence_length = in.Size("max_position_embeddings", kMaxSize, 2048);
  c.hidden_size = in.Size("hidden_size", kMaxSize);
  c.num_layers = in.Size("num_hidden_layers", kMaxLayers);
  c.num_heads = in.Size("num_attention_heads", kMaxSize);
  c.num_kv_heads = in.Size("num_key_value_heads", kMaxSize, c.num_heads);
  if (c.num_heads % c.num_kv_heads != 0) in.Invalid("num_attention_heads", "is not a multiple of num_key_value_heads");
  c.head_dim = in.Size("head_dim", kMaxSize, c.hidden_size / c.num_heads);
  c.intermediate_size = in.Size("intermediate_size", kMaxSize);
  c.norm_eps = in.Positive("rms_norm_eps", 1e-6);
  c.init_std = in.Positive("initializer_range", 0.02);
  c.rope_theta = ReadRope(in, path);
  c.tie_embeddings = in.Bool("tie_word_embeddings", false);
  c.bias = in.Bool("attention_bias", false);
  if (in.Bool("mlp_bias", false) != c.bias) in.Unsupported("mlp_bias", "other than attention_bias");
  const std::string activation = in.String("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") in.Unsupported("hidden_act", activation);
  if (in.Has("sliding_window")) in.Unsupported("sliding_window", in["sliding_window"].dump());
  return c;
}

ModelConfig ReadOwn(FieldReader& in) {
  ModelConfig c;
  c.family = in.Choice<Family>("family", {{"gpt2", Family::kGpt2}, {"llama", Family::kLlama}});
  c.vocab_size = in.Size("vocab_size", kMaxVocabulary);
  c.max_sequence_length = in.Size("max_sequence_length", kMaxSize);
  c.num_layers = in.Size("num_layers", kMaxLayers);
  c.hidden_size = in.Size("hidden_size", kMaxSize);
  c.num_heads = in.Size("num_heads", kMaxSize);
  c.num_kv_heads = in.Size("num_kv_heads", kMaxSize);
  if (c.num_heads % c.num_kv_heads != 0) in.Invalid("num_heads", "is not a multiple of num_kv_heads");
  c.head_dim = in.Size("head_dim", kMaxSize);
  c.intermediate_size = in.Size("intermediate_size", kMaxSize);
  c.position =
      in.Choice<PositionKind>("position", {{"learned", PositionKind::kLearned}, {"rope", PositionKind::kRope}});
  c.norm = in.Choice<NormType>("norm", {{"layernorm", NormType::kLayerNorm}, {"rmsnorm", NormType::kRmsNorm}});
  c.activation =
      in.Choice<ActivationKind>("activation", {{"gelu", ActivationKind::kGelu}, {"swiglu", ActivationKind::kSwiglu}});
  c.bias = in.Bool("bias", false);
  c.tie_embeddings = in.Bool("tie_embeddings", false);
  c.norm_eps = in.Positive("norm_eps", c.norm_eps);
  c.rope_theta = in.Positive("rope_theta", c.rope_theta);
  c.init_std = in.Positive("init_std", c.init_std);
  return c;
}

}  // namespace

std::string HuggingFaceConfigJson(const ModelConfig& config, const std::string& tokenizer) {
  const ExternalFormat format = FormatOf(config);
  ordered_json object = format == ExternalFormat::kGpt2    ? Gpt2Json(config)
                        : format == ExternalFormat::kLlama ? LlamaJson(config)
                                                           : OwnJson(config);
  if (tokenizer == "bytes") object[kTokenizerKey] = "bytes";
  return object.dump(2) + "\n";
}

absl::StatusOr<HuggingFaceConfig> ParseHuggingFaceConfig(const std::string& text, const std::string& path) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
  FieldReader in(object, path);
  HuggingFaceConfig result;
  const std::string type = in.String("model_type", "");
  if (type == "gpt2") {
    result.model = ReadGpt2(in);
  } else if (type == "llama") {
    result.model = ReadLlama(in, path);
  } else if (type == "holdfast") {
    result.model = ReadOwn(in);
  } else {
    in.Unsupported("model_type", type.empty() ? "missing" : type);
  }
  if (in.Has("quantization_config")) in.Unsupported("quantization_config", "set");
  result.byte_tokenizer = in.String(kTokenizerKey, "") == "bytes";
  HF_RETURN_IF_ERROR(in.status());
  return result;
}

}  // namespace holdfast
