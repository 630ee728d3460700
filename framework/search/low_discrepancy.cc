#include "framework/search/low_discrepancy.h"

#include <numeric>

#include "kernels/philox.h"

namespace holdfast::search {
namespace {

/// Of the numbers below `base`, at random: what digit `place` becomes.
uint64_t Permuted(uint64_t seed, uint32_t dimension, uint32_t place, uint64_t base, uint64_t digit) {
  std::vector<uint64_t> to(base);
  std::iota(to.begin(), to.end(), 0);
  for (uint64_t i = base; i-- > 1;) {
    const double u = Uniform(seed, Draw::kDigits, dimension, place, i);
    std::swap(to[i], to[static_cast<uint64_t>(u * static_cast<double>(i + 1))]);
  }
  return to[digit];
}

uint64_t NextPrime(uint64_t after) {
  for (uint64_t n = after + 1;; ++n) {
    bool prime = true;
    for (uint64_t d = 2; d * d <= n && prime; ++d) prime = n % d != 0;
    if (prime) return n;
  }
}

}  // namespace

double Uniform(uint64_t seed, Draw draw, uint32_t a, uint32_t b, uint64_t element) {
  const kernels::RandomKey key{.seed = seed, .step = a, .microbatch = b, .site = static_cast<uint32_t>(draw)};
  return (kernels::PhiloxWord(key, element) + 0.5) * 0x1p-32;
}

std::vector<double> HaltonPoint(uint64_t seed, uint64_t index, size_t dimensions) {
  std::vector<double> point;
  uint64_t base = 1;
  for (uint32_t dimension = 0; dimension < dimensions; ++dimension) {
    base = NextPrime(base);
    double value = 0, weight = 1;
    uint64_t rest = index;
    // Zeros before the first digit are permuted, too: as far as 32 bits.
    for (uint32_t place = 0; weight > 0x1p-32; ++place, rest /= base) {
      weight /= static_cast<double>(base);
      value += weight * static_cast<double>(Permuted(seed, dimension, place, base, rest % base));
    }
    point.push_back(value + weight / 2);
  }
  return point;
}

}  // namespace holdfast::search
