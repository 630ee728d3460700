#pragma once
// The weights of a saved model (train.init_from), read in pieces where they are needed: what a run begins with and what
// it keeps of them, and those of a model that is evaluated.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/config/config.h"
#include "framework/nn/layout.h"
#include "framework/train/weight_exchange.h"

namespace holdfast {

/// Reads values of `layout`, the layout of the config's model, of which adapters are left out and biases of routers may
/// be missing: they are 0 then. Each call is within one parameter, from the beginning of a row to the end of one.
/// Thread-safe. FailedPrecondition if train.init_digest is not that of the weights.
absl::StatusOr<ReadWeightsFn> OpenInitialWeights(const Config& config, const ParameterLayout& layout);

/// That the tensors in train.init_from, if it is set, are those of the config's model. Reads headers, and values only
/// of tensors that are there twice. InvalidArgument names each tensor that is missing, not expected, of another shape
/// or of a dtype that cannot be read.
absl::Status CheckInitialWeights(const Config& config);

/// And that they can be read to the last one, which is finite; where ResolveInitDigest has read them nothing is read.
absl::Status ReadInitialWeights(const Config& config);

/// Of all values in train.init_from in canonical order, by reading all of them.
absl::StatusOr<std::string> InitialWeightsDigest(const Config& config);

/// Where some of train.init_from stays as it is: fills in train.init_digest, or checks what it says, by reading all of
/// it.
absl::Status ResolveInitDigest(Config* config);

}  // namespace holdfast
