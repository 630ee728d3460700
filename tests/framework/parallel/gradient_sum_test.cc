// Gradients are added in the order the config promises (against recursive definitions, in bits), for any number of
// contributions, for any assignment of them to ranks, within the memory that is planned, and without allocating twice.

#include "framework/parallel/gradient_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "framework/parallel/reduction_plan.h"

namespace holdfast {
namespace {

using Values = std::vector<float>;
using MicrobatchRanges = std::vector<MicrobatchRange>;

constexpr int64_t kN = 37;
constexpr size_t kBytes = kN * sizeof(float);

// Values of many magnitudes: nearly every other order of additions gives other bits.
Values Contribution(int64_t i) {
  std::mt19937 random(static_cast<unsigned>(i + 1));
  Values values(kN);
  for (float& v : values) {
    const float magnitude = std::ldexp(1.f, static_cast<int>(random() % 24));
    v = magnitude * (static_cast<float>(random() % 20001) / 10000.f - 1.f);
  }
  return values;
}

Values Sum(const Values& earlier, const Values& later) {
  Values sum(earlier.size());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = earlier[i] + later[i];
  return sum;
}

// The tree: split after the largest power of two that leaves something on the right; a block of a power of two is split
// in the middle.
Values TreeSum(int64_t first, int64_t count) {
  if (count == 1) return Contribution(first);
  const auto left = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count - 1)));
  return Sum(TreeSum(first, left), TreeSum(first + left, count - left));
}

// Chains: blocks one after another, in each of them microbatches one after another; the last one may be shorter.
Values ChainsSum(int64_t count, int64_t block) {
  Values total;
  for (int64_t first = 0; first < count; first += block) {
    Values sum = Contribution(first);
    for (int64_t i = first + 1; i < std::min(first + block, count); ++i) sum = Sum(sum, Contribution(i));
    total = first == 0 ? sum : Sum(total, sum);
  }
  return total;
}

Values DefinedSum(const SumOrder& order, int64_t count) {
  return order.block() == 0 ? TreeSum(0, count) : ChainsSum(count, order.block());
}

/// The most partial sums there are after any of `count` microbatches, added one by one.
size_t MaxSums(const SumOrder& order, int64_t count) {
  size_t most = 0;
  for (int64_t m = 1; m <= count; ++m) most = std::max(most, order.Pieces({0, m}).size());
  return most;
}

std::vector<uint32_t> Bits(const float* values) {
  std::vector<uint32_t> bits(kN);
  std::memcpy(bits.data(), values, kBytes);
  return bits;
}

/// By the microbatches of a block of chains; 0 = tree.
class GradientSumTest : public testing::TestWithParam<int64_t> {
 protected:
  const SumOrder order_ = GetParam() == 0 ? SumOrder::Tree() : SumOrder::Chains(GetParam());

  GradientSum MakeSum(GradientBuffers& buffers) { return {buffers, stream_->ops(), order_, kN}; }
  void Push(GradientSum& sum, int64_t i) {
    auto buffer = sum.Open();
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    std::memcpy(*buffer, Contribution(i).data(), kBytes);
    sum.Close();
  }
  void Push(GradientSum& sum, const MicrobatchRange& run) {
    for (int64_t i = run.first; i < run.end(); ++i) Push(sum, i);
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice(1);
  std::unique_ptr<Stream> stream_ = device_->CreateStream().value();
  GradientBuffers buffers_{*device_};
};

INSTANTIATE_TEST_SUITE_P(Orders, GradientSumTest, testing::Values(0, 1, 2, 3, 4, 8, 100),
                         [](const testing::TestParamInfo<int64_t>& p) {
                           return p.param == 0 ? "Tree" : absl::StrCat("ChainsOf", p.param);
                         });

TEST_P(GradientSumTest, AddsInTheDefinedOrderInPlannedMemory) {
  for (int m = 1; m <= 70; ++m) {
    GradientBuffers buffers(*device_);
    GradientSum sum = MakeSum(buffers);
    for (int step = 0; step < 3; ++step) {
      Push(sum, {0, m});
      EXPECT_EQ(sum.next(), m);
      ASSERT_EQ(Bits(sum.Finish()), Bits(DefinedSum(order_, m).data())) << m;
      ASSERT_EQ(Bits(sum.Finish()), Bits(DefinedSum(order_, m).data())) << "asked twice, " << m;
      // The sums, and the contribution that is being written.
      EXPECT_LE(buffers.bytes(), (MaxSums(order_, m) + (m > 1 ? 1 : 0)) * kBytes) << m;
      sum.Reset();
    }
  }
}

TEST_P(GradientSumTest, HoldsAsManySumsAsPromised) {
  int most = 0;
  for (int64_t m = 1; m <= 1000; ++m) {
    most = std::max(most, static_cast<int>(order_.Pieces({0, m}).size()));
    if (order_.block() == 0) {
      EXPECT_EQ(most, std::max(1, static_cast<int>(std::log2(m + 1)))) << m;
    } else {
      EXPECT_EQ(most, order_.block() == 1 || m <= order_.block() ? 1 : 2) << m;
    }
  }
}

// Units share what the contribution at work needs: two of the same size cost one buffer besides their sums.
TEST_P(GradientSumTest, ContributionsOfSeveralUnitsShareMemory) {
  GradientSum a = MakeSum(buffers_), b = MakeSum(buffers_);
  constexpr int64_t kCount = 9;
  for (int64_t i = 0; i < kCount; ++i) {
    Push(a, i);
    Push(b, i);
  }
  EXPECT_LE(buffers_.bytes(), (2 * MaxSums(order_, kCount) + 1) * kBytes);
  EXPECT_EQ(Bits(a.Finish()), Bits(b.Finish()));
}

TEST_P(GradientSumTest, OneContributionIsNotCopied) {
  GradientSum sum = MakeSum(buffers_);
  const float* buffer = *sum.Open();
  sum.Close();
  EXPECT_EQ(sum.Finish(), buffer);
  EXPECT_EQ(buffers_.bytes(), kBytes);
}

TEST_P(GradientSumTest, ResetForgetsAnOpenContribution) {
  GradientSum sum = MakeSum(buffers_);
  Push(sum, {0, 3});
  ASSERT_TRUE(sum.Open().ok());
  sum.Reset();
  EXPECT_EQ(sum.next(), 0);
  Push(sum, 5);
  EXPECT_EQ(Bits(sum.Finish()), Bits(Contribution(5).data()));
}

// Ranks get contiguous ranges of any length; each adds up the pieces of its range by itself and sends one sum per piece
// (or, at random, the microbatches of the run one by one); the owner adds what comes, in order.
TEST_P(GradientSumTest, AnyAssignmentGivesTheBitsOfTheSerialSum) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const int64_t m = 1 + static_cast<int64_t>(random() % 40);
    GradientSum owner = MakeSum(buffers_), rank = MakeSum(buffers_);
    for (int64_t first = 0; first < m;) {
      const MicrobatchRange run{first, std::min(m - first, 1 + static_cast<int64_t>(random() % 12))};
      if (random() % 4 == 0) {
        Push(owner, run);
      } else {
        rank.Reset(first);
        Push(rank, run);
        MicrobatchRanges pieces;
        for (const GradientSum::Piece& piece : rank.TakePieces()) {
          pieces.push_back(piece.range);
          ASSERT_TRUE(owner.Push(piece.sum.data(), piece.range.count).ok());
        }
        ASSERT_EQ(pieces, order_.Pieces(run));
      }
      first = run.end();
    }
    ASSERT_EQ(owner.next(), m);
    ASSERT_EQ(Bits(owner.Finish()), Bits(DefinedSum(order_, m).data())) << "round " << round << ", m " << m;
  }
}

TEST_P(GradientSumTest, PiecesCoverTheRunInOrder) {
  for (int64_t first = 0; first < 40; ++first) {
    for (int64_t count = 0; count < 40; ++count) {
      int64_t at = first;
      for (const MicrobatchRange& piece : order_.Pieces({first, count})) {
        ASSERT_EQ(piece.first, at);
        ASSERT_EQ(order_.Pieces(piece), MicrobatchRanges{piece});
        at = piece.end();
      }
      ASSERT_EQ(at, first + count);
    }
  }
}

// Any split of microbatches over ranks: every microbatch once, in order over waves and ranks, nothing but pieces.
TEST_P(GradientSumTest, PlansGiveEveryMicrobatchToOneRankInOrder) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<int64_t> counts(1 + random() % 9);
    for (int64_t& count : counts) count = static_cast<int64_t>(random() % 12);
    ++counts[random() % counts.size()];
    for (const ReductionMode mode : {ReductionMode::kEveryMicrobatch, ReductionMode::kPieces}) {
      const ReductionPlan plan(counts, mode, order_);
      int64_t next = 0;
      for (int wave = 0; wave < plan.num_waves(); ++wave) {
        for (int rank = 0; rank < plan.size(); ++rank) {
          const MicrobatchRange& run = plan.RangeOf(wave, rank);
          ASSERT_TRUE(run.count == 0 || run.first == next);
          ASSERT_EQ(plan.Pieces(wave, rank), order_.Pieces(run));
          ASSERT_LE(plan.Pieces(wave, rank).size(), plan.MaxPieces(wave));
          ASSERT_TRUE(mode == ReductionMode::kPieces || run.count <= 1);
          // With chains a rank holds one sum while it sends another, whatever it computes.
          ASSERT_TRUE(order_.block() == 0 || plan.size() == 1 || plan.Pieces(wave, rank).size() <= 1);
          next += run.count;
        }
      }
      ASSERT_EQ(next, std::accumulate(counts.begin(), counts.end(), int64_t{0}));
      ASSERT_TRUE(mode == ReductionMode::kEveryMicrobatch || (order_.block() > 0 && counts.size() > 1) ||
                  plan.num_waves() == 1);
      for (int rank = 0; rank < plan.size(); ++rank) {
        ASSERT_EQ(static_cast<int64_t>(plan.MicrobatchesOf(rank).size()), counts[static_cast<size_t>(rank)]);
      }
    }
  }
}

TEST_P(GradientSumTest, MisuseEndsTheProcess) {
  GradientSum sum = MakeSum(buffers_);
  EXPECT_DEATH(sum.Finish(), "check failed");
  EXPECT_DEATH(sum.Close(), "check failed");
  Push(sum, 0);
  const Values many(kN);
  EXPECT_DEATH(sum.Push(many.data(), 6).IgnoreError(), "check failed");  // microbatches 1 to 6 are no piece
  ASSERT_TRUE(sum.Open().ok());
  EXPECT_DEATH(sum.Open().status().IgnoreError(), "check failed");
}

TEST(SumOrder, TheOrderMatters) {  // or the tests here prove nothing
  std::vector<std::vector<uint32_t>> sums;
  for (const int64_t block : {1, 2, 3, 4}) sums.push_back(Bits(ChainsSum(16, block).data()));
  sums.push_back(Bits(TreeSum(0, 16).data()));
  for (size_t i = 0; i < sums.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(sums[i], sums[j]) << i << " " << j;
  }
}

TEST(SumOrder, SendsTheFewestPieces) {
  EXPECT_EQ(SumOrder::Tree().Pieces({0, 8}), (MicrobatchRanges{{0, 8}}));
  EXPECT_EQ(SumOrder::Tree().Pieces({3, 6}), (MicrobatchRanges{{3, 1}, {4, 4}, {8, 1}}));
  EXPECT_EQ(SumOrder::Chains(4).Pieces({0, 9}), (MicrobatchRanges{{0, 8}, {8, 1}}));
  EXPECT_EQ(SumOrder::Chains(4).Pieces({3, 8}), (MicrobatchRanges{{3, 1}, {4, 4}, {8, 3}}));
  EXPECT_EQ(SumOrder::Chains(4).Pieces({5, 2}), (MicrobatchRanges{{5, 1}, {6, 1}}));
}

TEST(GradientBuffers, GivesMemoryBackFromAnyThread) {
  const std::unique_ptr<Device> device = MakeCpuDevice(1);
  GradientBuffers buffers(*device);
  for (int round = 0; round < 3; ++round) {
    GradientBuffers::Lent a = *buffers.Take(5), b = *buffers.Take(7);
    std::thread([lent = std::move(a)] {}).join();
    EXPECT_NE(buffers.Take(5)->data(), b.data());
  }
  EXPECT_EQ(buffers.bytes(), 12 * sizeof(float));
}

TEST(ScalarSummationTreeTest, AddsInTheSameAssociation) {
  std::mt19937 random(3);
  for (int m = 1; m <= 70; ++m) {
    std::vector<double> values(static_cast<size_t>(m));
    for (double& v : values) v = std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 60));
    ScalarSummationTree tree;
    for (const double v : values) tree.Add(v);
    const auto defined = [&](auto self, size_t first, size_t count) -> double {
      if (count == 1) return values[first];
      const size_t left = std::bit_floor(count - 1);
      return self(self, first, left) + self(self, first + left, count - left);
    };
    ASSERT_EQ(std::bit_cast<uint64_t>(tree.Sum()), std::bit_cast<uint64_t>(defined(defined, 0, values.size()))) << m;
  }
  EXPECT_EQ(ScalarSummationTree().Sum(), 0.0);
}

}  // namespace
}  // namespace holdfast
