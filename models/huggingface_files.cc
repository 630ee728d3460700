// The JSON files of a saved model, written: config.json, generation_config.json, tokenizer_config.json.

#include <nlohmann/json.hpp>
#include <string>

#include "framework/base/json_depth.h"
#include "models/huggingface.h"
#include "models/huggingface_format.h"

namespace holdfast {
namespace {

using nlohmann::ordered_json;

/// Null for none, and not left out: the defaults of transformers lie beyond a small vocabulary.
ordered_json IdOf(const std::optional<SpecialToken>& token) {
  return token.has_value() ? ordered_json(token->id) : ordered_json(nullptr);
}

ordered_json Gpt2Json(const ModelConfig& c, const SavedTokenizer& tokens) {
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
          {"bos_token_id", IdOf(tokens.bos)},
          {"eos_token_id", IdOf(tokens.eos)},
          {"tie_word_embeddings", c.tie_embeddings}};
}

ordered_json LlamaJson(const ModelConfig& c, const SavedTokenizer& tokens) {
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
          {"bos_token_id", IdOf(tokens.bos)},
          {"eos_token_id", IdOf(tokens.eos)},
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

/// The text of a special token in a tokenizer_config.json: "</s>", or {"content": "</s>", ...}.
std::string TokenText(const ordered_json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return "";
  const ordered_json& token = found->is_object() && found->contains("content") ? (*found)["content"] : *found;
  return token.is_string() ? token.get<std::string>() : "";
}

/// Empty if it is no JSON object.
ordered_json ParseTokenizerConfig(const std::string& text) {
  if (JsonNestsDeeperThan(text, kMaxConfigJsonDepth)) return ordered_json::object();
  ordered_json parsed = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_object() ? parsed : ordered_json::object();
}

}  // namespace

std::string HuggingFaceConfigJson(const ModelConfig& config, const SavedTokenizer& tokenizer) {
  const ExternalFormat format = FormatOf(config);
  ordered_json object = format == ExternalFormat::kGpt2    ? Gpt2Json(config, tokenizer)
                        : format == ExternalFormat::kLlama ? LlamaJson(config, tokenizer)
                                                           : OwnJson(config);
  if (tokenizer.bytes) object[kTokenizerKey] = kByteTokenizer;
  return object.dump(2) + "\n";
}

std::string HuggingFaceGenerationConfigJson(const SavedTokenizer& tokenizer) {
  const ordered_json object = {{"bos_token_id", IdOf(tokenizer.bos)}, {"eos_token_id", IdOf(tokenizer.eos)}};
  return object.dump(2) + "\n";
}

SpecialTokenTexts ReadTokenizerConfigJson(const std::string& text) {
  const ordered_json config = ParseTokenizerConfig(text);
  return {.bos = TokenText(config, "bos_token"), .eos = TokenText(config, "eos_token")};
}

std::string HuggingFaceTokenizerConfigJson(const ModelConfig& config, const SavedTokenizer& tokenizer,
                                           const std::string& original) {
  ordered_json object = ParseTokenizerConfig(original);
  object.erase("auto_map");  // code of somebody else
  // The class that takes tokenizer.json as it is, by a name that versions 4 and 5 know. Those of families, which
  // transformers takes without this file, add their own special tokens beyond the vocabulary.
  object["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (tokenizer.bos.has_value()) object["bos_token"] = tokenizer.bos->text;
  if (tokenizer.eos.has_value()) object["eos_token"] = tokenizer.eos->text;
  if (!object.contains("model_max_length")) object["model_max_length"] = config.max_sequence_length;
  if (!object.contains("clean_up_tokenization_spaces")) object["clean_up_tokenization_spaces"] = false;
  return object.dump(2) + "\n";
}

}  // namespace holdfast
