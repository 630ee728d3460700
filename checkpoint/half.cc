#include "checkpoint/half.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace holdfast {
namespace {

constexpr uint32_t kF32Exponent = 0x7f800000u;
constexpr uint32_t kF16Exponent = 0x7c00u;
constexpr int64_t kBlock = 2048;  // elements checked at a time: input and output stay in the first-level cache

uint32_t Load32(const uint8_t* data, int64_t i) {
  uint32_t bits;
  std::memcpy(&bits, data + 4 * i, 4);
  return bits;
}

uint32_t Load16(const uint8_t* data, int64_t i) {
  uint16_t bits;
  std::memcpy(&bits, data + 2 * i, 2);
  return bits;
}

// Finite halves only. A subnormal half is a number over 2^24; made by an exact subtraction rather than by a subnormal
// float, so that flush-to-zero modes do not matter.
float F16ToF32(uint32_t half) {
  const uint32_t shifted = (half & 0x7fffu) << 13;
  const uint32_t normal = shifted + (112u << 23);
  const float subnormal = std::bit_cast<float>(shifted + (113u << 23)) - 0x1p-14f;
  const uint32_t magnitude = (half & kF16Exponent) != 0 ? normal : std::bit_cast<uint32_t>(subnormal);
  return std::bit_cast<float>(magnitude | (half & 0x8000u) << 16);
}

// To nearest even; 0x7c00 or more for what a half cannot hold. Below 2^-14 the addition of 0.5 rounds at the right bit.
uint32_t F32ToF16(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t odd = magnitude >> 13 & 1u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t small = magnitude < (113u << 23) ? subnormal : normal;
  const uint32_t half = magnitude >= 0x47800000u ? kF16Exponent : small;  // 65536 and more
  return half | (bits >> 16 & 0x8000u);
}

uint32_t F32ToBf16(uint32_t bits) { return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16; }

// Calls convert(i) for all i in [0, n); it returns nonzero for a bad element. Index of the first bad one, or -1.
template <typename Convert>
int64_t ConvertBlocks(int64_t n, Convert convert) {
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, n);
    uint32_t bad = 0;
    for (int64_t i = begin; i < end; ++i) bad |= convert(i);
    if (bad == 0) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (convert(i) != 0) return i;
    }
  }
  return -1;
}

uint32_t IsNonFinite(uint32_t bits) { return (bits & kF32Exponent) == kF32Exponent ? 1u : 0u; }

}  // namespace

int64_t DecodeFloats(FileDType dtype, const uint8_t* data, absl::Span<float> out) {
  float* const to = out.data();
  const auto n = static_cast<int64_t>(out.size());
  if (dtype == FileDType::kF16) {
    return ConvertBlocks(n, [=](int64_t i) {
      const uint32_t half = Load16(data, i);
      to[i] = F16ToF32(half);
      return (half & kF16Exponent) == kF16Exponent ? 1u : 0u;
    });
  }
  if (dtype == FileDType::kBF16) {
    return ConvertBlocks(n, [=](int64_t i) {
      const uint32_t bits = Load16(data, i) << 16;
      to[i] = std::bit_cast<float>(bits);
      return IsNonFinite(bits);
    });
  }
  return ConvertBlocks(n, [=](int64_t i) {
    const uint32_t bits = Load32(data, i);
    to[i] = std::bit_cast<float>(bits);
    return IsNonFinite(bits);
  });
}

int64_t EncodeHalves(FileDType dtype, absl::Span<const float> values, uint16_t* out) {
  const float* const from = values.data();
  const auto n = static_cast<int64_t>(values.size());
  if (dtype == FileDType::kF16) {
    return ConvertBlocks(n, [=](int64_t i) {
      const auto bits = std::bit_cast<uint32_t>(from[i]);
      const uint32_t half = F32ToF16(bits);
      out[i] = static_cast<uint16_t>(half);
      return (half & kF16Exponent) == kF16Exponent ? 1u : 0u;
    });
  }
  return ConvertBlocks(n, [=](int64_t i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t rounded = F32ToBf16(bits);
    out[i] = static_cast<uint16_t>(rounded);
    return IsNonFinite(bits) | IsNonFinite(rounded << 16);
  });
}

int64_t FindNonFinite(absl::Span<const float> values) {
  const float* const from = values.data();
  return ConvertBlocks(static_cast<int64_t>(values.size()),
                       [=](int64_t i) { return IsNonFinite(std::bit_cast<uint32_t>(from[i])); });
}

}  // namespace holdfast
