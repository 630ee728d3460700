// Real processes (small shell scripts) under an agent: killed, frozen, crashing, ending; and the agent itself killed.
// Nothing may be left behind: no process, no zombie, no file descriptor.

#include "elastic/agent/agent.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTestTimeout(120);  // no measure of speed: a busy machine is far from needing it

bool WaitFor(const std::function<bool()>& condition) {
  for (const auto end = Clock::now() + kTestTimeout; Clock::now() < end; usleep(2000)) {
    if (condition()) return true;
  }
  return false;
}

/// "" if there is no such process.
std::string StateOf(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  file >> number >> name >> state;
  return state;
}

bool IsAlive(int pid) {
  const std::string state = StateOf(pid);
  return !state.empty() && state != "Z" && state != "X";
}

void Freeze(int pid) {
  kill(pid, SIGSTOP);
  ASSERT_TRUE(WaitFor([&] { return StateOf(pid) == "T"; }));
}

int CountOpenFiles() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

class AgentTest : public ::testing::Test {
 protected:
  AgentTest() {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  ~AgentTest() override {
    std::filesystem::remove_all(directory_);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
    EXPECT_EQ(errno, ECHILD);
  }

  std::string LogPath(int i = 0) const { return directory_ + "/" + std::to_string(i) + ".log"; }
  std::string Log(int i = 0) const {
    std::stringstream text;
    text << std::ifstream(LogPath(i)).rdbuf();
    return text.str();
  }
  ChildCommand Script(const std::string& script, int i = 0) const {
    return {"w/" + std::to_string(i), {"/bin/sh", "-c", script}, {}, LogPath(i)};
  }
  /// Workers write their pid first.
  ChildCommand Sleeper(int i = 0) const { return Script("echo $$; exec sleep 1000", i); }
  int WaitForPid(int nth = 1, int i = 0) const {
    int pid = 0;
    WaitFor([&] {
      std::stringstream lines(Log(i));
      std::string line;
      int seen = 0;
      while (seen < nth && std::getline(lines, line) && !lines.eof()) ++seen;
      if (seen == nth) pid = std::atoi(line.c_str());
      return seen == nth;
    });
    return pid;
  }
  std::function<void(const WorkerExit&)> Record() {
    return [this](const WorkerExit& exit) {
      const std::lock_guard lock(mutex_);
      exits_.push_back(exit);
    };
  }
  std::vector<WorkerExit> exits() {
    const std::lock_guard lock(mutex_);
    return exits_;
  }
  WorkerExit OnlyExitOf(const std::string& script) {
    Agent agent({.max_restarts = 0}, {Script(script)}, Record());
    EXPECT_TRUE(agent.WaitUntilAllEnded(kTestTimeout));
    EXPECT_EQ(exits().size(), 1u);
    return exits().empty() ? WorkerExit{} : exits()[0];
  }

  const std::string directory_ = ::testing::TempDir() + "/agent_test." + std::to_string(getpid());

 private:
  std::mutex mutex_;
  std::vector<WorkerExit> exits_;
};

TEST_F(AgentTest, KilledWorkerIsNoticedAndStartedAgain) {
  Agent agent({}, {Sleeper()}, Record());
  const int first = WaitForPid(1);
  kill(first, SIGKILL);
  ASSERT_TRUE(WaitFor([&] { return !exits().empty(); }));
  EXPECT_EQ(exits()[0].name, "w/0");
  EXPECT_EQ(exits()[0].cause, "killed by signal 9 (Killed)");
  EXPECT_EQ(exits()[0].exit_code, 137);
  EXPECT_FALSE(exits()[0].stopped);
  EXPECT_TRUE(exits()[0].restarting);
  const int second = WaitForPid(2);
  EXPECT_NE(second, first);
  EXPECT_TRUE(IsAlive(second));
  EXPECT_FALSE(IsAlive(first));
}

TEST_F(AgentTest, EveryProcessHasANumberOfItsOwn) {
  Agent agent({}, {Script("echo $HOLDFAST_INCARNATION; exec sleep 1000")}, Record());
  ASSERT_TRUE(WaitFor([&] { return !Log().empty(); }));
  agent.Stop(SIGKILL, 0ms);
  EXPECT_EQ(Log(), std::to_string(exits()[0].incarnation) + "\n");
  EXPECT_NE(exits()[0].incarnation, 0u);
}

TEST_F(AgentTest, SaysWhyAWorkerEnded) {
  EXPECT_EQ(OnlyExitOf("echo fine; echo 'the disk is full'; echo; exit 1").cause, "exit code 1: the disk is full");
}
TEST_F(AgentTest, AProgressBarIsNotTheCause) {
  EXPECT_EQ(OnlyExitOf("printf 'step 1\\rstep 2\\rfailed\\n'; exit 1").cause, "exit code 1: failed");
}
TEST_F(AgentTest, TheCauseIsPrintable) {
  EXPECT_EQ(OnlyExitOf("printf 'bad \\033[31m\\377 byte'; exit 3").cause, "exit code 3: bad ?[31m? byte");
}
TEST_F(AgentTest, ASilentEndIsNamedToo) { EXPECT_EQ(OnlyExitOf("exit 4").cause, "exit code 4"); }
TEST_F(AgentTest, ACrashQuotesItsLastWords) {
  EXPECT_EQ(OnlyExitOf("echo 'check failed: x'; kill -ABRT $$").cause, "killed by signal 6 (Aborted): check failed: x");
}
TEST_F(AgentTest, ABinaryThatIsNotThereIsNamed) {
  Agent agent({.max_restarts = 0}, {{"w/0", {"/nowhere/holdfast"}, {}, LogPath()}}, Record());
  ASSERT_TRUE(agent.WaitUntilAllEnded(kTestTimeout));
  EXPECT_EQ(exits()[0].cause, "exit code 127: cannot execute the worker's binary");
}
// Its log may be where it cannot be written, as in a run directory that is missing: it is not made, as it may come
// back. The directory of logs in it is.
TEST_F(AgentTest, AWorkerThatCannotBeStartedIsNamedAndTriedAgain) {
  ChildCommand command = Script("exit 0");
  command.log_path = directory_ + "/none/logs/0.log";
  testing::internal::CaptureStderr();
  Agent agent({.max_backoff = 20ms}, {command}, Record());
  EXPECT_TRUE(WaitFor([&] { return exits().size() >= 2; }));
  std::filesystem::create_directory(directory_ + "/none");
  EXPECT_TRUE(agent.WaitUntilAllEnded(kTestTimeout));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::ContainsRegex("worker w/0 cannot be started, and is tried again: .*none/logs/0.log"));
  EXPECT_EQ(exits().back().exit_code, 0);
}

TEST_F(AgentTest, OldLinesOfTheLogAreNotTheCause) {
  std::ofstream(LogPath()) << "an earlier life\n";
  EXPECT_EQ(OnlyExitOf("exit 1").cause, "exit code 1");
  EXPECT_THAT(Log(), HasSubstr("an earlier life"));  // appended to, not replaced
}

TEST_F(AgentTest, MeantEndsAreNotRestarted) {
  for (const int code : {0, 2, 143}) {
    Agent agent({}, {Script("exit " + std::to_string(code))}, Record());
    ASSERT_TRUE(agent.WaitUntilAllEnded(kTestTimeout)) << code;
    EXPECT_FALSE(exits().back().restarting) << code;
    EXPECT_EQ(exits().back().exit_code, code);
  }
  EXPECT_EQ(exits().size(), 3u);
}

TEST_F(AgentTest, ACrashLoopSlowsDownAndIsGivenUp) {
  const auto begin = Clock::now();
  Agent agent({.max_restarts = 5, .first_backoff = 50ms, .max_backoff = 200ms, .short_life = kTestTimeout},
              {Script("exit 1")}, Record());
  ASSERT_TRUE(agent.WaitUntilAllEnded(kTestTimeout));
  EXPECT_GE(Clock::now() - begin, 0ms + 50ms + 100ms + 200ms + 200ms);
  ASSERT_EQ(exits().size(), 6u);
  for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(exits()[i].restarting);
  EXPECT_FALSE(exits()[5].restarting);
}

TEST_F(AgentTest, WhoLivedLongEnoughIsStartedAgainAtOnce) {
  Agent agent({.max_restarts = 3, .first_backoff = 60s, .max_backoff = 60s, .short_life = 50ms},
              {Script("sleep 0.2; exit 1")}, Record());
  EXPECT_TRUE(agent.WaitUntilAllEnded(kTestTimeout));  // with any backoff it would take a minute
  EXPECT_EQ(exits().size(), 4u);
}

TEST_F(AgentTest, StopLetsWorkersEndThemselves) {
  Agent agent({}, {Script("trap 'echo saved; exit 143' TERM; echo $$; while :; do sleep 0.01; done")}, Record());
  WaitForPid();
  agent.Stop(SIGTERM, kTestTimeout);
  EXPECT_THAT(Log(), HasSubstr("saved"));
  ASSERT_EQ(exits().size(), 1u);
  EXPECT_EQ(exits()[0].exit_code, 143);
  EXPECT_FALSE(exits()[0].restarting);
}

TEST_F(AgentTest, AskingWakesTheFrozen) {
  Agent agent({}, {Sleeper(0), Sleeper(1)}, Record());
  Freeze(WaitForPid(1, 0));
  WaitForPid(1, 1);
  agent.Ask(SIGTERM);
  ASSERT_TRUE(agent.WaitUntilAllEnded(kTestTimeout));
  ASSERT_EQ(exits().size(), 2u);
  for (const WorkerExit& exit : exits()) {
    EXPECT_EQ(exit.cause, "killed by signal 15 (Terminated)");
    EXPECT_TRUE(exit.stopped);
  }
}

// Those that have ignore the signal.
TEST_F(AgentTest, EndsThoseThatHaveNotBegunToJoin) {
  Agent agent({}, {Script("trap '' USR2; echo $$; exec sleep 1000", 0), Sleeper(1)}, Record());
  const int joined = WaitForPid(1, 0);
  WaitForPid(1, 1);
  agent.EndThoseNotJoined();
  ASSERT_TRUE(WaitFor([&] { return !exits().empty(); }));
  agent.Stop(SIGTERM, kTestTimeout);
  ASSERT_EQ(exits().size(), 2u);
  EXPECT_EQ(exits()[0].name, "w/1");
  EXPECT_TRUE(exits()[0].stopped) << "no error";
  EXPECT_FALSE(exits()[0].restarting);
  EXPECT_EQ(exits()[1].cause, "killed by signal 15 (Terminated)");
  EXPECT_FALSE(IsAlive(joined));
}

// It would look for a coordinator that is gone, for all of the grace. One that was woken before it is asked as any
// other.
TEST_F(AgentTest, StopKillsTheFrozenAtOnce) {
  const auto saver = [this](int i) { return Script("trap 'exit 143' TERM; echo $$; while :; do sleep 0.01; done", i); };
  Agent agent({}, {saver(0), saver(1)}, Record());
  Freeze(WaitForPid(1, 0));
  const int woken = WaitForPid(1, 1);
  Freeze(woken);
  kill(woken, SIGCONT);
  ASSERT_TRUE(WaitFor([&] { return StateOf(woken) != "T"; }));
  agent.Stop(SIGTERM, kTestTimeout);
  std::map<std::string, int> exit_codes;
  for (const WorkerExit& exit : exits()) exit_codes[exit.name] = exit.exit_code;
  EXPECT_THAT(exit_codes, ElementsAre(Pair("w/0", 137), Pair("w/1", 143)));
}

TEST_F(AgentTest, StopKillsTheDeafAfterTheGrace) {
  Agent agent({}, {Script("trap '' TERM; echo $$; while :; do sleep 0.01; done")}, Record());
  WaitForPid();
  const auto begin = Clock::now();
  agent.Stop(SIGTERM, 200ms);
  EXPECT_GE(Clock::now() - begin, 200ms);
  ASSERT_EQ(exits().size(), 1u);
  EXPECT_EQ(exits()[0].exit_code, 137);
  EXPECT_FALSE(exits()[0].stopped) << "an operator is to know of it";
}

TEST_F(AgentTest, StopDuringABackoffStartsNobody) {
  Agent agent({.first_backoff = 10min, .max_backoff = 10min, .short_life = kTestTimeout}, {Script("exit 1")}, Record());
  ASSERT_TRUE(WaitFor([&] { return exits().size() == 2; }));  // the first restart comes at once
  agent.Stop(SIGTERM, kTestTimeout);
  EXPECT_EQ(exits().size(), 2u);
}

TEST_F(AgentTest, WhatAWorkerStartedEndsWithIt) {
  Agent agent({.max_restarts = 0}, {Script("sleep 1000 & echo $!; exit 1")}, Record());
  ASSERT_TRUE(agent.WaitUntilAllEnded(kTestTimeout));
  const int grandchild = WaitForPid();
  EXPECT_TRUE(WaitFor([&] { return !IsAlive(grandchild); }));
}

// The kernel has to do it: the agent's process gets no chance to. Adopting what is orphaned makes its end visible.
TEST_F(AgentTest, NoWorkerOutlivesAKilledAgent) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const int supervisor = fork();
  if (supervisor == 0) {
    Agent agent({}, {Sleeper(0), Sleeper(1), Script("trap '' TERM HUP; echo $$; while :; do sleep 0.01; done", 2)},
                [](const WorkerExit&) {});
    for (;;) pause();
  }
  std::vector<int> pids;
  for (int i = 0; i < 3; ++i) pids.push_back(WaitForPid(1, i));
  for (const int pid : pids) ASSERT_TRUE(IsAlive(pid));
  kill(supervisor, SIGKILL);
  for (const int pid : pids) EXPECT_TRUE(WaitFor([&] { return !IsAlive(pid); })) << pid;
  while (waitpid(-1, nullptr, 0) > 0) {
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_F(AgentTest, WorkersInheritNothing) {
  const int leaky = open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  signal(SIGPIPE, SIG_IGN);
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  {
    Agent agent({}, {Script("ls /proc/$$/fd; ps -o pgid= -p $$; echo $$"), Script("exec cat /proc/self/status", 1)},
                Record());
    ASSERT_TRUE(agent.WaitUntilAllEnded(kTestTimeout));
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  signal(SIGPIPE, SIG_DFL);
  close(leaky);
  std::stringstream words(Log());
  const std::vector<std::string> all{std::istream_iterator<std::string>(words), {}};
  ASSERT_EQ(all.size(), 5u) << Log();
  EXPECT_THAT(std::vector(all.begin(), all.begin() + 3), ElementsAre("0", "1", "2"));
  EXPECT_EQ(all[3], all[4]) << "not the leader of a process group of its own";
  EXPECT_THAT(Log(1), HasSubstr("SigBlk:\t0000000000000000"));
  EXPECT_THAT(Log(1), HasSubstr("SigIgn:\t0000000000000000"));
}

TEST_F(AgentTest, RestartsLeakNoFileDescriptors) {
  const int before = CountOpenFiles();
  {
    Agent agent({.max_restarts = 30, .first_backoff = 1ms, .max_backoff = 1ms}, {Script("exit 1")}, Record());
    ASSERT_TRUE(agent.WaitUntilAllEnded(kTestTimeout));
    EXPECT_EQ(exits().size(), 31u);
  }
  EXPECT_EQ(CountOpenFiles(), before);
}

}  // namespace
}  // namespace holdfast
