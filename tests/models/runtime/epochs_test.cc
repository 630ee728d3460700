// Proves that train.epochs becomes the number of steps that KEYS.md says, by the headers of the token files; that the
// config that names both loads again; and that a run keeps its steps where its data have grown.

#include "models/runtime/epochs.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/storage/atomic_file.h"
#include "tests/models/runtime/tiny_run.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

BatchConfig StepsOfSequences(int64_t microbatches, int64_t microbatch_size) {
  return {.microbatch_size = microbatch_size, .microbatches = microbatches};
}

TEST(StepsOfEpochs, AreRoundedUp) {
  const BatchConfig four = StepsOfSequences(2, 2);
  EXPECT_EQ(StepsOfEpochs(3, 8, four), 6);
  EXPECT_EQ(StepsOfEpochs(3, 9, four), 7);  // 6.75
  EXPECT_EQ(StepsOfEpochs(0.5, 8, four), 1);
  EXPECT_EQ(StepsOfEpochs(0.5, 9, four), 2);
  EXPECT_EQ(StepsOfEpochs(0.001, 9, four), 1);
  EXPECT_EQ(StepsOfEpochs(1e-9, 9, four), 1);
  EXPECT_EQ(StepsOfEpochs(1, 1, StepsOfSequences(65536, 65536)), 1);
}

// As doubles they are a little more than what is written.
TEST(StepsOfEpochs, AreThoseOfTheDecimalNumber) {
  EXPECT_EQ(StepsOfEpochs(1.1, 10, StepsOfSequences(1, 1)), 11);
  EXPECT_EQ(StepsOfEpochs(0.1, 30, StepsOfSequences(3, 1)), 1);
  EXPECT_EQ(StepsOfEpochs(0.000001, 1'000'000, StepsOfSequences(1, 1)), 1);
  EXPECT_EQ(StepsOfEpochs(1.000001, 1'000'000, StepsOfSequences(1, 1)), 1'000'001);
}

TEST(StepsOfEpochs, DoNotOverflow) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(StepsOfEpochs(1, kMost, StepsOfSequences(1, 1)), kMost);
  EXPECT_EQ(StepsOfEpochs(1e6, kMost, StepsOfSequences(1, 1)), kMost);
}

TEST(EpochsOfSteps, CountWhatAStepReads) {
  Config config;
  config.train.steps = 3;
  config.batch = StepsOfSequences(2, 2);
  EXPECT_EQ(EpochsOfSteps(config, 8), 1.5);
}

// Of the 4,000 tokens of a file 249 samples of 16, four of them in a step.
class EpochsTest : public TinyRun {
 protected:
  Config Epochs(const std::string& epochs, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"train.steps=0", "train.epochs=" + epochs});
    return ConfigOf(more);
  }
  /// Or 0, and why.
  int64_t Resolve(Config config, const std::string& run_config = "") {
    const absl::Status resolved = ResolveSteps(&config, run_config);
    said_ = std::string(resolved.message());
    EXPECT_TRUE(resolved.ok() || absl::IsInvalidArgument(resolved)) << resolved;
    return resolved.ok() ? config.train.steps : 0;
  }
  std::string Grown() {
    WriteTokens("more.bin", 97);
    return absl::StrCat("data.train=[", root_ / "train.bin", ", ", root_ / "more.bin", "]");
  }
  std::string said_;
};

TEST_F(EpochsTest, BecomeSteps) {
  EXPECT_EQ(Resolve(Epochs("1")), 63);   // 62.25
  EXPECT_EQ(Resolve(Epochs("2")), 125);  // 124.5
  EXPECT_EQ(Resolve(Epochs("2", {"batch.microbatches=4"})), 63);
  EXPECT_EQ(Resolve(Epochs("2", {"batch.sequence_length=8"})), 250);  // 499 samples
  EXPECT_EQ(Resolve(Epochs("2", {Grown()})), 249);
  EXPECT_EQ(Resolve(ConfigOf()), 12) << "without epochs";
}

TEST_F(EpochsTest, TheResolvedConfigLoadsToTheSame) {
  Config config = Epochs("2");
  ASSERT_TRUE(ResolveSteps(&config, "").ok());
  auto again = ParseConfig(PrintConfig(config), "again", {}, {.families = FamilyPresets()});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, config);
  ASSERT_TRUE(ResolveSteps(&*again, "").ok());
  EXPECT_EQ(*again, config);
}

TEST_F(EpochsTest, OtherStepsBesideThemAreRefused) {
  EXPECT_EQ(Resolve(ConfigOf({"train.steps=124", "train.epochs=2"})), 0);
  EXPECT_EQ(said_,
            "train.steps is 124, but train.epochs 2 of 249 samples is 125 steps of 4: leave one of both out, or set it "
            "to 0");
}

TEST_F(EpochsTest, WhatTheStepsDecideIsChecked) {
  EXPECT_EQ(Resolve(Epochs("1", {"schedule.warmup_steps=63"})), 63);
  EXPECT_EQ(Resolve(Epochs("1", {"schedule.warmup_steps=64"})), 0);
  EXPECT_EQ(said_, "train.epochs: 1 is 63 steps: warmup_steps 64 is more than train.steps 63");
  EXPECT_EQ(Resolve(Epochs("1", {"schedule.total_steps=62"})), 0);
  EXPECT_THAT(said_, HasSubstr("total_steps 62 is less than train.steps 63"));
}

TEST_F(EpochsTest, DataThatAreNotThereAreNamed) {
  Config config = Epochs("1", {"data.train=[/nowhere.bin]"});
  const absl::Status missing = ResolveSteps(&config, "");
  EXPECT_FALSE(missing.ok());
  EXPECT_THAT(std::string(missing.message()), HasSubstr("data.train"));
}

TEST_F(EpochsTest, ARunKeepsItsStepsWhereItsDataHaveGrown) {
  Config of_run = Epochs("2");
  ASSERT_TRUE(ResolveSteps(&of_run, "").ok());
  const std::string run_config = root_ / "config.yaml";
  ASSERT_TRUE(WriteFileAtomically(run_config, PrintConfig(of_run)).ok());
  const std::string grown = Grown();
  EXPECT_EQ(Resolve(Epochs("2", {grown}), run_config), 125);
  EXPECT_EQ(Resolve(ConfigOf({grown, "train.steps=125", "train.epochs=2"}), run_config), 125) << "its own config.yaml";
  EXPECT_EQ(Resolve(Epochs("2", {grown}), root_ / "none.yaml"), 249) << "another run";
  EXPECT_EQ(Resolve(Epochs("3", {grown}), run_config), 374) << "other epochs";
  EXPECT_EQ(Resolve(Epochs("2", {grown, "batch.sequence_length=8"}), run_config), 499);
  EXPECT_EQ(Resolve(Epochs("2", {grown, "batch.microbatch_size=1"}), run_config), 498);
  EXPECT_EQ(Resolve(Epochs("2", {grown, "schedule.warmup_steps=126"}), run_config), 0);
  EXPECT_EQ(said_, "train.epochs: 2 is 125 steps: warmup_steps 126 is more than train.steps 125");
}

}  // namespace
}  // namespace holdfast
