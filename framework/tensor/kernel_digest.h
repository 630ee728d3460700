#pragma once
// One number that stands for the bits of everything the CPU's kernels compute: workers of a run must agree on it,
// whatever compiler built them and whatever processor they run on.

#include <cstdint>

#include "kernels/arithmetic.h"

namespace holdfast {

/// Runs every operation of kernels/ops.h on small keyed-random inputs and hashes what they wrote; a few milliseconds.
/// `arithmetic` must be one that CpuHas.
uint64_t KernelDigest(kernels::Arithmetic arithmetic);

}  // namespace holdfast
