// Proves which recorded steps count when a coordinator is started again: those before the first that was given up, even
// if a later one is of a newer world, which would leave a hole.

#include <gtest/gtest.h>

#include <utility>

#include "elastic/coordinator/coordinator_shell.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

TEST(CoordinatorHistory, EndsBeforeTheFirstStepThatWasGivenUp) {
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  Branch branch;
  branch.GoBack({.generation = 7, .step = 20});
  ASSERT_TRUE(WriteCoordinatorState(directory, {8, branch}).ok());
  auto writer = JsonLinesWriter::Open(directory.metrics());
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const auto& [step, generation] : {std::pair{19, 3}, {20, 3}, {21, 7}, {22, 8}}) {
    StepMetrics line;
    line.step = step;
    line.generation = generation;
    ASSERT_TRUE(writer->Write(line.ToJson()).ok());
  }
  const auto history = ReadCoordinatorHistory(directory);
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(history->recorded_step, 20);
}

}  // namespace
}  // namespace holdfast
