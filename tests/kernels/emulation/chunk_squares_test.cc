// Proves that a GPU's sums of squares have the association that kernels/cuda/vector.cu states, to the last bit, for
// chunks of any length and any number of them, whatever is loaded at once.

#include <cmath>

#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

/// Sums of 32 lanes as WarpReduce adds them.
double OfWarp(std::vector<double> lanes) {
  for (size_t offset = 16; offset > 0; offset /= 2) {
    std::vector<double> next = lanes;
    for (size_t lane = 0; lane < 32; ++lane) next[lane] = lanes[lane] + lanes[lane ^ offset];
    lanes = next;
  }
  return lanes[0];
}

double SquaresOf(const float* x, int64_t n) {
  std::vector<double> warps(32, 0.0);
  for (size_t warp = 0; warp < 8; ++warp) {
    std::vector<double> lanes(32, 0.0);
    for (int64_t i = 0; i < n; ++i) {
      const auto thread = static_cast<size_t>(i % 256);
      if (thread / 32 != warp) continue;
      const auto value = static_cast<double>(x[i]);
      lanes[thread % 32] = std::fma(value, value, lanes[thread % 32]);
    }
    warps[warp] = OfWarp(lanes);
  }
  return OfWarp(warps);
}

void Check(const std::vector<int64_t>& lengths) {
  Rng rng(11);
  std::vector<int64_t> offsets{5};  // where no wide access may begin
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
  std::vector<float> x = RandomVector(rng, offsets.back());
  x.push_back(NAN);  // is nobody's
  std::vector<double> sums(lengths.size(), NAN);
  const auto device = MakeTestDevice(1);
  device->ops().ChunkSumSquares(sums.data(), x.data(), offsets.data(), static_cast<int64_t>(lengths.size()));
  device->Synchronize();
  for (size_t i = 0; i < lengths.size(); ++i) {
    const double expected = SquaresOf(x.data() + offsets[i], lengths[i]);
    EXPECT_EQ(std::memcmp(&sums[i], &expected, sizeof(double)), 0) << i << ": " << sums[i] << ", not " << expected;
  }
}

TEST(ChunkSquares, HaveTheBitsOfTheirDefinition) {
  Check({0, 1, 31, 255, 256, 257, 768, 8191, 8192, 8193, 65280, 65536});
  Check(std::vector<int64_t>(1100, 7));  // more than one launch has
}

}  // namespace
}  // namespace holdfast::kernels
