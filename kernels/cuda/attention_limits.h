#pragma once
// What attention takes of a GPU.

#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace holdfast::kernels {

/// Bytes of shared memory of the largest block that training's attention starts with heads of `head_dim`. Hopper's own
/// kernels take other amounts, which every Hopper GPU has.
size_t AttentionSharedBytes(DType dtype, int64_t head_dim);

}  // namespace holdfast::kernels
