#include "models/runtime/saved_weights.h"

#include "checkpoint/saved_model.h"
#include "framework/base/status.h"
#include "models/families/huggingface.h"
#include "models/runtime/saved_model_files.h"

namespace holdfast {

absl::Status SaveWeights(const std::string& directory, const Config& config, const ParameterLayout& layout,
                         const ReadWeightsFn& read, const std::function<absl::Status()>& may_replace) {
  ASSIGN_OR_RETURN(SavedModelFiles files,
                   MakeSavedModelFiles(config.model, config.data.tokenizer, FileDType::kF32, config.train.init_from));
  KeepChatTemplate(directory, &files);
  files.may_replace = may_replace;
  return SaveModel(directory, layout, HuggingFaceTensorMap(config.model, layout), read, FileDType::kF32, files);
}

}  // namespace holdfast
