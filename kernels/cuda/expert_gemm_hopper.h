#pragma once
// Products of experts by instructions that only GPUs of compute capability 9.0 have.

#include "kernels/experts.h"

namespace holdfast::kernels {

class CudaQueue;

/// Whether a product is large enough for their tiles of 256 columns. Says nothing of the experts' rows, which only the
/// GPU knows, and on which bits must not depend.
inline bool FitsHopper(const ExpertGemmArgs& args) { return args.c.cols > 128 && args.a.cols >= 64; }
inline bool FitsHopper(const ExpertGradientArgs& args) { return args.c.cols > 128 && args.c.rows >= 64; }

/// For bf16 whose rows can be read 16 bytes at a time, and C written so.
void ExpertGemmHopper(CudaQueue& queue, const ExpertGemmArgs& args, const ExpertRows& rows);
void ExpertGradientHopper(CudaQueue& queue, const ExpertGradientArgs& args, const ExpertRows& rows);

}  // namespace holdfast::kernels
