// Proves the oneDNN backend, forced, with fp32 operands, as gemm_test.cc does for the one chosen by itself.

#include "framework/base/thread_pool.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/kernels/gemm_test_util.h"

namespace holdfast::kernels {
namespace {

class BackendDevice final : public TestDevice {
 public:
  BackendDevice(GemmBackend backend, int num_threads) : pool_(num_threads), ops_(pool_, backend) {}
  Ops& ops() override { return ops_; }
  void Synchronize() override {}

 private:
  ThreadPool pool_;
  CpuOps ops_;
};

TestOps With(GemmBackend backend, int num_threads) {
  return TestOps(std::make_unique<BackendDevice>(backend, num_threads));
}

TEST(GemmOneDnnTest, MatchesDoublePrecision) {
  Rng rng(NewSeed());
  TestOps ops = With(GemmBackend::kOneDnn, 2);
  for (const Case& c : Cases()) ExpectCorrect(ops, c, rng);
  ExpectCorrect(ops, {.m = 300, .n = 600, .k = 40, .accumulate = true, .bias = true}, rng);
  ExpectCorrect(ops, {.m = 30, .n = 60, .k = 40, .bias = true, .gelu = true, .keep_input = true}, rng);
}

TEST(GemmOneDnnTest, IsWhatRuns) {  // the two backends sum in different orders, which shows somewhere
  Rng rng(NewSeed());
  TestOps onednn = With(GemmBackend::kOneDnn, 1), own = With(GemmBackend::kOwn, 1);
  const Problem problem({.m = 100, .n = 100, .k = 2000}, rng);
  EXPECT_NE(Product(onednn, problem), Product(own, problem));
}

TEST(GemmOneDnnTest, BitsDoNotDependOnThreads) {
  Rng rng(NewSeed());
  const Case weight_gradient = {.m = 64, .n = 64, .k = 9000, .transpose_a = true, .accumulate = true};
  for (const Case& c : {weight_gradient, Case{.m = 600, .n = 700, .k = 100, .transpose_b = true}}) {
    const Problem problem(c, rng);
    std::vector<float> first;
    for (int threads : kThreadCounts) {
      TestOps ops = With(GemmBackend::kOneDnn, threads);
      const std::vector<float> bits = Product(ops, problem);
      if (first.empty()) first = bits;
      EXPECT_EQ(bits, first) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace holdfast::kernels
