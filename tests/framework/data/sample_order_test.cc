// Proves that every epoch is a permutation, that epochs and seeds differ, that no sample prefers a place, and that the
// order never changes between versions (a resumed run depends on it).

#include "framework/data/sample_order.h"

#include <cmath>
#include <numeric>
#include <set>
#include <unordered_set>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

std::vector<int64_t> Epoch(const SampleOrder& order, int64_t n, int64_t epoch) {
  std::vector<int64_t> samples(n);
  for (int64_t i = 0; i < n; ++i) samples[i] = order.At(epoch * n + i);
  return samples;
}

bool IsPermutation(std::vector<int64_t> samples) {
  std::vector<bool> seen(samples.size(), false);
  for (const int64_t sample : samples) {
    if (sample < 0 || sample >= static_cast<int64_t>(samples.size()) || seen[sample]) return false;
    seen[sample] = true;
  }
  return true;
}

TEST(SampleOrder, EveryEpochIsAPermutation) {
  for (int64_t n = 1; n <= 300; ++n) {
    const SampleOrder order(n, 1234 + n, true);
    for (int64_t epoch = 0; epoch < 4; ++epoch) ASSERT_TRUE(IsPermutation(Epoch(order, n, epoch))) << n << " " << epoch;
  }
  for (const int64_t n : {4096, 65536, 65537, 1'000'000}) {
    ASSERT_TRUE(IsPermutation(Epoch(SampleOrder(n, 5, true), n, 3))) << n;
  }
}

TEST(SampleOrder, HugeDataSets) {
  for (const int64_t n : {int64_t{1'000'000'000'000}, int64_t{1} << 62, INT64_MAX}) {
    const SampleOrder order(n, 9, true);
    std::unordered_set<int64_t> seen;
    for (int64_t i = 0; i < 100'000; ++i) {
      const int64_t sample = order.At(i);
      ASSERT_TRUE(sample >= 0 && sample < n);
      ASSERT_TRUE(seen.insert(sample).second) << n << " " << i;
    }
  }
}

TEST(SampleOrder, SeedsAndEpochsDiffer) {
  std::set<std::vector<int64_t>> orders;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (int64_t epoch = 0; epoch < 10; ++epoch) orders.insert(Epoch(SampleOrder(100, seed, true), 100, epoch));
  }
  EXPECT_EQ(orders.size(), 100);
}

TEST(SampleOrder, WithoutShuffleInOrder) {
  std::vector<int64_t> expected(10);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(Epoch(SampleOrder(10, 3, false), 10, 0), expected);
  EXPECT_EQ(Epoch(SampleOrder(10, 3, false), 10, 7), expected);
}

// Chi-squared of (position, sample) over many epochs. Mean (n-1)^2 (rows and columns are fixed), sd sqrt(2) (n-1); 6
// sd.
TEST(SampleOrder, NoSamplePrefersAPlace) {
  for (const int64_t n : {3, 5, 8, 13, 16, 17, 50}) {
    const SampleOrder order(n, 77, true);
    constexpr int64_t kEpochs = 20'000;
    std::vector<int64_t> counts(n * n);
    for (int64_t i = 0; i < kEpochs * n; ++i) ++counts[i % n * n + order.At(i)];
    const double expected = static_cast<double>(kEpochs) / n;
    double chi_squared = 0;
    for (const int64_t count : counts) chi_squared += (count - expected) * (count - expected) / expected;
    const double degrees = static_cast<double>((n - 1) * (n - 1));
    EXPECT_LT(std::abs(chi_squared * static_cast<double>(n - 1) / n - degrees), 6 * std::sqrt(2 * degrees)) << n;
  }
}

// Neighbours in the stream are no neighbours in the file.
TEST(SampleOrder, NeighboursAreTornApart) {
  constexpr int64_t kSamples = 100'000;
  const std::vector<int64_t> samples = Epoch(SampleOrder(kSamples, 1, true), kSamples, 0);
  double distance = 0;
  for (int64_t i = 1; i < kSamples; ++i) distance += std::abs(static_cast<double>(samples[i] - samples[i - 1]));
  EXPECT_NEAR(distance / kSamples, kSamples / 3.0, kSamples * 0.01);  // as for independent uniform numbers
}

TEST(SampleOrder, TheOrderIsForever) {
  const std::vector<int64_t> expected = {2, 9, 0, 8, 1, 4, 5, 6, 7, 3};
  EXPECT_EQ(Epoch(SampleOrder(10, 42, true), 10, 1), expected);
  EXPECT_EQ(SampleOrder(1'000'000'000'000, 42, true).At(123'456'789), 1385644552);
}

}  // namespace
}  // namespace holdfast
