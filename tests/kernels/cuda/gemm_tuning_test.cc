// Proves on a GPU that tuning tells each kind of product once, that a device with the table takes the algorithms that
// were found and computes right with them, and that a table which does not fit is an error. Which is faster is not
// looked at: clocks differ.

#include <sstream>
#include <string>

#include "framework/tensor/cuda_device.h"
#include "gmock/gmock.h"
#include "tests/kernels/gemm_test_util.h"

namespace holdfast::kernels {
namespace {

using ::testing::HasSubstr;

const Case kCases[] = {
    {.m = 256, .n = 512, .k = 128, .transpose_b = true, .in = DType::kBF16, .out = DType::kBF16, .bias = true},
    {.m = 256, .n = 512, .k = 128, .transpose_a = true, .in = DType::kBF16, .out = DType::kF32},
    {.m = 33, .n = 17, .k = 65, .in = DType::kF32, .out = DType::kBF16, .gelu = true},  // in steps
};

/// Runs all cases twice on a device with `options`.
absl::Status RunAll(const CudaDeviceOptions& options) {
  Rng rng(NewSeed());
  auto device = MakeCudaDevice(0, options);
  if (!device.ok()) return device.status();
  const auto stream = (*device)->CreateStream().value();
  for (int round = 0; round < 2; ++round) {
    for (const Case& c : kCases) {
      Problem problem(c, rng);
      std::vector<double> expected = problem.Expected();
      stream->ops().Gemm(problem.Args());
      const absl::Status status = stream->Synchronize();
      if (!status.ok()) return status;
      for (double& x : expected) x = c.gelu ? ReferenceGelu(x) : x;
      EXPECT_LE(MaxError(problem.out.Values(), expected, std::sqrt(static_cast<double>(c.k))), Tolerance(c.k, c.out))
          << c.Name();
    }
  }
  return absl::OkStatus();
}

TEST(GemmTuning, ATableOfWhatWasFoundIsTaken) {
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
  EXPECT_EQ(table.size(), 3u);
  const absl::Status status = RunAll({.gemm_table = table.Print(GemmLibraryVersion())});
  EXPECT_TRUE(status.ok()) << status;

  GemmTable broken;  // every product is pinned to what is no algorithm at all
  std::istringstream lines(table.Print(GemmLibraryVersion()));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) broken.Pin(line.substr(0, line.find(' ')), {~uint64_t{0}});
  EXPECT_THAT(RunAll({.gemm_table = broken.Print(GemmLibraryVersion())}).message(), HasSubstr("holdfast tune"));
}

TEST(GemmTuning, ATableOfAnotherLibraryIsRefused) {
  const absl::Status status = RunAll({.gemm_table = GemmTable().Print(GemmLibraryVersion() + 1)});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("it is for version"));
}

}  // namespace
}  // namespace holdfast::kernels
