// Proves that a transfer spreads what is sent over all that have it, and that no round of it is larger than its bound.

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
    return static_cast<int64_t>(ShardedState::ChunkBytes(layout_.chunks()[static_cast<size_t>(transfer.chunk)]));
  }

  const ParameterLayout layout_ = Layout();
  const ParallelConfig parallel_{.sharding = Sharding::kNoShard};
  const Placement source_{{"a", "b", "c", "d"}, parallel_}, target_{{"a", "b", "c", "d", "e"}, parallel_};
  const ShardMap source_map_{layout_, DType::kBF16, source_.num_shards(), source_.num_groups()},
      target_map_{layout_, DType::kBF16, target_.num_shards(), target_.num_groups()};
  const std::vector<ChunkTransfer> transfers_ =
      PlanTransfer({&source_, &source_map_}, {0, 1, 2, 3}, {&target_, &target_map_});
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
  const std::vector<Range> rounds = TransferRounds(layout_, transfers_, kBound);
  ASSERT_GT(rounds.size(), 3u);
  for (size_t r = 0; r < rounds.size(); ++r) {
    int64_t bytes = 0;
    for (int64_t i = rounds[r].begin; i < rounds[r].end; ++i) bytes += BytesOf(transfers_[static_cast<size_t>(i)]);
    EXPECT_LE(bytes, kBound);
    if (r + 1 < rounds.size()) {
      EXPECT_GT(bytes, kBound / 2);
    }
  }
}

}  // namespace
}  // namespace holdfast
