// All 65,536 halves of both formats are decoded exactly and come back; rounding is to nearest even (checked against the
// nearest representable neighbours in double); what a format cannot hold is found by index.

#include "checkpoint/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/framework/base/slower.h"

namespace holdfast {
namespace {

double ValueOf(FileDType dtype, uint16_t half) {
  const int exponent_bits = dtype == FileDType::kF16 ? 5 : 8, mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = half >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = half & ((1 << mantissa_bits) - 1);
  const double sign = half & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? NAN : sign * INFINITY;
  const int hidden = exponent == 0 ? 0 : 1 << mantissa_bits;
  return sign * std::ldexp(hidden + mantissa, std::max(exponent, 1) - bias - mantissa_bits);
}

class HalfTest : public testing::TestWithParam<FileDType> {};

TEST_P(HalfTest, EveryHalfIsDecodedAndEncoded) {
  std::vector<uint16_t> wrong;
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double expected = ValueOf(GetParam(), half);
    float value = 0;
    const int64_t bad = DecodeFloats(GetParam(), reinterpret_cast<const uint8_t*>(&half), absl::MakeSpan(&value, 1));
    if (!std::isfinite(expected)) {
      if (bad != 0) wrong.push_back(half);
      continue;
    }
    uint16_t back = 0;
    const bool right = bad == -1 && value == expected && std::signbit(value) == std::signbit(expected) &&
                       EncodeHalves(GetParam(), absl::MakeConstSpan(&value, 1), &back) == -1 && back == half;
    if (!right) wrong.push_back(half);
  }
  EXPECT_EQ(wrong, std::vector<uint16_t>{});
}

TEST_P(HalfTest, RoundsToTheNearestAndTiesToEven) {
  std::mt19937 random(1);
  std::vector<float> values;
  for (int i = 0; i < 200000 / kSlower; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {  // exact ties between neighbours, and a bit beside them
    const auto half = static_cast<uint16_t>(bits), next = static_cast<uint16_t>(bits + 1);
    const auto tie = static_cast<float>((ValueOf(GetParam(), half) + ValueOf(GetParam(), next)) / 2);
    values.insert(values.end(), {tie, std::nextafter(tie, 0.f), std::nextafter(tie, INFINITY), -tie});
  }
  std::vector<float> wrong;
  for (const float value : values) {
    uint16_t half = 0;
    if (EncodeHalves(GetParam(), absl::MakeConstSpan(&value, 1), &half) == 0) continue;
    const double error = std::abs(ValueOf(GetParam(), half) - double{value});
    bool right = std::signbit(value) == ((half & 0x8000) != 0);
    for (const int step : {-1, 1}) {
      if ((half & 0x7fff) == 0 && step < 0) continue;
      const double other = std::abs(ValueOf(GetParam(), static_cast<uint16_t>(half + step)) - double{value});
      right = right && (error < other || (error == other && half % 2 == 0) || std::isinf(other));
    }
    if (!right) wrong.push_back(value);
  }
  EXPECT_EQ(wrong, std::vector<float>{});
}

INSTANTIATE_TEST_SUITE_P(Formats, HalfTest, testing::Values(FileDType::kF16, FileDType::kBF16));

TEST(HalfRangeTest, OverflowIsFoundAtTheHalfwayPoint) {
  const auto encode = [](FileDType dtype, float value) {
    uint16_t half;
    return EncodeHalves(dtype, absl::MakeConstSpan(&value, 1), &half);
  };
  EXPECT_EQ(encode(FileDType::kF16, 65504.f), -1);
  EXPECT_EQ(encode(FileDType::kF16, std::nextafter(65520.f, 0.f)), -1);
  EXPECT_EQ(encode(FileDType::kF16, 65520.f), 0);
  EXPECT_EQ(encode(FileDType::kF16, -1e30f), 0);
  EXPECT_EQ(encode(FileDType::kBF16, 3.38e38f), -1);
  EXPECT_EQ(encode(FileDType::kBF16, std::numeric_limits<float>::max()), 0);
  EXPECT_EQ(encode(FileDType::kBF16, std::bit_cast<float>(0x7fffffffu)), 0);  // a NaN that rounding would carry to -0
  EXPECT_EQ(encode(FileDType::kBF16, std::bit_cast<float>(0xffffffffu)), 0);
}

TEST(HalfRangeTest, TheFirstBadElementIsNamedWhereverItIs) {
  for (const int64_t n : {1, 7, 2048, 2049, 10000}) {
    for (const int64_t bad : {int64_t{0}, n / 2, n - 1}) {
      std::vector<float> values(static_cast<size_t>(n), 1.5f), decoded(values.size());
      std::vector<uint16_t> halves(values.size());
      ASSERT_EQ(FindNonFinite(values), -1);
      values[static_cast<size_t>(bad)] = values.back() = NAN;
      EXPECT_EQ(FindNonFinite(values), bad);
      EXPECT_EQ(EncodeHalves(FileDType::kF16, values, halves.data()), bad);
      EXPECT_EQ(EncodeHalves(FileDType::kBF16, values, halves.data()), bad);
      EXPECT_EQ(DecodeFloats(FileDType::kF32, reinterpret_cast<const uint8_t*>(values.data()), absl::MakeSpan(decoded)),
                bad);
    }
  }
}

}  // namespace
}  // namespace holdfast
