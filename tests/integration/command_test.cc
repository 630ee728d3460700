// Proves that the process runner the integration tests stand on reports what happened.

#include "tests/integration/command.h"

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "tests/paths.h"

namespace holdfast::integration {

TEST(Command, ReportsExitCodeAndOutput) {
  const CommandResult version = RunHoldfast({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_FALSE(version.output.empty());
  EXPECT_EQ(RunHoldfast({"no-such-command"}).exit_code, 2);
  EXPECT_EQ(RunHoldfast({}).exit_code, 2);
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

}  // namespace holdfast::integration
