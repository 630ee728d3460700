// Proves that the record of a run never gets a hole; and what a committed step's line says of the devices' use: against
// the peak of the world that did the step, and nothing where that is unknown; and of the tokens so far.

#include "elastic/coordinator/run_recorder.h"

#include <filesystem>
#include <string>

#include "gtest/gtest.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

TEST(RunRecorder, UtilisationIsOfTheWorldsPeak) {
  constexpr double kFlopsPerToken = 6e9, kPeak = 989.4e12 + 312e12;
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  Config config;
  config.train.steps = 3;
  {
    const auto recorder = RunRecorder::Open(config, directory, [](const std::vector<Figure>& figures) {
      return figures.empty() ? kFlopsPerToken : kFlopsPerToken - figures[0].values[0];
    });
    ASSERT_TRUE(recorder.ok()) << recorder.status();
    ASSERT_TRUE((*recorder)->Record({.step = 1, .world_size = 2, .peak_flops = kPeak, .digests = {}}).ok());
    ASSERT_TRUE((*recorder)->Record({.step = 2, .world_size = 3, .digests = {}}).ok());
    const std::vector<Figure> figures = {{.name = "left_out", .values = {1e9}}};
    ASSERT_TRUE((*recorder)->Record({.step = 3, .peak_flops = kPeak, .digests = {}, .figures = figures}).ok());
  }
  const auto steps = directory.ReadMetrics();
  ASSERT_TRUE(steps.ok()) << steps.status();
  ASSERT_TRUE(steps->at(0).mfu.has_value());
  EXPECT_DOUBLE_EQ(*steps->at(0).mfu, kFlopsPerToken * steps->at(0).tokens_per_second / kPeak);
  EXPECT_FALSE(steps->at(1).mfu.has_value());
  ASSERT_TRUE(steps->at(2).mfu.has_value());
  EXPECT_DOUBLE_EQ(*steps->at(2).mfu, (kFlopsPerToken - 1e9) * steps->at(2).tokens_per_second / kPeak);
}

TEST(RunRecorder, WhatAModelSaysOfAStepStandsInItsLine) {
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  const Config config;
  const std::vector<Figure> figures = {{.name = "aux_loss", .values = {1.0 / 3}},
                                       {.name = "load", .values = {1.5, 2.25}, .is_list = true}};
  const auto recorder = RunRecorder::Open(config, directory, nullptr);
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  ASSERT_TRUE((*recorder)->Record({.step = 1, .digests = {}, .figures = figures}).ok());
  EXPECT_EQ(directory.ReadMetrics()->at(0).figures, figures);
}

TEST(RunRecorder, TheRecordNeverGetsAHole) {
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  Config config;
  const auto recorder = RunRecorder::Open(config, directory, nullptr);
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  for (const int64_t step : {1, 2, 3}) ASSERT_TRUE((*recorder)->Record({.step = step, .digests = {}}).ok());
  for (const int64_t step : {3, 5})
    EXPECT_TRUE(absl::IsInternal((*recorder)->Record({.step = step, .digests = {}}).status()));
  EXPECT_TRUE(absl::IsDataLoss((*recorder)->Rewind(4)));
  EXPECT_TRUE((*recorder)->Rewind(2).ok());
  EXPECT_TRUE(absl::IsInternal((*recorder)->Record({.step = 4, .digests = {}}).status()));
  EXPECT_TRUE((*recorder)->Record({.step = 3, .digests = {}}).ok());
  EXPECT_EQ(directory.ReadMetrics()->size(), 3u);
}

// Where to cut it off is read by its name.
TEST(RunRecorder, ARecordThatIsNotInItsPlaceIsNotCutOff) {
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  const Config config;
  const auto recorder = RunRecorder::Open(config, directory, nullptr);
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  for (const int64_t step : {1, 2, 3}) ASSERT_TRUE((*recorder)->Record({.step = step, .digests = {}}).ok());
  const std::string away = directory.metrics() + ".away";
  std::filesystem::rename(directory.metrics(), away);
  EXPECT_TRUE(absl::IsUnavailable((*recorder)->Rewind(2)));
  std::filesystem::rename(away, directory.metrics());
  EXPECT_EQ(directory.ReadMetrics()->size(), 3u);
  EXPECT_TRUE((*recorder)->Rewind(2).ok());
  EXPECT_EQ(directory.ReadMetrics()->size(), 2u);
}

// A run may be resumed with another batch: tokens were those of that batch from the first step on, and could fall.
TEST(RunRecorder, TokensAreThoseOfTheBatchesThatStepsHad) {
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  Config config;
  config.batch = {.sequence_length = 10, .microbatch_size = 2, .microbatches = 4};
  const auto tokens = [&](RunRecorder& recorder, int64_t step) {
    const auto recorded = recorder.Record({.step = step, .digests = {}});
    EXPECT_TRUE(recorded.ok()) << recorded.status();
    return recorded.ok() ? recorded->tokens : 0;
  };
  {
    const auto recorder = RunRecorder::Open(config, directory, nullptr);
    ASSERT_TRUE(recorder.ok()) << recorder.status();
    EXPECT_EQ(tokens(**recorder, 1), 80);
    EXPECT_EQ(tokens(**recorder, 2), 160);
    EXPECT_EQ(tokens(**recorder, 3), 240);
  }
  config.batch.microbatches = 1;
  const auto recorder = RunRecorder::Open(config, directory, nullptr, 3);
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  std::filesystem::rename(directory.metrics(), directory.metrics() + ".away");
  EXPECT_TRUE(absl::IsUnavailable((*recorder)->Record({.step = 4, .digests = {}}).status()));
  std::filesystem::rename(directory.metrics() + ".away", directory.metrics());
  EXPECT_EQ(tokens(**recorder, 4), 260);
  EXPECT_EQ(tokens(**recorder, 5), 280);
  ASSERT_TRUE((*recorder)->Rewind(2).ok());
  EXPECT_EQ(tokens(**recorder, 3), 180);
  ASSERT_TRUE((*recorder)->Rewind(0).ok());
  EXPECT_EQ(tokens(**recorder, 1), 20);
}

TEST(RunRecorder, ARunThatTakesOverACheckpointBeginsWithTheStepAfterIt) {
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  Config config;
  const auto recorder = RunRecorder::Open(config, directory, nullptr);
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  ASSERT_TRUE((*recorder)->Rewind(50).ok());
  EXPECT_EQ((*recorder)->Record({.step = 51, .digests = {}})->tokens, 51 * config.batch.step_tokens());
  EXPECT_TRUE((*recorder)->Rewind(50).ok());
  EXPECT_TRUE((*recorder)->Record({.step = 51, .digests = {}}).ok());
}

}  // namespace
}  // namespace holdfast
