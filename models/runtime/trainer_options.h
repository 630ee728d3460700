#pragma once
// What the trainer of a config needs to know.

#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/train/trainer.h"
#include "models/language_model.h"

namespace holdfast {

/// Plans the model's passes, and reads train.init_from and lora.init_from, if they are set.
absl::StatusOr<TrainerOptions> MakeTrainerOptions(const Config& config, LanguageModel& model);

}  // namespace holdfast
