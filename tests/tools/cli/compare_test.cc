// Proves what `holdfast compare` says of more than two runs, and what it draws; of two: framework/metrics, integration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/files.h"
#include "framework/metrics/run_directory.h"
#include "framework/storage/atomic_file.h"
#include "tests/framework/base/temporary_directory.h"
#include "tools/cli/compare_command.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class ManyRuns : public ::testing::Test {
 protected:
  std::string Run(const std::string& name, const std::vector<float>& losses) const {
    const RunDirectory run(directory_ / name);
    EXPECT_TRUE(run.Create(/*overwrite=*/false).ok());
    std::string lines;
    for (const float& loss : losses) {
      StepMetrics step;
      step.step = static_cast<int64_t>(&loss - losses.data()) + 1;
      step.loss = loss;
      absl::StrAppend(&lines, step.ToJson(), "\n");
    }
    EXPECT_TRUE(WriteFileAtomically(run.metrics(), lines).ok());
    return run.root();
  }

  const TemporaryDirectory directory_;
  const std::string a_ = Run("a", {3, 2}), same_ = Run("same", {3, 2, 1}), other_ = Run("other", {3, 2.5}),
                    empty_ = Run("empty", {});
};

TEST_F(ManyRuns, EachWithTheFirst) {
  const auto compare = [&](const std::vector<std::string>& others, int exit_code) {
    CompareCommand command;
    command.first = a_;
    command.others = others;
    testing::internal::CaptureStdout();
    const absl::StatusOr<int> result = command.Run();
    std::string said = testing::internal::GetCapturedStdout();
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result.value_or(-1), exit_code) << said;
    return said;
  };
  const std::string equal = absl::StrCat("A: ", a_, "\nB: ", same_, "\nequal: 2 steps");
  EXPECT_THAT(compare({same_}, kExitDone), HasSubstr(equal));
  EXPECT_THAT(compare({same_, same_}, kExitDone), HasSubstr(absl::StrCat("\n\n", equal)));
  const std::string differs = absl::StrCat("\n\nA: ", a_, "\nB: ", other_, "\ndifferent: step 2, loss_bits\n");
  EXPECT_THAT(compare({same_, other_}, kExitFailure), AllOf(HasSubstr(equal), HasSubstr(differs)));
  compare({other_, same_}, kExitFailure);
}

TEST_F(ManyRuns, AFileOfStepsStandsForItsRun) {
  CompareCommand command;
  command.first = RunDirectory(a_).metrics();
  command.others = {same_};
  EXPECT_EQ(command.Run().value_or(-1), kExitDone);
  command.others = {RunDirectory(other_).metrics()};
  EXPECT_EQ(command.Run().value_or(-1), kExitFailure);
  const std::string other_kind = directory_ / "other.yaml";
  ASSERT_TRUE(WriteFileAtomically(other_kind, "a: 1\nb: 2\n").ok());
  command.others = {other_kind};
  const std::string refusal(command.Run().status().message());
  EXPECT_THAT(refusal, AllOf(HasSubstr("other.yaml:1: "), Not(HasSubstr("mv ")))) << "it is no file of a run to mend";
  command.others = {directory_ / "none"};
  EXPECT_THAT(std::string(command.Run().status().message()), HasSubstr("none/metrics.jsonl: No such file"));
  command.others = {"/dev/null"};
  EXPECT_EQ(command.Run().status().message(), "error: /dev/null: a device, not a regular file");
  for (const char* name : {"sweep.yaml", "results.jsonl"}) ASSERT_TRUE(WriteFileAtomically(directory_ / name, "").ok());
  command.others = {directory_.path()};
  EXPECT_THAT(std::string(command.Run().status().message()),
              HasSubstr(directory_.path() + " holds a sweep, not a run"));
}

TEST_F(ManyRuns, NothingIsSaidOfRunsWithoutSteps) {
  CompareCommand command;
  command.first = a_;
  command.others = {same_, empty_};
  const absl::StatusOr<int> result = command.Run();
  EXPECT_TRUE(IsUsageError(result.status()));
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr(absl::StrCat(a_, " and ", empty_, ": the second run has no committed step")));
}

TEST_F(ManyRuns, AllLossesAreDrawn) {
  CompareCommand command;
  command.first = a_;
  command.others = {same_, other_};
  command.out = directory_ / "losses.svg";
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(command.Run().value_or(-1), kExitFailure) << "the second time over its own picture";
  }
  const std::string picture = *ReadFile(command.out, 1 << 20);
  for (const std::string& run : {a_, same_, other_}) EXPECT_THAT(picture, HasSubstr(absl::StrCat(">", run, "<")));
  command.out = directory_ / "none/losses.svg";
  testing::internal::CaptureStdout();
  EXPECT_FALSE(command.Run().ok());
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("equal: 2 steps")) << "what was found is said";
  command.out = directory_ / "notes.txt";
  ASSERT_TRUE(WriteFileAtomically(command.out, "mine").ok());
  EXPECT_THAT(std::string(command.Run().status().message()), EndsWith("no picture (SVG); give another name"));
  EXPECT_EQ(*ReadFile(command.out, 1 << 20), "mine");
}

}  // namespace
}  // namespace holdfast
