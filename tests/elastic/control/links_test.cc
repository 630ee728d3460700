// Links that are cut between workers which all reach the coordinator: that the fewest are left out, never one whose
// state nobody else has, that they come back with the link, and that one slow machine is told from slow others. Cases
// worked out by hand, and random graphs against all subsets.

#include "elastic/control/links.h"

#include <gmock/gmock.h>

#include <functional>
#include <numeric>
#include <random>

#include "absl/strings/str_format.h"
#include "tests/elastic/control/coordinator_harness.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

const auto kAlike = [](const std::string&) { return 1.0; };
const auto kAnybody = [](const std::set<std::string>&) { return true; };

TEST(FewestToLeaveOut, TheOneThatAllLinksHaveInCommon) {
  EXPECT_THAT(*FewestToLeaveOut({{"a", "c"}, {"b", "c"}, {"c", "d"}}, kAlike, kAnybody), ElementsAre("c"));
}

TEST(FewestToLeaveOut, OfTwoAlikeTheOneThatIsWorthLess) {
  const auto worth = [](const std::string& name) { return name == "a" ? 1.0 : 2.0; };
  EXPECT_THAT(*FewestToLeaveOut({{"a", "b"}}, worth, kAnybody), ElementsAre("a"));
  EXPECT_THAT(*FewestToLeaveOut({{"a", "b"}}, kAlike, kAnybody), ElementsAre("b"));
}

TEST(FewestToLeaveOut, MoreIfThoseCannotGo) {
  const auto can_go = [](const std::set<std::string>& names) { return names.count("c") == 0; };
  EXPECT_THAT(*FewestToLeaveOut({{"a", "c"}, {"b", "c"}}, kAlike, can_go), ElementsAre("a", "b"));
  EXPECT_FALSE(FewestToLeaveOut({{"a", "c"}}, kAlike, [](const auto&) { return false; }).has_value());
}

TEST(FewestToLeaveOut, AsFewAsTryingAllSubsets) {
  std::mt19937 random(20251122);
  for (int trial = 0; trial < 200; ++trial) {
    const int workers = 3 + static_cast<int>(random() % 8);
    std::set<Link> links;
    for (unsigned i = 1 + random() % 12; i > 0; --i) {
      const int a = static_cast<int>(random()) % workers, b = static_cast<int>(random()) % workers;
      if (a != b)
        links.insert(LinkBetween(std::string(1, static_cast<char>('a' + std::abs(a))),
                                 std::string(1, static_cast<char>('a' + std::abs(b)))));
    }
    size_t fewest = static_cast<size_t>(workers);
    for (unsigned set = 0; set < 1u << workers; ++set) {
      const auto out = [&](const std::string& name) { return (set >> (name[0] - 'a') & 1) != 0; };
      const bool enough =
          std::all_of(links.begin(), links.end(), [&](const Link& l) { return out(l.first) || out(l.second); });
      if (enough) fewest = std::min(fewest, static_cast<size_t>(__builtin_popcount(set)));
    }
    const auto found = FewestToLeaveOut({links.begin(), links.end()}, kAlike, kAnybody);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->size(), fewest) << "trial " << trial;
  }
}

// A switch between two halves of 400 workers. Those that came last are worth least, whichever half they are of.
TEST(FewestToLeaveOut, OneOfTwoHalvesThatDoNotReachEachOther) {
  constexpr int kHalf = 200;
  const auto name = [](char half, int i) { return absl::StrFormat("%c%03d", half, i); };
  std::vector<Link> links;
  std::vector<std::string> first, second;
  for (int i = 0; i < kHalf; ++i) {
    first.push_back(name('a', i));
    second.push_back(name('b', i));
    for (int j = 0; j < kHalf; ++j) links.emplace_back(name('a', i), name('b', j));
  }
  const auto worth = [](const std::string& worker) {
    const int arrival = std::stoi(worker.substr(1)) * 37 % kHalf * 2 + (worker[0] == 'a' ? 1 : 0);
    return 2.0 - 1e-9 * arrival;
  };
  EXPECT_THAT(*FewestToLeaveOut(links, worth, kAnybody), ElementsAreArray(first));
  const auto first_stays = [](const std::set<std::string>& names) { return names.count("a007") == 0; };
  EXPECT_THAT(*FewestToLeaveOut(links, worth, first_stays), ElementsAreArray(second));
  EXPECT_FALSE(FewestToLeaveOut(links, worth, [](const auto&) { return false; }).has_value());
}

// Each time the placement of a whole world is looked at.
TEST(FewestToLeaveOut, WhereNobodyCanGoEachIsAskedForOnce) {
  constexpr int kWorkers = 60;
  std::mt19937 random(20261127);
  std::set<Link> links;
  while (links.size() < 300) {
    const auto a = random() % kWorkers, b = random() % kWorkers;
    if (a != b) links.insert(LinkBetween(absl::StrFormat("%02d", a), absl::StrFormat("%02d", b)));
  }
  int asked = 0;
  const auto nobody = [&asked](const std::set<std::string>&) {
    ++asked;
    return false;
  };
  EXPECT_FALSE(FewestToLeaveOut({links.begin(), links.end()}, kAlike, nobody).has_value());
  EXPECT_LE(asked, 1 + kWorkers);
}

TEST(ProbeRound, KnowsWhatIsCutAlsoWithOneSidesWord) {
  ProbeRound round(5, seconds(1), {{"a", "1"}, {"b", "2"}, {"c", "3"}}, {"a", "b", "c"});
  EXPECT_THAT(round.MessageFor("b").addresses, ElementsAre("1", "3"));
  round.Add("a", {5, {-1, 0.001}});
  round.Add("c", {4, {-1, -1}});  // of an earlier round
  EXPECT_THAT(round.cut(), ElementsAre(Link("a", "b")));
  EXPECT_FALSE(round.IsOver(seconds(2)));
  round.Drop("c");
  round.Add("b", {5, {-1, -1}});
  EXPECT_THAT(round.cut(), ElementsAre(Link("a", "b"))) << "c is gone";
  EXPECT_TRUE(round.IsOver(seconds(2)));
}

TEST(ProbeRound, WhatWasFoundOfOneThatIsGoneSinceCountsNoMore) {
  ProbeRound round(5, seconds(1), {{"a", "1"}, {"b", "2"}, {"c", "3"}}, {"a", "b", "c"});
  round.Add("b", {5, {-1, -1}});
  EXPECT_THAT(round.cut(), ElementsAre(Link("a", "b"), Link("b", "c")));
  round.Drop("c");
  EXPECT_THAT(round.cut(), ElementsAre(Link("a", "b")));
  round.Drop("b");
  EXPECT_THAT(round.cut(), testing::IsEmpty());
}

TEST(ProbeRound, OneThatAllOthersReachSlowlyIsNamed) {
  ProbeRound round(1, seconds(1), {{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}}, {"a", "b", "c", "d"});
  round.Add("a", {1, {0.001, 0.05, 0.001}});
  round.Add("b", {1, {0.001, 0.35, 0.002}});
  round.Add("c", {1, {0.06, 0.05, 0.05}});
  round.Add("d", {1, {0.001, 0.001, 0.65}});
  ASSERT_TRUE(round.Slowest().has_value());
  EXPECT_EQ(round.Slowest()->worker, "c");
  EXPECT_DOUBLE_EQ(round.Slowest()->usual_seconds, 0.001);
  ProbeRound even(1, seconds(1), {{"a", "1"}, {"b", "2"}, {"c", "3"}}, {"a", "b", "c"});
  for (const std::string name : {"a", "b", "c"}) even.Add(name, {1, {0.05, 0.05}});
  EXPECT_FALSE(even.Slowest().has_value());
}

TEST(ProbeRound, TheLinksThatAreFarSlowerThanTheOthers) {
  const std::vector<std::pair<std::string, std::string>> targets{{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}};
  ProbeRound round(1, seconds(1), targets, {"a", "b", "c", "d"});
  round.Add("a", {1, {0.001, 0.05, 0.06}});
  round.Add("b", {1, {0.001, 0.05, 0.06}});
  round.Add("c", {1, {0.05, 0.06, 0.001}});
  EXPECT_THAT(round.FarSlowerLinks().links, ElementsAre(Link("a", "c"), Link("b", "c"))) << "with both ends' word";
  round.Add("d", {1, {0.001, 0.06, 0.002}});
  EXPECT_THAT(round.FarSlowerLinks().links, ElementsAre(Link("a", "c"), Link("b", "c"), Link("b", "d")))
      << "d reached a quickly";
  EXPECT_DOUBLE_EQ(round.FarSlowerLinks().usual_seconds, 0.001);
  EXPECT_DOUBLE_EQ(round.FarSlowerLinks().seconds, 0.05);
  ProbeRound even(1, seconds(1), targets, {"a", "b", "c", "d"});
  for (const auto& [name, address] : targets) even.Add(name, {1, {0.05, 0.06, 0.07}});
  EXPECT_THAT(even.FarSlowerLinks().links, testing::IsEmpty());
}

TEST(OfTurn, EachTwoAreOfOneTurn) {
  for (const int count : {6, 7, 8, 9, 17}) {
    std::vector<std::pair<std::string, std::string>> targets;
    for (int i = 0; i < count; ++i) targets.emplace_back(std::string(1, static_cast<char>('a' + i)), "somewhere");
    const uint64_t halves = (static_cast<uint64_t>(count) + 2) / 3, turns = halves * (halves - 1) / 2;
    std::set<Link> together;
    for (uint64_t turn = 7; turn < 7 + turns; ++turn) {
      const auto chosen = OfTurn(targets, 6, turn);
      EXPECT_LE(chosen.size(), 6u);
      for (size_t a = 0; a < chosen.size(); ++a) {
        for (size_t b = 0; b < a; ++b) together.insert(LinkBetween(chosen[a].first, chosen[b].first));
      }
    }
    EXPECT_EQ(together.size(), static_cast<size_t>(count * (count - 1) / 2)) << count;
  }
}

class LinksTest : public CoordinatorTest {
 protected:
  void SetUp() override { probes_ = true; }

  void StartFour(int64_t mirrors = 1) {
    CoordinatorOptions options = DefaultOptions();
    options.elastic.workers = 4;
    options.parallel.mirrors = mirrors;
    StartTraining({0, 1, 2, 3}, options);
  }
  /// Heartbeats of members that wait for each other.
  void Wait(milliseconds time, const std::vector<int>& workers) {
    const Instant until = now_ + time;
    while (now_ < until) {
      now_ += milliseconds(50);
      for (const int w : workers) Say(w, HeartbeatMessage{Generation(), Committed() + 1, Phase::kReduce, 1});
      Event(TickEvent{});
    }
  }
  /// Answers the probes that were asked for last: `cut` are not reached.
  void Answer(const std::vector<std::pair<int, int>>& cut) {
    const auto is_cut = [&](int a, int b) {
      return std::any_of(cut.begin(), cut.end(),
                         [&](const auto& c) { return std::minmax(a, b) == std::minmax(c.first, c.second); });
    };
    for (int w = 0; w < 8; ++w) {
      const auto* probe = LastSent<ProbeMessage>(w);
      if (probe == nullptr) continue;
      ReachMessage reach{probe->round, {}};
      for (const std::string& address : probe->addresses) {
        reach.seconds.push_back(is_cut(w, address.back() - '0') ? -1 : 0.001);
      }
      Say(w, reach);
    }
  }
};

TEST_F(LinksTest, WithoutTheOneThatIsCutOffWithinSeconds) {
  StartFour();
  Wait(milliseconds(3500), {0, 1, 2, 3});
  ASSERT_NE(LastSent<ProbeMessage>(0), nullptr) << "everybody waits, nobody computes";
  Answer({{0, 3}, {1, 3}});
  EXPECT_EQ(WorldSize(), 3);
  EXPECT_EQ(Count<event::WorkerLost>(), 0);
  EXPECT_EQ(Count<event::LinkCut>(), 1) << "one for all links between two machines";
  EXPECT_EQ(Last<event::LinkCut>().host + Last<event::LinkCut>().peer_host, "n0n1");
  EXPECT_EQ(Last<event::LinkCut>().without, "n1/3");
  EXPECT_EQ(LastSent<RefusedMessage>(3), nullptr) << "it keeps its state";
  Commit({0, 1, 2});
  EXPECT_EQ(WorldSize(), 3) << "not taken back while the link is cut";
}

// What others found lies in the queue behind a tick. One answer alone would cost the one that gave it its place.
TEST_F(LinksTest, ACoordinatorThatWasFrozenReadsTheAnswersFirst) {
  StartFour();
  Wait(milliseconds(3500), {0, 1, 2, 3});
  const auto* probe = LastSent<ProbeMessage>(1);
  ASSERT_NE(probe, nullptr);
  Say(1, ReachMessage{probe->round, {-1, 0.001, 0.001}});
  now_ += seconds(20);
  Event(TickEvent{});
  EXPECT_EQ(Count<event::LinkCut>(), 0);
  Answer({{0, 1}, {0, 2}, {0, 3}});
  EXPECT_EQ(Last<event::LinkCut>().without, "n0/0");
  EXPECT_EQ(WorldSize(), 3);
}

TEST_F(LinksTest, TheyComeBackWithTheLink) {
  StartFour();
  Wait(milliseconds(3500), {0, 1, 2, 3});
  Answer({{0, 3}});
  Commit({0, 1, 2});
  for (int round = 0; round < 3; ++round) {
    Pass(milliseconds(2500), {0, 1, 2, 3});
    ASSERT_NE(LastSent<ProbeMessage>(3), nullptr) << round;
    Answer({{0, 3}});
    Commit({0, 1, 2});
    ASSERT_EQ(WorldSize(), 3) << round;
  }
  Pass(milliseconds(2500), {0, 1, 2, 3});
  Answer({});
  EXPECT_EQ(Count<event::LinkBack>(), 1);
  Pass(milliseconds(500), {0, 1, 2, 3});
  Commit({0, 1, 2});
  EXPECT_EQ(WorldSize(), 4);
}

TEST_F(LinksTest, NobodyIsLeftOutWhoseStateNobodyElseHas) {
  StartFour(/*mirrors=*/0);
  Wait(milliseconds(3500), {0, 1, 2, 3});
  Answer({{0, 3}});
  EXPECT_EQ(WorldSize(), 4);
  EXPECT_EQ(Count<event::LinkCut>(), 1);
  EXPECT_EQ(Last<event::LinkCut>().without, "");
  Commit({0, 1, 2, 3});  // it was only slow
  EXPECT_EQ(Committed(), 2);
}

TEST_F(LinksTest, AFailureOfAWorldIsLookedIntoBeforeTheNext) {
  StartFour();
  for (const int w : {0, 1, 2, 3}) Say(w, FailureMessage{Generation(), 2, Phase::kReduce, "deadline", {}, false});
  Pass(milliseconds(500), {0, 1, 2, 3});
  ASSERT_NE(LastSent<ProbeMessage>(0), nullptr);
  EXPECT_EQ(Generation(), 1u);
  Answer({{1, 2}});
  EXPECT_EQ(WorldSize(), 3);
  EXPECT_EQ(Last<event::LinkCut>().without, "n1/2");
}

TEST_F(LinksTest, WithAllLinksWholeItIsTriedAgainAsItWas) {
  StartFour();
  for (const int w : {0, 1, 2, 3}) Say(w, FailureMessage{Generation(), 2, Phase::kReduce, "deadline", {}, false});
  Pass(milliseconds(500), {0, 1, 2, 3});
  Answer({});
  Pass(milliseconds(100), {0, 1, 2, 3});
  EXPECT_EQ(Generation(), 2u);
  EXPECT_EQ(WorldSize(), 4);
  EXPECT_EQ(Count<event::LinkCut>(), 0);
}

TEST_F(LinksTest, WhatWasFoundBeforeTheLastCommitSaysNothing) {
  StartFour();
  Wait(milliseconds(3500), {0, 1, 2, 3});
  Answer({});
  Commit({0, 1, 2, 3});
  for (const int w : {0, 1, 2, 3}) Say(w, FailureMessage{Generation(), 3, Phase::kReduce, "deadline", {}, false});
  Pass(milliseconds(500), {0, 1, 2, 3});
  Answer({{1, 3}});
  EXPECT_EQ(WorldSize(), 3);
}

class ManyLinksTest : public LinksTest {
 protected:
  static constexpr int kWorkers = 600;  // of two to a node

  void SetUp() override {
    LinksTest::SetUp();
    StartMany(Sharding::kFullShard);
  }
  void StartMany(Sharding sharding) {
    CoordinatorOptions options = DefaultOptions();
    options.parallel.sharding = sharding;
    options.elastic.workers = options.elastic.max_workers = kWorkers;
    options.microbatches = kWorkers;
    Start(options);
    std::iota(all_.begin(), all_.end(), 0);
    for (const int w : all_) Join(w);
    Pass(milliseconds(500), all_);
    ASSERT_EQ(WorldSize(), kWorkers);
    Commit(all_);
    Wait(milliseconds(3500), all_);
  }
  /// Of the first worker of each node, which stands for it.
  void AnswerAll(const std::function<bool(int worker, const std::string& address)>& is_cut) {
    for (int w = 0; w < kWorkers; w += 2) {
      const auto* probe = LastSent<ProbeMessage>(w);
      ASSERT_NE(probe, nullptr) << w;
      ASSERT_EQ(probe->addresses.size(), kWorkers / 2 - 1u);
      ReachMessage reach{probe->round, {}};
      for (const std::string& address : probe->addresses) reach.seconds.push_back(is_cut(w, address) ? -1 : 0.001);
      Say(w, reach);
    }
  }

  std::vector<int> all_ = std::vector<int>(kWorkers);
};

TEST_F(ManyLinksTest, OnePerNodeTriesForAllOfIt) {
  EXPECT_EQ(LastSent<ProbeMessage>(1), nullptr) << "n0/0 stands for it";
  AnswerAll([](int w, const std::string& address) {
    return (w == 0 && address == "at n7/14") || (w == 14 && address == "at n0/0");
  });
  Pass(milliseconds(500), all_);
  EXPECT_EQ(Last<event::LinkCut>().links, 4) << "two workers on each side";
  EXPECT_EQ(Last<event::LinkCut>().without, "n7/14, n7/15");
  EXPECT_EQ(WorldSize(), kWorkers - 2);
}

// All links of a node were cut, so that everybody else is at the end of one.
TEST_F(ManyLinksTest, OnePerNodeTriesWhetherANodeIsBack) {
  AnswerAll([](int w, const std::string& address) { return w == 14 || address == "at n7/14"; });
  Pass(milliseconds(500), all_);
  ASSERT_EQ(WorldSize(), kWorkers - 2);
  std::vector<int> others = all_;
  std::erase_if(others, [](int w) { return w / 2 == 7; });
  Commit(others);
  sent_.clear();
  Pass(milliseconds(2'500), all_);
  AnswerAll([](int, const std::string&) { return false; });
  Commit(others);
  Pass(milliseconds(500), all_);
  Commit(others);
  EXPECT_EQ(WorldSize(), kWorkers);
}

// Tens of thousands of links, with all that each node has.
TEST_F(ManyLinksTest, OfTwoHalvesThatDoNotReachEachOtherOneGoesOn) {
  StartMany(Sharding::kNoShard);
  const auto half = [](int worker) { return worker < kWorkers / 2; };
  const auto is_cut = [&](int w, const std::string& address) {
    return half(w) != half(std::stoi(address.substr(address.find('/') + 1)));
  };
  AnswerAll(is_cut);
  Pass(milliseconds(500), all_);
  EXPECT_EQ(WorldSize(), kWorkers / 2);
  EXPECT_EQ(Count<event::LinkCut>(), 16) << "of 150 x 150 pairs of hosts";
  EXPECT_THAT(Last<event::LinkCut>().without, HasSubstr(" and 268 more"));
  std::vector<int> first = all_;
  first.resize(kWorkers / 2);
  Commit(first);
  sent_.clear();
  Pass(milliseconds(2'500), all_);
  AnswerAll([](int, const std::string&) { return false; });
  EXPECT_EQ(Count<event::LinkBack>(), 16);
  Commit(first);
  Pass(milliseconds(500), all_);
  Commit(first);
  EXPECT_EQ(WorldSize(), kWorkers);
}

// More pairs of hosts than one round tells of, in two rounds: whatever alert was opened is closed.
TEST_F(LinksTest, EveryLinkThatWasSaidToBeCutIsSaidToBeBack) {
  constexpr int kWorkers = 40;  // of two to a node
  std::vector<int> all(kWorkers);
  std::iota(all.begin(), all.end(), 0);
  std::set<int> cut_off;  // nodes
  const auto members = [&] {
    std::vector<int> others = all;
    std::erase_if(others, [&](int w) { return cut_off.contains(w / 2); });
    return others;
  };
  const auto answer = [&] {
    for (const int w : all) {
      const auto* probe = LastSent<ProbeMessage>(w);
      if (probe == nullptr) continue;
      ReachMessage reach{probe->round, {}};
      for (const std::string& address : probe->addresses) {
        const int node = std::stoi(address.substr(address.find('/') + 1)) / 2;
        const bool is_cut = node != w / 2 && (cut_off.contains(node) || cut_off.contains(w / 2));
        reach.seconds.push_back(is_cut ? -1 : 0.001);
      }
      Say(w, reach);
    }
  };
  CoordinatorOptions options = DefaultOptions();
  options.parallel.sharding = Sharding::kNoShard;
  options.elastic.workers = options.elastic.max_workers = options.microbatches = kWorkers;
  StartWith(all, options);
  Pass(milliseconds(500), all);
  Commit(all);
  Wait(milliseconds(3500), all);
  cut_off = {7};
  answer();
  Pass(milliseconds(500), all);
  ASSERT_EQ(WorldSize(), kWorkers - 2);
  Commit(members());
  Wait(milliseconds(2100), all);
  answer();  // it is not back
  Wait(milliseconds(1500), all);
  cut_off = {7, 8};
  answer();
  Pass(milliseconds(500), all);
  ASSERT_EQ(WorldSize(), kWorkers - 4);
  ASSERT_EQ(Count<event::LinkCut>(), 32);
  Commit(members());
  Pass(milliseconds(2100), all);
  cut_off.clear();
  answer();
  EXPECT_EQ(Count<event::LinkBack>(), 32);
}

// More nodes than try each other in one round, of two rounds with fewer.
TEST_F(LinksTest, AnyNumberOfThoseThatAreCutOffIsTakenBack) {
  constexpr int kFirst = 500, kNodes = 530;  // of one worker
  const auto nodes = [](int from, int to) {
    std::vector<int> workers;
    for (int node = from; node < to; ++node) workers.push_back(2 * node);
    return workers;
  };
  const std::vector<int> first = nodes(0, kFirst), half = nodes(0, kFirst / 2), all = nodes(0, kNodes);
  const auto part = [](int worker) { return worker / 2 < kFirst / 2 ? 0 : worker / 2 < kFirst ? 1 : 2; };
  std::set<std::pair<int, int>> cut;  // parts
  const auto answer = [&] {
    for (const int w : all) {
      const auto* probe = LastSent<ProbeMessage>(w);
      if (probe == nullptr) continue;
      ASSERT_LT(probe->addresses.size(), 512u);
      ReachMessage reach{probe->round, {}};
      for (const std::string& address : probe->addresses) {
        const int other = std::stoi(address.substr(address.find('/') + 1));
        reach.seconds.push_back(cut.contains(std::minmax(part(w), part(other))) ? -1 : 0.001);
      }
      Say(w, reach);
    }
    sent_.clear();
  };
  const auto wait_until = [&](const std::vector<int>& waiting, int size) {
    for (int i = 0; i < 60 && WorldSize() != size; ++i) {
      now_ += milliseconds(50);
      const HeartbeatMessage waits{Generation(), Committed() + 1, Phase::kReduce, 1};
      for (const int w : waiting) Say(w, waits);
      Event(TickEvent{});
      answer();
    }
    ASSERT_EQ(WorldSize(), size);
  };
  CoordinatorOptions options = DefaultOptions();
  options.parallel.sharding = Sharding::kNoShard;
  options.elastic.workers = kFirst;
  options.elastic.max_workers = options.microbatches = kNodes;
  StartWith(first, options);
  wait_until(first, kFirst);
  Commit(first);
  cut = {{0, 1}};
  wait_until(first, kFirst / 2);
  Commit(half);
  for (const int w : nodes(kFirst, kNodes)) Join(w);
  Pass(milliseconds(200), all);
  Commit(half);
  wait_until(all, kFirst / 2 + kNodes - kFirst);
  cut = {{0, 1}, {0, 2}};
  wait_until(all, kFirst / 2);
  Commit(half);
  cut.clear();
  for (int i = 0; i < 60 && WorldSize() != kNodes; ++i) {
    Pass(milliseconds(500), all);
    answer();
    Commit(all);
  }
  EXPECT_EQ(WorldSize(), kNodes);
  EXPECT_EQ(Count<event::LinkBack>(), Count<event::LinkCut>());
}

TEST_F(LinksTest, WhoComputesIsNotProbed) {
  StartFour();
  Pass(seconds(20), {0, 1, 2, 3});
  EXPECT_EQ(LastSent<ProbeMessage>(0), nullptr);
}

TEST_F(LinksTest, OneThatConnectsAnewIsNotTakenInWhileItsLinkIsCut) {
  StartFour();
  Wait(milliseconds(3500), {0, 1, 2, 3});
  Answer({{0, 3}});
  Commit({0, 1, 2});
  Join(3, {}, First(3) + (uint64_t{1} << 40));
  Pass(milliseconds(500), {0, 1, 2, 3});
  Commit({0, 1, 2});
  EXPECT_EQ(WorldSize(), 3);
  // Nor does it cost the other end its place.
  const World world = worlds_[Connection(0)].world;
  Join(0, {world, Committed(), 0, {}});
  Pass(milliseconds(500), {0, 1, 2, 3});
  EXPECT_EQ(WorldSize(), 3);
  EXPECT_GE(worlds_[Connection(0)].world.RankOf(MemberOf(0).id), 0);
}

TEST_F(LinksTest, AStepFarBeyondTheUsualIsAnIncident) {
  StartFour();
  for (int step = 0; step < 12; ++step) {
    Wait(milliseconds(100), {0, 1, 2, 3});
    Commit({0, 1, 2, 3});
  }
  Wait(milliseconds(900), {0, 1, 2, 3});
  EXPECT_EQ(Count<event::StepSlow>(), 0);
  Wait(milliseconds(600), {0, 1, 2, 3});
  EXPECT_EQ(Count<event::StepSlow>(), 1);
  EXPECT_EQ(Last<event::StepSlow>().waiting_for, "bytes from each other");
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(Count<event::LinkSlow>(), 0) << "a machine may be late once";
    for (const int w : {0, 1, 2, 3}) {
      const auto* probe = LastSent<ProbeMessage>(w);
      ASSERT_NE(probe, nullptr);
      const double to_three = w == 3 ? 0.05 : 0.001;
      Say(w, ReachMessage{probe->round, {to_three, to_three, w == 3 ? 0.05 : 0.06}});
    }
  }
  EXPECT_EQ(Last<event::LinkSlow>().worker, "n1/3");
  Commit({0, 1, 2, 3});
  Wait(milliseconds(100), {0, 1, 2, 3});
  Commit({0, 1, 2, 3});
  EXPECT_EQ(Count<event::StepSlowResolved>(), 1);
  EXPECT_EQ(WorldSize(), 4);
}

// Two workers on each of two hosts, between which everything is slow: no worker is slow to all.
TEST_F(LinksTest, ASlowLinkBetweenTwoHostsIsNamed) {
  StartFour();
  ASSERT_EQ(MemberOf(0).host, MemberOf(1).host);
  ASSERT_NE(MemberOf(0).host, MemberOf(2).host);
  for (int step = 0; step < 12; ++step) {
    Wait(milliseconds(100), {0, 1, 2, 3});
    Commit({0, 1, 2, 3});
  }
  for (const int time : {900, 600}) Wait(milliseconds(time), {0, 1, 2, 3});
  for (int round = 0; round < 2; ++round) {
    for (const int w : {0, 1, 2, 3}) {
      ReachMessage reach{LastSent<ProbeMessage>(w)->round, {}};
      for (const int other : {0, 1, 2, 3}) {
        if (other != w) reach.seconds.push_back((w < 2) == (other < 2) ? 0.001 : 0.05);
      }
      Say(w, reach);
    }
  }
  ASSERT_EQ(Count<event::LinkSlow>(), 1);
  const auto found = Last<event::LinkSlow>();
  EXPECT_EQ(found.host, MemberOf(0).host);
  EXPECT_EQ(found.peer_host, MemberOf(2).host);
  EXPECT_NE(found.peer, "");
}

// Frozen while it waited, one keeps that phase; another seems to compute while it waits for that one's bytes.
TEST_F(LinksTest, OfASlowStepWhoIsSilentIsNamedFirst) {
  StartFour();
  for (int step = 0; step < 12; ++step) {
    Wait(milliseconds(100), {0, 1, 2, 3});
    Commit({0, 1, 2, 3});
  }
  for (int beat = 0; beat < 24; ++beat) {
    now_ += milliseconds(50);
    for (const int w : {0, 1, 2}) {
      const Phase phase = w == 0 ? Phase::kForwardBackward : Phase::kReduce;
      Say(w, HeartbeatMessage{Generation(), Committed() + 1, phase, 1});
    }
    Event(TickEvent{});
  }
  EXPECT_EQ(Last<event::StepSlow>().waiting_for,
            "n1/3 on n1 without a heartbeat for 1.0 s, n0/0 on n0 in forward_backward");
}

// What is lost on a bad link is lost now and then: a round of trying may meet it, or not.
TEST_F(LinksTest, ASlowLinkIsLookedForUntilItIsFound) {
  StartFour();
  for (int step = 0; step < 12; ++step) {
    Wait(milliseconds(100), {0, 1, 2, 3});
    Commit({0, 1, 2, 3});
  }
  const auto answer = [&](double to_three) {
    for (const int w : {0, 1, 2, 3}) {
      const uint64_t round = LastSent<ProbeMessage>(w)->round;
      Say(w, ReachMessage{round, {w == 3 ? to_three : 0.001, w == 3 ? to_three : 0.001, to_three}});
    }
  };
  for (const int time : {900, 600}) Wait(milliseconds(time), {0, 1, 2, 3});
  ASSERT_EQ(Count<event::StepSlow>(), 1);
  const uint64_t first = LastSent<ProbeMessage>(0)->round;
  answer(0.001);
  EXPECT_EQ(Count<event::LinkSlow>(), 0);
  for (int step = 0; step < 3; ++step) {
    Commit({0, 1, 2, 3});
    Wait(milliseconds(1900), {0, 1, 2, 3});
  }
  ASSERT_EQ(LastSent<ProbeMessage>(0)->round, first + 1);
  answer(0.06);
  EXPECT_EQ(Count<event::LinkSlow>(), 0) << "a machine may be late once";
  answer(0.06);
  EXPECT_EQ(Count<event::LinkSlow>(), 1);
  EXPECT_EQ(Last<event::LinkSlow>().worker, "n1/3");
  for (int step = 0; step < 10; ++step) {
    Commit({0, 1, 2, 3});
    Wait(milliseconds(1900), {0, 1, 2, 3});
    EXPECT_EQ(LastSent<ProbeMessage>(0), nullptr);  // nobody asks again
  }
  EXPECT_EQ(Count<event::StepSlow>(), 1);
}

TEST_F(LinksTest, AStepThatBeganWithAValidationIsNotSlow) {
  StartFour();
  for (int step = 0; step < 12; ++step) {
    Wait(milliseconds(100), {0, 1, 2, 3});
    Commit({0, 1, 2, 3});
  }
  for (const int w : {0, 1, 2, 3}) Say(w, HeartbeatMessage{Generation(), Committed(), Phase::kValidation, 2});
  Event(TickEvent{});
  Wait(milliseconds(2000), {0, 1, 2, 3});
  EXPECT_EQ(Count<event::StepSlow>(), 0);
  Commit({0, 1, 2, 3});
  Wait(milliseconds(2000), {0, 1, 2, 3});
  EXPECT_EQ(Count<event::StepSlow>(), 1);
}

// Frozen, or paused as the disk was full: members waited for it, and are not to be named as those that were waited for.
TEST_F(LinksTest, AStepIsNotSlowForWhatItsCoordinatorWasAway) {
  StartFour();
  for (int step = 0; step < 12; ++step) {
    Wait(milliseconds(100), {0, 1, 2, 3});
    Commit({0, 1, 2, 3});
  }
  now_ += milliseconds(2 * DefaultOptions().elastic.progress_timeout_ms);
  Event(TickEvent{});
  EXPECT_EQ(Count<event::StepSlow>(), 0);
  EXPECT_EQ(Count<event::NoProgress>(), 0);
  Wait(milliseconds(2000), {0, 1, 2, 3});
  EXPECT_EQ(Count<event::StepSlow>(), 1) << "this time it was there";
  EXPECT_LT(Last<event::StepSlow>().seconds, 10);
}

TEST_F(LinksTest, AStandstillBelowTheLeastIsSaid) {
  CoordinatorOptions options = DefaultOptions();
  options.elastic.min_workers = 3;
  StartTraining({0, 1, 2}, options);
  Event(DisconnectEvent{Connection(2), "gone"});
  Pass(milliseconds(1000), {0, 1});
  EXPECT_EQ(Count<event::TooFewWorkers>(), 0) << "it may come back at once";
  Pass(milliseconds(9000), {0, 1});
  EXPECT_EQ(Count<event::TooFewWorkers>(), 1);
  EXPECT_THAT(Last<event::TooFewWorkers>().detail, HasSubstr("2 of at least 3"));
}

}  // namespace
}  // namespace holdfast
