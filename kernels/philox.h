#pragma once
// The random numbers of every device: Philox4x32-10 (Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as
// easy as 1, 2, 3"), a keyed bijection of a counter. This scalar form is the definition; vector and GPU forms equal it.
//
//   key     = {seed low, seed high ^ (site >> 16)}
//   counter = {block low, site << 16 | (block high & 0xffff), microbatch, step}
//
// One block gives four words, for elements 4 * block .. 4 * block + 3 of the stream.

#include <cmath>
#include <cstdint>

#include "kernels/cpu_and_gpu.h"
#include "kernels/types.h"

namespace holdfast::kernels {

struct Philox4 {
  uint32_t v[4];
};

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u;  // golden ratio
inline constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85u;  // sqrt(3) - 1
inline constexpr int kPhiloxRounds = 10;

HOLDFAST_CPU_AND_GPU inline Philox4 Philox(const RandomKey& key, uint64_t block) {
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32) ^ (key.site >> 16);
  Philox4 c = {{static_cast<uint32_t>(block), (key.site << 16) | (static_cast<uint32_t>(block >> 32) & 0xffffu),
                key.microbatch, key.step}};
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxMultiplier0} * c.v[0];
    const uint64_t p1 = uint64_t{kPhiloxMultiplier1} * c.v[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.v[1] ^ k0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.v[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return c;
}

/// Word of element `e`.
HOLDFAST_CPU_AND_GPU inline uint32_t PhiloxWord(const RandomKey& key, uint64_t e) {
  return Philox(key, e / 4).v[e % 4];
}

/// Element e is kept iff its word is >= this. `rate` in [0, 1).
HOLDFAST_CPU_AND_GPU inline uint32_t DropoutThreshold(float rate) {
  return static_cast<uint32_t>(static_cast<double>(rate) * 4294967296.0);
}

/// What a kept element is multiplied by.
HOLDFAST_CPU_AND_GPU inline float DropoutScale(float rate) { return 1.0f / (1.0f - rate); }

/// 1 + `range` * u, u uniform in [-1, 1) in steps of 2^-23: what an element whose word this is is multiplied by.
HOLDFAST_CPU_AND_GPU inline float JitterFactor(uint32_t word, float range) {
  const auto steps = static_cast<float>(static_cast<int32_t>(word >> 8) - (1 << 23));
  return fmaf(range, steps * 0x1p-23f, 1.0f);
}

}  // namespace holdfast::kernels
