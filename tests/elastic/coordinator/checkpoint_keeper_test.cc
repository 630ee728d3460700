// Proves what comes to exist, and what goes: a checkpoint only if its shards hold the state that was voted for, the one
// whose digest stands in its step's metrics line, and if the run has not gone back behind it; old ones, but not the
// newest and not what is being written. With real shards in a storage in memory.

#include "elastic/coordinator/checkpoint_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/fence.h"
#include "checkpoint/sharded/shard_writer.h"
#include "framework/parallel/sharded_state.h"
#include "framework/storage/local_storage.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/framework/storage/fault_storage.h"
#include "tests/framework/storage/memory_storage.h"

namespace holdfast {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// A gateway in front of the storage may refuse with any code.
class RefusingStorage final : public FaultStorage {
 public:
  using FaultStorage::FaultStorage;
  absl::Status Create(const std::string& name, absl::string_view contents) override {
    if (refuses && absl::StrContains(name, "manifest")) return absl::FailedPreconditionError("HTTP status 400");
    return FaultStorage::Create(name, contents);
  }
  absl::Status Delete(const std::string& name) override {
    if (before_a_manifest_goes != nullptr && absl::StrContains(name, "manifest")) {
      std::exchange(before_a_manifest_goes, nullptr)();
    }
    return FaultStorage::Delete(name);
  }
  absl::Status Sweep() override {
    if (!sweeps_until.stop_possible()) return FaultStorage::Sweep();
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    never.wait(lock, sweeps_until, [] { return false; });
    return absl::CancelledError("stopped");
  }
  bool refuses = false;
  std::stop_token sweeps_until;                  // if it can be requested
  std::function<void()> before_a_manifest_goes;  // once
};

class CheckpointKeeperTest : public testing::Test {
 protected:
  CheckpointKeeperTest() : layout_(Layout()) {
    auto faults = std::make_unique<RefusingStorage>(*memory_);
    faults_ = faults.get();
    auto keeper = CheckpointKeeper::Open(config_, directory_, std::move(faults), {{"weight", {40, 50}}}, {}, nullptr);
    EXPECT_TRUE(keeper.ok()) << keeper.status();
    keeper_ = std::move(*keeper);
  }

  static ParameterLayout Layout() {
    ParameterSpec weight;
    weight.name = "weight";
    weight.shape = Shape({40, 50});
    return ParameterLayout({weight}, {"model"});
  }

  // One shard of everything; `digests_` are the chunks'.
  CommitCheckpointAction Write(int64_t step) {
    CommitCheckpointAction commit{.step = step, .generation = 3, .shards = {}, .validation_loss = {}};
    std::vector<int> chunks;
    for (int c = 0; c < static_cast<int>(layout_.chunks().size()); ++c) chunks.push_back(c);
    auto writer = ShardWriter::Create(keeper_->storage(),
                                      {.checkpoint = {.step = step, .generation = 3}, .shard = 0, .num_shards = 1},
                                      state_, chunks);
    EXPECT_TRUE(writer.ok()) << writer.status();
    digests_.clear();
    for (const int c : chunks) {
      const Chunk& chunk = layout_.chunks()[static_cast<size_t>(c)];
      CapturedChunk captured{.chunk = c, .bytes = CpuBytes(state_.ChunkBytes(chunk))};
      std::memset(captured.bytes.data(), static_cast<int>(step), captured.bytes.size());
      captured.digest = DigestBytes(captured.bytes);
      digests_.push_back(captured.digest);
      EXPECT_TRUE((*writer)->Add(std::move(captured)).ok());
    }
    const auto report = (*writer)->Commit();
    EXPECT_TRUE(report.ok()) << report.status();
    SavedMessage saved;
    saved.data = {report->shard.data.name, report->shard.data.size, report->shard.data.digest};
    saved.index = {report->shard.index.name, report->shard.index.size, report->shard.index.digest};
    saved.chunks = report->shard.chunks;
    commit.shards.push_back(saved);
    return commit;
  }

  CheckpointDoneEvent Commit(const CommitCheckpointAction& commit) {
    CheckpointDoneEvent done;
    keeper_->Commit(commit, [&](const CoordinatorEvent& event) {
      if (const auto* e = std::get_if<CheckpointDoneEvent>(&event)) done = *e;
      if (const auto* e = std::get_if<CheckpointsTidiedEvent>(&event)) tidied_ = *e;
    });
    keeper_->Finish();
    return done;
  }
  void MakeRoom(const CheckpointName& next) {
    tidied_.reset();
    keeper_->MakeRoom(next, [&](const CoordinatorEvent& event) { tidied_ = std::get<CheckpointsTidiedEvent>(event); });
    keeper_->Finish();
  }
  /// From now on in `place`, a directory; `directory`: as the config says it.
  void KeepIn(const std::string& place, const std::string& directory) {
    config_.checkpoint.directory = directory;
    auto storage = OpenLocalStorage(place);
    ASSERT_TRUE(storage.ok()) << storage.status();
    auto keeper = CheckpointKeeper::Open(config_, directory_, *std::move(storage), {{"weight", {40, 50}}}, {}, nullptr);
    ASSERT_TRUE(keeper.ok()) << keeper.status();
    keeper_ = *std::move(keeper);
  }

  const TemporaryDirectory root_;
  const RunDirectory directory_{root_.path()};
  Config config_;
  const ParameterLayout layout_;
  const StateLayout state_ = LayoutOf(*MakeOptimizer({}), layout_);
  std::vector<uint64_t> digests_;
  std::optional<CheckpointsTidiedEvent> tidied_;  // the last
  const std::unique_ptr<Storage> memory_ = MakeMemoryStorage(root_.path());
  RefusingStorage* faults_ = nullptr;  // the keeper's
  std::unique_ptr<CheckpointKeeper> keeper_;
};

TEST_F(CheckpointKeeperTest, ExistsIfItHoldsTheStateOfItsMetricsLine) {
  CommitCheckpointAction commit = Write(7);
  commit.state_digest = StateDigest(digests_);
  const CheckpointDoneEvent done = Commit(commit);
  EXPECT_EQ(done.cause, "");
  EXPECT_EQ(done.usable.size(), 1u);
}

TEST_F(CheckpointKeeperTest, DoesNotExistIfItHoldsAnother) {
  CommitCheckpointAction commit = Write(7);
  commit.state_digest = StateDigest(digests_) ^ 1;
  const CheckpointDoneEvent done = Commit(commit);
  EXPECT_THAT(done.cause, HasSubstr("the shards hold a state with digest"));
  EXPECT_TRUE(done.usable.empty());
  EXPECT_TRUE(ScanCheckpoints(keeper_->storage())->valid.empty());
}

TEST_F(CheckpointKeeperTest, IsTheRunsUntilAnotherHasClaimedIt) {
  const CommitCheckpointAction commit = Write(7);
  faults_->refuses = true;
  const CheckpointDoneEvent refused = Commit(commit);
  EXPECT_EQ(refused.cause, "HTTP status 400");
  EXPECT_FALSE(refused.fenced);
  faults_->refuses = false;
  EXPECT_EQ(Commit(commit).cause, "");
  const auto other = Fence::Claim(*memory_, "another run");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(Commit(Write(8)).fenced);
}

TEST_F(CheckpointKeeperTest, OneForWhichThereIsNoRoomOrNoAccessMayExistLater) {
  const CommitCheckpointAction commit = Write(7);
  for (const StorageFault fault : {StorageFault::kNoSpace, StorageFault::kUnavailable, StorageFault::kNoPermission}) {
    faults_->Inject({.operation = StorageOperation::kCreate, .fault = fault, .name = "manifest"});
    const CheckpointDoneEvent done = Commit(commit);
    faults_->ClearFaults();
    EXPECT_NE(done.cause, "");
    EXPECT_TRUE(done.no_room) << done.cause;
    EXPECT_TRUE(ScanCheckpoints(keeper_->storage())->valid.empty());
  }
  const CheckpointDoneEvent done = Commit(commit);
  EXPECT_EQ(done.cause, "");
  EXPECT_FALSE(done.no_room);
}

TEST_F(CheckpointKeeperTest, DoesNotExistIfTheRunHasGoneBackBehindIt) {
  const CommitCheckpointAction commit = Write(7);
  Branch branch;
  branch.GoBack({.generation = 3, .step = 5});
  keeper_->GoBack(branch);
  EXPECT_NE(Commit(commit).cause, "");
  EXPECT_TRUE(ScanCheckpoints(keeper_->storage())->valid.empty());
}

TEST_F(CheckpointKeeperTest, TheNewestStaysWhateverTheSpaceAndSoDoesWhatIsBeingWritten) {
  config_.checkpoint.max_gib = 1e-9;
  EXPECT_EQ(Commit(Write(7)).cause, "");
  const CommitCheckpointAction next = Write(9);  // its shards are there, its manifest is not
  EXPECT_EQ(Commit(Write(8)).cause, "");
  const auto catalog = ScanCheckpoints(keeper_->storage());
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  ASSERT_EQ(catalog->valid.size(), 1u);
  EXPECT_EQ(catalog->valid[0].manifest.name.step, 8);
  EXPECT_EQ(Commit(next).cause, "");
}

TEST_F(CheckpointKeeperTest, HowManyCannotBeDeletedIsSaidAndWhyTheFirstCannot) {
  config_.checkpoint.keep_last = 1;
  EXPECT_EQ(Commit(Write(7)).cause, "");
  faults_->Inject({.operation = StorageOperation::kDelete, .fault = StorageFault::kNoPermission, .name = "0008"});
  faults_->Inject({.operation = StorageOperation::kDelete, .fault = StorageFault::kUnavailable, .name = "0007"});
  EXPECT_EQ(Commit(Write(8)).cause, "");
  EXPECT_THAT(tidied_->warning, StartsWith("cannot delete step-0000000007-g3: "));
  EXPECT_EQ(Commit(Write(9)).cause, "");
  EXPECT_THAT(tidied_->warning, StartsWith("cannot delete 2 checkpoints, the first of them step-0000000007-g3: "));
  faults_->ClearFaults();
  EXPECT_EQ(Commit(Write(10)).cause, "");
  EXPECT_EQ(tidied_->warning, "");
}

// Only a checkpoint that begins to exist would clear it away, and there may never be room for that one.
TEST_F(CheckpointKeeperTest, WhatWasNeverFinishedGoesWhereThereIsNoRoom) {
  EXPECT_EQ(Commit(Write(7)).cause, "");
  for (const int64_t step : {8, 9, 10}) Write(step);  // 8: a writer was lost; 9: did not fit; 10: begun since
  const int64_t sweeps = faults_->CallsOf(StorageOperation::kSweep);
  MakeRoom({.step = 10, .generation = 3});
  const auto catalog = ScanCheckpoints(*memory_);
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  ASSERT_EQ(catalog->valid.size(), 1u);
  EXPECT_EQ(catalog->valid[0].manifest.name.step, 7);
  ASSERT_EQ(catalog->rejected.size(), 1u);
  EXPECT_EQ(catalog->rejected[0].name, (CheckpointName{.step = 10, .generation = 3}).ToString());
  EXPECT_EQ(faults_->CallsOf(StorageOperation::kSweep), sweeps + 1) << "what killed writers have left takes room, too";
}

TEST_F(CheckpointKeeperTest, WhatKilledWritersHaveLeftGoesWhenTheNextOneExists) {
  const int64_t sweeps = faults_->CallsOf(StorageOperation::kSweep);
  CommitCheckpointAction bad = Write(7);
  bad.state_digest = StateDigest(digests_) + 1;
  EXPECT_NE(Commit(bad).cause, "");
  EXPECT_EQ(faults_->CallsOf(StorageOperation::kSweep), sweeps);
  EXPECT_EQ(Commit(Write(8)).cause, "");
  EXPECT_EQ(faults_->CallsOf(StorageOperation::kSweep), sweeps + 1);
}

// An object store that does not answer any more would be asked for minutes.
TEST_F(CheckpointKeeperTest, TidyingDoesNotHoldUpTheEnd) {
  const std::stop_source storage_stop;
  auto faults = std::make_unique<RefusingStorage>(*memory_);
  faults_ = faults.get();
  auto keeper =
      CheckpointKeeper::Open(config_, directory_, std::move(faults), {{"weight", {40, 50}}}, {}, nullptr, storage_stop);
  ASSERT_TRUE(keeper.ok()) << keeper.status();
  keeper_ = *std::move(keeper);
  faults_->sweeps_until = storage_stop.get_token();
  EXPECT_EQ(Commit(Write(7)).cause, "");
  EXPECT_TRUE(storage_stop.stop_requested());
}

TEST_F(CheckpointKeeperTest, AClaimChangesNothingThatIsKnownOfWorkers) {
  const CoordinatorState past{
      .generation = 7,
      .branch = {},
      .contradicted = {{"n0/1", 5}},
      .contradictions = {{"n0/1", {.process = 5, .kept_out = true, .times = {std::chrono::seconds(1)}}}}};
  const auto keeper = CheckpointKeeper::Open(config_, directory_, std::make_unique<RefusingStorage>(*memory_),
                                             {{"weight", {40, 50}}}, past, nullptr);
  ASSERT_TRUE(keeper.ok()) << keeper.status();
  EXPECT_EQ((*keeper)->state().contradicted, past.contradicted);
  EXPECT_EQ((*keeper)->state().contradictions, past.contradictions);
}

TEST_F(CheckpointKeeperTest, AndWhatWasGivenUpButNothingOfAnotherOwner) {
  EXPECT_EQ(Commit(Write(7)).cause, "");
  Branch branch;
  branch.GoBack({.generation = 3, .step = 5});
  keeper_->GoBack(branch);
  MakeRoom({.step = 8, .generation = 4});
  EXPECT_TRUE(memory_->List("step-")->empty());
  const auto other = Fence::Claim(*memory_, "another run");
  ASSERT_TRUE(other.ok()) << other.status();
  Write(9);
  MakeRoom({.step = 10, .generation = 4});
  EXPECT_FALSE(memory_->List("step-")->empty());
}

// A coordinator is frozen between its look at the fence and the deletion, and replaced.
TEST_F(CheckpointKeeperTest, WhatANewOwnerHasFoundStays) {
  config_.checkpoint.keep_last = 1;
  EXPECT_EQ(Commit(Write(7)).cause, "");
  absl::StatusOr<std::unique_ptr<Fence>> other;
  faults_->before_a_manifest_goes = [&] { other = Fence::Claim(*memory_, "another run"); };
  EXPECT_EQ(Commit(Write(8)).cause, "");
  ASSERT_TRUE(other.ok()) << other.status();
  const auto catalog = ScanCheckpoints(*memory_);
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  EXPECT_EQ(catalog->valid.size(), 2u);
}

// The fence that says what was given up is a file, too.
TEST_F(CheckpointKeeperTest, WhatWasNeverFinishedGoesAlsoWhereThereIsNoRoomForAFence) {
  EXPECT_EQ(Commit(Write(7)).cause, "");
  Write(8);
  faults_->Inject({.operation = StorageOperation::kCreate, .fault = StorageFault::kNoSpace, .name = "fence"});
  Branch branch;
  branch.GoBack({.generation = 3, .step = 5});
  keeper_->GoBack(branch);
  MakeRoom({.step = 6, .generation = 4});
  const auto catalog = ScanCheckpoints(*memory_);
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  EXPECT_TRUE(catalog->rejected.empty());
  EXPECT_EQ(catalog->valid.size(), 1u) << "the storage does not know yet that it was given up";
  faults_->ClearFaults();
  MakeRoom({.step = 6, .generation = 4});
  EXPECT_TRUE(memory_->List("step-")->empty());
}

// With many that are kept, reading all of them twice after each took far longer than writing one.
TEST_F(CheckpointKeeperTest, AManifestIsReadOnceHoweverManyComeAfterIt) {
  config_.checkpoint.keep_last = 3;
  const auto reads_of = [&](int64_t step) {
    const std::string manifest = (CheckpointName{.step = step, .generation = 3}).ToString() + "/manifest";
    const std::vector<StorageCall> calls = faults_->Calls();
    return std::count_if(calls.begin(), calls.end(), [&](const StorageCall& call) {
      return call.operation == StorageOperation::kReadAt && absl::StrContains(call.name, manifest);
    });
  };
  EXPECT_EQ(Commit(Write(1)).cause, "");
  const int64_t once = reads_of(1);
  EXPECT_GE(once, 1);
  for (int64_t step = 2; step <= 6; ++step) EXPECT_EQ(Commit(Write(step)).cause, "");
  for (int64_t step = 1; step <= 6; ++step) {
    const int64_t to_be_put_back = step <= 3 ? 1 : 0;  // if it is not to go
    EXPECT_EQ(reads_of(step), once + to_be_put_back) << step;
  }
  const auto catalog = ScanCheckpoints(*memory_);
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  EXPECT_EQ(catalog->valid.size(), 3u) << "and they go all the same";
}

TEST_F(CheckpointKeeperTest, WhatSomebodyElseHasDeletedIsSaidOnce) {
  config_.checkpoint.keep_last = 2;
  for (const int64_t step : {7, 8}) EXPECT_EQ(Commit(Write(step)).cause, "");
  ASSERT_TRUE(DeleteCheckpoint(*memory_, "step-0000000008-g3", [] { return absl::OkStatus(); }).ok());
  EXPECT_EQ(Commit(Write(9)).cause, "");
  EXPECT_THAT(tidied_->warning, HasSubstr("step-0000000008-g3 is gone, which the run has not deleted; the newest is "
                                          "step-0000000009-g3"));
  ASSERT_EQ(tidied_->usable.size(), 2u);
  EXPECT_EQ(tidied_->usable[1].step, 7);
  for (const int64_t step : {10, 11}) {
    EXPECT_EQ(Commit(Write(step)).cause, "");
    EXPECT_EQ(tidied_->warning, "") << "that of step 7 was deleted by the run itself";
  }
}

TEST_F(CheckpointKeeperTest, ARunsOwnDirectoryIsMadeAgainIfItWasRemoved) {
  KeepIn(directory_.checkpoints(), "");
  EXPECT_EQ(Commit(Write(7)).cause, "");
  std::filesystem::remove_all(directory_.checkpoints());
  MakeRoom({.step = 8, .generation = 3});
  ASSERT_TRUE(tidied_.has_value());
  EXPECT_THAT(tidied_->warning, HasSubstr("step-0000000007-g3 is gone"));
  EXPECT_TRUE(tidied_->usable.empty());
  const CheckpointDoneEvent done = Commit(Write(9));
  EXPECT_EQ(done.cause, "");
  EXPECT_EQ(done.usable.size(), 1u);
  EXPECT_EQ(tidied_->warning, "");
  EXPECT_TRUE(CheckClaimed(keeper_->storage()).ok());
}

TEST_F(CheckpointKeeperTest, ARunsOwnDirectoryMayBeEmptied) {
  KeepIn(directory_.checkpoints(), "");
  EXPECT_EQ(Commit(Write(7)).cause, "");
  std::filesystem::remove_all(directory_.checkpoints());
  std::filesystem::create_directory(directory_.checkpoints());
  EXPECT_EQ(Commit(Write(8)).cause, "");
  EXPECT_THAT(tidied_->warning, HasSubstr("step-0000000007-g3 is gone"));
}

// A disk may not be mounted now, and what would be written there would be hidden behind it.
TEST_F(CheckpointKeeperTest, ADirectoryElsewhereIsWaitedFor) {
  const std::string place = root_ / "elsewhere";
  KeepIn(place, place);
  EXPECT_EQ(Commit(Write(7)).cause, "");
  std::filesystem::rename(place, root_ / "away");
  MakeRoom({.step = 8, .generation = 3});
  EXPECT_FALSE(tidied_.has_value());
  EXPECT_FALSE(std::filesystem::exists(place));
  std::filesystem::create_directory(place);
  const CheckpointDoneEvent refused = Commit(Write(8));
  EXPECT_THAT(refused.cause, HasSubstr("mount what was there"));
  EXPECT_TRUE(refused.no_room);
  EXPECT_FALSE(refused.fenced);
  CheckpointVerifiedEvent read;
  keeper_->Verify("step-0000000007-g3",
                  [&](const CoordinatorEvent& event) { read = std::get<CheckpointVerifiedEvent>(event); });
  Branch branch;
  branch.GoBack({.generation = 3, .step = 9});
  keeper_->GoBack(branch);
  keeper_->Finish();
  EXPECT_THAT(read.cause, HasSubstr("mount what was there"));
  EXPECT_FALSE(read.damaged) << "the run would go back to one before it";
  EXPECT_FALSE(CheckClaimed(keeper_->storage()).ok());
  std::filesystem::remove_all(place);
  std::filesystem::rename(root_ / "away", place);
  std::filesystem::remove(place + "/fence-0000000001.json");  // by itself it is made anew
  EXPECT_EQ(Commit(Write(9)).cause, "");
}

TEST_F(CheckpointKeeperTest, AnOlderOneThatComesLateIsNotTheNewest) {
  EXPECT_EQ(Commit(Write(8)).cause, "");
  const CheckpointDoneEvent done = Commit(Write(7));
  ASSERT_EQ(done.usable.size(), 2u);
  EXPECT_EQ(done.usable[0].step, 8);
}

TEST_F(CheckpointKeeperTest, WithoutALineToCompareWithItHasItsOwnDigest) {
  const CheckpointDoneEvent done = Commit(Write(8));
  EXPECT_EQ(done.cause, "");
  const auto catalog = ScanCheckpoints(keeper_->storage());
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  ASSERT_EQ(catalog->valid.size(), 1u);
  EXPECT_EQ(catalog->valid[0].manifest.state_digest, StateDigest(digests_));
}

}  // namespace
}  // namespace holdfast
