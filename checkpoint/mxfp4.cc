#include "checkpoint/mxfp4.h"

#include <array>
#include <bit>

#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr std::array<float, 16> kE2m1 = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                         -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

/// 2^(exponent - 127); infinite for 255.
float ScaleOf(uint8_t exponent) {
  constexpr uint32_t kLeast = 0x00400000;  // 2^-127, which is subnormal
  return std::bit_cast<float>(exponent == 0 ? kLeast : uint32_t{exponent} << 23);
}

}  // namespace

void DecodeMxfp4(absl::Span<const uint8_t> blocks, absl::Span<const uint8_t> scales, absl::Span<float> out) {
  HOLDFAST_CHECK(blocks.size() == scales.size() * kMxfp4Bytes && out.size() == scales.size() * kMxfp4Values);
  for (size_t b = 0; b < scales.size(); ++b) {
    std::array<float, 16> values = kE2m1;
    for (float& value : values) value *= ScaleOf(scales[b]);
    const uint8_t* const bytes = &blocks[b * kMxfp4Bytes];
    float* const to = &out[b * kMxfp4Values];
    for (size_t i = 0; i < static_cast<size_t>(kMxfp4Bytes); ++i) {
      to[2 * i] = values[bytes[i] & 15];
      to[2 * i + 1] = values[bytes[i] >> 4];
    }
  }
}

}  // namespace holdfast
