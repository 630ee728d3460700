#include "models/runtime/saved_weights.h"

#include "absl/strings/str_cat.h"
#include "checkpoint/model_directory.h"
#include "checkpoint/saved_model.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "models/families/huggingface.h"
#include "models/runtime/saved_model_files.h"

namespace holdfast {
namespace {

constexpr size_t kMaxTemplateBytes = size_t{16} << 20;

}  // namespace

absl::Status SaveWeights(const std::string& directory, const Config& config, const ParameterLayout& layout,
                         const ReadWeightsFn& read) {
  ASSIGN_OR_RETURN(SavedModelFiles files, MakeSavedModelFiles(config.model, config.data.tokenizer, FileDType::kF32));
  // Somebody may have written one for the model that is replaced, which is of the same run.
  const auto chat_template = ReadFile(absl::StrCat(directory, "/", kChatTemplateFile), kMaxTemplateBytes);
  if (chat_template.ok()) files.others.emplace(kChatTemplateFile, *chat_template);
  return SaveModel(directory, layout, HuggingFaceTensorMap(config.model, layout), read, FileDType::kF32, files);
}

}  // namespace holdfast
