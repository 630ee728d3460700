// Proves that tests/cuda/check_gpu.sh makes its calls, part by part, in a bundle whose programs do nothing: that all of
// a dry run is made, that what fails or hangs is told and keeps nothing else from being run, and that each part leaves
// its outputs. What the programs do on a GPU only a GPU can show.

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/command.h"
#include "tests/paths.h"

namespace holdfast::integration {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Notes how it was called; fails or hangs where it is told to.
constexpr char kProgram[] = R"(#!/bin/bash
name=$(basename "$0")
echo "$name $*" >>"$CALLS"
if [[ $name == "$HANGING" ]]; then exec sleep 1000; fi
if [[ $name == "$FAILING" ]]; then echo "it broke"; exit 3; fi
if [[ $1 == data ]]; then echo tokens >"$5"; fi
)";
constexpr char kComparison[] = R"(import os, sys
with open(os.environ["CALLS"], "a") as calls:
    print("train_vs_pytorch.py", *sys.argv[1:], file=calls)
if "--out" in sys.argv:
    with open(sys.argv[sys.argv.index("--out") + 1], "w") as out:
        out.write("{}")
)";

class CheckGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/check_gpu_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    for (const char* program : {"holdfast", "tests/test_kernels_gpu", "tests/test_kernels_cuda", "tests/test_cuda",
                                "tests/test_framework_comm_cuda", "tests/kernels_gpu_bench"}) {
      WriteAll(root_ / "bundle" / program, kProgram);
      fs::permissions(root_ / "bundle" / program, fs::perms::owner_all);
    }
    WriteAll(root_ / "bundle/tests/train_vs_pytorch.py", kComparison);
    WriteAll(root_ / "bundle/libraries.sh", "");
    WriteAll(root_ / "bundle/bin/holdfast", "");
    fs::copy_file(fs::path(SourceDir()) / "tests/cuda/check_gpu.sh", root_ / "bundle/tests/check_gpu.sh");
  }
  void TearDown() override { fs::remove_all(root_); }

  CommandResult Run(const std::string& arguments, const std::string& failing = "", const std::string& hanging = "") {
    WriteAll(root_ / "run.sh",
             absl::StrCat("export PATH='", (root_ / "tools").string(), "':\"$PATH\" CALLS='",
                          (root_ / "calls").string(), "' FAILING='", failing, "' HANGING='", hanging, "'\n'",
                          (root_ / "bundle/tests/check_gpu.sh").string(), "' --device=cpu --results='",
                          (root_ / "results").string(), "' ", arguments));
    return Command({(root_ / "run.sh").string()}, "/bin/bash").Wait();
  }
  std::string Summary(int part) const { return ReadAll(root_ / "results" / std::to_string(part) / "summary.txt"); }

  fs::path root_;
};

TEST_F(CheckGpu, ADryRunMakesTheCallsOfEveryPart) {
  const CommandResult result = Run("all");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (int part = 1; part <= 7; ++part) EXPECT_THAT(Summary(part), HasSubstr(absl::StrCat("part ", part, ": ok")));
  const std::string calls = ReadAll(root_ / "calls");
  for (const char* call : {
           "holdfast --version",
           "test_kernels_cuda ",
           "test_kernels_gpu --gtest_filter=-GemmTest.ARowDoesNotDependOnTheNumberOfRows:GemmTest.Aligned",
           "test_kernels_gpu --gtest_filter=GemmTuning.ATableOfBrokenAlgorithmsIsAnError\n",
           "test_cuda --gtest_filter=CudaRun.LossesAreThoseOfTheCpu\n",
           "--set train.steps=10",
           "kernels_gpu_bench --out",
           "holdfast validate",
           "test_cuda --gtest_filter=CudaRun.ThirtyStepsOfGpt2TwiceAreEqual\n",
           "train_vs_pytorch.py --device cpu --model tiny_llama --shapes 2x64 --recompute none",
           "--only holdfast",
           "--only pytorch --variants bf16+compile",
           "train_vs_pytorch.py --table",
           "CudaRun.AThousandStepsTwiceAreEqual\n",
           "CudaRun.EveryWorldHasTheBitsOfTheWorldOfOne\n",
           "CudaRun.AKilledWorkerChangesNoBit\n",
           "CudaRun.ARunThatWasKilledGoesOnFromItsCheckpointInAnotherWorld\n",
           "--set checkpoint.every_steps=10 ",
           "--gtest_filter=Both/Shapes.*",
           ":ExpertBias.*:",
           "test_framework_comm_cuda ",
       }) {
    EXPECT_THAT(calls, HasSubstr(call));
  }
  for (const char* file : {"1/kernels.log", "2/tune_tiny_gpt2.log", "3/holdfast_tiny_gpt2_4x64.json", "5/worlds.log",
                           "6/racecheck.log", "7/nccl.log"}) {
    EXPECT_TRUE(fs::exists(root_ / "results" / file)) << file;
  }
}

TEST_F(CheckGpu, TablesOfPart2AreUsedInPart3) {
  WriteAll(root_ / "results/2/tiny_gpt2.gemm", "a table");
  const CommandResult result = Run("3");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(ReadAll(root_ / "calls"),
              HasSubstr("--gemm-table " + (root_ / "results/2/tiny_gpt2.gemm").string() + "\n"));
}

TEST_F(CheckGpu, WhatFailsIsToldAndTheRestIsRun) {
  const CommandResult result = Run("1 7", "test_kernels_cuda");
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("    it broke\n"));
  EXPECT_THAT(Summary(1), AllOf(HasSubstr("adamw_bits: FAILED, exit code 3"), HasSubstr("\nten_steps: ok"),
                                HasSubstr("\nbroken_algorithms: ok"), HasSubstr("\npart 1: FAILED\n")));
  EXPECT_THAT(Summary(7), HasSubstr("\npart 7: ok\n"));
}

TEST_F(CheckGpu, WhatHangsIsEndedWithItsPart) {
  for (int seconds = 3; Summary(5).find("steps_twice: FAILED") == std::string::npos; seconds *= 3) {
    ASSERT_LT(seconds, 250) << "all of them go by before it begins: " << Summary(5);
    const CommandResult result = Run(absl::StrCat("--seconds=", seconds, " 5"), "", "test_cuda");
    EXPECT_EQ(result.exit_code, 1) << result.output;
  }
  EXPECT_THAT(Summary(5), AllOf(HasSubstr("steps_twice: FAILED, not done after "), HasSubstr("\nworlds: NOT RUN"),
                                HasSubstr("\npart 5: FAILED\n")));
}

TEST_F(CheckGpu, AProfilerThatDoesNotWorkFailsNothing) {
  for (const int exit_code : {0, 1}) {
    WriteAll(root_ / "tools/ncu", absl::StrCat("#!/bin/bash\necho '==ERROR== no counters'\nexit ", exit_code, "\n"));
    fs::permissions(root_ / "tools/ncu", fs::perms::owner_all);
    const CommandResult result = Run("3");
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(Summary(3), AllOf(HasSubstr(absl::StrCat("profile: NOT RUN, ncu does not work here, exit code ",
                                                         exit_code, ": ==ERROR== no counters\n")),
                                  HasSubstr("part 3: ok, but for what was NOT RUN\n")));
  }
}

TEST_F(CheckGpu, UnknownPartsAreRefused) {
  for (const char* arguments : {"8", "--device=tpu 1", ""}) {
    const CommandResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_THAT(result.output, AllOf(HasSubstr("error: "), HasSubstr("see the head of"), Not(HasSubstr("== part"))));
  }
}

}  // namespace
}  // namespace holdfast::integration
