// What a run has lost so far, told as sequences of events.

#include "elastic/coordinator/run_tally.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

event::WorkerLost LostAt(const std::string& worker, const std::string& host) {
  return {.worker = worker, .node = "of-" + host, .host = host, .cause = "connection lost"};
}

class RunTallyTest : public ::testing::Test {
 protected:
  RunFigures At(double time, int64_t world_size = 7) { return tally_.Figures(time, {}, world_size, 8); }
  RunTally tally_;
};

TEST_F(RunTallyTest, TimeIsLostFromTheFirstTroubleToTheNextStep) {
  tally_.OnEvent(100, LostAt("a", "h1"));
  tally_.OnEvent(101, LostAt("b", "h1"));
  tally_.OnEvent(102, event::StepFailed{});
  EXPECT_EQ(At(103).lost_seconds, 3);  // so far
  tally_.OnEvent(104, event::Recovered{});
  EXPECT_EQ(At(200).lost_seconds, 4);
  EXPECT_EQ(At(200).workers_lost, 2);
  tally_.OnEvent(300, event::Paused{"disk full"});
  tally_.OnEvent(310, event::Resumed{10});
  tally_.OnEvent(400, event::CoordinatorChanged{"silent"});
  tally_.OnEvent(401, event::Recovered{});
  EXPECT_EQ(At(500).lost_seconds, 15);
  EXPECT_EQ(At(500).workers_lost, 2);
}

TEST_F(RunTallyTest, TimeIsLostFromTheLastSignOfLifeOfAWorkerThatHangs) {
  event::WorkerHung hung{.worker = "a", .rank = 1, .node = "of-h1", .host = "h1", .seconds = 3, .reason = "r"};
  tally_.OnEvent(103, hung);
  tally_.OnEvent(103, LostAt("a", "h1"));
  EXPECT_EQ(At(103).lost_seconds, 3);
  tally_.OnEvent(104, event::Recovered{});
  EXPECT_EQ(At(200).lost_seconds, 4);
  tally_.OnEvent(106, hung);  // what was lost before that step counts once
  tally_.OnEvent(107, event::Recovered{});
  EXPECT_EQ(At(200).lost_seconds, 7);
  hung.rank = -1;  // the run goes on without it
  tally_.OnEvent(150, hung);
  EXPECT_EQ(At(200).lost_seconds, 7);
}

TEST_F(RunTallyTest, ANodeThatWasToldToLeaveIsMissingAndNoLoss) {
  tally_.OnEvent(1, event::NodeLeaving{.node = "of-h1", .host = "h1"});
  tally_.OnEvent(2, LostAt("a", "h1"));
  EXPECT_EQ(At(9).workers_lost, 0);
  EXPECT_EQ(At(9).lost_seconds, 0);
  EXPECT_THAT(At(9).missing, ElementsAre("a on h1: connection lost"));
  tally_.OnEvent(3, event::NodeReturned{.node = "of-h1", .host = "h1"});
  tally_.OnEvent(4, LostAt("a", "h1"));
  EXPECT_EQ(At(9).workers_lost, 1);
}

TEST_F(RunTallyTest, MissingAreThoseOfTheLastPlacesThatAreFree) {
  tally_.OnEvent(1, LostAt("a", "h1"));
  tally_.OnEvent(2, LostAt("b", "h2"));
  EXPECT_THAT(At(9, 6).missing, ElementsAre("b on h2: connection lost", "a on h1: connection lost"));
  EXPECT_THAT(At(9, 7).missing, ElementsAre("b on h2: connection lost"));  // another has taken a place
  EXPECT_THAT(At(9, 9).missing, IsEmpty());
  tally_.OnEvent(3, event::WorkerJoined{"b", 2, "of-h2", "h2", 9});
  EXPECT_THAT(At(9, 7).missing, ElementsAre("a on h1: connection lost"));
}

// Of hosts that have a new name each time.
TEST_F(RunTallyTest, OfMoreThanARunCanHaveTheLastAreRemembered) {
  tally_.OnEvent(0, LostAt("w9", "h"));
  tally_.OnEvent(1, event::WorkerJoined{"w9", 2, "of-h", "h", 9});  // it is lost again later
  for (int i = 0; i <= kMaxWorkers; ++i) tally_.OnEvent(2 + i, LostAt(absl::StrCat("w", i), "h"));
  const RunFigures figures = tally_.Figures(kMaxWorkers, {}, 0, 2 * kMaxWorkers);
  EXPECT_THAT(figures.missing, ::testing::SizeIs(kMaxWorkers));
  EXPECT_THAT(figures.missing.back(), ::testing::StartsWith("w1 "));
}

TEST_F(RunTallyTest, WhatALifeLostStaysAndWhoIsMissingDoesNot) {
  tally_.OnEvent(1, LostAt("a", "h1"));
  tally_.OnEvent(5, event::RunStopped{});
  EXPECT_EQ(At(1000).lost_seconds, 4);  // a run that is stopped loses nothing
  EXPECT_EQ(At(1000).workers_lost, 1);
  EXPECT_THAT(At(1000, 0).missing, IsEmpty());
}

TEST_F(RunTallyTest, AClockThatIsPutBackLosesNoTime) {
  tally_.OnEvent(100, LostAt("a", "h1"));
  tally_.OnEvent(40, event::Recovered{});
  EXPECT_EQ(At(50).lost_seconds, 0);
}

TEST_F(RunTallyTest, StepsSayHowFastTheRunIsAlsoAfterItWentBack) {
  const auto step = [&](std::chrono::seconds when, int64_t number) {
    StepMetrics metrics;
    metrics.step = number;
    metrics.loss = 2.5f;
    metrics.tokens = 100 * number;
    metrics.tokens_per_second = 50;
    tally_.OnStep(RecentRate::Time(when), metrics);
  };
  for (int i = 1; i <= 10; ++i) step(2s * i, i);
  RunFigures figures = tally_.Figures(0, RecentRate::Time(20s), 8, 8);
  EXPECT_EQ(figures.steps_per_second, 0.5);
  EXPECT_EQ(figures.loss, 2.5);
  EXPECT_EQ(figures.tokens, 1000);
  EXPECT_EQ(figures.tokens_per_second, 50);
  for (int i = 4; i <= 6; ++i) step(20s + 1s * i, i);
  figures = tally_.Figures(0, RecentRate::Time(26s), 8, 8);
  EXPECT_EQ(figures.steps_per_second, 1);
  EXPECT_EQ(figures.tokens, 600);
}

}  // namespace
}  // namespace holdfast
