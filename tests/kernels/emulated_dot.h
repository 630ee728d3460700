#pragma once
// VDPBF16PS and VCVTNE2PS2BF16 by their definition (kernels/cpu/native_dot.h), in the place of the instructions in
// PairKernel.

#include <algorithm>
#include <cstdint>
#include <iterator>

#define HWY_DISABLE_PCLMUL_AES  // as kernels/cpu/foreach_target.h says
#include "kernels/cpu/gemm_bf16_dot-inl.h"
#include "kernels/cpu/native_dot.h"
#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {

namespace static_target = HWY_NAMESPACE;

/// VDPBF16PS on panels, and on a vector; rounding of vectors by `Rounding`, a function of one value.
template <uint16_t (*Rounding)(float)>
struct EmulatedDotThatRounds {
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
  using Floats = static_target::hn::Vec<static_target::Lanes>;
  using Halves = static_target::hn::Rebind<uint16_t, static_target::Lanes>;
  using Words = static_target::hn::RebindToUnsigned<static_target::Lanes>;
  static static_target::hn::Vec<Halves> Round(Floats values) {
    float from[static_target::kLanes];
    uint16_t to[static_target::kLanes];
    static_target::hn::StoreU(values, static_target::Lanes(), from);
    std::transform(std::begin(from), std::end(from), to, Rounding);
    return static_target::hn::LoadU(Halves(), to);
  }
  static static_target::hn::Vec<Words> RoundPairs(Floats even, Floats odd) {
    const auto words = [](Floats values) { return static_target::hn::PromoteTo(Words(), Round(values)); };
    return static_target::hn::Or(words(even), static_target::hn::ShiftLeft<16>(words(odd)));
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
          sum = Dot(sum, a[by_row ? r * static_target::PairKernel<EmulatedDotThatRounds>::kRowWords + k : k * kMr + r],
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
using EmulatedDot = EmulatedDotThatRounds<RoundedToBf16>;

}  // namespace holdfast::kernels
