// What a worker's shell sends to its coordinator, here the test, and which tasks it hands to the thread that works:
// none of a world that has changed, with a stop token that is requested when it changes.

#include "elastic/worker/session_shell.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <system_error>
#include <thread>

#include "tests/elastic/worker/scripted_link.h"
#include "tests/framework/base/few_threads.h"

namespace holdfast {
namespace {

SessionShell::Options Options() {
  SessionShell::Options options;
  options.member.id = {"n0/0", 1};
  options.total_steps = 10;
  options.heartbeat_interval = std::chrono::milliseconds(5);
  return options;
}

TEST(SessionShell, SaysThePhaseThatIsAtWork) {
  ScriptedLink link;
  StepProgress progress;
  SessionShell shell(Options(), link, progress);
  for (const Phase phase : {Phase::kRendezvous, Phase::kTransfer, Phase::kValidation, Phase::kSave}) {
    shell.SetPhase(phase, 3);
    EXPECT_EQ(shell.phase(), phase);
    EXPECT_EQ(link.Await<HeartbeatMessage>([&](const auto& beat) { return beat.phase == phase; }).step, 3);
  }
  progress.waiting = true;
  EXPECT_EQ(shell.phase(), Phase::kReduce);
}

TEST(SessionShell, TriesWhomTheCoordinatorAsksFor) {
  ScriptedLink link;
  const StepProgress progress;
  auto probe = PeerProbe::Listen("127.0.0.1");
  const auto other = PeerProbe::Listen("127.0.0.1");
  ASSERT_TRUE(probe.ok() && other.ok());
  SessionShell shell(Options(), link, progress, *std::move(probe));
  shell.OnMessage(ProbeMessage{7, {(*other)->address(), "127.0.0.1:1"}});
  const auto reach = link.Await<ReachMessage>([](const auto& message) { return message.round == 7; });
  ASSERT_EQ(reach.seconds.size(), 2u);
  EXPECT_GE(reach.seconds[0], 0);
  EXPECT_LT(reach.seconds[1], 0);
}

WorldMessage WorldOf(uint64_t generation, int64_t committed = 0) {
  WorldMessage message;
  message.world = {.generation = generation, .members = {Options().member}};
  message.committed_step = committed;
  message.microbatches = {2};
  return message;
}

class SessionShellInWorlds : public testing::Test {
 protected:
  SessionShellInWorlds() { link_.Connect(); }

  uint64_t NextGeneration() {
    next_ = shell_.NextTask();
    const auto* recover = std::get_if<RecoverTask>(&next_.task);
    return recover == nullptr ? 0 : recover->world.world.generation;
  }

  ScriptedLink link_;
  const StepProgress progress_;
  SessionShell shell_{Options(), link_, progress_};
  SessionShell::Next next_;
};

TEST_F(SessionShellInWorlds, ATaskOfAWorldThatHasChangedIsNotHandedOut) {
  link_.Tell(WorldOf(1));
  link_.Tell(WorldOf(2));
  EXPECT_EQ(NextGeneration(), 2u);
  EXPECT_FALSE(next_.stop.stop_requested());
}

TEST_F(SessionShellInWorlds, ANewWorldStopsTheTaskAtWork) {
  link_.Tell(WorldOf(1));
  EXPECT_EQ(NextGeneration(), 1u);
  EXPECT_EQ(next_.abort_seconds, 0);
  const std::stop_token first = next_.stop;
  EXPECT_FALSE(first.stop_requested());
  link_.Tell(WorldOf(2));
  EXPECT_TRUE(first.stop_requested());
  EXPECT_EQ(NextGeneration(), 2u);
  EXPECT_GT(next_.abort_seconds, 0);
  EXPECT_FALSE(next_.stop.stop_requested());
}

// Told to come anew while it has not begun to enter the world: as another incarnation it has no rank there.
TEST_F(SessionShellInWorlds, AWorldThatItMayNotEnterAnyMoreIsNotHandedOut) {
  link_.Tell(WorldOf(1));
  EXPECT_EQ(NextGeneration(), 1u);
  link_.Tell(WorldOf(2));
  link_.Tell(RefusedMessage{.reason = "lost", .rejoin = true});
  EXPECT_TRUE(std::holds_alternative<ForgetTask>(shell_.NextTask().task));
}

TEST_F(SessionShellInWorlds, AWorldIsEnteredAtTheRankThatItWasMeantFor) {
  link_.Tell(WorldOf(1));
  EXPECT_EQ(NextGeneration(), 1u);
  link_.Tell(RefusedMessage{.reason = "lost", .rejoin = true});
  EXPECT_EQ(std::get<RecoverTask>(next_.task).rank, 0);
  EXPECT_TRUE(next_.stop.stop_requested());
}

TEST_F(SessionShellInWorlds, AnUpdateIsHandedOutThoughTheWorldHasChanged) {
  link_.Tell(WorldOf(1));
  EXPECT_EQ(NextGeneration(), 1u);
  shell_.Answer(RecoverDone{RecoveredMessage{.generation = 1}});
  ASSERT_TRUE(std::holds_alternative<StepTask>(shell_.NextTask().task));
  shell_.Answer(StepPrepared{VoteMessage{.generation = 1, .step = 1, .digests = {}}});
  link_.Tell(CommitMessage{.generation = 1, .step = 1, .microbatches = {}});
  WorldMessage next = WorldOf(2, 1);
  next.source = WorldOf(1).world;
  link_.Tell(next);
  const WorkerTask update = shell_.NextTask().task;
  ASSERT_TRUE(std::holds_alternative<UpdateTask>(update));
  EXPECT_EQ(std::get<UpdateTask>(update).step, 1);
  EXPECT_EQ(NextGeneration(), 2u) << "the step of generation 1 is dropped";
}

TEST_F(SessionShellInWorlds, AddressesAreExchangedThroughTheCoordinator) {
  link_.Tell(WorldOf(1));
  EXPECT_EQ(NextGeneration(), 1u);
  std::thread coordinator([&] {
    const auto mine = link_.Await<RendezvousMessage>();
    EXPECT_EQ(mine.generation, 1u);
    link_.Tell(PeersMessage{0, {"of another world"}});
    link_.Tell(PeersMessage{1, {mine.blob, "other"}});
  });
  const auto all = shell_.Exchange("mine", std::chrono::steady_clock::now() + std::chrono::minutes(5));
  coordinator.join();
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(*all, (std::vector<std::string>{"mine", "other"}));
}

TEST_F(SessionShellInWorlds, AnExchangeEndsWithItsWorldOrAtItsDeadline) {
  link_.Tell(WorldOf(1));
  EXPECT_EQ(NextGeneration(), 1u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(shell_.Exchange("mine", std::chrono::steady_clock::now()).status()));
  std::thread coordinator([&] {
    link_.Await<RendezvousMessage>();
    link_.Tell(WorldOf(2));
  });
  EXPECT_TRUE(
      absl::IsAborted(shell_.Exchange("mine", std::chrono::steady_clock::now() + std::chrono::minutes(5)).status()));
  coordinator.join();
  EXPECT_TRUE(absl::IsAborted(shell_.Exchange("mine", std::chrono::steady_clock::now()).status()))
      << "the task of generation 2 has not begun yet";
}

TEST_F(SessionShellInWorlds, RefusedItComesBackAsSomebodyElseOrEnds) {
  link_.Tell(RefusedMessage{.reason = "not yet", .rejoin = true});
  EXPECT_TRUE(std::holds_alternative<ForgetTask>(shell_.NextTask().task));
  EXPECT_EQ(shell_.member().id.incarnation, 2u);
  link_.Tell(RefusedMessage{.reason = "another config"});
  const WorkerTask exit = shell_.NextTask().task;
  ASSERT_TRUE(std::holds_alternative<ExitTask>(exit));
  EXPECT_EQ(std::get<ExitTask>(exit).reason, "another config");
  EXPECT_TRUE(std::get<ExitTask>(exit).refused);
}

// Its own coordinator is back, and the run is over: that is what it ends with, and no error.
TEST_F(SessionShellInWorlds, ARefusalThatItHasWaitedThroughIsNotWhyItEnds) {
  link_.Tell(WorldOf(1));
  EXPECT_EQ(NextGeneration(), 1u);
  link_.Tell(RefusedMessage{.reason = "another run", .other_run = true});
  link_.Connect();
  link_.Tell(EndMessage{.exit_code = 0, .reason = "done"});
  const WorkerTask exit = shell_.NextTask().task;
  ASSERT_TRUE(std::holds_alternative<ExitTask>(exit));
  EXPECT_EQ(std::get<ExitTask>(exit).reason, "done");
  EXPECT_FALSE(std::get<ExitTask>(exit).refused);
}

/// A worker by hand, in its first world, whose coordinator may be away for a millisecond.
class AloneInAWorld : public testing::Test {
 protected:
  AloneInAWorld() {
    link_.Connect();
    link_.Tell(WelcomeMessage{7});
    link_.Tell(WorldOf(1));
  }

  static SessionShell::Options OptionsOfOne() {
    SessionShell::Options options = Options();
    options.coordinator_timeout = std::chrono::milliseconds(1);
    options.is_alone = true;
    return options;
  }

  ScriptedLink link_;
  const StepProgress progress_;
  SessionShell shell_{OptionsOfOne(), link_, progress_};
};

// The task at work is one that waits for its peers.
TEST_F(AloneInAWorld, EndsAfterAStopWhenItsCoordinatorIsAwayForLong) {
  const SessionShell::Next recover = shell_.NextTask();
  shell_.AskForStop(15);
  link_.Disconnect();
  const WorkerTask exit = shell_.NextTask().task;
  ASSERT_TRUE(std::holds_alternative<ExitTask>(exit));
  EXPECT_EQ(std::get<ExitTask>(exit).exit_code, 143);
  EXPECT_TRUE(recover.stop.stop_requested());
}

TEST_F(AloneInAWorld, SaysThatItHasLostItsCoordinatorAndEndsWithoutAStop) {
  testing::internal::CaptureStderr();
  const SessionShell::Next recover = shell_.NextTask();
  link_.Disconnect();
  const WorkerTask exit = shell_.NextTask().task;
  ASSERT_TRUE(std::holds_alternative<ExitTask>(exit));
  EXPECT_EQ(std::get<ExitTask>(exit).exit_code, 75);
  EXPECT_TRUE(recover.stop.stop_requested());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("start the coordinator again"), std::string::npos);
}

// The connection goes after the last word.
TEST(SessionShell, OneThatIsAloneDoesNotWaitWhenTheRunHasEnded) {
  testing::internal::CaptureStderr();
  ScriptedLink link;
  const StepProgress progress;
  SessionShell::Options options = Options();
  options.is_alone = true;
  SessionShell shell(options, link, progress);
  link.Connect();
  link.Tell(WelcomeMessage{7});
  link.Tell(EndMessage{.exit_code = 0, .reason = "done"});
  link.Disconnect();
  EXPECT_TRUE(std::holds_alternative<ExitTask>(shell.NextTask().task));
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("has lost its coordinator"), std::string::npos);
}

TEST(SessionShell, OneOfAnAgentIsEndedByThat) {
  ScriptedLink link;
  const StepProgress progress;
  SessionShell::Options options = Options();
  options.coordinator_timeout = std::chrono::milliseconds(1);
  SessionShell shell(options, link, progress);
  link.Connect();
  link.Tell(WelcomeMessage{7});
  link.Tell(WorldOf(1));
  shell.NextTask();
  link.Disconnect();
  const int before = link.Count<HeartbeatMessage>();
  while (link.Count<HeartbeatMessage>() < before + 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  link.Connect();
  link.Tell(WorldOf(2));
  EXPECT_TRUE(std::holds_alternative<RecoverTask>(shell.NextTask().task));
}

/// For longer than it has to end its task.
[[noreturn]] void BeFrozenWhileATaskIsToEnd(std::chrono::milliseconds kill_timeout) {
  ScriptedLink link;
  const StepProgress progress;
  SessionShell::Options options = Options();
  options.heartbeat_interval = std::chrono::milliseconds(20);
  options.kill_timeout = kill_timeout;
  SessionShell shell(options, link, progress);
  link.Connect();
  link.Tell(WorldOf(1));
  const SessionShell::Next recover = shell.NextTask();
  while (link.Count<HeartbeatMessage>() == 0) usleep(1000);  // else it has not begun to watch
  link.Tell(WorldOf(2));
  const pid_t frozen = getpid();
  const pid_t freezer = fork();
  if (freezer == 0) {
    kill(frozen, SIGSTOP);
    std::this_thread::sleep_for(2 * kill_timeout);
    kill(frozen, SIGCONT);
    _exit(0);
  }
  waitpid(freezer, nullptr, 0);
  const int beats = link.Count<HeartbeatMessage>();
  while (link.Count<HeartbeatMessage>() < beats + 2) usleep(1000);
  _exit(recover.stop.stop_requested() ? 0 : 1);
}

// On a busy machine it may take all of its time to run for a moment: again with more of it.
[[noreturn]] void OutliveAFreeze() {
  for (std::chrono::seconds kill_timeout(1); kill_timeout < std::chrono::seconds(30); kill_timeout *= 4) {
    const pid_t attempt = fork();
    if (attempt == 0) BeFrozenWhileATaskIsToEnd(kill_timeout);
    int status = 0;
    waitpid(attempt, &status, 0);
    if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
  }
  _exit(2);
}

TEST(SessionShellDeathTest, TimeInWhichItWasFrozenIsNotItsTasks) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(OutliveAFreeze(), testing::ExitedWithCode(0), "");
}

int CountIn(const std::string& text, const std::string& what) {
  int count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// It asks again each second, for an hour.
TEST_F(SessionShellInWorlds, ARefusalIsLoggedOnceAndWhenItIsAnotherOne) {
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) link_.Tell(RefusedMessage{.reason = "it leads run b", .other_run = true});
  link_.Tell(RefusedMessage{.reason = "it leads run c", .other_run = true});
  link_.Tell(WelcomeMessage{7});
  link_.Tell(RefusedMessage{.reason = "it leads run c", .other_run = true});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(CountIn(log, "refused by the coordinator: it leads run b"), 1) << log;
  EXPECT_EQ(CountIn(log, "refused by the coordinator: it leads run c"), 2) << log;
}

// In a process of a user who may have no other thread.
TEST(SessionShellDeathTest, WithoutAThreadItsLinkIsStopped) {
  if (const char* why = WhyNoUserWithFewThreads()) GTEST_SKIP() << why;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto start = [] {
    BecomeAUserWhoMayHaveThreads(1);
    ScriptedLink link;
    try {
      const StepProgress progress;
      const SessionShell shell(Options(), link, progress);
    } catch (const std::system_error&) {
      _exit(link.stopped() ? 0 : 1);
    }
    _exit(3);
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(0), "");
}

TEST(SessionShellDeathTest, ATaskThatDoesNotEndEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ScriptedLink link;
        const StepProgress progress;
        SessionShell::Options options = Options();
        options.kill_timeout = std::chrono::milliseconds(1);
        SessionShell shell(options, link, progress);
        link.Connect();
        link.Tell(WorldOf(1));
        shell.NextTask();
        shell.SetPhase(Phase::kTransfer, 1);
        link.Tell(WorldOf(2));
        while (true) pause();
      },
      testing::KilledBySignal(SIGABRT), "the transfer phase");
}

}  // namespace
}  // namespace holdfast
