#pragma once
// train.epochs: how many steps so many passes over the training data are.

#include <cstdint>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "framework/config/config.h"

namespace holdfast {

/// ceil(epochs * samples / batch.step_sequences()), at least 1; INT64_MAX if it is more. Exact: `epochs` (0 to 1e6)
/// counts in millionths, so that 1.1 of 10 samples are 11.
int64_t StepsOfEpochs(double epochs, int64_t samples, const BatchConfig& batch);

/// How many passes over `samples` the config's steps are.
double EpochsOfSteps(const Config& config, int64_t samples);

/// Where train.epochs is set: fills in train.steps, by the headers of data.train. The run whose resolved config is at
/// `run_config` (it need not be there, or named) keeps its own, whatever its data are now, while epochs, sequences and
/// their number in a step are the same. InvalidArgument if train.steps says another number, or does not fit the
/// schedule. `stop`: as in PlaceSettings.
absl::Status ResolveSteps(Config* config, const std::string& run_config, const std::stop_token& stop = {});

}  // namespace holdfast
