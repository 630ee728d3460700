// The script that makes a build's id says nothing: a warning would stand in every build's output.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/integration/command.h"
#include "tests/paths.h"

namespace holdfast::integration {
namespace {

TEST(BuildId, IsMadeWithoutAWord) {
  const TemporaryDirectory directory;
  const std::string made = directory.path() + "/build_id.cc";
  const CommandResult result =
      Command({"-c", "cd \"$0\" && cmake -D OUT=\"$1\" -P tools/cmake/BuildId.cmake", SourceDir(), made}, "/bin/sh")
          .Wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "");
  EXPECT_THAT(ReadAll(made), testing::ContainsRegex("return \"[0-9a-f]{16}\";"));
}

}  // namespace
}  // namespace holdfast::integration
