#pragma once
// What the files of huggingface.h share: which outside format a transformer is exactly, how config.json says that
// tokens are bytes, and how deep JSON may nest.

#include "framework/config/config.h"

namespace holdfast {

inline constexpr char kTokenizerKey[] = "holdfast_tokenizer", kByteTokenizer[] = "bytes";

inline constexpr int kMaxConfigJsonDepth = 32;

enum class ExternalFormat { kGpt2, kLlama, kHoldfast };

ExternalFormat FormatOf(const ModelConfig& config);

}  // namespace holdfast
