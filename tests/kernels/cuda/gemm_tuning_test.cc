// Proves on a GPU that tuning tells each kind of product once, that a device with the table takes the algorithms that
// were found and computes right with them, and that a table which does not fit is an error. Which is faster is not
// looked at: clocks differ. The CPU's stand-in for a GPU has nothing to tune.

#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "tests/kernels/cuda/gpu_test_device.h"
#include "tests/kernels/gemm_test_util.h"

namespace holdfast::kernels {
namespace {

using ::testing::HasSubstr;

const Case kCases[] = {
    {.m = 256, .n = 512, .k = 128, .transpose_b = true, .in = DType::kBF16, .out = DType::kBF16, .bias = true},
    {.m = 256, .n = 512, .k = 128, .transpose_a = true, .in = DType::kBF16, .out = DType::kF32, .aligned = true},
    {.m = 33, .n = 17, .k = 65, .in = DType::kF32, .out = DType::kBF16, .gelu = true},  // in steps
};

/// Runs all cases twice on a device with `options`.
absl::Status RunAll(const CudaDeviceOptions& options) {
  Rng rng(NewSeed());
  auto device = GpuTestDevice::Create(options);
  if (!device.ok()) return device.status();
  for (int round = 0; round < 2; ++round) {
    for (const Case& c : kCases) {
      Problem problem(c, rng);
      std::vector<double> expected = problem.Expected();
      (*device)->ops().Gemm(problem.Args());
      const absl::Status status = (*device)->Finish();
      if (!status.ok()) return status;
      for (double& x : expected) x = c.gelu ? ReferenceGelu(x) : x;
      EXPECT_LE(MaxError(problem.out.Values(), expected, std::sqrt(static_cast<double>(c.k))), Tolerance(c.k, c.out))
          << c.Name();
    }
  }
  return absl::OkStatus();
}

class GemmTuning : public ::testing::Test {
 protected:
  void SetUp() override {
    if (TestsRunOnCpu()) GTEST_SKIP() << "a CPU has nothing to tune";
  }

  /// The table that tuning all cases makes.
  static GemmTable Tune() {
    GemmTable table;
    int told = 0;
    const auto on_tuned = [&](const TunedGemm& gemm) {
      ++told;
      EXPECT_GT(gemm.ms, 0);
      EXPECT_LE(gemm.ms, gemm.preferred_ms);
      table.Pin(gemm.product, gemm.algorithm);
    };
    EXPECT_TRUE(RunAll({.gemm_table = "", .on_tuned = on_tuned}).ok());
    EXPECT_EQ(told, 3);
    return table;
  }
};

TEST_F(GemmTuning, ATableOfWhatWasFoundIsTaken) {
  const GemmTable table = Tune();
  EXPECT_EQ(table.size(), 3u);
  const absl::Status status = RunAll({.gemm_table = table.Print(GemmLibraryVersion())});
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(GemmTuning, ATableOfAnotherLibraryIsRefused) {
  const absl::Status status = RunAll({.gemm_table = GemmTable().Print(GemmLibraryVersion() + 1)});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("it is for version"));
}

// The library is handed what is no algorithm at all, and what it then does to its process is not ours to say:
// check_gpu.sh runs this test by itself, after all others.
TEST_F(GemmTuning, ATableOfBrokenAlgorithmsIsAnError) {
  GemmTable broken;
  std::istringstream lines(Tune().Print(GemmLibraryVersion()));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) broken.Pin(line.substr(0, line.find(' ')), {~uint64_t{0}});
  EXPECT_THAT(RunAll({.gemm_table = broken.Print(GemmLibraryVersion())}).message(), HasSubstr("holdfast tune"));
}

}  // namespace
}  // namespace holdfast::kernels
