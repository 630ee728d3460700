// Proves that a reducer gives every holder the serial sum of all microbatches' gradients, bit for bit, whoever computed
// which of them: worlds of two to five with every sharding, sums in both orders, ranks without microbatches or chunks,
// shards in one range and in many. Ranks are threads. And that waiting ends when it should.

#include "framework/parallel/reducer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "framework/parallel/sharded_store.h"
#include "tests/framework/comm/in_process.h"
#include "tests/framework/comm/wrapped_communicator.h"

namespace holdfast {
namespace {

constexpr std::chrono::milliseconds kReduceTimeout{300'000};

/// Units of `chunks`, 4 and 1 chunks, the second one in two uneven parts.
ParameterLayout ThreeUnits(int64_t chunks) {
  return ParameterLayout({{.name = "a", .shape = {chunks, 40'000}},
                          {.name = "b", .shape = {3, 50'000}, .unit = 1, .part = 0},
                          {.name = "c", .shape = {70}, .unit = 1, .part = 1},
                          {.name = "d", .shape = {9}, .unit = 2}},
                         {"first", "second", "third"});
}

/// Of so different sizes that the order of additions decides bits.
float GradientOf(int64_t microbatch, int unit, int64_t element) {
  const auto hash = static_cast<uint32_t>(microbatch * 7919 + unit * 104'729 + element * 31) * 2654435761u;
  return std::ldexp(static_cast<float>(static_cast<int32_t>(hash)), static_cast<int>(hash % 23) - 31);
}

/// What a rank computes of one unit: the gradients of `run`, added up as far as they can be.
class Local {
 public:
  Local(Device& device, kernels::Ops& ops, const SumOrder& order, int unit, int64_t elements)
      : unit_(unit), elements_(elements), buffers_(device), sum_(buffers_, ops, order, elements) {}

  void Add(const MicrobatchRange& run) {
    sum_.Reset(run.first);
    for (int64_t m = run.first; m < run.end(); ++m) {
      float* gradient = sum_.Open().value();
      for (int64_t i = 0; i < elements_; ++i) gradient[i] = GradientOf(m, unit_, i);
      sum_.Close();
    }
  }
  GradientSum& sum() { return sum_; }

 private:
  int unit_;
  int64_t elements_;
  GradientBuffers buffers_;
  GradientSum sum_;
};

std::deque<Local> LocalsOf(const ParameterLayout& layout, Device& device, kernels::Ops& ops, const SumOrder& order) {
  std::deque<Local> locals;
  for (int u = 0; u < layout.num_units(); ++u) {
    locals.emplace_back(device, ops, order, u, layout.units()[static_cast<size_t>(u)].elements);
  }
  return locals;
}

/// Gradients of the three units as in backward passes, of two waves that take turns after each unit, if `turns`.
std::vector<WaveUnit> LastToFirst(int waves, bool turns = false) {
  UnitSchedule schedule;
  for (const int unit : {2, 1, 0}) {
    schedule.push_back({StoreCall::Kind::kEndGradients, unit});
    schedule.push_back({StoreCall::Kind::kPause, 0});
  }
  return GradientsOf(schedule, waves, turns);
}

class ReducerTest : public testing::Test {
 protected:
  /// The serial sums, by unit.
  void Expect(const SumOrder& order, int64_t microbatches) {
    const auto stream = device_->CreateStream().value();
    expected_.clear();
    for (Local& local : LocalsOf(layout_, *device_, stream->ops(), order)) {
      local.Add({0, microbatches});
      const float* sum = local.sum().Finish();
      expected_.emplace_back(sum, sum + layout_.units()[expected_.size()].elements);
    }
  }

  /// One rank's step; the units' gradients are complete last to first, as in a backward pass.
  void Step(Reducer& reducer, const ReductionPlan& plan, const SumOrder& order, int rank, bool turns) {
    const auto stream = device_->CreateStream().value();
    std::deque<Local> locals = LocalsOf(layout_, *device_, stream->ops(), order);
    const std::vector<WaveUnit> order_of_gradients = LastToFirst(plan.num_waves(), turns);
    ASSERT_TRUE(reducer.Begin(plan, order_of_gradients).ok());
    for (const WaveUnit& gradient : order_of_gradients) {
      const MicrobatchRange& run = plan.RangeOf(gradient.wave, rank);
      if (run.count == 0) continue;
      ASSERT_TRUE(reducer.WaitForRoom(gradient.unit, {}).ok());
      Local& local = locals[static_cast<size_t>(gradient.unit)];
      local.Add(run);
      reducer.Contribute(gradient, local.sum().TakePieces(), nullptr);
    }
    const absl::Status finished = reducer.Finish();
    ASSERT_TRUE(finished.ok()) << finished;
  }

  void ExpectSums(Reducer& reducer, const ShardMap& map, int rank) {
    std::vector<bool> found(layout_.chunks().size());
    std::map<int64_t, double> squares;
    for (const GradientPiece& piece : reducer.Gradients()) {
      const std::vector<float>& sum = expected_[static_cast<size_t>(piece.unit)];
      EXPECT_EQ(piece.elements, map.Elements(piece.unit, piece.chunks));
      for (int64_t i = piece.elements.begin; i < piece.elements.end; ++i) {
        const float got = piece.gradient[i - piece.elements.begin];
        ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(sum[static_cast<size_t>(i)]))
            << "rank " << rank << ", unit " << piece.unit << ", element " << i;
      }
      for (int64_t c = piece.chunks.begin; c < piece.chunks.end; ++c) {
        EXPECT_FALSE(found[static_cast<size_t>(c)]);
        EXPECT_EQ(piece.primary, map.PrimaryOf(static_cast<int>(c)));
        found[static_cast<size_t>(c)] = true;
        if (piece.primary != rank) continue;
        const Range elements = map.Elements(piece.unit, {c, c + 1});
        double square = 0;
        for (int64_t i = elements.begin; i < elements.end; ++i) {
          square += double{sum[static_cast<size_t>(i)]} * double{sum[static_cast<size_t>(i)]};
        }
        squares[c] = square;
      }
    }
    for (int c = 0; c < static_cast<int>(found.size()); ++c) {
      const std::vector<int> holders = map.Holders(c);
      EXPECT_EQ(found[static_cast<size_t>(c)], std::count(holders.begin(), holders.end(), rank) == 1) << "chunk " << c;
    }
    ASSERT_EQ(reducer.chunk_sums().size(), squares.size());
    for (const auto& [chunk, square] : reducer.chunk_sums()) EXPECT_NEAR(square, squares[chunk], 1e-12 * square);
  }

  /// Steps of which the later ones have other numbers of microbatches: rank 0 does more, the last one nothing.
  void ReduceEverywhere(const Placement& placement, const SumOrder& order, int64_t microbatches) {
    const int size = placement.size();
    const ShardMap map(layout_, DType::kF32, placement);
    Expect(order, microbatches);
    std::vector<int64_t> uneven = EvenMicrobatches(microbatches, size);
    uneven.front() += uneven.back();
    uneven.back() = 0;
    const ReductionMode mode = ShardedStore::Mode(placement);
    auto communicators = MakeInProcessWorld(size, 1);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        Communicator& world = *communicators[static_cast<size_t>(rank)];
        const auto reducer = Reducer::Create(map, placement, order, world, *device_, kReduceTimeout);
        ASSERT_TRUE(reducer.ok()) << reducer.status();
        for (const std::vector<int64_t>& counts : {EvenMicrobatches(microbatches, size), uneven}) {
          for (const bool turns : {false, true}) {
            if (turns && mode != ReductionMode::kEveryMicrobatch) continue;
            Step(**reducer, ReductionPlan(counts, mode, order), order, rank, turns);
            ExpectSums(**reducer, map, rank);
          }
        }
        ASSERT_TRUE(world.Barrier(std::chrono::steady_clock::now() + kReduceTimeout).ok());  // nobody leaves before
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static std::vector<std::string> Nodes(int size) {
    std::vector<std::string> nodes;
    for (int r = 0; r < size; ++r) nodes.push_back("node" + std::to_string(r));
    return nodes;
  }

  ParameterLayout layout_ = ThreeUnits(5);
  const std::unique_ptr<Device> device_ = MakeCpuDevice(1);
  std::vector<std::vector<float>> expected_;
};

TEST_F(ReducerTest, TheOrderDecidesBits) {  // or the tests below would prove less than they seem to
  Expect(SumOrder::Tree(), 7);
  const std::vector<std::vector<float>> tree = expected_;
  Expect(SumOrder::Chains(2), 7);
  EXPECT_NE(tree, expected_);
}

TEST_F(ReducerTest, SerialSumsInEveryWorldAndSharding) {
  for (int size = 2; size <= 5; ++size) {
    for (const auto& [sharding, replicas, mirrors] :
         std::vector<std::tuple<Sharding, int64_t, int64_t>>{{Sharding::kFullShard, 1, 1},
                                                             {Sharding::kFullShard, 2, 1},
                                                             {Sharding::kNoShard, 1, 1},
                                                             {Sharding::kShardGradOp, 1, 0}}) {
      ParallelConfig options;
      options.sharding = sharding;
      options.replicas = replicas;
      options.mirrors = mirrors;
      for (const SumOrder& order : {SumOrder::Tree(), SumOrder::Chains(2)}) {
        SCOPED_TRACE(testing::Message() << size << " ranks, sharding " << static_cast<int>(sharding) << ", " << replicas
                                        << " replicas, block " << order.block());
        ReduceEverywhere(Placement(Nodes(size), options), order, 7);
      }
    }
  }
}

TEST_F(ReducerTest, ShardsOfManyRuns) {
  layout_ = ThreeUnits(40);
  const Placement four(Nodes(4), {});
  const Placement joined(Nodes(5), {}, 0, four, std::vector<int>{0, 1, 2, 3});  // rank 4 has the last cells of each
  const Placement lost(Nodes(4), {}, 0, joined, std::vector<int>{0, -1, 1, 2, 3});
  for (const Placement& placement : {joined, lost}) {
    const ShardMap map(layout_, DType::kF32, placement);
    size_t runs = 0;
    for (int r = 0; r < placement.size(); ++r) runs = std::max(runs, map.Summed(0, r).size());
    ASSERT_GT(runs, 1u);
    ReduceEverywhere(placement, SumOrder::Tree(), 3);
  }
}

TEST_F(ReducerTest, WaitingForRoomEndsWithAStopOrAnAbort) {
  const Placement placement(Nodes(2), {});
  const ShardMap map(layout_, DType::kF32, placement);
  const SumOrder order = SumOrder::Tree();
  auto communicators = MakeInProcessWorld(2, 1);
  const auto stream = device_->CreateStream().value();
  std::deque<Local> locals = LocalsOf(layout_, *device_, stream->ops(), order);  // longer than what was contributed
  const auto reducer = Reducer::Create(map, placement, order, *communicators[0], *device_, kReduceTimeout).value();
  const ReductionPlan plan(std::vector<int64_t>{2, 2}, ReductionMode::kEveryMicrobatch, order);
  ASSERT_TRUE(reducer->Begin(plan, LastToFirst(plan.num_waves())).ok());
  for (const int unit : {2, 1}) {  // the other rank sends nothing, so these stay
    ASSERT_TRUE(reducer->WaitForRoom(unit, {}).ok());
    locals[static_cast<size_t>(unit)].Add({0, 1});
    reducer->Contribute({0, unit}, locals[static_cast<size_t>(unit)].sum().TakePieces(), nullptr);
  }
  std::stop_source stop;
  std::jthread stopping([&] { stop.request_stop(); });
  EXPECT_EQ(reducer->WaitForRoom(0, stop.get_token()).code(), absl::StatusCode::kCancelled);
  std::jthread aborting([&] { reducer->Abort("a test"); });
  EXPECT_EQ(reducer->WaitForRoom(0, {}).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(reducer->Finish().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(reducer->Begin(plan, LastToFirst(plan.num_waves())).code(), absl::StatusCode::kAborted)
      << "it is of no use any more";
}

/// Takes note of how far ahead the deadline of the first exchange is.
class FirstDeadline final : public WrappedCommunicator {
 public:
  using WrappedCommunicator::WrappedCommunicator;
  absl::Status AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) override {
    if (!ahead.has_value()) ahead = deadline - std::chrono::steady_clock::now();
    return WrappedCommunicator::AllToAllV(input, output, deadline);
  }

  std::optional<std::chrono::steady_clock::duration> ahead;
};

// A rank that has the whole model sends nothing before its last microbatch, and others may have fewer or be faster.
TEST_F(ReducerTest, OthersMayMakeAllTheirPassesFirst) {
  for (const auto& [sharding, passes] : {std::pair{Sharding::kNoShard, 6}, {Sharding::kFullShard, 1}}) {
    ParallelConfig options;
    options.sharding = sharding;
    const Placement placement(Nodes(2), options);
    const ShardMap map(layout_, DType::kF32, placement);
    const SumOrder order = SumOrder::Tree();
    const ReductionPlan plan(std::vector<int64_t>{0, 6}, ShardedStore::Mode(placement), order);
    auto communicators = MakeInProcessWorld(2, 1);
    std::vector<std::unique_ptr<FirstDeadline>> worlds;
    for (auto& communicator : communicators) worlds.push_back(std::make_unique<FirstDeadline>(std::move(communicator)));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        FirstDeadline& world = *worlds[static_cast<size_t>(rank)];
        const auto reducer = Reducer::Create(map, placement, order, world, *device_, kReduceTimeout);
        ASSERT_TRUE(reducer.ok()) << reducer.status();
        Step(**reducer, plan, order, rank, /*turns=*/false);
        ASSERT_TRUE(world.Barrier(std::chrono::steady_clock::now() + kReduceTimeout).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& world : worlds) {
      EXPECT_GT(*world->ahead, (passes - 0.5) * kReduceTimeout);
      EXPECT_LE(*world->ahead, passes * kReduceTimeout);
    }
  }
}

TEST_F(ReducerTest, ALostRankEndsTheStepOfTheOthers) {
  const Placement placement(Nodes(2), {});
  const ShardMap map(layout_, DType::kF32, placement);
  const SumOrder order = SumOrder::Tree();
  auto communicators = MakeInProcessWorld(2, 1);
  const auto reducer = Reducer::Create(map, placement, order, *communicators[0], *device_, kReduceTimeout).value();
  const ReductionPlan plan(std::vector<int64_t>{0, 2}, ReductionMode::kEveryMicrobatch, order);
  ASSERT_TRUE(reducer->Begin(plan, LastToFirst(plan.num_waves())).ok());
  communicators[1].reset();
  EXPECT_FALSE(reducer->Finish().ok());
}

}  // namespace
}  // namespace holdfast
