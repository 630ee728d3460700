#pragma once
// One number that stands for the bits of what the CPU's kernels compute: workers of a run must agree on it, whatever
// compiler built them and whatever processor they run on.

#include <cstdint>

#include "kernels/arithmetic.h"

namespace holdfast {

/// Runs the operations that a dense model is trained with, on small keyed-random inputs, and hashes what they wrote; a
/// few milliseconds. Those that came later (experts and their router, Muon's and Lion's, clipping, windows of
/// attention, additions to the stream that no norm makes, factors of embeddings) are not in it, so that what
/// checkpoints have stored stays true: of builds from equal sources, one whose compiler got only those differently is
/// not found. `arithmetic` must be one that CpuHas.
uint64_t KernelDigest(kernels::Arithmetic arithmetic);

}  // namespace holdfast
