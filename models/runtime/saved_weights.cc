#include "models/runtime/saved_weights.h"

#include <cstring>

#include "checkpoint/saved_model.h"
#include "framework/base/status.h"
#include "models/families/huggingface.h"
#include "models/runtime/initial_model.h"
#include "models/runtime/saved_model_files.h"
#include "models/transformer.h"

namespace holdfast {

absl::Status SaveWeights(const std::string& directory, const Config& config, const ParameterLayout& layout,
                         const ReadWeightsFn& read) {
  ASSIGN_OR_RETURN(const SavedModelFiles files,
                   MakeSavedModelFiles(config.model, config.data.tokenizer, FileDType::kF32));
  return SaveModel(directory, layout, HuggingFaceTensorMap(config.model, layout), read, FileDType::kF32, files);
}

absl::StatusOr<std::vector<float>> LoadSavedWeights(const std::string& directory, const ModelConfig& model,
                                                    const ParameterLayout& layout) {
  ModelConfig saved = model;
  if (model.router_bias) {
    ASSIGN_OR_RETURN(const HuggingFaceConfig config, ReadModelConfig(directory));
    saved.router_bias = config.model.router_bias;
  }
  const ParameterLayout saved_layout = TransformerLayout(saved);
  const auto ignorable = [&](const std::string& name) { return IsIgnorableHuggingFaceTensor(saved, name); };
  std::vector<float> values(static_cast<size_t>(layout.elements()));
  RETURN_IF_ERROR(LoadWeights(directory, saved_layout, HuggingFaceTensorMap(saved, saved_layout), ignorable,
                              absl::MakeSpan(values).first(static_cast<size_t>(saved_layout.elements()))));
  if (saved.router_bias == model.router_bias) return values;
  for (auto p = layout.parameters().rbegin(); p != layout.parameters().rend();
       ++p) {  // to their places, the last first
    const auto bytes = static_cast<size_t>(p->shape.elements()) * sizeof(float);
    if (p->balance.has_value()) {
      std::memset(&values[static_cast<size_t>(p->offset)], 0, bytes);
    } else {
      const ParameterSpec& from = saved_layout.parameters()[static_cast<size_t>(saved_layout.Find(p->name))];
      std::memmove(&values[static_cast<size_t>(p->offset)], &values[static_cast<size_t>(from.offset)], bytes);
    }
  }
  return values;
}

}  // namespace holdfast
