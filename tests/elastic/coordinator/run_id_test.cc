// Proves that a run keeps its number, that another directory has another, and that a damaged one is not replaced.

#include "elastic/coordinator/run_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

TEST(RunId, IsMadeOnceForADirectory) {
  const TemporaryDirectory root, other_root;
  const absl::StatusOr<uint64_t> run = RunIdOf(RunDirectory(root.path()));
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_NE(*run, 0u);
  EXPECT_EQ(*RunIdOf(RunDirectory(root.path())), *run);
  EXPECT_NE(*RunIdOf(RunDirectory(other_root.path())), *run);
}

TEST(RunId, ThatIsDamagedIsAnError) {
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  for (const std::string text : {"", "12", "0000000000000000\n", "many\n"}) {
    std::ofstream(directory.run_id()) << text;
    const absl::StatusOr<uint64_t> run = RunIdOf(directory);
    EXPECT_TRUE(absl::IsDataLoss(run.status())) << text << run.status();
    EXPECT_THAT(std::string(run.status().message()), testing::HasSubstr("run_id is damaged; remove it"));
  }
}

}  // namespace
}  // namespace holdfast
