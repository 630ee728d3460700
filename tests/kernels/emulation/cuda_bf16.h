#pragma once
// Takes the place of the CUDA toolkit's header of this name; see cuda_runtime.h in this folder.

#include <cmath>
#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
  uint16_t bits;
};

inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  // A GPU makes 0x7fff of any NaN, which is the upper half of the only one that its arithmetic gives. Here arithmetic
  // is the CPU's and gives others; what tests rely on is that the half is that of the whole.
  if (std::isnan(x)) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
