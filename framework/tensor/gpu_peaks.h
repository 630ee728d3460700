#pragma once
// What GPUs can do at most, as their maker says.

#include <string>

namespace holdfast {

/// FLOP/s of bf16 matrix products summed in fp32, without sparsity, of a GPU as CUDA names it ("NVIDIA H200"); 0 for
/// one that is not in the table, or only a part of one (MIG).
double PeakBf16Flops(const std::string& gpu);

}  // namespace holdfast
