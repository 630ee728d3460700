// Vector functions shared by the CPU kernels: exp, sigmoid, GELU, bf16 loads and stores. Every one is a fixed sequence
// of IEEE operations per lane (explicit fma), so its bits depend neither on the vector width nor on the lane.
//
// Included once per instruction set, after hwy/foreach_target.h; see gemm.cc.

#if defined(HOLDFAST_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLDFAST_KERNELS_CPU_MATH_INL_H_
#undef HOLDFAST_KERNELS_CPU_MATH_INL_H_
#else
#define HOLDFAST_KERNELS_CPU_MATH_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// e^x within 2 ulp; 0 below -86.98 (where e^x < 2^-125.5), infinity above 88.72, NaN for NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const V lowest = hn::Set(d, -86.98f);
  // The operand order of Min and Max matters: x86 returns the second one if either is NaN.
  const V clamped = hn::Max(lowest, hn::Min(hn::Set(d, 89.0f), x));
  // 1.5 * 2^23 makes a sum's last bit count ones, so that it is rounded to an integer; 126 is for the exponent below.
  const V shift = hn::Set(d, 12582912.0f + 126);
  const V shifted = hn::Add(hn::Mul(clamped, hn::Set(d, 1.44269504088896341f)), shift), k = hn::Sub(shifted, shift);
  // Cody & Waite: ln 2 in two pieces, the first exact in few enough bits that k * piece is exact.
  V r = hn::MulAdd(k, hn::Set(d, -0.693359375f), clamped);
  r = hn::MulAdd(k, hn::Set(d, 2.12194440e-4f), r);
  // e^r on [-ln2/2, ln2/2] as 1 + r + r^2 q(r); q is the minimax polynomial of Cephes' expf (Moshier).
  V q = hn::Set(d, 1.9875691500e-4f);
  q = hn::MulAdd(q, r, hn::Set(d, 1.3981999507e-3f));
  q = hn::MulAdd(q, r, hn::Set(d, 8.3334519073e-3f));
  q = hn::MulAdd(q, r, hn::Set(d, 4.1665795894e-2f));
  q = hn::MulAdd(q, r, hn::Set(d, 1.6666665459e-1f));
  q = hn::MulAdd(q, r, hn::Set(d, 5.0000001201e-1f));
  const V p = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), hn::Set(d, 1.0f));
  // 2^k as 2^(k-1) * 2, since 2^128 is no float but e^88.7 is one. The lowest bits of `shifted` are k + 126.
  const auto bits = hn::ShiftLeft<23>(hn::BitCast(du, shifted));
  const V scaled = hn::Mul(hn::Mul(p, hn::BitCast(d, bits)), hn::Set(d, 2.0f));
  return hn::IfThenElse(hn::Lt(x, lowest), hn::Zero(d), scaled);
}

/// 1 / (1 + e^-x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, Exp(d, hn::Neg(x))));
}

/// sqrt(2/pi) * 2 * (x + 0.044715 x^3): GELU's tanh form is x * sigmoid of this, as 1 + tanh(u) = 2 sigmoid(2u).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V GeluArgument(D d, V x) {
  const V inner = hn::MulAdd(hn::Mul(hn::Mul(x, x), x), hn::Set(d, 0.044715f), x);
  return hn::Mul(inner, hn::Set(d, 1.5957691216057308f));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V GeluSigmoid(D d, V x) {
  return Sigmoid(d, GeluArgument(d, x));
}

/// GELU, tanh form (Hendrycks & Gimpel 2016).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Gelu(D d, V x) {
  return hn::Mul(x, GeluSigmoid(d, x));
}

/// Its derivative: s + x s (1 - s) a'(x), a = GeluArgument, s = GeluSigmoid(x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V GeluDerivative(D d, V x, V s) {
  const V one = hn::Set(d, 1.0f);
  const V slope = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.2140644488159f), hn::Set(d, 1.5957691216057308f));
  return hn::MulAdd(hn::Mul(hn::Mul(x, s), hn::Sub(one, s)), slope, s);
}

/// Lanes(d) bf16 values as fp32 (exact).
template <class D>
HWY_INLINE hn::Vec<D> LoadBf16(D d, const uint16_t* from) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> dh;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, from))));
}

/// Rounds to nearest even, as the 16 upper bits; NaN stays a (quiet) NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> ToBf16Bits(D /*d*/, V x) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> dh;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x00400000u));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(x));
  // DemoteTo to 16 bits takes signed input and saturates: an arithmetic shift lets all 16-bit patterns pass through.
  const hn::RebindToSigned<D> di;
  const hn::Rebind<int16_t, D> dh_signed;
  const auto extended = hn::ShiftRight<16>(hn::BitCast(di, hn::IfThenElse(is_nan, quiet, rounded)));
  return hn::BitCast(dh, hn::DemoteTo(dh_signed, extended));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void StoreBf16(D d, V x, uint16_t* to) {
  hn::StoreU(ToBf16Bits(d, x), hn::Rebind<uint16_t, D>(), to);
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
