// Proves that a snapshot holds the bits of the step it was taken at, whatever training does meanwhile: chunks read
// before the update, copied by it, or both at once, with staging memory for everything or for one chunk; over a change
// of the world; and that one whose state goes away says so instead of giving anything else.

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "framework/train/trainer.h"
#include "models/plan.h"
#include "models/transformer.h"
#include "tests/framework/train/deferred_device.h"
#include "tests/framework/train/digest_of.h"
#include "tests/framework/train/tiny_model.h"

namespace holdfast {
namespace {

constexpr int64_t kVocab = 61, kSequence = 16, kBatch = 2;
constexpr size_t kPlenty = size_t{1} << 30;

struct Case {
  DType dtype;
  bool deferred;  // on a device that does things later
};

class SnapshotTest : public testing::TestWithParam<Case> {
 protected:
  SnapshotTest() : device_(GetParam().deferred ? std::make_unique<DeferredDevice>() : MakeCpuDevice(1)) {
    model_ = MakeTransformer(TinyTransformer(kVocab, kSequence), {.compute_dtype = GetParam().dtype}, *device_).value();
    const PassPlan training = PlanTraining(*model_, kBatch, kSequence);
    TrainerOptions options;
    options.batch = {.sequence_length = kSequence, .microbatch_size = kBatch, .microbatches = 1};
    options.total_steps = 1000;
    options.seed = 7;
    options.arena_bytes = training.arena_bytes;
    options.training_schedule = training.schedule;
    trainer_ = Trainer::Create(*model_, *device_, options).value();
    EXPECT_TRUE(trainer_->EnterWorld({}, {}).ok());
    Step();
    Step();
  }

  void Step() {
    ++step_;
    const auto source = [&](int64_t) -> absl::StatusOr<Microbatch> {
      std::mt19937 random(static_cast<unsigned>(step_));
      Microbatch m{.batch = kBatch, .sequence = kSequence, .inputs = {}, .targets = {}};
      m.step = static_cast<uint32_t>(step_);
      for (int64_t i = 0; i < kBatch * kSequence; ++i) {
        m.inputs.push_back(static_cast<int32_t>(random() % kVocab));
        m.targets.push_back(static_cast<int32_t>(random() % kVocab));
      }
      return m;
    };
    const auto result = trainer_->Prepare({step_, {1}}, source, {});
    ASSERT_TRUE(result.ok()) << result.status();
    trainer_->Commit(*result);
  }

  /// The state digest of everything that comes out.
  uint64_t Read(Snapshot& snapshot, std::chrono::microseconds pause = {}) {
    std::vector<uint64_t> digests(model_->layout().chunks().size(), 0);
    while (const auto chunk = snapshot.Next()) {
      digests[static_cast<size_t>(chunk->chunk)] = chunk->digest;
      std::this_thread::sleep_for(pause);
    }
    return StateDigest(digests);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Trainer> trainer_;
  int64_t step_ = 0;  // the last one
};

TEST_P(SnapshotTest, ReadBeforeTheUpdateCopiesNothing) {
  const uint64_t expected = DigestOf(*trainer_);
  const auto snapshot = trainer_->StartSnapshot(0);
  EXPECT_EQ(Read(*snapshot), expected);
  Step();
  EXPECT_FALSE(snapshot->abandoned());
}

TEST_P(SnapshotTest, UpdatesCopyWhatWasNotRead) {
  const uint64_t expected = DigestOf(*trainer_);
  const auto snapshot = trainer_->StartSnapshot(kPlenty);
  Step();
  Step();
  EXPECT_NE(DigestOf(*trainer_), expected);
  EXPECT_EQ(Read(*snapshot), expected);
  EXPECT_GT(snapshot->stall_seconds(), 0);
}

TEST_P(SnapshotTest, WithMemoryForOneChunkUpdatesWaitForTheReader) {
  for (int round = 0; round < 20; ++round) {
    const uint64_t expected = DigestOf(*trainer_);
    const auto snapshot = trainer_->StartSnapshot(1);
    uint64_t digest = 0;
    std::thread reader([&] { digest = Read(*snapshot, std::chrono::microseconds(round * 20)); });
    Step();
    reader.join();
    EXPECT_EQ(digest, expected);
  }
}

TEST_P(SnapshotTest, OutlivesAChangeOfTheWorldAndItsFirstCommit) {
  const uint64_t expected = DigestOf(*trainer_);
  const auto snapshot = trainer_->StartSnapshot(kPlenty);
  const TrainerWorld next{.rank = 0, .source = Placement({"local"}, {}), .source_ranks = {0}};
  ASSERT_TRUE(trainer_->EnterWorld(next, {}).ok());
  EXPECT_EQ(DigestOf(*trainer_), expected);
  Step();
  EXPECT_FALSE(snapshot->abandoned());
  EXPECT_EQ(Read(*snapshot), expected);
}

TEST_P(SnapshotTest, IsAbandonedWithItsState) {
  const auto forgotten = trainer_->StartSnapshot(kPlenty);
  EXPECT_TRUE(forgotten->Next().has_value());
  trainer_->Forget();
  EXPECT_TRUE(forgotten->abandoned());
  EXPECT_FALSE(forgotten->Next().has_value());

  ASSERT_TRUE(trainer_->EnterWorld({}, {}).ok());
  const auto replaced = trainer_->StartSnapshot(kPlenty);
  ASSERT_TRUE(trainer_->EnterWorld({}, {}).ok()) << "begins anew: nothing of the state before counts";
  EXPECT_TRUE(replaced->abandoned());
}

TEST_P(SnapshotTest, AbandoningFreesAnUpdateThatWaits) {
  const auto snapshot = trainer_->StartSnapshot(0);
  std::atomic<bool> abandoning = false;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    abandoning = true;
    snapshot->Abandon();
  });
  Step();
  EXPECT_TRUE(abandoning) << "there is memory for one chunk, and nobody reads";
  other.join();
  EXPECT_FALSE(snapshot->Next().has_value());
}

TEST_P(SnapshotTest, WhatWasReadCanBeLoadedInstead) {
  const auto snapshot = trainer_->StartSnapshot(kPlenty);
  const uint64_t expected = DigestOf(*trainer_);
  std::vector<Snapshot::Captured> chunks;
  while (auto chunk = snapshot->Next()) chunks.push_back(*std::move(chunk));
  Step();
  const uint64_t after = DigestOf(*trainer_);
  TrainerWorld world;
  world.load = [&](ShardedState& state, const std::stop_token&) {
    for (const auto& chunk : chunks) state.WriteChunk(chunk.chunk, chunk.bytes.data());
    return absl::OkStatus();
  };
  ASSERT_TRUE(trainer_->EnterWorld(world, {}).ok());
  EXPECT_EQ(DigestOf(*trainer_), expected);
  --step_;
  Step();
  EXPECT_EQ(DigestOf(*trainer_), after) << "the compute weights were not made anew";
}

INSTANTIATE_TEST_SUITE_P(All, SnapshotTest,
                         testing::Values(Case{DType::kBF16, false}, Case{DType::kF32, false}, Case{DType::kBF16, true},
                                         Case{DType::kF32, true}),
                         [](const auto& test) {
                           const std::string dtype = test.param.dtype == DType::kBF16 ? "bf16" : "fp32";
                           return dtype + (test.param.deferred ? "Deferred" : "");
                         });

}  // namespace
}  // namespace holdfast
