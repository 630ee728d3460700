// The parts that a coordinator is made of, by themselves: each says what state it is in, and what leads to the next.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elastic/control/checkpoint_control.h"
#include "elastic/control/damaged_data.h"
#include "elastic/control/leaving_nodes.h"
#include "elastic/control/link_watch.h"
#include "elastic/control/roster.h"
#include "elastic/control/run_end.h"
#include "elastic/control/state_location.h"
#include "elastic/control/step_pace.h"
#include "elastic/control/world_formation.h"

namespace holdfast {
namespace {

using std::chrono::seconds;
using StateKind = StateLocation::Kind;

World TwoMembers(uint64_t generation) { return {generation, {Member{{"a", 1}, "n", "h"}, Member{{"b", 2}, "n", "h"}}}; }

TEST(RunEnd, GoesForwardOnly) {
  RunEnd end;
  EXPECT_EQ(end.stop(), nullptr);
  EXPECT_FALSE(end.over());
  EXPECT_TRUE(end.Request({.signal = 15, .since = seconds(1)}));
  EXPECT_FALSE(end.Request({.signal = 2, .since = seconds(2)})) << "the first counts";
  ASSERT_NE(end.stop(), nullptr);
  EXPECT_EQ(end.stop()->signal, 15);
  EXPECT_TRUE(end.End({143, "stopped"}));
  EXPECT_FALSE(end.End({1, "failed"}));
  EXPECT_FALSE(end.Request({.signal = 15}));
  EXPECT_EQ(end.stop(), nullptr);
  ASSERT_TRUE(end.over());
  EXPECT_EQ(end.end()->exit_code, 143);
}

TEST(StateLocation, LiesInOnePlace) {
  StateLocation state(/*claimed=*/false);
  EXPECT_EQ(state.kind(), StateKind::kNowhere);
  state.SetCheckpoint("five");
  EXPECT_EQ(state.kind(), StateKind::kCheckpoint);
  EXPECT_EQ(state.checkpoint(), "five");
  EXPECT_EQ(state.source().generation, 0u);
  state.Enter(TwoMembers(7));
  EXPECT_EQ(state.kind(), StateKind::kCheckpoint) << "until a step is committed there";
  state.SetWorld(TwoMembers(7));
  EXPECT_EQ(state.kind(), StateKind::kWorld);
  EXPECT_EQ(state.source().generation, 7u);
  EXPECT_EQ(state.checkpoint(), "");
  EXPECT_EQ(state.entered().generation, 0u);
  state.SetCheckpoint("");
  EXPECT_EQ(state.kind(), StateKind::kNowhere);
}

TEST(StateLocation, TheWorldThatWasEnteredTakesTheSourcesPlace) {
  StateLocation state(/*claimed=*/false);
  state.SetWorld(TwoMembers(7));
  state.Enter(TwoMembers(8));
  state.AdoptEntered();
  EXPECT_EQ(state.source(), TwoMembers(8));
  EXPECT_EQ(state.entered().generation, 0u);
}

TEST(StateLocation, WhoIsInAClaimedWorldIsLearntOnce) {
  StateLocation state(/*claimed=*/true);
  EXPECT_EQ(state.kind(), StateKind::kClaimed);
  const StateClaim bare{.world = {7, {}}, .committed_step = 3, .prepared_world = {8, {}}};
  EXPECT_EQ(state.WithMembers(bare), bare);
  EXPECT_FALSE(state.WasAsked(1, 7));
  state.AskedFor(7) = 1;
  EXPECT_TRUE(state.WasAsked(1, 7));
  EXPECT_FALSE(state.WasAsked(2, 7));
  EXPECT_FALSE(state.Learn({7, {}})) << "who is in it is not said";
  EXPECT_TRUE(state.Learn(TwoMembers(7)));
  EXPECT_FALSE(state.Learn(TwoMembers(7)));
  EXPECT_EQ(state.WithMembers(bare).world, TwoMembers(7));
  EXPECT_TRUE(state.WithMembers(bare).prepared_world.members.empty());
  state.SetWorld(TwoMembers(7));
  EXPECT_FALSE(state.WasAsked(1, 7));
  EXPECT_FALSE(state.Learn(TwoMembers(8)));
}

CheckpointConfig EveryTwoSteps() {
  CheckpointConfig config;
  config.every_steps = 2;
  return config;
}

TEST(CheckpointControl, OneThatIsDueIsWrittenAtATimeAndOneThatIsWantedBehindIt) {
  CheckpointControl control(EveryTwoSteps(), {});
  EXPECT_FALSE(control.MaySave(seconds(1), 1, false, false));
  ASSERT_TRUE(control.MaySave(seconds(2), 2, false, false));
  control.OnDigest(2, 99);
  control.Begin(seconds(2), 2, TwoMembers(7), false, /*validation_loss=*/0.5);
  const PendingSaves::Save& save = control.pending().saves().back();
  EXPECT_EQ(save.validation_loss, 0.5);
  EXPECT_EQ(save.state_digest, 99u);
  EXPECT_FALSE(control.MaySave(seconds(4), 4, false, false));
  ASSERT_TRUE(control.MaySave(seconds(4), 4, /*wanted=*/true, false)) << "one is written, this one waits for it";
  control.Begin(seconds(4), 4, TwoMembers(7), false, std::nullopt);
  EXPECT_FALSE(control.MaySave(seconds(4), 5, /*wanted=*/true, false));
  EXPECT_TRUE(control.MaySave(seconds(4), 5, false, /*last=*/true));
  control.OnFailed(1, {"disk full"});
  for (const Member& member : TwoMembers(7).members) {
    SavedMessage saved;
    saved.generation = 7;
    saved.step = 2;
    control.pending().OnSaved(member.id, saved);
  }
  EXPECT_TRUE(control.MaySave(seconds(5), 5, /*wanted=*/true, false)) << "nobody works at the first any more";
  EXPECT_FALSE(control.MaySave(seconds(5), 6, false, false)) << "but it does not exist yet";
  const std::optional<PendingSaves::Save> removed = control.pending().Remove(2, 7);
  ASSERT_TRUE(removed.has_value());
  EXPECT_EQ(removed->begun, seconds(2));
  EXPECT_FALSE(control.pending().Remove(2, 7).has_value());
  control.pending().Remove(4, 7);
  const CheckpointControl::Done done = control.OnDone(seconds(5), removed->begun, 2, 0);
  EXPECT_EQ(done.seconds, 3);
  EXPECT_EQ(done.skipped, 3);
  EXPECT_FALSE(control.MaySave(seconds(5), 5, false, false));
  EXPECT_TRUE(control.MaySave(seconds(5), 5, /*wanted=*/true, false));
  EXPECT_EQ(control.failure(), nullptr) << "a later one exists";
}

TEST(CheckpointControl, AValidationIsAboutTheCheckpointOfItsStep) {
  CheckpointControl control(EveryTwoSteps(), {});
  control.Begin(seconds(2), 2, TwoMembers(7), false, std::nullopt);
  control.Begin(seconds(4), 4, TwoMembers(7), true, std::nullopt);
  control.OnValidation({.step = 2, .loss = 0.5});
  control.OnValidation({.step = 3, .loss = 0.25});
  EXPECT_EQ(control.pending().saves().front().validation_loss, 0.5);
  EXPECT_EQ(control.pending().saves().back().validation_loss, std::nullopt);
}

TEST(CheckpointControl, GoingBackGivesUpWhatWasBegun) {
  CheckpointControl control(EveryTwoSteps(), {{"four", 4, 0, 7}, {"two", 2, 0, 7}});
  control.Begin(seconds(2), 4, TwoMembers(7), false, std::nullopt);
  control.BeginToVerify({{"a", 1}, "wrong digest"});
  Branch branch;
  branch.GoBack({.generation = 7, .step = 2});
  control.GoBack(2, branch);
  EXPECT_TRUE(control.pending().empty());
  EXPECT_FALSE(control.verifying());
  EXPECT_EQ(control.newest()->name, "two");
  EXPECT_FALSE(control.Has(4)) << "before the storage is looked at again";
  control.SetUsable({{"six", 6, 0, 8}, {"four", 4, 0, 7}, {"two", 2, 0, 7}}, /*committed_step=*/4, branch);
  ASSERT_NE(control.newest(), nullptr);
  EXPECT_EQ(control.newest()->name, "two");
  EXPECT_TRUE(control.Has(2));
  EXPECT_FALSE(control.Has(4));
  control.Reject("two");
  EXPECT_EQ(control.newest(), nullptr);
}

TEST(WorldFormation, RemembersSinceWhenOnce) {
  WorldFormation formation;
  EXPECT_EQ(formation.OnJoin(seconds(1), "a", /*with_state=*/true), 1);
  EXPECT_EQ(formation.OnJoin(seconds(5), "a", /*with_state=*/true), 2);
  EXPECT_EQ(formation.first_join(), seconds(1));
  EXPECT_EQ(formation.last_join(), seconds(5));
  EXPECT_EQ(formation.WaitsSince(seconds(0)), seconds(1)) << "its connection broke and came back";
  formation.OnCommit();
  formation.OnJoin(seconds(6), "a", /*with_state=*/true);
  EXPECT_EQ(formation.WaitsSince(seconds(0)), seconds(6));
  EXPECT_EQ(formation.WaitsSince(seconds(7)), seconds(7));
  formation.OnFew(seconds(8));
  EXPECT_EQ(formation.WaitsSince(seconds(7)), seconds(8));
  EXPECT_FALSE(formation.OnTooFew(seconds(10), seconds(5)).has_value());
  EXPECT_EQ(formation.OnTooFew(seconds(16), seconds(5)), seconds(6));
  EXPECT_FALSE(formation.OnTooFew(seconds(17), seconds(5)).has_value()) << "said once";
  EXPECT_TRUE(formation.OnStateMissing(seconds(20)));
  EXPECT_FALSE(formation.OnStateMissing(seconds(21)));
  formation.Forgive(seconds(100));
  EXPECT_EQ(formation.missing_since(), seconds(120));
  EXPECT_EQ(formation.first_join(), seconds(101));
}

TEST(WorldFormation, APublishedWorldEndsTheWait) {
  WorldFormation formation;
  formation.AddReason("a lost", 2);
  formation.AddReason("b lost", 1);
  EXPECT_EQ(formation.reason(), "a lost; b lost");
  EXPECT_EQ(formation.detect_seconds(), 2);
  formation.SetWaitingFor("2 of at least 3 workers joined");
  formation.Wait();
  formation.OnNewcomer(seconds(1));
  EXPECT_FALSE(formation.last_world().has_value());
  formation.OnPublished(seconds(3), 2, /*newcomers=*/false);
  EXPECT_EQ(formation.reason() + formation.waiting_for(), "");
  EXPECT_EQ(formation.detect_seconds(), 0);
  EXPECT_FALSE(formation.had_to_wait());
  EXPECT_FALSE(formation.first_newcomer().has_value());
  EXPECT_EQ(formation.last_world()->size, 2);
  formation.OnPublished(seconds(4), 1, /*newcomers=*/true);
  EXPECT_EQ(formation.first_newcomer(), seconds(4));
}

TEST(Roster, KnowsTheAgentsOfANode) {
  Roster roster;
  EXPECT_EQ(roster.AgentOf("n"), nullptr);
  roster.AddAgent(8, {.node = "n", .host = "later", .instance = 2});
  roster.AddAgent(7, {.node = "n", .host = "h", .instance = 1});
  roster.AddAgent(9, {.node = "m", .host = "other"});
  EXPECT_EQ(roster.AgentOf("n")->host, "h") << "of the first connection";
  roster.RemoveAgent(7);
  roster.RemoveAgent(7);
  EXPECT_EQ(roster.AgentOf("n")->host, "later");
  roster.RemoveAgent(8);
  EXPECT_EQ(roster.AgentOf("n"), nullptr);
  EXPECT_EQ(roster.agents().size(), 1u);
}

TEST(Roster, KnowsWhoseStreamHasEnded) {
  Roster roster;
  for (const char* name : {"a", "b"}) {
    JoinedWorker worker;
    worker.connection = static_cast<uint64_t>(name[0]);
    worker.member.id = {name, 1};
    worker.member.node = absl::StrCat("node of ", name);
    roster.Add(worker);
  }
  EXPECT_TRUE(roster.CutOf("node of b").empty());
  roster.Cut(roster.Find("b"), seconds(1), "reset");
  roster.Cut(roster.Find("a"), seconds(2), "");
  EXPECT_EQ(*roster.cut().begin(), std::pair(Roster::Instant(seconds(1)), std::string("b")));
  roster.Cut(roster.Find("b"), seconds(3), "reset again");
  EXPECT_EQ(roster.cut().size(), 2u);
  EXPECT_EQ(roster.Find("b")->cut_cause, "reset again");
  EXPECT_EQ(roster.CutOf("node of b"), std::set<std::string>{"b"});
  roster.Remove("b");
  EXPECT_TRUE(roster.CutOf("node of b").empty());
  EXPECT_EQ(roster.CutOf("node of a"), std::set<std::string>{"a"});
  roster.Remove("a");
  EXPECT_TRUE(roster.cut().empty());
}

TEST(Roster, KnowsWhetherSomebodyStays) {
  Roster roster;
  EXPECT_FALSE(roster.SomebodyStays());
  JoinedWorker worker;
  worker.connection = 1;
  worker.member = {.id = {"n/0", 1}, .node = "n", .host = "h"};
  roster.Add(worker);
  roster.AddAgent(8, {.node = "n", .host = "h"});
  roster.AddAgent(9, {.node = "m", .host = "h"});
  roster.SetLeaves("n", true);
  EXPECT_TRUE(roster.SomebodyStays()) << "m's agent, whose workers are being started";
  roster.SetLeaves("m", true);
  EXPECT_FALSE(roster.SomebodyStays());
  roster.RemoveAgent(9);
  roster.AddAgent(10, {.node = "m", .host = "h"});
  EXPECT_FALSE(roster.SomebodyStays()) << "it is the node that leaves";
  roster.SetLeaves("m", false);
  EXPECT_TRUE(roster.SomebodyStays());
  roster.RemoveAgent(10);
  EXPECT_FALSE(roster.SomebodyStays());
  roster.RemoveAgent(8);
  roster.SetLeaves("n", false);
  EXPECT_TRUE(roster.SomebodyStays()) << "a worker without an agent";
  roster.Remove("n/0");
  EXPECT_FALSE(roster.SomebodyStays());
  EXPECT_TRUE(roster.WorkersOf("n").empty());
}

TEST(Roster, NobodyStaysWhereAllAreKeptOut) {
  Roster roster;
  const auto add = [&](uint64_t connection, const char* name, bool kept_out) {
    JoinedWorker worker;
    worker.connection = connection;
    worker.member = {.id = {name, 1}, .node = "n", .host = "h"};
    worker.kept_out = kept_out;
    roster.Add(worker);
  };
  add(1, "n/0", true);
  EXPECT_FALSE(roster.SomebodyStays());
  roster.AddAgent(8, {.node = "n", .host = "h", .num_workers = 2});
  EXPECT_TRUE(roster.SomebodyStays()) << "the other one is being started";
  add(2, "n/1", true);
  EXPECT_FALSE(roster.SomebodyStays());
  roster.Remove("n/1");
  add(2, "n/1", false);
  EXPECT_TRUE(roster.SomebodyStays());
  roster.Remove("n/1");
  roster.RemoveAgent(8);
  EXPECT_FALSE(roster.SomebodyStays());
  roster.AddAgent(9, {.node = "n", .host = "h", .num_workers = 1});
  EXPECT_FALSE(roster.SomebodyStays());
  roster.Remove("n/0");
  EXPECT_TRUE(roster.SomebodyStays()) << "its worker is being started again";
}

TEST(LinkWatch, ALinkOfAWholeNodeIsCutWhileSomebodyOfItIsThere) {
  Roster roster;
  for (const char* name : {"a0", "a1", "b0"}) {
    JoinedWorker worker;
    worker.connection = static_cast<uint64_t>(name[0]) * 2 + static_cast<uint64_t>(name[1]);
    worker.member.id = {name, 1};
    worker.member.node = std::string(1, name[0]);
    roster.Add(worker);
  }
  const Member of_b = roster.Find("b0")->member;
  LinkWatch links;
  links.Cut({LinkBetween(NodeAsEnd("a"), NodeAsEnd("b"))});
  roster.Find("a0")->left_out = true;
  EXPECT_TRUE(links.IsCutOff(of_b, roster, /*but_left_out=*/true));
  roster.Find("a1")->left_out = true;
  EXPECT_FALSE(links.IsCutOff(of_b, roster, /*but_left_out=*/true));
  EXPECT_TRUE(links.IsCutOff(of_b, roster));
  roster.Remove("a0");
  EXPECT_TRUE(links.IsCutOff(of_b, roster));
  roster.Remove("a1");
  EXPECT_FALSE(links.IsCutOff(of_b, roster));
}

TEST(LinkWatch, ALinkIsCutUntilItsEndsReachEachOther) {
  Roster roster;
  for (const char* name : {"a", "b", "c"}) {
    JoinedWorker worker;
    worker.connection = static_cast<uint64_t>(name[0]);
    worker.member.id = {name, 1};
    worker.member.node = std::string("node of ") + name;
    roster.Add(worker);
  }
  const auto member = [&](const char* name) { return roster.Find(name)->member; };
  LinkWatch links;
  links.Cut({LinkBetween("a", "b"), LinkBetween("a", "gone")});
  EXPECT_TRUE(links.IsCutOff(member("a"), roster));
  EXPECT_FALSE(links.IsCutOff(member("c"), roster));
  EXPECT_TRUE(links.IsCutOff(member("b"), roster, /*but_left_out=*/true));
  roster.Find("a")->left_out = true;
  EXPECT_FALSE(links.IsCutOff(member("b"), roster, /*but_left_out=*/true)) << "who is left out keeps nobody out";
  links.Begin(seconds(1), LinkWatch::Purpose::kReturn, false, 0, {{"a", "at a"}, {"b", "at b"}});
  EXPECT_TRUE(links.probing());
  EXPECT_FALSE(links.IsOver(seconds(1)));
  links.Add("a", {.round = 1, .seconds = {0.1}});
  links.Add("b", {.round = 1, .seconds = {0.1}});
  ASSERT_TRUE(links.IsOver(seconds(1)));
  const LinkWatch::Probe probe = links.End(seconds(2));
  EXPECT_FALSE(links.probing());
  EXPECT_EQ(links.TakeBack(probe, roster), std::set<Link>{LinkBetween("a", "b")});
  EXPECT_FALSE(links.any_cut()) << "one end of the other is gone";
}

TEST(ToldCuts, HostsThatAreGoneAreForgottenFirst) {
  Roster roster;
  for (const char* host : {"a", "b"}) {
    JoinedWorker worker;
    worker.member = {.id = {host, 1}, .node = host, .host = host};
    roster.Add(std::move(worker));
  }
  ToldCuts told;
  told.Add({"a", "b"}, roster);
  for (size_t i = 0; i < 3 * ToldCuts::kMax; ++i) {
    told.Add({absl::StrCat("0", i), absl::StrCat("1", i)}, roster);
    ASSERT_LE(told.size(), ToldCuts::kMax);
  }
  EXPECT_TRUE(told.Has({"a", "b"})) << "they are there";
  EXPECT_TRUE(told.Has({absl::StrCat("0", 3 * ToldCuts::kMax - 1), absl::StrCat("1", 3 * ToldCuts::kMax - 1)}));
  EXPECT_FALSE(told.Has({"00", "10"}));
}

TEST(LeavingNodes, AreForgottenWhenNobodyCanBeLeftOfThem) {
  LeavingNodes leaving;
  leaving.On(event::NodeLeaving{"n", "h", 7});
  leaving.On(event::NodeLeft{"n", 8});
  EXPECT_TRUE(leaving.Has("n")) << "its agent is there";
  leaving.On(event::AgentLost{"n", "h", "it ended"});
  EXPECT_FALSE(leaving.Has("n"));
  leaving.On(event::NodeLeaving{"n", "h", 9});
  leaving.On(event::AgentLost{"n", "h", "connection lost"});
  leaving.On(event::NodeLeft{"n", 9});
  EXPECT_TRUE(leaving.Has("n")) << "its agent comes back to be told so";
  leaving.On(event::AgentJoined{"n", "h", 2});
  leaving.On(event::AgentLost{"n", "h", "it ended"});
  EXPECT_FALSE(leaving.Has("n"));
  leaving.On(event::NodeLeaving{"n", "h", 10});
  leaving.On(event::NodeReturned{"n", "h"});
  EXPECT_FALSE(leaving.Has("n"));
}

// Machines that are reclaimed before they have left, under ever new names.
TEST(LeavingNodes, OfThoseThatNeverComeBackNoMoreThanTheCoordinatorRemembersAreKept) {
  LeavingNodes leaving;
  leaving.On(event::NodeLeaving{"stays", "h", 7});
  for (size_t i = 0; i < 3 * LeavingNodes::kMaxAway; ++i) {
    const std::string node = absl::StrCat(i);
    leaving.On(event::NodeLeaving{node, "h", 7});
    leaving.On(event::AgentLost{node, "h", "connection lost"});
    leaving.On(event::NodeLeft{node, 7});
    ASSERT_LE(leaving.size(), LeavingNodes::kMaxAway);
  }
  EXPECT_TRUE(leaving.Has("stays"));
}

TEST(DamagedData, CountsWorldsThatFailByOneDamageAndKnowsWhoMetIt) {
  const auto damage = [](int64_t step, const std::string& cause, bool is_damage = true) {
    FailureMessage failure;
    failure.step = step;
    failure.cause = cause;
    failure.bad_data = is_damage;
    return failure;
  };
  DamagedData data;
  data.Conclude();
  EXPECT_EQ(data.worlds(), 0);
  data.Add("a", damage(5, "x"));
  data.Add("b", damage(5, "y"));
  data.Conclude();
  EXPECT_EQ(data.worlds(), 1);
  EXPECT_EQ(data.step(), 5);
  EXPECT_TRUE(data.IsKnownTo("a"));
  EXPECT_FALSE(data.IsKnownTo("b")) << "by another damage";
  data.Add("b", damage(5, "z"));
  data.Add("c", damage(5, "x"));
  data.Conclude();
  EXPECT_EQ(data.worlds(), 2);
  EXPECT_TRUE(data.IsKnownTo("a"));
  EXPECT_TRUE(data.IsKnownTo("c"));
  data.Add("a", damage(5, "x"));
  data.Drop();
  EXPECT_EQ(data.worlds(), 2) << "a world whose member was lost says nothing";
  data.Add("a", damage(6, "x"));
  data.Conclude();
  EXPECT_EQ(data.worlds(), 1) << "another step";
  EXPECT_FALSE(data.IsKnownTo("c"));
  data.Add("a", damage(6, "x", /*is_damage=*/false));
  data.Conclude();
  EXPECT_EQ(data.worlds(), 0) << "what could not be read may come back";
  data.Add("a", damage(6, "x"));
  data.Conclude();
  data.Clear();
  EXPECT_EQ(data.worlds(), 0);
  EXPECT_FALSE(data.IsKnownTo("a"));
}

TEST(StepPace, SlowUntilAStepIsAsUsual) {
  StepPace pace;
  for (int i = 0; i < 8; ++i) pace.Add(1);
  EXPECT_EQ(pace.usual_seconds(), 1);
  ASSERT_TRUE(pace.IsFarBeyond(6));
  pace.BeginSlow();
  EXPECT_FALSE(pace.EndSlow(3));
  pace.Add(3);
  EXPECT_TRUE(pace.slow());
  EXPECT_EQ(pace.usual_seconds(), 1) << "slow steps do not count";
  EXPECT_TRUE(pace.EndSlow(2));
  EXPECT_FALSE(pace.slow());
  EXPECT_FALSE(pace.EndSlow(1));
}

}  // namespace
}  // namespace holdfast
