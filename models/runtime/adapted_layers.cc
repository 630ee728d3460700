#include "models/runtime/adapted_layers.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "framework/base/status.h"
#include "models/families/huggingface.h"
#include "models/runtime/trained_parameters.h"
#include "models/transformer.h"

namespace holdfast {
namespace {

/// Which of the layers of theirs that a weight of ours is made of have adapters.
std::vector<bool> WantedParts(const LoraOptions& lora, const std::string& module, size_t parts) {
  if (parts == 3 && absl::EndsWith(module, ".attention.qkv")) return {lora.query, lora.key, lora.value};
  if (parts == 2 && absl::EndsWith(module, ".gate_up")) return {lora.gate, lora.up};
  return std::vector<bool>(parts, true);
}

}  // namespace

absl::StatusOr<std::vector<AdaptedLayer>> AdaptedLayers(const Config& config, const ParameterLayout& layout) {
  ASSIGN_OR_RETURN(const LoraOptions lora, LoraOptionsOf(config));
  const ParameterLayout base = TransformerLayout(config.model);
  std::map<int, std::vector<ExternalTensor>> of_weight;  // by first row, as the map has them
  for (ExternalTensor& tensor : HuggingFaceTensorMap(config.model, base)) {
    of_weight[tensor.parameter].push_back(std::move(tensor));
  }
  std::vector<AdaptedLayer> adapted;
  for (const auto& [weight, tensors] : of_weight) {
    const std::string module(absl::StripSuffix(base.parameters()[static_cast<size_t>(weight)].name, kWeightSuffix));
    const int a = layout.Find(module + ".lora_a"), b = layout.Find(module + ".lora_b");
    if (a < 0) continue;
    const std::vector<bool> wanted = WantedParts(lora, module, tensors.size());
    int64_t of_a = 0, of_b = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!wanted[i]) continue;
      adapted.push_back({.module = std::string(absl::StripSuffix(tensors[i].name, kWeightSuffix)),
                         .weight = weight,
                         .first_row = tensors[i].first_row,
                         .rows = tensors[i].num_rows,
                         .a = a,
                         .b = b,
                         .first_row_of_a = of_a,
                         .first_row_of_b = of_b});
      of_a += lora.rank;
      of_b += tensors[i].num_rows;
    }
  }
  return adapted;
}

}  // namespace holdfast
