// Proves that a transfer spreads what is sent over all that have it, and that in no round of it a rank sends or
// receives more than the bound, while every round but the last uses it.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "framework/parallel/placement.h"
#include "framework/parallel/shard_map.h"
#include "framework/parallel/sharded_state.h"
#include "framework/parallel/transfer_plan.h"

namespace holdfast {
namespace {

// Four ranks hold everything, a fifth joins.
class TransferLoadTest : public testing::Test {
 protected:
  static ParameterLayout Layout() {
    std::vector<ParameterSpec> parameters;
    for (int i = 0; i < 20; ++i) {
      ParameterSpec p;
      p.name = "p" + std::to_string(i);
      p.shape = Shape{300, 700};
      parameters.push_back(p);
    }
    return ParameterLayout(std::move(parameters), {"unit"});
  }
  int64_t BytesOf(const ChunkTransfer& transfer) const {
    return static_cast<int64_t>(state_.ChunkBytes(layout_.chunks()[static_cast<size_t>(transfer.chunk)]));
  }

  const ParameterLayout layout_ = Layout();
  const StateLayout state_ = LayoutOf(*MakeOptimizer({}), layout_);
  const ParallelConfig parallel_{.sharding = Sharding::kNoShard};
  const Placement source_{{"a", "b", "c", "d"}, parallel_}, target_{{"a", "b", "c", "d", "e"}, parallel_};
  const ShardMap source_map_{layout_, DType::kBF16, source_}, target_map_{layout_, DType::kBF16, target_};
  const std::vector<ChunkTransfer> transfers_ = PlanTransfer(source_map_, {0, 1, 2, 3}, target_map_);
};

TEST_F(TransferLoadTest, AllThatHaveItSendTheirShare) {
  std::map<int, int64_t> sent;
  int64_t all = 0;
  for (const ChunkTransfer& transfer : transfers_) {
    EXPECT_EQ(transfer.to, 4);
    sent[transfer.from] += BytesOf(transfer);
    all += BytesOf(transfer);
  }
  ASSERT_EQ(sent.size(), 4u);
  for (const auto& [rank, bytes] : sent) EXPECT_NEAR(static_cast<double>(bytes), all / 4.0, all * 0.05) << rank;
}

TEST_F(TransferLoadTest, NoRoundIsLargerThanItsBoundOrHalfEmpty) {
  constexpr int64_t kBound = 4 << 20;  // a chunk has at most 3 * 256 KiB
  const std::vector<std::vector<ChunkTransfer>> rounds = TransferRounds(state_, transfers_, target_.size(), kBound);
  ASSERT_GT(rounds.size(), 3u);
  std::map<int, int> left;  // by sender
  for (const ChunkTransfer& transfer : transfers_) ++left[transfer.from];
  for (size_t r = 0; r < rounds.size(); ++r) {
    std::map<int, int64_t> sent;
    int64_t received = 0;  // by the one that joins
    for (const ChunkTransfer& transfer : rounds[r]) {
      sent[transfer.from] += BytesOf(transfer);
      received += BytesOf(transfer);
    }
    EXPECT_LE(received, kBound);
    for (const auto& [rank, bytes] : sent) EXPECT_LE(bytes, kBound) << rank;
    if (r + 1 < rounds.size()) {
      EXPECT_GT(received, kBound / 2) << "half empty";
      EXPECT_EQ(sent.size(), left.size()) << "somebody who could send does not";
    }
    for (const ChunkTransfer& transfer : rounds[r]) {
      if (--left[transfer.from] == 0) left.erase(transfer.from);
    }
  }
}

// Two that join receive as much in a round as one does, at the same time.
TEST_F(TransferLoadTest, APairNeedsNoRoundOfItsOwn) {
  constexpr int64_t kBound = 4 << 20;
  const Placement larger({"a", "b", "c", "d", "e", "f"}, parallel_);
  const ShardMap larger_map(layout_, DType::kBF16, larger);
  const std::vector<ChunkTransfer> to_two = PlanTransfer(source_map_, {0, 1, 2, 3}, larger_map);
  ASSERT_EQ(to_two.size(), 2 * transfers_.size());
  EXPECT_LE(TransferRounds(state_, to_two, larger.size(), kBound).size(),
            TransferRounds(state_, transfers_, target_.size(), kBound).size() + 1);
}

}  // namespace
}  // namespace holdfast
