#pragma once
// Which layers, as the files of a model name them, have adapters, and which rows of our parameters these are.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/nn/layout.h"
#include "framework/nn/tensor_map.h"

namespace holdfast {

inline constexpr char kWeightSuffix[] = ".weight";  // of a layer's matrix in files

/// A layer of theirs that has an adapter: rows of a weight of the model, and of the two matrices of ours.
struct AdaptedLayer {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  /// "mlp.gate.weight": what PEFT adapts is not a module but this parameter of each block. Empty: the module.
  std::string parameter = {};
  int weight = 0;  // in the layout without adapters
  int64_t first_row = 0, rows = 0;
  int a = 0, b = 0;  // in the layout with adapters
  int64_t first_row_of_a = 0, first_row_of_b = 0;
  int64_t expert = 0, num_experts = 1;  // the matrices of all experts of a layer are tensors of one module
  int64_t parts = 1;                    // of equal numbers of rows, which take turns in theirs (ExternalRows::row_step)
};

/// Of a config with lora, whose model has `layout`.
absl::StatusOr<std::vector<AdaptedLayer>> AdaptedLayers(const Config& config, const ParameterLayout& layout);

/// The name of a tensor of the model as transformers 5 has it, which is the last that files may have.
std::string NewestName(const ExternalTensor& tensor);

/// The tensor of all experts of a layer that transformers 5 has, and may have in files, too; none if there is none.
std::optional<ExternalRows> StackedTensor(const ExternalTensor& tensor);

/// As PEFT names the adapter of parameter `index` of the `count` that it adapts of a module: the first is the
/// innermost.
std::string WrappedModule(std::string module, size_t index, size_t count);

}  // namespace holdfast
