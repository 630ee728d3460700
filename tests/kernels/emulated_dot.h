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

/// VDPBF16PS on panels, and on a vector.
struct EmulatedDot {
  static float Dot(float sum, uint32_t a, uint32_t b) {
    const auto pair = [](uint32_t word, int i) { return FromBf16(static_cast<uint16_t>(word >> (16 * i))); };
    return DotOfPairs(sum, {pair(a, 0), pair(a, 1)}, {pair(b, 0), pair(b, 1)});
  }
  static void AddProducts(const uint32_t* a, static_target::hn::Vec<static_target::TagU8> b,
                          static_target::hn::Vec<static_target::Tag8>* sum) {
    uint32_t pairs[8];
    float sums[8];
    static_target::hn::StoreU(b, static_target::TagU8(), pairs);
    static_target::hn::StoreU(*sum, static_target::Tag8(), sums);
    for (int i = 0; i < 8; ++i) sums[i] = Dot(sums[i], *a, pairs[i]);
    *sum = static_target::hn::LoadU(static_target::Tag8(), sums);
  }
  static void Multiply(bool by_row, int64_t rows, int64_t words, const uint32_t* a, const uint32_t* b,
                       const float* previous, const static_target::TileOut& out,
                       const static_target::Ahead& /*ahead*/) {
    using static_target::kMr, static_target::kNr, static_target::kLanes;
    float sums[kMr * kNr] = {};  // of whole tiles, as a kernel may write them
    for (int64_t r = 0; r < std::min<int64_t>(rows, kMr); ++r) {
      for (int64_t c = 0; c < kNr; ++c) {
        float sum = 0;
        for (int64_t k = 0; k < words; ++k) {
          sum = Dot(sum, a[by_row ? r * static_target::PairKernel<EmulatedDot>::kRowWords + k : k * kMr + r],
                    b[k * kNr + c]);
        }
        sums[r * kNr + c] = previous == nullptr ? sum : previous[r * kNr + c] + sum;
      }
    }
    static_target::StoreSums<kMr, 2>(out, [&](int r, int v) {
      return static_target::hn::LoadU(static_target::hn::CappedTag<float, kLanes>(), sums + r * kNr + v * kLanes);
    });
  }
};

}  // namespace holdfast::kernels
