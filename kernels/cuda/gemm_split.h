#pragma once
// Sizes that are no multiple of 16 bytes, such as GPT-2's vocabulary of 50,257. cuBLASLt has no fast algorithm for
// them, however the rows are aligned: on an H200 the products of GPT-2's head took eight times as long as those of
// 50,256 (2026-11-27). So a large product is done in two: all whole chunks of such a size, and the few values that are
// left.

#include <vector>

#include "kernels/ops.h"

namespace holdfast::kernels {

/// Products that do `args` one after the other: `args` itself if nothing is gained by more. Of bf16 matrices without an
/// epilogue only. Where the sums are split, those of what is left over are rounded to c's type before the others are
/// added.
std::vector<GemmArgs> InWholeChunks(const GemmArgs& args);

}  // namespace holdfast::kernels
