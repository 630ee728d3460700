#pragma once
// Which layers, as the files of a model name them, have adapters, and which rows of our parameters these are.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/nn/layout.h"

namespace holdfast {

inline constexpr char kWeightSuffix[] = ".weight";  // of a layer's matrix in files

/// A layer of theirs that has an adapter: rows of a weight of the model, and of the two matrices of ours.
struct AdaptedLayer {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  int weight = 0;      // in the layout without adapters
  int64_t first_row = 0, rows = 0;
  int a = 0, b = 0;  // in the layout with adapters
  int64_t first_row_of_a = 0, first_row_of_b = 0;
};

/// Of a config with lora, whose model has `layout`.
absl::StatusOr<std::vector<AdaptedLayer>> AdaptedLayers(const Config& config, const ParameterLayout& layout);

}  // namespace holdfast
