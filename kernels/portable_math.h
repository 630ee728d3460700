#pragma once
// Elementary functions in binary64 that have the same bits on every machine: fixed sequences of IEEE-754 operations
// (explicit fma, no contraction). The C library's differ from version to version and follow the processor. For host
// code whose result decides bits; vectors have theirs in kernels/cpu/math-inl.h.
//
// Errors are below 2 units in the last place unless said otherwise. Series are Taylor's, cut where they no longer
// count.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace holdfast::portable {

namespace internal {

/// Horner's scheme, highest coefficient first.
template <int kTerms>
double Polynomial(double x, const double (&coefficients)[kTerms]) {
  double sum = coefficients[0];
  for (int i = 1; i < kTerms; ++i) sum = std::fma(sum, x, coefficients[i]);
  return sum;
}

// ln 2 and pi / 2 in parts of 32 bits or less, so that a part times an integer below 2^21 is exact.
inline constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
inline constexpr double kHalfPi1 = 0x1.921fb544p0, kHalfPi2 = 0x1.0b4611a6p-34, kHalfPi3 = 0x1.3198a2e037073p-69;

/// 2^k for k in [-1022, 1023].
inline double PowerOfTwo(int64_t k) { return std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52); }

}  // namespace internal

/// e^x; 0 below -708 (there are no subnormal results), infinity above 709.78.
inline double Exp(double x) {
  if (std::isnan(x)) return x;
  if (x > 709.78) return std::numeric_limits<double>::infinity();
  if (x < -708.0) return 0.0;
  const double k = std::floor(std::fma(x, 1.4426950408889634, 0.5));
  const double r = std::fma(-k, internal::kLn2Low, std::fma(-k, internal::kLn2High, x));
  // (e^r - 1 - r) / r^2 on [-ln 2 / 2, ln 2 / 2]: the next term is below 1e-18.
  const double q =
      internal::Polynomial(r, {1.0 / 87178291200, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                               1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5});
  const double p = 1.0 + std::fma(r * r, q, r);
  const int64_t exponent = static_cast<int64_t>(k);
  return p * internal::PowerOfTwo(exponent - exponent / 2) * internal::PowerOfTwo(exponent / 2);
}

/// ln x for normal x > 0; -infinity at 0, NaN below.
inline double Log(double x) {
  if (std::isnan(x) || x < 0) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return -std::numeric_limits<double>::infinity();
  if (std::isinf(x)) return x;
  // x = 2^k m with m in [sqrt(1/2), sqrt(2)); ln m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.1716.
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const int64_t k = static_cast<int64_t>(bits - 0x3fe6a09e667f3bcdu) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(k) << 52));
  const double f = m - 1.0, s = f / (2.0 + f), s2 = s * s;
  const double series = internal::Polynomial(
      s2, {2.0 / 23, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3});
  // 2 s = f - s f, whose rounding is of s f, not of f.
  const double rest = std::fma(s * s2, series, -s * f);
  const double exponent = static_cast<double>(k);
  return std::fma(exponent, internal::kLn2High, f + std::fma(exponent, internal::kLn2Low, rest));
}

/// x^y as e^(y ln x), for x > 0: the relative error grows with |y ln x|, 1e-14 at 20.
inline double Pow(double x, double y) { return Exp(y * Log(x)); }

/// x^n by squaring: n - 1 roundings' worth of relative error at most.
inline double IntegerPower(double x, uint64_t n) {
  double power = 1.0;
  for (; n != 0; n >>= 1, x *= x) {
    if ((n & 1) != 0) power *= x;
  }
  return power;
}

struct SineCosine {
  double sine, cosine;
};

/// Of an angle in radians, |x| <= 3e6: absolute error below 1e-15.
inline SineCosine SinCos(double x) {
  const double quarters = std::floor(std::fma(x, 0.63661977236758134, 0.5));
  double r = std::fma(-quarters, internal::kHalfPi1, x);
  r = std::fma(-quarters, internal::kHalfPi2, r);
  r = std::fma(-quarters, internal::kHalfPi3, r);
  const double r2 = r * r;
  const double s = std::fma(r * r2,
                            internal::Polynomial(r2, {1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800,
                                                      -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6}),
                            r);
  const double c =
      internal::Polynomial(r2, {-1.0 / 6402373705728000, 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600,
                                -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5, 1.0});
  switch (static_cast<int64_t>(quarters) & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

}  // namespace holdfast::portable
