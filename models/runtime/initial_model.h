#pragma once
// What a saved model says of itself, before its weights are read.

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "framework/config/load.h"
#include "models/families/huggingface.h"

namespace holdfast {

/// InvalidArgument, saying what to do, for s3://bucket/name: the files of a model are mapped.
absl::Status CheckIsLocal(const std::string& directory);

/// config.json of a saved model directory. Its sizes are compared with the headers of the weights, so that what they
/// make a caller allocate is at most twice what lies on the disk; whether each tensor is there is not looked at.
absl::StatusOr<HuggingFaceConfig> ReadModelConfig(const std::string& directory);

/// The model in `directory` as a config starts from it; nothing if `directory` is empty.
absl::StatusOr<std::optional<InitialModel>> ReadInitialModel(const std::string& directory);

}  // namespace holdfast
