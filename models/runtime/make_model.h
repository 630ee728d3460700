#pragma once
// The model of a config.

#include <memory>

#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/tensor/device.h"
#include "models/language_model.h"

namespace holdfast {

/// On `device`, which must outlive it.
absl::StatusOr<std::unique_ptr<LanguageModel>> MakeModel(const Config& config, Device& device);

}  // namespace holdfast
