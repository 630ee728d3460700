// The tree adds in the association it promises (against a recursive definition, in bits), for any number of
// contributions, for any assignment of them to ranks, within the memory it states, and without allocating twice.

#include "framework/parallel/summation_tree.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "framework/parallel/aligned_blocks.h"

namespace holdfast {
namespace {

using Values = std::vector<float>;

constexpr int64_t kN = 37;

// Values of many magnitudes: nearly every other order of additions gives other bits.
Values Contribution(int i) {
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

// The definition: split after the largest power of two that leaves something on the right; a block of a power of two is
// split in the middle.
Values DefinedSum(int first, int count) {
  if (count == 1) return Contribution(first);
  const int left = static_cast<int>(std::bit_floor(static_cast<unsigned>(count - 1)));
  return Sum(DefinedSum(first, left), DefinedSum(first + left, count - left));
}

std::vector<uint32_t> Bits(const float* values) {
  std::vector<uint32_t> bits(kN);
  std::memcpy(bits.data(), values, kN * sizeof(float));
  return bits;
}

class SummationTreeTest : public testing::Test {
 protected:
  void Push(SummationTree& tree, const float* values) {
    auto buffer = tree.Open();
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    std::memcpy(*buffer, values, kN * sizeof(float));
    tree.Close();
  }
  void Push(SummationTree& tree, int first, int count) {
    for (int i = first; i < first + count; ++i) Push(tree, Contribution(i).data());
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice(1);
  std::unique_ptr<Stream> stream_ = device_->CreateStream().value();
};

TEST_F(SummationTreeTest, AddsInTheDefinedAssociationInStatedMemory) {
  for (int m = 1; m <= 70; ++m) {
    SummationTree tree(*device_, stream_->ops(), kN);
    for (int step = 0; step < 3; ++step) {
      Push(tree, 0, m);
      EXPECT_EQ(tree.next(), m);
      ASSERT_EQ(Bits(tree.Finish()), Bits(DefinedSum(0, m).data())) << m;
      ASSERT_EQ(Bits(tree.Finish()), Bits(DefinedSum(0, m).data())) << "asked twice, " << m;
      EXPECT_EQ(tree.bytes(), static_cast<size_t>(SummationTree::MaxBuffers(m)) * kN * sizeof(float)) << m;
      EXPECT_LE(SummationTree::MaxBuffers(m), static_cast<int>(std::log2(m)) + 1) << m;
      tree.Reset();
    }
  }
}

TEST_F(SummationTreeTest, TheAssociationMatters) {
  Values serial = Contribution(0);
  for (int i = 1; i < 8; ++i) serial = Sum(serial, Contribution(i));
  EXPECT_NE(Bits(serial.data()), Bits(DefinedSum(0, 8).data()));  // or the tests here prove nothing
}

TEST_F(SummationTreeTest, OneContributionIsNotCopied) {
  SummationTree tree(*device_, stream_->ops(), kN);
  float* buffer = *tree.Open();
  tree.Close();
  EXPECT_EQ(tree.Finish(), buffer);
  EXPECT_EQ(tree.bytes(), kN * sizeof(float));
}

TEST_F(SummationTreeTest, ResetForgetsAnOpenContribution) {
  SummationTree tree(*device_, stream_->ops(), kN);
  Push(tree, 0, 3);
  ASSERT_TRUE(tree.Open().ok());
  tree.Reset();
  EXPECT_EQ(tree.next(), 0);
  const size_t before = tree.bytes();
  Push(tree, 5, 3);
  ASSERT_TRUE(tree.Open().ok());
  EXPECT_EQ(tree.bytes(), before);
  tree.Reset();
  Push(tree, 5, 1);
  EXPECT_EQ(Bits(tree.Finish()), Bits(Contribution(5).data()));
}

// Ranks get contiguous runs of any length; each adds up the aligned blocks of its run by itself and sends one partial
// sum per block (or, at random, the microbatches of the run one by one); the owner pushes what comes, in order.
TEST_F(SummationTreeTest, AnyAssignmentGivesTheBitsOfTheSerialSum) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const int m = 1 + static_cast<int>(random() % 40);
    SummationTree owner(*device_, stream_->ops(), kN), rank(*device_, stream_->ops(), kN);
    for (int first = 0; first < m;) {
      const int run = std::min(m - first, 1 + static_cast<int>(random() % 12));
      if (random() % 4 == 0) {
        Push(owner, first, run);
      } else {
        rank.Reset(first);
        Push(rank, first, run);
        std::vector<AlignedBlock> blocks;
        for (const SummationTree::Partial& partial : rank.Partials()) {
          blocks.push_back(partial.block);
          ASSERT_TRUE(owner.Push(partial.sum, partial.block.level).ok());
        }
        ASSERT_EQ(blocks, AlignedBlocks(first, run));
      }
      first += run;
    }
    ASSERT_EQ(owner.next(), m);
    ASSERT_EQ(Bits(owner.Finish()), Bits(DefinedSum(0, m).data())) << "round " << round << ", m " << m;
  }
}

TEST(AlignedBlocksTest, CoverTheRunInOrderWithAlignedBlocks) {
  using Blocks = std::vector<AlignedBlock>;
  EXPECT_EQ(AlignedBlocks(0, 0), Blocks{});
  EXPECT_EQ(AlignedBlocks(0, 8), (Blocks{{0, 3}}));
  EXPECT_EQ(AlignedBlocks(3, 6), (Blocks{{3, 0}, {4, 2}, {8, 0}}));
  EXPECT_EQ(AlignedBlocks(6, 1), (Blocks{{6, 0}}));
  for (int64_t first = 0; first < 40; ++first) {
    for (int64_t count = 1; count < 40; ++count) {
      int64_t at = first;
      for (const AlignedBlock& block : AlignedBlocks(first, count)) {
        ASSERT_EQ(block.first, at);
        ASSERT_EQ(block.first % (int64_t{1} << block.level), 0);
        at += int64_t{1} << block.level;
      }
      ASSERT_EQ(at, first + count);
    }
  }
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

TEST_F(SummationTreeTest, MisuseEndsTheProcess) {
  SummationTree tree(*device_, stream_->ops(), kN);
  EXPECT_DEATH(tree.Finish(), "check failed");
  EXPECT_DEATH(tree.Close(), "check failed");
  Push(tree, 0, 1);
  const Values two(kN);
  EXPECT_DEATH(tree.Push(two.data(), 1).IgnoreError(), "check failed");  // a block of two cannot follow one microbatch
  ASSERT_TRUE(tree.Open().ok());
  EXPECT_DEATH(tree.Open().status().IgnoreError(), "check failed");
}

}  // namespace
}  // namespace holdfast
