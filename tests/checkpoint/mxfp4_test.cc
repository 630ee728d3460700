// Proves that every byte of a block in MXFP4 gives the two values that the format says, for every scale, exactly; and
// that what has no value in fp32 is not finite.
#include "checkpoint/mxfp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace holdfast {
namespace {

/// OCP Microscaling Formats 1.0, 5.3.3: sign, exponent with a bias of 1, one bit of mantissa.
double E2m1(int bits) {
  const int exponent = bits >> 1 & 3, mantissa = bits & 1;
  const double size = exponent == 0 ? 0.5 * mantissa : std::ldexp(1 + 0.5 * mantissa, exponent - 1);
  return (bits & 8) != 0 ? -size : size;
}

TEST(Mxfp4Test, AllBytesWithAllScales) {
  std::vector<uint8_t> blocks(256);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<uint8_t>(i);
  std::vector<float> values(512);
  for (int scale = 0; scale < 256; ++scale) {
    DecodeMxfp4(blocks, std::vector<uint8_t>(16, static_cast<uint8_t>(scale)), absl::MakeSpan(values));
    for (int i = 0; i < 512; ++i) {
      const double expected = std::ldexp(E2m1(i % 2 == 0 ? i / 2 & 15 : i / 2 >> 4), scale - 127);
      if (scale == 255 || std::abs(expected) > std::numeric_limits<float>::max()) {
        EXPECT_FALSE(std::isfinite(values[static_cast<size_t>(i)])) << scale << " " << i;
      } else {
        EXPECT_EQ(static_cast<double>(values[static_cast<size_t>(i)]), expected) << scale << " " << i;
      }
    }
  }
}

TEST(Mxfp4Test, EachBlockHasItsScale) {
  const std::vector<uint8_t> blocks(32, 0x72), scales = {127, 130};
  std::vector<float> values(64);
  DecodeMxfp4(blocks, scales, absl::MakeSpan(values));
  EXPECT_EQ(values[30], 1);
  EXPECT_EQ(values[31], 6);
  EXPECT_EQ(values[32], 8);
  EXPECT_EQ(values[33], 48);
}

}  // namespace
}  // namespace holdfast
