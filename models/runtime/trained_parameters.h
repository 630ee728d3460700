#pragma once
// Which parameters of a model a run trains: all, those that train.freeze and train.only leave, or adapters (lora)
// beside a model of which nothing else is trained; and at which rates.

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "framework/config/validate.h"
#include "framework/nn/layout.h"
#include "models/parameter_builder.h"

namespace holdfast {

/// All that the functions below would refuse; of a resolved config.
std::vector<Violation> TrainedParameterViolations(const Config& config);

/// The adapters that config.lora asks for. InvalidArgument if the model has no such layers.
absl::StatusOr<LoraOptions> LoraOptionsOf(const Config& config);

/// Whether a parameter is frozen; null if none is. InvalidArgument, naming the nearest names, for a pattern that
/// matches nothing; if nothing is left to be trained; if of a layer's experts only some are frozen.
absl::StatusOr<std::function<bool(const ParameterSpec&)>> FrozenOf(const Config& config);

/// Multiplies lr_factor and sets decay of a parameter as config.optimizer says; null if it says nothing.
/// InvalidArgument, naming the nearest names, for a pattern that matches nothing.
absl::StatusOr<std::function<void(ParameterSpec&)>> RatesOf(const Config& config);

/// FLOPs of a token that model FLOPs utilisation counts: ModelFlopsPerToken's, or less where only a part is trained. Of
/// a config of which nothing is refused.
double TrainedFlopsPerToken(const Config& config);

}  // namespace holdfast
