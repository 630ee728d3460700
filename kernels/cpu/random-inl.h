// Philox in vectors (kernels/philox.h is the definition) and dropout masks made from it.
//
// Included once per instruction set, after hwy/foreach_target.h.

#if defined(HOLDFAST_KERNELS_CPU_RANDOM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_RANDOM_INL_H_
#undef HOLDFAST_KERNELS_CPU_RANDOM_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_RANDOM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/philox.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FourU64 = hn::FixedTag<uint64_t, 4>;
using EightU32 = hn::FixedTag<uint32_t, 8>;

/// Words that PhiloxWords makes at a time.
inline constexpr int64_t kPhiloxBatch = 32;

/// Four blocks at once: word w of block b in the low half of lane b of c[w]. The high halves hold garbage, which the
/// 32 x 32 -> 64 bit multiply ignores.
struct PhiloxState {
  hn::Vec<FourU64> c[4];
};

HWY_INLINE PhiloxState PhiloxCounter(const RandomKey& key, uint64_t block) {
  const FourU64 d;
  const auto blocks = hn::Add(hn::Set(d, block), hn::Iota(d, uint64_t{0}));
  const auto high = hn::And(hn::ShiftRight<32>(blocks), hn::Set(d, uint64_t{0xffff}));
  return {{blocks, hn::Or(high, hn::Set(d, uint64_t{key.site << 16})), hn::Set(d, uint64_t{key.microbatch}),
           hn::Set(d, uint64_t{key.step})}};
}

HWY_INLINE void PhiloxRound(PhiloxState& s, hn::Vec<FourU64> k0, hn::Vec<FourU64> k1) {
  const FourU64 d;
  const EightU32 d32;
  const auto multiply = [&](hn::Vec<FourU64> x, uint32_t by) HWY_ATTR {
    return hn::MulEven(hn::BitCast(d32, x), hn::BitCast(d32, hn::Set(d, uint64_t{by})));
  };
  const auto p0 = multiply(s.c[0], kPhiloxMultiplier0);
  const auto p1 = multiply(s.c[2], kPhiloxMultiplier1);
  s.c[0] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), s.c[1]), k0);
  s.c[1] = p1;
  s.c[2] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), s.c[3]), k1);
  s.c[3] = p0;
}

/// The 16 words of the four blocks in order.
HWY_INLINE void PhiloxOutput(const PhiloxState& s, hn::Vec<EightU32>& words0, hn::Vec<EightU32>& words1) {
  const FourU64 d;
  const EightU32 d32;
  const auto low = hn::Set(d, uint64_t{0xffffffff});
  const auto w01 = hn::Or(hn::And(s.c[0], low), hn::ShiftLeft<32>(s.c[1]));
  const auto w23 = hn::Or(hn::And(s.c[2], low), hn::ShiftLeft<32>(s.c[3]));
  const auto even = hn::InterleaveLower(d, w01, w23);  // blocks 0 and 2
  const auto odd = hn::InterleaveUpper(d, w01, w23);   // blocks 1 and 3
  words0 = hn::BitCast(d32, hn::ConcatLowerLower(d, odd, even));
  words1 = hn::BitCast(d32, hn::ConcatUpperUpper(d, odd, even));
}

/// The kPhiloxBatch words of blocks `block` .. `block` + 7. Two independent states, to hide the multiply's latency.
HWY_INLINE void PhiloxWords(const RandomKey& key, uint64_t block, hn::Vec<EightU32> (&words)[4]) {
  PhiloxState a = PhiloxCounter(key, block), b = PhiloxCounter(key, block + 4);
  const FourU64 d;
  auto k0 = hn::Set(d, key.seed),
       k1 = hn::Set(d, (key.seed >> 32) ^ (key.site >> 16));  // again only the low halves count
  for (int round = 0; round < kPhiloxRounds; ++round) {
    PhiloxRound(a, k0, k1);
    PhiloxRound(b, k0, k1);
    k0 = hn::Add(k0, hn::Set(d, uint64_t{kPhiloxWeyl0}));
    k1 = hn::Add(k1, hn::Set(d, uint64_t{kPhiloxWeyl1}));
  }
  PhiloxOutput(a, words[0], words[1]);
  PhiloxOutput(b, words[2], words[3]);
}

/// Room for the masks of n elements: n, what starts before the first, and a whole batch at the end.
constexpr int64_t KeepMaskSize(int64_t n) { return n + 2 * kPhiloxBatch; }

/// Masks of elements first .. first + n - 1 of a dropout with `rate` > 0: all ones where the element is kept, else
/// zero. Uses KeepMaskSize(n) words of `buffer`, and returns where in it the mask of `first` is. Reading up to 8 words
/// beyond the n is safe.
HWY_INLINE const uint32_t* FillKeepMask(const Dropout& dropout, uint64_t first, int64_t n, uint32_t* buffer) {
  const EightU32 d;
  const auto threshold = hn::Set(d, DropoutThreshold(dropout.rate));
  const int64_t skip = static_cast<int64_t>(first % 4);
  uint64_t block = first / 4;
  for (int64_t i = 0; i < skip + n; i += kPhiloxBatch, block += kPhiloxBatch / 4) {
    hn::Vec<EightU32> words[4];
    PhiloxWords(dropout.key, block, words);
    for (int j = 0; j < 4; ++j) {
      // word >= threshold, without an unsigned compare
      const auto keep = hn::Eq(hn::Max(words[j], threshold), words[j]);
      hn::StoreU(hn::VecFromMask(d, keep), d, buffer + i + j * 8);
    }
  }
  return buffer + skip;
}

/// The dropout of one task's rows. Without one, every element is kept with scale 1, which changes no bit.
class RowDropout {
 public:
  /// `buffer`: KeepMaskSize(cols) words, this thread's own.
  RowDropout(const Dropout& dropout, int64_t cols, uint32_t* buffer)
      : dropout_(dropout), cols_(cols), buffer_(buffer), scale_(1.0f) {
    if (dropout.rate > 0) {
      scale_ = DropoutScale(dropout.rate);
    } else {
      std::fill(buffer, buffer + KeepMaskSize(cols), ~uint32_t{0});
    }
  }

  /// Masks of `cols` elements from `first` on; valid until the next call.
  const uint32_t* Masks(int64_t first) const {
    return dropout_.rate > 0 ? FillKeepMask(dropout_, static_cast<uint64_t>(first), cols_, buffer_) : buffer_;
  }

  /// `value` of the elements whose masks start at `masks`, scaled where kept, else zero.
  HWY_INLINE EightLanes Apply(EightLanes value, const uint32_t* masks) const {
    const Eight d;
    const auto keep = hn::BitCast(d, hn::LoadU(EightU32(), masks));
    return hn::And(hn::Mul(value, hn::Set(d, scale_)), keep);
  }

 private:
  const Dropout& dropout_;
  int64_t cols_;
  uint32_t* buffer_;
  float scale_;
};

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
