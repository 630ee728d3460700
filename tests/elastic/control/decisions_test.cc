// The pure parts that the coordinator is made of, each by itself: the next world, where state lies, who is slow, who
// computes how much, who is to blame, and what is remembered of workers that have left.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "elastic/control/balance.h"
#include "elastic/control/ballot.h"
#include "elastic/control/blame.h"
#include "elastic/control/state_source.h"
#include "elastic/control/straggler.h"
#include "elastic/control/worker_history.h"
#include "elastic/control/world_decision.h"
#include "framework/base/limits.h"
#include "framework/parallel/reduction_plan.h"

namespace holdfast {
namespace {

using Verdict = WorldDecision::Verdict;

Member MemberOf(int i) {
  return {{absl::StrCat("w", i), static_cast<uint64_t>(i + 1)}, absl::StrCat("n", i / 2), "h", i};
}
World WorldOf(uint64_t generation, std::vector<int> members) {
  std::vector<Member> list;
  for (const int i : members) list.push_back(MemberOf(i));
  return {generation, list};
}

WorldQuestion QuestionOf(std::vector<int> present, const World& source = {}) {
  WorldQuestion question;
  question.source = source;
  for (const int i : present) {
    Candidate candidate{MemberOf(i)};
    candidate.holds_state = source.RankOf(candidate.member.id) >= 0;
    candidate.arrival = i;
    question.candidates.push_back(candidate);
  }
  return question;
}

ElasticConfig Elastic(int64_t workers, int64_t least, int64_t most) {
  ElasticConfig elastic;
  elastic.workers = workers;
  elastic.min_workers = least;
  elastic.max_workers = most;
  return elastic;
}

TEST(World, ItsPeakIsTheSumOverUnlikeDevicesAndUnknownIfOneIs) {
  std::vector<Member> members = {MemberOf(0), MemberOf(1), MemberOf(2)};
  EXPECT_EQ((World{1, members}.peak_flops()), 0);
  members[0].peak_flops = members[1].peak_flops = 989.4e12;
  EXPECT_EQ((World{1, members}.peak_flops()), 0);
  members[2].peak_flops = 312e12;
  EXPECT_EQ((World{1, members}.peak_flops()), 2 * 989.4e12 + 312e12);
}

TEST(World, KnowsItsRanksByNameAndIncarnation) {
  const World world = WorldOf(1, {3, 1, 2});
  EXPECT_EQ(world.RankOf(MemberOf(1).id), 1);
  EXPECT_EQ(world.RankOf({"w1", 77}), -1);
  EXPECT_EQ(world.RankOf(MemberOf(0).id), -1);
  EXPECT_EQ(World{}.RankOf(MemberOf(0).id), -1);
  const World copy = world;
  EXPECT_EQ(copy.RankOf(MemberOf(2).id), 2);
  EXPECT_EQ(&copy.members[0], &world.members[0]);  // not copied
  EXPECT_EQ(copy, WorldOf(1, {3, 1, 2}));
  EXPECT_NE(copy, WorldOf(1, {3, 2, 1}));
}

TEST(DecideWorld, WaitsForTheLeastButNotAtTheEnd) {
  WorldQuestion question = QuestionOf({0, 1}, WorldOf(3, {0, 1}));
  EXPECT_EQ(DecideWorld(Elastic(4, 3, 4), {}, question).verdict, Verdict::kWait);
  question.ending = true;
  EXPECT_EQ(DecideWorld(Elastic(4, 3, 4), {}, question).verdict, Verdict::kPublish);
}

TEST(DecideWorld, HoldersOfStateComeBeforeSpares) {
  const WorldQuestion question = QuestionOf({0, 1, 2, 3, 4, 5}, WorldOf(3, {4, 5}));
  const WorldDecision decision = DecideWorld(Elastic(3, 1, 3), {}, question);
  ASSERT_EQ(decision.verdict, Verdict::kPublish);
  ASSERT_EQ(decision.members.size(), 3u);
  EXPECT_EQ(decision.members[0].id.name, "w0");
  EXPECT_EQ(decision.members[1].id.name, "w4");
  EXPECT_EQ(decision.members[2].id.name, "w5");
}

TEST(DecideWorld, QuarantinedAreLeftOutUnlessTheyHoldWhatNobodyElseHas) {
  ParallelConfig parallel;
  parallel.mirrors = 0;
  WorldQuestion question = QuestionOf({0, 1, 2}, WorldOf(3, {0, 1}));
  question.candidates[2].quarantined = true;
  EXPECT_EQ(DecideWorld(Elastic(3, 1, 3), parallel, question).members.size(), 2u);
  question.candidates[1].quarantined = true;
  EXPECT_EQ(DecideWorld(Elastic(3, 1, 3), parallel, question).members.size(), 2u);
}

// A coordinator was started anew with a smaller elastic.max_workers.
TEST(DecideWorld, HoldersBeyondTheMostAreTakenInToHandOnWhatTheyHold) {
  ParallelConfig parallel;
  parallel.mirrors = 0;
  const WorldQuestion question = QuestionOf({0, 1, 2, 3}, WorldOf(3, {0, 1, 2, 3}));
  const WorldDecision decision = DecideWorld(Elastic(2, 1, 2), parallel, question);
  ASSERT_EQ(decision.verdict, Verdict::kPublish) << decision.detail;
  ASSERT_EQ(decision.members.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(decision.members[i].leaves, i >= 2) << i;
}

// Else those that came later would be marked, and nobody stayed whom the leavers could hand on to.
TEST(DecideWorld, OfHoldersBeyondTheMostThoseStayThatMay) {
  ParallelConfig parallel;
  parallel.mirrors = 0;
  WorldQuestion question = QuestionOf({0, 1, 2, 3, 4, 5}, WorldOf(3, {0, 1, 2, 3, 4, 5}));
  for (const size_t i : {0, 1, 2}) question.candidates[i].leaves = true;
  question.candidates[3].quarantined = true;
  const WorldDecision decision = DecideWorld(Elastic(2, 1, 2), parallel, question);
  ASSERT_EQ(decision.verdict, Verdict::kPublish) << decision.detail;
  ASSERT_EQ(decision.members.size(), 6u);
  for (const Member& member : decision.members) EXPECT_EQ(member.leaves, member.id.name < "w4") << member.id.name;
}

TEST(DecideWorld, WhereAllHoldersLeaveAsManyAsMayBeComeInBesideThem) {
  ParallelConfig parallel;
  parallel.mirrors = 0;
  WorldQuestion question = QuestionOf({0, 1, 2, 3, 4}, WorldOf(3, {0, 1}));
  for (const size_t i : {0, 1}) question.candidates[i].leaves = true;
  const WorldDecision decision = DecideWorld(Elastic(2, 1, 2), parallel, question);
  ASSERT_EQ(decision.verdict, Verdict::kPublish) << decision.detail;
  ASSERT_EQ(decision.members.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(decision.members[i].leaves, i >= 2) << i;
}

TEST(DecideWorld, NamesTheHoldersOfWhatIsMissing) {
  ParallelConfig parallel;
  parallel.mirrors = 0;
  const WorldDecision decision = DecideWorld(Elastic(3, 1, 3), parallel, QuestionOf({0, 2}, WorldOf(3, {0, 1, 2})));
  ASSERT_EQ(decision.verdict, Verdict::kStateMissing);
  ASSERT_EQ(decision.missing.size(), 1u);
  EXPECT_EQ(decision.missing[0], MemberOf(1));
  EXPECT_NE(decision.detail.find("w1"), std::string::npos);
}

TEST(FindStateSource, PrefersTheNewestWorldThatCoversTheState) {
  ParallelConfig parallel;
  parallel.mirrors = 0;
  const World old = WorldOf(3, {0, 1}), mid = WorldOf(4, {0, 1}), last = WorldOf(5, {1, 2});
  // Worker 1 prepared step 8 in generation 4 as well as worker 0; generation 5 has only worker 2's part.
  const StateClaim zero{old, 7, 8, mid}, one{old, 7, 8, mid}, two{{}, 0, 8, last};
  std::vector<ClaimOf> claims{{MemberOf(0).id, &zero}, {MemberOf(1).id, &one}, {MemberOf(2).id, &two}};
  const StateSource found = FindStateSource(claims, 8, parallel);
  EXPECT_TRUE(found.covered);
  EXPECT_EQ(found.world, mid);
  claims.pop_back();
  claims.pop_back();
  EXPECT_FALSE(FindStateSource(claims, 8, parallel).covered);
  EXPECT_EQ(FindStateSource({}, 8, parallel).world.generation, 0u);
}

// Generation 4 got its state from 3 and became the source of 5, which worker 0 did not hear of; then worker 1 was lost.
TEST(FindStateSource, AWorldThatWasEnteredCounts) {
  ParallelConfig parallel;
  parallel.mirrors = 0;
  const World first = WorldOf(3, {0, 1}), entered = WorldOf(4, {0, 2});
  const StateClaim zero{first, 7, 0, {}, entered}, two{entered, 7, 0, {}};
  const std::vector<ClaimOf> claims{{MemberOf(0).id, &zero}, {MemberOf(2).id, &two}};
  const StateSource found = FindStateSource(claims, 7, parallel);
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(found.world, entered);
  EXPECT_FALSE(FindStateSource(claims, 8, parallel).covered);
}

TEST(FindStateSource, AWorldOfWhichAllAreThereIsNotWaitedForANewerOne) {
  const World first = WorldOf(3, {0, 1, 2}), entered = WorldOf(4, {0, 1, 2});
  const StateClaim both{first, 7, 0, {}, entered}, one{first, 7, 0, {}};
  const std::vector<ClaimOf> claims{{MemberOf(0).id, &both}, {MemberOf(1).id, &both}, {MemberOf(2).id, &one}};
  const StateSource found = FindStateSource(claims, 7, {});
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(found.world, first);
}

// Worker 3 was lost, and of the others only half had got their part of the next world when the coordinator was, too.
TEST(FindStateSource, TheWorldThatLacksTheFewestKeepsTheMostCopies) {
  ParallelConfig parallel;
  parallel.mirrors = 3;
  const World first = WorldOf(3, {0, 1, 2, 3}), entered = WorldOf(4, {0, 1, 2, 4});
  const StateClaim both{first, 7, 0, {}, entered}, one{first, 7, 0, {}};
  std::vector<ClaimOf> claims{{MemberOf(0).id, &both}, {MemberOf(1).id, &both}, {MemberOf(2).id, &one}};
  const StateSource found = FindStateSource(claims, 7, parallel);
  EXPECT_TRUE(found.covered);
  EXPECT_FALSE(found.complete);
  EXPECT_EQ(found.world, first);
  claims.pop_back();  // now each lacks two
  EXPECT_EQ(FindStateSource(claims, 7, parallel).world, entered);
}

TEST(FindStateSource, ClaimsAheadOfTheRecordDoNotCount) {
  const World world = WorldOf(3, {0, 1});
  const StateClaim ahead{world, 9, 0, {}}, behind{world, 8, 9, world};
  const std::vector<ClaimOf> claims{{MemberOf(0).id, &ahead}, {MemberOf(1).id, &behind}};
  EXPECT_TRUE(FindStateSource(claims, 9, {}).complete);
  EXPECT_FALSE(FindStateSource(claims, 8, {}).complete);
  EXPECT_EQ(FindStateSource(claims, 7, {}).world.generation, 0u);
}

TEST(FindStateSource, AnotherIncarnationHoldsNothing) {
  const World world = WorldOf(3, {0});
  const StateClaim claim{world, 9, 0, {}};
  EXPECT_EQ(RankHeld({"w0", 1}, claim, world, 9), 0);
  EXPECT_EQ(RankHeld({"w0", 2}, claim, world, 9), -1);
  EXPECT_EQ(RankHeld({"w0", 1}, claim, world, 8), -1);
}

// --- speed -----------------------------------------------------------------------------------------------------------

class StragglerTest : public testing::Test {
 protected:
  // Steps with these seconds per microbatch and 3% noise.
  std::vector<StragglerDetector::Change> Steps(int count, const std::vector<double>& speeds, int64_t microbatches = 2) {
    std::vector<StragglerDetector::Change> changes;
    for (int i = 0; i < count; ++i) {
      std::vector<StragglerDetector::Sample> samples;
      for (size_t w = 0; w < speeds.size(); ++w) {
        const double noise = 0.97 + static_cast<double>(random_() % 600) / 10000;
        samples.push_back({absl::StrCat("w", w), speeds[w] * noise * static_cast<double>(microbatches), microbatches});
      }
      for (auto& change : detector_.OnStep(samples)) changes.push_back(change);
    }
    return changes;
  }
  std::mt19937 random_{1};
  StragglerDetector detector_{1.5, 10};
};

TEST_F(StragglerTest, EvenRanksAreNeverNamed) { EXPECT_TRUE(Steps(500, {0.1, 0.1, 0.1, 0.1}).empty()); }

TEST_F(StragglerTest, SlowRankIsNamedOnceAndResolvedOnce) {
  const auto named = Steps(100, {0.1, 0.1, 0.2, 0.1});
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].worker, "w2");
  EXPECT_NEAR(named[0].factor, 2, 0.1);
  const auto resolved = Steps(100, {0.1, 0.1, 0.1, 0.1});
  ASSERT_EQ(resolved.size(), 1u);
  EXPECT_FALSE(resolved[0].slow);
}

TEST_F(StragglerTest, AShortHiccupIsNoStraggler) {
  Steps(50, {0.1, 0.1, 0.1});
  EXPECT_TRUE(Steps(3, {0.1, 0.5, 0.1}).empty());
  EXPECT_TRUE(Steps(50, {0.1, 0.1, 0.1}).empty());
}

TEST_F(StragglerTest, OfTwoRanksTheSlowerOneIsNamed) {
  const auto named = Steps(50, {0.1, 0.17});
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].worker, "w1");
}

TEST_F(StragglerTest, RankSlowerThanItUsedToBeIsNamedEvenAmongUnlikeRanks) {
  EXPECT_TRUE(Steps(100, {0.10, 0.13, 0.16, 0.12, 0.14}).empty());
  const auto named = Steps(50, {0.18, 0.13, 0.16, 0.12, 0.14});
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].worker, "w0");
  EXPECT_EQ(named[0].reason, "slower than it used to be");
}

TEST_F(StragglerTest, OneThatLeavesIsResolved) {
  ASSERT_EQ(Steps(50, {0.1, 0.1, 0.3}).size(), 1u);
  const auto left = Steps(1, {0.1, 0.1});
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].reason, "left the world");
}

TEST_F(StragglerTest, WithoutMicrobatchesThereIsNoSpeed) {
  EXPECT_TRUE(Steps(50, {0.1, 0.1, 0.3}, 0).empty());
  EXPECT_EQ(detector_.SecondsOf("w2"), 0);
}

TEST(Balance, EvenSplitSums) {
  EXPECT_EQ(EvenMicrobatches(8, 3), (std::vector<int64_t>{3, 3, 2}));
  EXPECT_EQ(EvenMicrobatches(2, 3), (std::vector<int64_t>{1, 1, 0}));
}

TEST(Balance, SplitBySpeedSumsAndIsTheShortestStep) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const int64_t microbatches = random() % 40;
    std::vector<double> times;
    for (int i = 0; i < 1 + round % 7; ++i) times.push_back(0.01 * (1 + random() % 30));
    const std::vector<int64_t> split = SplitBySpeed(microbatches, times);
    EXPECT_EQ(std::accumulate(split.begin(), split.end(), int64_t{0}), microbatches);
    double longest = 0;
    for (size_t i = 0; i < split.size(); ++i) longest = std::max(longest, static_cast<double>(split[i]) * times[i]);
    // No rank could do one more than it has within less time than the step takes, so nothing can be gained.
    int64_t possible = 0;
    for (const double s : times) possible += static_cast<int64_t>(std::ceil(longest / s - 1e-9)) - 1;
    EXPECT_TRUE(possible < microbatches || microbatches == 0);
  }
}

TEST(Balance, EqualSpeedsGiveTheEvenSplit) {
  EXPECT_EQ(SplitBySpeed(8, {0.1, 0.1, 0.1}), EvenMicrobatches(8, 3));
  EXPECT_EQ(SplitBySpeed(8, {0, 0, 0}), EvenMicrobatches(8, 3));
}

TEST(Balance, NoiseMovesNothing) {
  EXPECT_EQ(Rebalance({4, 4, 4}, {0.1, 0.104, 0.098}), (std::vector<int64_t>{4, 4, 4}));
  EXPECT_EQ(Rebalance({4, 4, 4}, {0.1, 0.3, 0.1}), (std::vector<int64_t>{5, 2, 5}));
}

// --- votes, blame, history -------------------------------------------------------------------------------------------

TEST(Ballot, MajorityIsMoreThanHalf) {
  const auto dissenters = [](const std::vector<uint32_t>& bits) {
    Ballot ballot(1, static_cast<int>(bits.size()));
    for (size_t rank = 0; rank < bits.size(); ++rank) {
      VoteMessage vote;
      vote.step = 1;
      vote.loss_bits = bits[rank];
      EXPECT_TRUE(ballot.Add(static_cast<int>(rank), vote));
    }
    return ballot.Dissenters();
  };
  EXPECT_TRUE(dissenters({7, 7, 7}).empty());
  EXPECT_EQ(dissenters({7, 8, 7}), std::vector<int>{1});
  EXPECT_EQ(dissenters({7, 8, 7, 8}), (std::vector<int>{0, 1, 2, 3}));
}

TEST(Ballot, EveryPartOfTheBitsCounts) {
  for (int part = 0; part < 3; ++part) {
    Ballot ballot(1, 3);
    for (int rank = 0; rank < 3; ++rank) {
      VoteMessage vote{.step = 1, .loss_bits = 4, .grad_norm_bits = 5, .digests = {}, .statistics_digest = 6};
      if (rank == 2 && part == 0) vote.loss_bits ^= 1;
      if (rank == 2 && part == 1) vote.grad_norm_bits ^= 1;
      if (rank == 2 && part == 2) vote.statistics_digest ^= uint64_t{1} << 63;
      EXPECT_TRUE(ballot.Add(rank, vote));
    }
    EXPECT_EQ(ballot.Dissenters(), std::vector<int>{2}) << part;
  }
}

TEST(Ballot, CopiesThatDifferNameTheMinorityOrAllHolders) {
  Ballot ballot(5, 4);
  const auto vote = [](std::vector<ChunkDigest> digests, std::vector<ChunkDigest> copies) {
    VoteMessage message{.generation = 1, .step = 5, .digests = std::move(digests)};
    message.copies = std::move(copies);
    return message;
  };
  ballot.Add(0, vote({{1, 10}}, {{3, 31}}));
  ballot.Add(1, vote({{2, 20}, {4, 40}}, {{1, 10}}));
  ballot.Add(2, vote({{3, 30}}, {{1, 11}, {2, 20}}));
  VoteMessage mirroring = vote({{5, 50}}, {{4, 40}});
  mirroring.mirrors = {{2, 21}};
  ballot.Add(3, mirroring);
  const std::vector<Ballot::Difference> differences = ballot.DifferingCopies();
  ASSERT_EQ(differences.size(), 3u);
  EXPECT_EQ(differences[0].chunk, 1);
  EXPECT_TRUE(differences[0].majority);
  EXPECT_EQ(differences[0].ranks, std::vector<int>{2});
  EXPECT_TRUE(differences[0].read);
  EXPECT_EQ(differences[1].chunk, 2);
  EXPECT_TRUE(differences[1].majority);
  EXPECT_EQ(differences[1].ranks, std::vector<int>{3});
  EXPECT_FALSE(differences[1].read) << "nobody reads a mirror";
  EXPECT_EQ(differences[2].chunk, 3);
  EXPECT_FALSE(differences[2].majority);
  EXPECT_EQ(differences[2].ranks, (std::vector<int>{0, 2}));
  EXPECT_EQ(ballot.Digests().size(), 5u) << "copies do not belong into the record";
}

TEST(Blame, OnlyWorldsOnEndCount) {
  const World world = WorldOf(1, {0, 1, 2});
  const FailureMessage names_one{1, 1, Phase::kReduce, "reset", {1}, false};
  Blame blame;
  for (int i = 0; i < 2; ++i) {
    blame.Add(world, 0, names_one);
    EXPECT_FALSE(blame.Conclude(world).culprit.has_value());
  }
  blame.Clear();
  for (int i = 0; i < 2; ++i) {
    blame.Add(world, 0, names_one);
    EXPECT_FALSE(blame.Conclude(world).culprit.has_value());
  }
  blame.Add(world, 2, names_one);
  EXPECT_EQ(blame.Conclude(world).culprit, MemberOf(1).id);
}

TEST(WorkerHistory, KnowsProcessesApart) {
  using Kind = WorkerHistory::Kind;
  constexpr uint64_t kFirst = uint64_t{1} << 40, kSecond = uint64_t{5} << 33;
  WorkerHistory history;
  EXPECT_EQ(history.Register("w", kFirst), Kind::kNewer);
  EXPECT_EQ(history.Register("w", kFirst), Kind::kCurrent);
  EXPECT_EQ(history.Register("w", kFirst + 1), Kind::kNewer);
  EXPECT_EQ(history.Register("w", kFirst), Kind::kOutdated);
  EXPECT_EQ(history.Register("w", kSecond), Kind::kNewer);
  EXPECT_EQ(history.Register("w", kFirst + 2), Kind::kReplaced);
  EXPECT_EQ(history.Register("w", kSecond), Kind::kCurrent);
}

// As machines that come and go under ever new names.
TEST(WorkerHistory, TheNameNotUsedForLongestIsForgotten) {
  using Kind = WorkerHistory::Kind;
  constexpr uint64_t kFirst = uint64_t{1} << 40, kSecond = uint64_t{5} << 33;
  WorkerHistory history;
  for (const char* name : {"used", "unused"}) {
    history.Register(name, kFirst);
    history.Register(name, kSecond);
  }
  history.Register("used", kSecond);
  for (int i = 0; i < 2 * kMaxWorkers - 1; ++i) history.Register(absl::StrCat("other ", i), kFirst);
  EXPECT_EQ(history.Register("used", kFirst), Kind::kReplaced);
  EXPECT_EQ(history.Register("unused", kFirst), Kind::kNewer) << "that it had another process is forgotten";
}

TEST(WorkerHistory, FailuresOnEndCostLongerAndLonger) {
  using std::chrono::seconds;
  WorkerHistory history;
  EXPECT_EQ(history.Failed("w", seconds(1), seconds(1)).count(), 0);
  EXPECT_EQ(history.Failed("w", seconds(2), seconds(1)).count(), 0);
  EXPECT_EQ(history.Failed("w", seconds(3), seconds(1)), seconds(2));
  EXPECT_TRUE(history.Quarantined("w", seconds(4)));
  EXPECT_FALSE(history.Quarantined("w", seconds(5)));
  EXPECT_EQ(history.Failed("w", seconds(6), seconds(1)), seconds(4));
  for (int i = 0; i < 20; ++i) EXPECT_LE(history.Failed("w", seconds(6), seconds(1)), seconds(60));
  EXPECT_EQ(history.Failed("w", seconds(99), seconds(50)).count(), 0) << "it has worked for a while";
}

TEST(WorkerHistory, OtherBitsThriceWithinADayKeepAProcessOut) {
  using std::chrono::hours;
  constexpr uint64_t kFirst = uint64_t{1} << 40, kSecond = uint64_t{5} << 33;
  WorkerHistory history;
  history.Register("w", kFirst);
  for (const int hour : {1, 2, 26, 40}) EXPECT_FALSE(history.Contradicted("w", hours(hour))) << hour;
  EXPECT_TRUE(history.Contradicted("w", hours(41)));
  history.Register("w", kFirst + 1);
  EXPECT_TRUE(history.Quarantined("w", hours(1000)));
  history.Register("w", kSecond);
  EXPECT_FALSE(history.Quarantined("w", hours(42)));
  EXPECT_TRUE(history.Contradicted("w", hours(43))) << "it is not mended";
  EXPECT_TRUE(history.Quarantined("w", hours(1000)));
}

TEST(WorkerHistory, TellsTheNextOneOfOtherBitsThatStillCount) {
  using std::chrono::hours;
  WorkerHistory history;
  for (const char* name : {"old", "once", "out"}) history.Register(name, 7);
  history.Contradicted("old", hours(1));
  history.Contradicted("once", hours(20));
  for (const int hour : {1, 2, 3}) history.Contradicted("out", hours(hour));
  const std::map<std::string, Contradictions> past = history.PastContradictions(hours(40));
  EXPECT_EQ(past, (std::map<std::string, Contradictions>{
                      {"once", {.process = 7, .kept_out = false, .times = {hours(20)}}},
                      {"out", {.process = 7, .kept_out = true, .times = {hours(1), hours(2), hours(3)}}}}));
  WorkerHistory next;
  next.Restore(past);
  EXPECT_EQ(next.PastContradictions(hours(40)), past);
  EXPECT_EQ(next.Register("out", 8), WorkerHistory::Kind::kNewer);
  EXPECT_TRUE(next.KeptOut("out")) << "the same process";
  EXPECT_EQ(next.Register("out", uint64_t{1} << 40), WorkerHistory::Kind::kNewer);
  EXPECT_FALSE(next.KeptOut("out"));
  EXPECT_FALSE(next.Contradicted("once", hours(40)));
  EXPECT_TRUE(next.Contradicted("once", hours(41)));
}

TEST(WorkerHistory, TellsOfThoseThatAreKeptOutAndThenOfTheLast) {
  using std::chrono::seconds;
  constexpr int kMany = 2 * static_cast<int>(WorkerHistory::kMaxPast);
  WorkerHistory history;
  for (int i = 0; i < 3; ++i) history.Contradicted("out", seconds(1));
  for (int i = 0; i < kMany; ++i) history.Contradicted(absl::StrCat("w", i), seconds(2 + i));
  const std::map<std::string, Contradictions> past = history.PastContradictions(seconds(kMany));
  EXPECT_EQ(past.size(), WorkerHistory::kMaxPast);
  EXPECT_TRUE(past.contains("out"));
  EXPECT_TRUE(past.contains(absl::StrCat("w", kMany - 1)));
  EXPECT_FALSE(past.contains("w0"));
}

TEST(WorkerHistory, AClockThatIsPutBackMakesOtherBitsCountForADayAndNotForEver) {
  using std::chrono::hours;
  WorkerHistory history;
  history.Contradicted("w", hours(1000));
  history.Contradicted("w", hours(10));
  EXPECT_FALSE(history.Contradicted("w", hours(40)));
  EXPECT_FALSE(history.Contradicted("w", hours(41)));
  EXPECT_TRUE(history.Contradicted("w", hours(42)));
}

}  // namespace
}  // namespace holdfast
