#pragma once
// Whether all ranks begin with the same model: each reads its own part of it from its own host's files, so that other
// files on one of the hosts would give weights that are of neither model.

#include <chrono>

#include "absl/status/status.h"
#include "framework/comm/communicator.h"
#include "framework/nn/layout.h"
#include "framework/train/weight_exchange.h"

namespace holdfast {

/// FailedPrecondition, naming two hosts, unless `read` gives the same on all ranks, as far as some rows of each
/// parameter show, which all are compared: models that were trained apart differ in nearly all of their values. Every
/// rank must call it. Fails otherwise as `read` and AllGatherV do.
absl::Status CheckSameWeights(const ParameterLayout& model, const ReadWeightsFn& read, Communicator& world,
                              std::chrono::milliseconds timeout);

}  // namespace holdfast
