// Proves which state a rank holds as what through every change of the world, and that a snapshot gives the bits of its
// step or says that it was abandoned, whatever became of the state it reads; that an abort reaches the other ranks.
// Worlds of one but for that; with several ranks and a mirror fill the same is shown by world_test.cc.

#include "framework/train/held_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "framework/optim/optimizer.h"
#include "tests/framework/comm/in_process.h"

namespace holdfast {
namespace {

using NextSource = HeldStates::NextSource;

class HeldStatesTest : public testing::Test {
 protected:
  HeldStatesTest() : layout_({{.name = "w", .shape = {3, 40'000}, .init = InitKind::kNormal, .init_std = 1}}, {"w"}) {}

  /// The state of a new world, with values of `seed`.
  void Enter(uint64_t seed) {
    auto placed = Place(Placement({"here"}, {}), {});
    placed->state().Initialize(seed);
    digests_[seed] = DigestOf(placed->state());
    held_.Enter(std::move(placed));
  }
  std::unique_ptr<PlacedState> Place(const Placement& placement, WorldCommunicators communicators) {
    return PlacedState::Create(planes_, DType::kF32, {.placement = placement, .parallel = {}}, std::move(communicators),
                               *device_, *stream_, progress_)
        .value();
  }
  static uint64_t DigestOf(const ShardedState& state) {
    std::vector<uint64_t> digests;
    for (int c = 0; c < 3; ++c) digests.push_back(state.ChunkDigest(c));
    return StateDigest(digests);
  }
  void ExpectCurrent(uint64_t seed) { EXPECT_EQ(DigestOf(held_.current().state()), digests_[seed]); }
  void ExpectSource(uint64_t seed) {
    ASSERT_NE(held_.source(), nullptr);
    EXPECT_EQ(DigestOf(*held_.source()), digests_[seed]);
  }

  std::shared_ptr<Snapshot> StartSnapshot() {
    return held_.StartSnapshot(
        {.state = &held_.current().state(), .reading = reading_.get(), .updating = stream_.get(), .memory = memory_},
        {0, 1, 2}, size_t{1} << 30);
  }
  /// All of it is given, as it was in the state of `seed`.
  void ExpectWhole(Snapshot& snapshot, uint64_t seed) {
    std::vector<uint64_t> digests(3);
    while (const auto chunk = snapshot.Next()) digests[static_cast<size_t>(chunk->chunk)] = chunk->digest;
    EXPECT_FALSE(snapshot.abandoned());
    EXPECT_EQ(StateDigest(digests), digests_[seed]);
  }

  const std::unique_ptr<Device> device_ = MakeCpuDevice(1);
  const std::unique_ptr<Stream> stream_ = device_->CreateStream().value(), reading_ = device_->CreateStream().value();
  const ParameterLayout layout_;
  const StateLayout planes_ = LayoutOf(*MakeOptimizer({}), layout_);
  const std::shared_ptr<CpuBlocks> memory_ = CpuBlocks::Create(*device_, planes_.LargestChunkBytes());
  StepProgress progress_;
  std::map<uint64_t, uint64_t> digests_;  // by seed
  HeldStates held_;
};

TEST_F(HeldStatesTest, TheSourceIsThatOfTheLastCommit) {
  held_.Leave(NextSource::kNone);  // the first world
  Enter(1);
  EXPECT_EQ(held_.source(), nullptr);
  held_.Commit();
  ExpectCurrent(1);

  held_.Leave(NextSource::kLastCommitted);
  ExpectSource(1);
  Enter(2);
  ExpectCurrent(2);
  ExpectSource(1);

  held_.Leave(NextSource::kLastCommitted);  // it failed before its first commit
  ExpectSource(1);
  held_.Leave(NextSource::kLastCommitted);  // so did the next one, before it was entered
  ExpectSource(1);
  Enter(3);
  held_.Commit();
  EXPECT_EQ(held_.source(), nullptr) << "nobody fetches from it any more";
  held_.Commit();
  ExpectCurrent(3);
}

TEST_F(HeldStatesTest, AWorldThatWasOnlyEnteredMayBeTheSource) {
  Enter(1);
  held_.Commit();
  held_.Leave(NextSource::kLastCommitted);
  Enter(2);
  held_.Leave(NextSource::kEntered);
  held_.Leave(NextSource::kEntered);  // it has been left
  ExpectSource(2);
  Enter(3);
  held_.Commit();
  held_.Leave(NextSource::kEntered);  // which has committed as well
  ExpectSource(3);
}

TEST_F(HeldStatesTest, AWorldThatBeginsAnewKeepsNothing) {
  Enter(1);
  held_.Leave(NextSource::kLastCommitted);
  EXPECT_EQ(held_.source(), nullptr) << "it has committed nothing";
  Enter(2);
  held_.Commit();
  held_.Leave(NextSource::kNone);
  EXPECT_EQ(held_.source(), nullptr);
  Enter(3);
  held_.Commit();
  held_.Leave(NextSource::kLastCommitted);
  Enter(4);
  held_.Forget();
  EXPECT_EQ(held_.source(), nullptr);
  Enter(5);
  ExpectCurrent(5);
}

TEST_F(HeldStatesTest, ASnapshotFollowsItsStateToTheSource) {
  Enter(1);
  held_.Commit();
  const auto snapshot = StartSnapshot();
  EXPECT_EQ(held_.snapshot_of_current(), snapshot.get());
  held_.Leave(NextSource::kLastCommitted);
  Enter(2);
  EXPECT_EQ(held_.snapshot_of_current(), nullptr) << "updates of this state concern nobody";
  held_.Commit();  // the source goes
  ExpectWhole(*snapshot, 1);
}

TEST_F(HeldStatesTest, ASnapshotIsCopiedBeforeAnEnteredWorldTakesTheSourcesPlace) {
  Enter(1);
  held_.Commit();
  const auto snapshot = StartSnapshot();
  held_.Leave(NextSource::kLastCommitted);
  Enter(2);
  held_.Leave(NextSource::kEntered);
  ExpectSource(2);
  ExpectWhole(*snapshot, 1);
}

TEST_F(HeldStatesTest, ASnapshotOfAnEnteredWorldGoesWithIt) {
  Enter(1);
  held_.Commit();
  held_.Leave(NextSource::kLastCommitted);
  Enter(2);
  const auto gone = StartSnapshot();
  held_.Leave(NextSource::kLastCommitted);
  EXPECT_TRUE(gone->abandoned());
  EXPECT_FALSE(gone->Next().has_value());
  Enter(3);
  const auto kept = StartSnapshot();
  held_.Leave(NextSource::kEntered);
  ExpectWhole(*kept, 3);
}

TEST_F(HeldStatesTest, WhatCountsForNothingTakesItsSnapshotWithIt) {
  for (const bool in_source : {false, true}) {
    for (const bool forgotten : {false, true}) {
      Enter(1);
      held_.Commit();
      const auto snapshot = StartSnapshot();
      if (in_source) {
        held_.Leave(NextSource::kLastCommitted);
        Enter(2);
      }
      if (forgotten) {
        held_.Forget();
      } else {
        held_.Leave(NextSource::kNone);
      }
      EXPECT_TRUE(snapshot->abandoned()) << in_source << forgotten;
    }
  }
}

TEST_F(HeldStatesTest, OneSnapshotAtATime) {
  Enter(1);
  held_.Commit();
  const auto of_source = StartSnapshot();
  held_.Leave(NextSource::kLastCommitted);
  Enter(2);
  const auto first = StartSnapshot();
  EXPECT_TRUE(of_source->abandoned());
  const auto second = StartSnapshot();
  EXPECT_TRUE(first->abandoned());
  ExpectWhole(*second, 2);
}

TEST_F(HeldStatesTest, AbortFindsNothingOrWhatIsThere) {
  held_.Abort("nothing yet");
  auto world = MakeInProcessWorld(2, 1), group = MakeInProcessWorld(2, 1);
  held_.Enter(Place(Placement({"here", "there"}, {}), {.world = std::move(world[0]), .group = std::move(group[0])}));
  held_.Abort("the world changed");
  for (Communicator* other : {world[1].get(), group[1].get()}) {
    const absl::Status status = other->Barrier(std::chrono::steady_clock::now() + std::chrono::minutes(5));
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(status.message(), testing::HasSubstr("the world changed"));
  }
  held_.Forget();
  held_.Abort("nothing any more");
}

}  // namespace
}  // namespace holdfast
