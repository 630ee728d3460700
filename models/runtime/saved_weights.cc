#include "models/runtime/saved_weights.h"

#include "checkpoint/saved_model.h"
#include "framework/base/status.h"
#include "models/families/huggingface.h"
#include "models/runtime/saved_model_files.h"

namespace holdfast {

absl::Status SaveWeights(const std::string& directory, const Config& config, const ParameterLayout& layout,
                         const ReadWeightsFn& read) {
  ASSIGN_OR_RETURN(const SavedModelFiles files, MakeSavedModelFiles(config.model, config.data.tokenizer));
  return SaveModel(directory, layout, HuggingFaceTensorMap(config.model, layout), read, FileDType::kF32, files);
}

absl::StatusOr<std::vector<float>> LoadSavedWeights(const std::string& directory, const ModelConfig& model,
                                                    const ParameterLayout& layout) {
  std::vector<float> values(static_cast<size_t>(layout.elements()));
  const auto ignorable = [&](const std::string& name) { return IsIgnorableHuggingFaceTensor(model, name); };
  RETURN_IF_ERROR(
      LoadWeights(directory, layout, HuggingFaceTensorMap(model, layout), ignorable, absl::MakeSpan(values)));
  return values;
}

}  // namespace holdfast
