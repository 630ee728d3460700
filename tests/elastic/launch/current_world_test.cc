// A model is not written by a world that is not the run's last one any more, as far as the run directory says so.

#include "elastic/launch/current_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "elastic/coordinator/coordinator_state.h"
#include "elastic/coordinator/run_id.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

TEST(CurrentWorld, IsTheLastThatTheRunDirectoryKnows) {
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  EXPECT_TRUE(CheckIsCurrent(directory, 17, 5).ok()) << "of one machine alone";
  const uint64_t run = RunIdOf(directory).value();
  EXPECT_TRUE(CheckIsCurrent(directory, run, 5).ok()) << "nothing is said yet";
  ASSERT_TRUE(WriteCoordinatorState(directory, {.generation = 6, .branch = {}}).ok());
  EXPECT_TRUE(CheckIsCurrent(directory, run, 6).ok());
  EXPECT_TRUE(CheckIsCurrent(directory, run, 7).ok()) << "what is read may be late";
  const absl::Status old = CheckIsCurrent(directory, run, 5);
  EXPECT_TRUE(absl::IsAborted(old)) << old;
  EXPECT_THAT(std::string(old.message()), testing::HasSubstr("generation 6 by now, and this process in 5"));
  EXPECT_TRUE(CheckIsCurrent(directory, run + 1, 5).ok()) << "another run's directory";
  EXPECT_TRUE(CheckIsCurrent(directory, 0, 5).ok()) << "who does not know which run it is of";
  std::ofstream(directory.coordinator_state()) << "damaged\n";
  EXPECT_TRUE(CheckIsCurrent(directory, run, 5).ok());
}

}  // namespace
}  // namespace holdfast
