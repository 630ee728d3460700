#pragma once
// The files of a saved model in Hugging Face's form: tensor names, config.json and what stands beside it. A transformer
// that its family cannot say exactly (Family::Inexpressible) is saved under our own names with model_type "holdfast".

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/nn/layout.h"
#include "framework/nn/tensor_map.h"

namespace holdfast {

/// Which tensor of the files is which rows of which parameter.
TensorMap HuggingFaceTensorMap(const ModelConfig& config, const ParameterLayout& layout);

/// Tensors found in files of these families that are no parameters (attention masks, rotary tables, a tied lm_head).
bool IsIgnorableHuggingFaceTensor(const ModelConfig& config, const std::string& name);

struct SpecialToken {
  int32_t id = 0;
  std::string text;
};

/// What the files of a saved model say of its tokenizer.
struct SavedTokenizer {
  bool bytes = false;  // tokens are bytes
  std::optional<SpecialToken> bos = {}, eos = {};
};

/// `dtype`: of the weights, as torch calls it; empty: not said. `original`: the config.json of the model that this one
/// was made of, whose padding token stays, and in the same family with experts what transformers trains routers with;
/// empty if there is none.
std::string HuggingFaceConfigJson(const ModelConfig& config, const SavedTokenizer& tokenizer,
                                  const std::string& dtype = "", const std::string& original = "");
/// `original`: the file beside the tokenizer.json, whose settings and further ends of text stay; empty if there is
/// none.
std::string HuggingFaceGenerationConfigJson(const SavedTokenizer& tokenizer, const std::string& original);
/// What transformers takes for the generation_config.json of a model that has none: of its config.json, the ends of
/// text and the padding that are tokens of the vocabulary.
std::string ImpliedGenerationConfigJson(const std::string& config_json, int64_t vocab_size);
/// `original`: the file beside the tokenizer.json, whose settings (a chat template, ...) stay; empty if there is none.
std::string HuggingFaceTokenizerConfigJson(const ModelConfig& config, const SavedTokenizer& tokenizer,
                                           const std::string& original);

/// What a tokenizer_config.json or special_tokens_map.json calls its special tokens. Nothing: it does not say; empty:
/// it says that there is none (null, or a bos_token that a class without one of its own leaves out).
struct SpecialTokenTexts {
  std::optional<std::string> bos, eos;
  bool adds_tokens = false;  // has an added_tokens_decoder, beside which transformers reads no special_tokens_map.json
};
SpecialTokenTexts ReadTokenizerConfigJson(const std::string& text);

struct HuggingFaceConfig {
  ModelConfig model;  // resolved, each value in its range
  bool byte_tokenizer = false;
};

/// Reads config.json text. Unimplemented, naming the key, for what the transformer does not have (other activations,
/// windows that only some layers have, ...) and for keys that nobody knows (README.md says which pass); InvalidArgument
/// for nonsense. All that is wrong is in one message.
absl::StatusOr<HuggingFaceConfig> ParseHuggingFaceConfig(const std::string& text, const std::string& path);

}  // namespace holdfast
