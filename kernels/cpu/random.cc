#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/random.cc"
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/random-inl.h"
#include "kernels/cpu/views.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

using Words = hn::Vec<EightU32>;
using EightI32 = hn::FixedTag<int32_t, 8>;

/// ln u for u in (0, 1]: 2^k m with m in [sqrt(1/2), sqrt(2)), ln m = 2 atanh(s) with s = (m - 1) / (m + 1). The series
/// is cut after s^9, 2e-9 relative at most.
HWY_INLINE EightLanes LogUnit(EightLanes u) {
  const Eight d;
  const EightI32 di;
  const auto bits = hn::BitCast(di, u);
  const auto k = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));  // sqrt(1/2)
  const auto f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(k))), hn::Set(d, 1.0f));
  const auto s = hn::Div(f, hn::Add(f, hn::Set(d, 2.0f)));
  const auto s2 = hn::Mul(s, s);
  auto p = hn::Set(d, 2.0f / 9.0f);
  p = hn::MulAdd(p, s2, hn::Set(d, 2.0f / 7.0f));
  p = hn::MulAdd(p, s2, hn::Set(d, 2.0f / 5.0f));
  p = hn::MulAdd(p, s2, hn::Set(d, 2.0f / 3.0f));
  p = hn::MulAdd(p, s2, hn::Set(d, 2.0f));
  return hn::MulAdd(hn::ConvertTo(d, k), hn::Set(d, 0.69314718056f), hn::Mul(p, s));
}

/// Sine and cosine of 2 pi w / 2^32. The quarter turn nearest to w is taken off exactly, in integers; what is left is
/// within pi / 4, where Taylor's series to x^9 and x^10 are below fp32's rounding.
HWY_INLINE void SinCosTurn(Words w, EightLanes& sine, EightLanes& cosine) {
  const Eight d;
  const EightU32 du;
  const auto quarter = hn::ShiftRight<30>(hn::Add(w, hn::Set(du, 1u << 29)));
  const auto rest = hn::BitCast(EightI32(), hn::Sub(w, hn::ShiftLeft<30>(quarter)));
  const auto x = hn::Mul(hn::ConvertTo(d, rest), hn::Set(d, 1.46291807926715968e-9f));  // 2 pi / 2^32
  const auto x2 = hn::Mul(x, x);
  auto s = hn::Set(d, 1.0f / 362880);
  s = hn::MulAdd(s, x2, hn::Set(d, -1.0f / 5040));
  s = hn::MulAdd(s, x2, hn::Set(d, 1.0f / 120));
  s = hn::MulAdd(s, x2, hn::Set(d, -1.0f / 6));
  s = hn::MulAdd(hn::Mul(s, x2), x, x);
  auto c = hn::Set(d, -1.0f / 3628800);
  c = hn::MulAdd(c, x2, hn::Set(d, 1.0f / 40320));
  c = hn::MulAdd(c, x2, hn::Set(d, -1.0f / 720));
  c = hn::MulAdd(c, x2, hn::Set(d, 1.0f / 24));
  c = hn::MulAdd(c, x2, hn::Set(d, -0.5f));
  c = hn::MulAdd(c, x2, hn::Set(d, 1.0f));
  // sin and cos of x + quarter * pi / 2: swapped in odd quarters, sine negative in 2 and 3, cosine in 1 and 2.
  const auto swap = hn::MaskFromVec(hn::BitCast(d, hn::Sub(hn::Zero(du), hn::And(quarter, hn::Set(du, 1u)))));
  const auto sine_sign = hn::ShiftLeft<31>(hn::ShiftRight<1>(quarter));
  const auto cosine_sign = hn::ShiftLeft<31>(hn::ShiftRight<1>(hn::Add(quarter, hn::Set(du, 1u))));
  sine = hn::Xor(hn::IfThenElse(swap, c, s), hn::BitCast(d, sine_sign));
  cosine = hn::Xor(hn::IfThenElse(swap, s, c), hn::BitCast(d, cosine_sign));
}

/// Box & Muller (1958): two words give two normal values. u = (k + 1/2) / 2^23 with the 23 upper bits of
/// a word, which fp32 holds exactly: never 0 or 1, and |z| < 5.8.
HWY_INLINE void BoxMuller(Words radius_word, Words angle_word, float stddev, EightLanes& z0, EightLanes& z1) {
  const Eight d;
  const auto integer = hn::ConvertTo(d, hn::BitCast(EightI32(), hn::ShiftRight<9>(radius_word)));
  const auto u = hn::MulAdd(integer, hn::Set(d, 0x1p-23f), hn::Set(d, 0x1p-24f));
  const auto radius = hn::Mul(hn::Sqrt(hn::Mul(hn::Set(d, -2.0f), LogUnit(u))), hn::Set(d, stddev));
  EightLanes sine, cosine;
  SinCosTurn(angle_word, sine, cosine);
  z0 = hn::Mul(radius, cosine);
  z1 = hn::Mul(radius, sine);
}

/// Elements 4 * block .. 4 * block + 31.
HWY_INLINE void NormalBatch(const RandomKey& key, uint64_t block, float stddev, float* out) {
  const EightU32 du;
  const Eight d;
  Words in_order[4], w[4];
  PhiloxWords(key, block, in_order);
  alignas(32) uint32_t words[kPhiloxBatch];
  for (int j = 0; j < 4; ++j) hn::Store(in_order[j], du, words + j * 8);
  hn::LoadInterleaved4(du, words, w[0], w[1], w[2], w[3]);
  EightLanes z[4];
  BoxMuller(w[0], w[1], stddev, z[0], z[1]);
  BoxMuller(w[2], w[3], stddev, z[2], z[3]);
  hn::StoreInterleaved4(z[0], z[1], z[2], z[3], d, out);
}

/// out[e - begin] = element e of [begin, end). A batch that sticks out at either end goes through a buffer.
void FillRange(float* out, int64_t begin, int64_t end, float stddev, const RandomKey& key) {
  for (int64_t e = begin / 4 * 4; e < end; e += kPhiloxBatch) {
    const uint64_t block = static_cast<uint64_t>(e) / 4;
    if (e >= begin && e + kPhiloxBatch <= end) {
      NormalBatch(key, block, stddev, out + (e - begin));
      continue;
    }
    float batch[kPhiloxBatch];
    NormalBatch(key, block, stddev, batch);
    const int64_t from = std::max(e, begin), to = std::min(e + kPhiloxBatch, end);
    std::memcpy(out + (from - begin), batch + (from - e), static_cast<size_t>(to - from) * sizeof(float));
  }
}

void FillNormal(Executor& executor, float* out, int64_t n, int64_t first, float stddev, const RandomKey& key) {
  const Pieces pieces = PiecesOfVector(n);
  ParallelFor(executor, pieces.count(), [&](int64_t task, int) {
    const auto [begin, end] = pieces.piece(task);
    FillRange(out + begin, first + begin, first + end, stddev, key);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(FillNormal);

void CpuOps::FillNormal(float* out, int64_t n, int64_t first, float stddev, const RandomKey& key) {
  HWY_DYNAMIC_DISPATCH(FillNormal)(executor_, out, n, first, stddev, key);
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
