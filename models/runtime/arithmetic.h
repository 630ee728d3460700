#pragma once
// train.arithmetic: which arithmetic a run multiplies matrices in (kernels/arithmetic.h). It decides bits, so the
// resolved config never says `auto` or `native` on a CPU but the arithmetic that was taken.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/config/config.h"
#include "kernels/arithmetic.h"

namespace holdfast {

/// What train.arithmetic stands for on this processor. FailedPrecondition if the processor cannot do it.
absl::StatusOr<kernels::Arithmetic> ArithmeticOf(const TrainConfig& train);

/// Replaces `auto` and `native`. `auto` takes what the run already computes in, as the resolved config at `run_config`
/// says (empty, or no file: a new run), if this processor can.
absl::Status ResolveArithmetic(TrainConfig* train, const std::string& run_config);

}  // namespace holdfast
