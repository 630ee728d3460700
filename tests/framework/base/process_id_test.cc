// Proves whether a process that was written down still runs, and that nobody guesses where that cannot be seen.
#include "framework/base/process_id.h"

#include <sys/wait.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(ProcessId, IsReadAsItWasWritten) {
  const ProcessId here = ThisProcess();
  EXPECT_EQ(here.pid, getpid());
  EXPECT_GT(here.started, 0);
  EXPECT_FALSE(here.boot.empty() || here.numbers.empty() || here.host.empty());
  EXPECT_EQ(ParseProcessId(ToText(here)), here);
  EXPECT_EQ(ParseProcessId("host=a\nboot=b").host, "a") << "on one line again";
  for (const char* text : {"", "\n", "nonsense", "pid=", "pid=x boot=a", "=", "pid=1 started=99999999999999999999"}) {
    EXPECT_EQ(ParseProcessId(text), ProcessId{}) << text;
  }
}

TEST(ProcessId, LivesUntilItEnds) {
  EXPECT_EQ(LifeOf(ThisProcess()), Life::kAlive);
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = ToText(ThisProcess());
    _exit(write(told[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  char text[1024] = {};
  ASSERT_GT(read(told[0], text, sizeof text - 1), 0);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(LifeOf(ParseProcessId(text)), Life::kDead) << "a zombie";
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(LifeOf(ParseProcessId(text)), Life::kDead);
  close(told[0]), close(told[1]);
}

TEST(ProcessId, ANumberThatIsUsedAgainIsAnotherProcess) {
  ProcessId before = ThisProcess();
  --before.started;
  EXPECT_EQ(LifeOf(before), Life::kDead);
}

TEST(ProcessId, WhatCannotBeSeenIsUnknown) {
  const auto life = [](auto change) {
    ProcessId process = ThisProcess();
    process.pid = 1 << 30;  // of no process here
    change(process);
    return LifeOf(process);
  };
  EXPECT_EQ(life([](ProcessId&) {}), Life::kDead);
  EXPECT_EQ(life([](ProcessId& p) { p.boot = "another machine's"; }), Life::kUnknown);
  EXPECT_EQ(life([](ProcessId& p) { p.numbers = "pid:[1]"; }), Life::kUnknown) << "a container's";
  EXPECT_EQ(life([](ProcessId& p) { p.boot = ""; }), Life::kUnknown);
  EXPECT_EQ(life([](ProcessId& p) { p.numbers = ""; }), Life::kUnknown);
  EXPECT_EQ(life([](ProcessId& p) { p.pid = 0; }), Life::kUnknown);
}

}  // namespace
}  // namespace holdfast
