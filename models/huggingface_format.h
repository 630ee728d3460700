#pragma once
// Which outside format a transformer is exactly.

#include "framework/config/config.h"

namespace holdfast {

enum class ExternalFormat { kGpt2, kLlama, kHoldfast };

ExternalFormat FormatOf(const ModelConfig& config);

}  // namespace holdfast
