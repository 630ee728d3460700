// config.json, read.

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/json_depth.h"
#include "framework/base/status.h"
#include "framework/config/validate.h"
#include "models/huggingface.h"
#include "models/huggingface_fields.h"
#include "models/huggingface_format.h"

namespace holdfast {
namespace {

using nlohmann::json;

constexpr int64_t kMaxSize = int64_t{1} << 24;  // of any dimension: keeps products of two far from overflow

// What transformers writes into every config.json and what decides nothing in a forward pass: where a file comes from,
// how it is stored, what a model of another task is called, how text is generated, which tokens are special. A key that
// stands neither here nor in one of the lists below is refused.
constexpr std::array kGenericKeys = {
    // origin and storage
    "transformers_version", "torch_dtype", "dtype", "use_bfloat16", "use_cache", "attn_implementation",
    // what a call returns
    "return_dict", "output_attentions", "output_hidden_states", "output_scores", "return_dict_in_generate",
    "torchscript", "tf_legacy_loss", "chunk_size_feed_forward",
    // other tasks and kinds of models
    "finetuning_task", "id2label", "label2id", "num_labels", "problem_type", "task_specific_params", "is_decoder",
    "tie_encoder_decoder", "cross_attention_hidden_size", "decoder_start_token_id",
    // tokens
    "tokenizer_class", "prefix", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id",
    // generation
    "max_length", "max_new_tokens", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
    "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
    "suppress_tokens", "begin_suppress_tokens"};

// Dropout belongs to a run. `summary_*` is a head for another task. Attention in fp32 is what ours is, always.
constexpr std::array kGpt2Keys = {"resid_pdrop",
                                  "embd_pdrop",
                                  "attn_pdrop",
                                  "summary_type",
                                  "summary_use_proj",
                                  "summary_activation",
                                  "summary_proj_to_labels",
                                  "summary_first_dropout",
                                  "reorder_and_upcast_attn"};

// `pretraining_tp` cuts products into parts with the same sum. `original_max_position_embeddings` and
// `max_window_layers` belong to what is refused below.
constexpr std::array kLlamaKeys = {"attention_dropout", "pretraining_tp", "original_max_position_embeddings",
                                   "max_window_layers"};

void CheckArchitectures(FieldReader& in, std::initializer_list<const char*> known) {
  in.Ignore({"architectures"});
  if (!in.Has("architectures")) return;
  const json& names = in["architectures"];
  const bool all_known = names.is_array() && std::all_of(names.begin(), names.end(), [&](const json& name) {
                           return std::any_of(known.begin(), known.end(), [&](const char* k) { return name == k; });
                         });
  if (!all_known) in.Unsupported("architectures");
}

void CheckGeneric(FieldReader& in) {
  in.Ignore(kGenericKeys);
  in.Only("is_encoder_decoder", {false});
  in.Only("add_cross_attention", {false});
  in.Only("pruned_heads", {json::object()});
  in.Only("quantization_config", {});
}

ModelConfig ReadGpt2(FieldReader& in) {
  ModelConfig c{.family = Family::kGpt2};
  CheckArchitectures(in, {"GPT2LMHeadModel", "GPT2Model"});
  in.Ignore(kGpt2Keys);
  c.vocab_size = in.Size("vocab_size", kMaxSize);
  c.max_sequence_length = in.Size("n_positions", kMaxSize);
  c.hidden_size = in.Size("n_embd", kMaxSize);
  c.num_layers = in.Size("n_layer", kMaxSize);
  c.num_heads = c.num_kv_heads = in.Size("n_head", kMaxSize);
  c.head_dim = c.hidden_size / c.num_heads;
  if (c.head_dim * c.num_heads != c.hidden_size) in.Invalid("n_embd", "is not a multiple of n_head");
  c.intermediate_size = in.Size("n_inner", kMaxSize, 4 * c.hidden_size);
  c.norm_eps = in.Positive("layer_norm_epsilon", 1e-5);
  c.init_std = in.NotNegative("initializer_range", 0.02);
  c.tie_embeddings = in.Bool("tie_word_embeddings", true);
  in.Only("n_ctx", {c.max_sequence_length});  // of 2019: the length of the causal mask
  in.Only("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  in.Only("scale_attn_weights", {true});
  in.Only("scale_attn_by_inverse_layer_idx", {false});
  return c;
}

/// The base of the angles, and a refusal of everything that bends them. transformers 5 keeps both in "rope_parameters",
/// earlier ones in "rope_theta" and "rope_scaling".
double ReadRope(FieldReader& in, const std::string& path) {
  double theta = in.Positive("rope_theta", 10000.0);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    in.Ignore({key});
    if (!in.Has(key)) continue;
    if (!in[key].is_object()) {
      in.Invalid(key, "is not an object");
      continue;
    }
    FieldReader rope(in[key], absl::StrCat(path, ": ", key));
    const double own = rope.Positive("rope_theta", theta);
    if (in.Has("rope_theta") && own != theta) {
      in.Invalid(key, absl::StrCat("has rope_theta ", own, ", but rope_theta beside it is ", theta));
    }
    theta = own;
    rope.Only("partial_rotary_factor", {1});
    rope.Only("rope_type", {"default"});
    rope.Only("type", {"default"});
    if (rope.status().ok()) rope.RefuseUnknown();  // of a type that is refused, every other key is unknown
    in.Add(rope.status());
  }
  in.Only("partial_rotary_factor", {1});
  return theta;
}

/// Every key reads what is before it, or every layer's kind of attention says so.
void CheckLlamaAttention(FieldReader& in) {
  in.Only("use_sliding_window", {false});
  if (in.Bool("use_sliding_window", true)) in.Only("sliding_window", {0});
  in.Ignore({"sliding_window", "layer_types"});
  if (!in.Has("layer_types")) return;
  const json& types = in["layer_types"];
  const auto is_full = [](const json& type) { return type == "full_attention"; };
  if (!types.is_array() || !std::all_of(types.begin(), types.end(), is_full)) in.Unsupported("layer_types");
}

ModelConfig ReadLlama(FieldReader& in, const std::string& path) {
  ModelConfig c{.family = Family::kLlama,
                .position = PositionKind::kRope,
                .norm = NormType::kRmsNorm,
                .activation = ActivationKind::kSwiglu};
  CheckArchitectures(in, {"LlamaForCausalLM", "LlamaModel"});
  in.Ignore(kLlamaKeys);
  c.vocab_size = in.Size("vocab_size", kMaxSize);
  c.max_sequence_length = in.Size("max_position_embeddings", kMaxSize, 2048);
  c.hidden_size = in.Size("hidden_size", kMaxSize);
  c.num_layers = in.Size("num_hidden_layers", kMaxSize);
  c.num_heads = in.Size("num_attention_heads", kMaxSize);
  c.num_kv_heads = in.Size("num_key_value_heads", kMaxSize, c.num_heads);
  if (c.num_heads % c.num_kv_heads != 0) in.Invalid("num_attention_heads", "is not a multiple of num_key_value_heads");
  c.head_dim = in.Size("head_dim", kMaxSize, c.hidden_size / c.num_heads);
  c.intermediate_size = in.Size("intermediate_size", kMaxSize);
  c.norm_eps = in.Positive("rms_norm_eps", 1e-6);
  c.init_std = in.NotNegative("initializer_range", 0.02);
  c.rope_theta = ReadRope(in, path);
  c.tie_embeddings = in.Bool("tie_word_embeddings", false);
  c.bias = in.Bool("attention_bias", false);
  if (in.Bool("mlp_bias", false) != c.bias) {
    in.Invalid("mlp_bias", "differs from attention_bias; biases on all projections or on none are supported");
  }
  in.Only("hidden_act", {"silu", "swish"});
  CheckLlamaAttention(in);
  return c;
}

ModelConfig ReadOwn(FieldReader& in) {
  ModelConfig c;
  c.family = in.Choice<Family>("family", {{"gpt2", Family::kGpt2}, {"llama", Family::kLlama}});
  c.vocab_size = in.Size("vocab_size", kMaxSize);
  c.max_sequence_length = in.Size("max_sequence_length", kMaxSize);
  c.num_layers = in.Size("num_layers", kMaxSize);
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
  c.init_std = in.NotNegative("init_std", c.init_std);
  return c;
}

}  // namespace

absl::StatusOr<HuggingFaceConfig> ParseHuggingFaceConfig(const std::string& text, const std::string& path) {
  if (JsonNestsDeeperThan(text, kMaxConfigJsonDepth)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": JSON nested deeper than ", kMaxConfigJsonDepth));
  }
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
    in.Unsupported("model_type");
    return in.status();
  }
  CheckGeneric(in);
  result.byte_tokenizer = in.String(kTokenizerKey, "") == kByteTokenizer;
  in.RefuseUnknown();
  HF_RETURN_IF_ERROR(in.status());
  HF_RETURN_IF_ERROR(Annotate(CheckModel(result.model), path));
  return result;
}

}  // namespace holdfast
