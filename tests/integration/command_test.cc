// Proves that the process runner the integration tests stand on reports what happened.

#include "tests/integration/command.h"

#include "gtest/gtest.h"

namespace holdfast::integration {

TEST(Command, ReportsExitCodeAndOutput) {
  const CommandResult version = RunHoldfast({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_FALSE(version.output.empty());
  EXPECT_EQ(RunHoldfast({"no-such-command"}).exit_code, 2);
  EXPECT_EQ(RunHoldfast({}).exit_code, 2);
}

}  // namespace holdfast::integration
