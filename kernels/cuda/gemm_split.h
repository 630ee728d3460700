#pragma once
// Sizes that are no multiple of 16 bytes, such as GPT-2's vocabulary of 50,257. cuBLASLt has no fast algorithm for
// them, however the rows are aligned: on an H200 the products of GPT-2's head took eight times as long as those of
// 50,256 (2026-11-27). So a large product is done in two: all whole chunks of such a size, and the few values that are
// left.

#include <array>
#include <cstdint>

#include "kernels/ops.h"

namespace holdfast::kernels {

enum class GemmSplit : uint8_t { kNone, kRows, kColumns, kDepth };  // of c, of c, of the sums

/// What is split in two, if anything: of large products of bf16 matrices without an epilogue.
GemmSplit SplitOf(const GemmArgs& args);

/// Two products that do `args` one after the other, each of which may have to be split once more.
std::array<GemmArgs, 2> InTwo(const GemmArgs& args, GemmSplit split);

}  // namespace holdfast::kernels
