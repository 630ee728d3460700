#include "models/runtime/adapted_layers.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
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
  if (parts == 2 && absl::EndsWith(module, ".mlp.gate_up")) return {lora.gate, lora.up};
  return std::vector<bool>(parts, true);
}

/// "model.layers.3.mlp.gate.weight" -> "mlp.gate.weight": what all blocks have in common.
std::string InBlock(const std::string& name) {
  const std::vector<std::string> words = absl::StrSplit(name, absl::MaxSplits('.', 3));
  return words.back();
}

/// In most families of mixtures PEFT takes gate_proj, up_proj and down_proj of target_modules for the experts, also
/// where they are those of other layers (_convert_peft_config_moe), and routers are no modules that it adapts. As
/// parameters all are what they are.
bool IsParameter(const ModelConfig& model, const std::string& name) {
  return model.NumExpertLayers() > 0 && absl::StartsWith(name, "model.layers.") && absl::StrContains(name, ".mlp.");
}

}  // namespace

std::string NewestName(const ExternalTensor& tensor) {
  for (const ExternalRows& other : tensor.others) {
    if (other.shape == tensor.shape && absl::StartsWith(other.name, "model.")) return other.name;
  }
  return tensor.name;
}

std::optional<ExternalRows> StackedTensor(const ExternalTensor& tensor) {
  if (tensor.shape.rank() == 3) {
    const int64_t row = tensor.file_row;
    return ExternalRows{.name = tensor.name, .first_row = row, .shape = tensor.shape, .row_step = tensor.row_step};
  }
  for (const ExternalRows& other : tensor.others) {
    if (other.shape.rank() == 3) return other;
  }
  return std::nullopt;
}

std::string WrappedModule(std::string module, size_t index, size_t count) {
  for (; index + 1 < count; ++index) module += ".base_layer";
  return module;
}

absl::StatusOr<std::vector<AdaptedLayer>> AdaptedLayers(const Config& config, const ParameterLayout& layout) {
  ASSIGN_OR_RETURN(const LoraOptions lora, LoraOptionsOf(config));
  const ParameterLayout base = TransformerLayout(config.model);
  std::map<int, std::vector<ExternalTensor>> of_weight;  // by first row, as the map has them
  for (ExternalTensor& tensor : HuggingFaceTensorMap(config.model, base)) {
    of_weight[tensor.parameter].push_back(std::move(tensor));
  }
  std::vector<AdaptedLayer> adapted;
  for (const auto& [weight, tensors] : of_weight) {
    const ParameterSpec& spec = base.parameters()[static_cast<size_t>(weight)];
    const std::string module(absl::StripSuffix(spec.name, kWeightSuffix));
    const int a = layout.Find(module + ".lora_a"), b = layout.Find(module + ".lora_b");
    if (a < 0) continue;
    if (const std::optional<ExternalRows> stacked = StackedTensor(tensors.front()); stacked.has_value()) {
      const std::string experts = stacked->name.substr(0, stacked->name.rfind('.'));
      adapted.push_back({.module = WrappedModule(experts, absl::EndsWith(module, ".gate_up") ? 0 : 1, 2),
                         .parameter = InBlock(stacked->name),
                         .weight = weight,
                         .rows = spec.shape.rows(),
                         .a = a,
                         .b = b,
                         .expert = stacked->first_row / spec.shape.rows(),
                         .num_experts = stacked->shape[0],
                         .parts = stacked->row_step});
      continue;
    }
    const std::vector<bool> wanted = WantedParts(lora, module, tensors.size());
    int64_t of_a = 0, of_b = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!wanted[i]) continue;
      const std::string name = NewestName(tensors[i]);
      adapted.push_back({.module = std::string(absl::StripSuffix(name, kWeightSuffix)),
                         .parameter = IsParameter(config.model, name) ? InBlock(name) : "",
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
