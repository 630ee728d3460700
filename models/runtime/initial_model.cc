#include "models/runtime/initial_model.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "checkpoint/half.h"
#include "checkpoint/model_directory.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/config/model_size.h"
#include "framework/places/places.h"
#include "models/runtime/adapter_config.h"
#include "models/runtime/saved_model_files.h"

namespace holdfast {
namespace {

constexpr size_t kMaxConfigJsonBytes = size_t{1} << 20;

std::string ConfigFileOf(const std::string& directory) { return absl::StrCat(directory, "/", kConfigFile); }

/// Values of the tensors; of a dtype that cannot be read as many as bytes, since its shape need not be true. Of 32
/// values in MXFP4 that is 17, which are more than half.
int64_t ElementsOf(const ModelDirectory& weights) {
  int64_t elements = 0;
  for (const auto& [name, file] : weights.tensors()) {
    const SafetensorsEntry& entry = file->entries().at(name);
    const int64_t each = entry.dtype == FileDType::kOther ? 1 : BytesPerElement(entry.dtype);
    elements += static_cast<int64_t>(entry.end - entry.begin) / each;
  }
  return elements;
}

}  // namespace

absl::Status CheckIsLocal(const std::string& directory) {
  if (!IsRemotePlace(directory)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(directory, ": a model is read from a directory of a file system only; copy it to one, or if there ",
                   "are checkpoints, `holdfast ckpt export ", directory, " OUT_DIR` writes one of the newest"));
}

absl::StatusOr<HuggingFaceConfig> ReadModelConfig(const std::string& directory) {
  RETURN_IF_ERROR(CheckIsLocal(directory));
  std::error_code error;
  if (std::filesystem::is_regular_file(directory, error)) {
    const std::string around = DirectoryOf(directory);
    const bool is_model = std::filesystem::exists(ConfigFileOf(around), error);
    return absl::InvalidArgumentError(
        absl::StrCat(directory, " is a file, and a saved model a directory", is_model ? ": name " + around : ""));
  }
  const std::string file = ConfigFileOf(directory);
  ASSIGN_OR_RETURN(const std::string json, ReadFile(file, kMaxConfigJsonBytes));
  ASSIGN_OR_RETURN(HuggingFaceConfig parsed, ParseHuggingFaceConfig(json, file));
  ASSIGN_OR_RETURN(const ModelDirectory weights, ModelDirectory::Open(directory));
  const int64_t needed = MatrixElements(parsed.model), there = ElementsOf(weights);
  if (needed / 2 <= there) return parsed;  // of less, who reads the weights names each tensor that is missing
  return absl::InvalidArgumentError(absl::StrCat(file, ": a model of its sizes has at least ", needed,
                                                 " parameters, but the weights beside it are only ", there));
}

absl::StatusOr<std::optional<InitialModel>> ReadInitialModel(const std::string& directory) {
  if (directory.empty()) return std::nullopt;
  RETURN_IF_ERROR(CheckIsLocal(directory));
  std::error_code error;
  if (!std::filesystem::exists(directory, error) && !error) {
    return absl::NotFoundError(absl::StrCat(directory, " does not exist"));
  }
  ASSIGN_OR_RETURN(const bool is_adapter, HoldsAdapter(directory));
  if (is_adapter) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, " holds adapters, not a model: `holdfast ckpt export RUN OUT_DIR --merge` writes ",
                     "the model that they make of theirs; to train them further set train.init_from to their model ",
                     "and lora.init_from to them"));
  }
  if (std::filesystem::is_directory(directory, error) && !std::filesystem::exists(ConfigFileOf(directory), error)) {
    if (const std::string of_run = directory + "/model"; std::filesystem::exists(ConfigFileOf(of_run), error)) {
      return absl::NotFoundError(absl::StrCat(directory, " is no saved model, but holds one: name ", of_run));
    }
    return absl::NotFoundError(absl::StrCat(directory, " is no saved model: it has no ", kConfigFile,
                                            "; of a run or its checkpoints `holdfast ckpt export ", directory,
                                            " OUT_DIR` writes one, with --ema of its averaged weights"));
  }
  ASSIGN_OR_RETURN(const HuggingFaceConfig parsed, ReadModelConfig(directory));
  InitialModel initial{.model = parsed.model, .file = ConfigFileOf(directory), .tokenizer = ""};
  const auto file = [&](const char* name) { return absl::StrCat(directory, "/", name); };
  // A chat template is saved with a tokenizer.json only, also where its tokens are bytes.
  const bool bytes = parsed.byte_tokenizer && !HoldsChatTemplate(directory);
  if (!bytes && std::filesystem::exists(file(kTokenizerFile), error)) initial.tokenizer = file(kTokenizerFile);
  return initial;
}

}  // namespace holdfast
