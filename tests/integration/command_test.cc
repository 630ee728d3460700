// Proves that the process runner the integration tests stand on reports what happened.

#include "tests/integration/command.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/paths.h"

namespace holdfast::integration {

TEST(Command, ReportsExitCodeAndOutput) {
  const CommandResult version = RunHoldfast({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_FALSE(version.output.empty());
  EXPECT_EQ(RunHoldfast({"no-such-command"}).exit_code, 2);
  EXPECT_EQ(RunHoldfast({}).exit_code, 2);
}

// A run that never says what a test waits for prints its steps for ever.
TEST(Command, WhatPrintsOtherThingsForEverIsNotWaitedForLonger) {
  Command endless({"-c", "while :; do echo step; done"}, "/bin/bash");
  EXPECT_FALSE(endless.WaitForOutput("done", /*seconds=*/0.5));
  EXPECT_EQ(endless.Wait().exit_code, 128 + SIGKILL);
}

// A script that keeps what a command prints must not take a part of it for all.
TEST(Command, OutputThatIsLostIsAFailure) {
  const std::string binary = TestedBinary();
  EXPECT_EQ(std::system((binary + " --help > /dev/null").c_str()), 0);
  for (const char* command : {" --help", " scaling --help"}) {
    const int status = std::system((binary + command + " > /dev/full 2> /dev/null").c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1) << command;
  }
}

// It waits for a pipe that nobody writes to, and has begun its output.
TEST(Command, APackThatIsStoppedLeavesNoFile) {
  std::signal(SIGINT, SIG_DFL);  // a shell without job control has it ignored
  const TemporaryDirectory directory;
  const std::string pipe = directory / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& [signal, words] : {std::pair(SIGINT, "SIGINT (Ctrl-C)"), {SIGTERM, "SIGTERM"}}) {
    Command pack({"data", "pack", pipe, "--out", directory / "out.bin"});
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kTestTimeoutSeconds);
    while (directory.List().size() == 1) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::yield();
    }
    pack.Signal(signal);
    const CommandResult result = pack.Wait();
    EXPECT_EQ(result.exit_code, 128 + signal) << result.output;
    EXPECT_NE(result.output.find(std::string("stopped by ") + words + "; no token file was written"), std::string::npos)
        << result.output;
    EXPECT_EQ(directory.List(), std::vector<std::string>{"pipe"}) << signal;
  }
}

}  // namespace holdfast::integration
