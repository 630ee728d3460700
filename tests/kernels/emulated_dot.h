#pragma once
// VDPBF16PS by its definition (kernels/cpu/native_dot.h), in the place of the instruction in PairKernel.

#include <algorithm>
#include <cstdint>

#define HWY_DISABLE_PCLMUL_AES  // as kernels/cpu/foreach_target.h says
#include "kernels/cpu/gemm_bf16_dot-inl.h"
#include "kernels/cpu/native_dot.h"
#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {

namespace static_target = HWY_NAMESPACE;

/// VDPBF16PS on panels.
struct EmulatedDot {
  static void Multiply(int64_t a_stride, int64_t rows, int64_t words, const uint32_t* a, const uint32_t* b,
                       const float* previous, float* out, const static_target::Ahead& /*ahead*/) {
    using static_target::kMr, static_target::kNr;
    const auto pair = [](uint32_t word, int i) { return FromBf16(static_cast<uint16_t>(word >> (16 * i))); };
    for (int64_t r = 0; r < std::min<int64_t>(rows, kMr); ++r) {
      for (int64_t c = 0; c < kNr; ++c) {
        float sum = 0;
        for (int64_t k = 0; k < words; ++k) {
          const uint32_t x = a[a_stride == 0 ? k * kMr + r : r * a_stride + k], y = b[k * kNr + c];
          sum = DotOfPairs(sum, {pair(x, 0), pair(x, 1)}, {pair(y, 0), pair(y, 1)});
        }
        out[r * kNr + c] = previous == nullptr ? sum : previous[r * kNr + c] + sum;
      }
    }
  }
};

}  // namespace holdfast::kernels
