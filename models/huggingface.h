#pragma once
// Hugging Face's names and config.json for the families it knows: GPT2LMHeadModel and LlamaForCausalLM. A transformer
// that is neither exactly is saved under our own names with model_type "holdfast".

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

/// config.json for `config`; `tokenizer` as in DataConfig ("bytes" is noted in it).
std::string HuggingFaceConfigJson(const ModelConfig& config, const std::string& tokenizer);

struct HuggingFaceConfig {
  ModelConfig model;  // resolved
  bool byte_tokenizer = false;
};

/// Reads config.json text. Unimplemented, naming the field, for features the transformer does not have (other
/// activations, RoPE scaling, sliding windows, ...); InvalidArgument for nonsense.
absl::StatusOr<HuggingFaceConfig> ParseHuggingFaceConfig(const std::string& text, const std::string& path);

}  // namespace holdfast
