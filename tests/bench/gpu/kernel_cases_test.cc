// Proves that the cases timed on a GPU are what their names and figures say: operations as the operations themselves
// are counted, bytes and shapes by hand, every call's arguments in order by making it on the CPU in small, and that
// tables and JSON have what was measured. Needs no GPU.

#include "tests/bench/gpu/kernel_cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "framework/base/thread_pool.h"
#include "models/counting_ops.h"
#include "tests/bench/gpu/figures.h"

namespace holdfast::kernels {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;

/// Addresses that nobody may look behind.
class NoMemory final : public Operands {
 public:
  using Operands::New;
  Matrix New(DType dtype, int64_t rows, int64_t cols, int64_t stride) override {
    return {&byte_, dtype, rows, cols, stride == 0 ? cols : stride};
  }
  const int32_t* Copy(const std::vector<int32_t>&) override { return reinterpret_cast<const int32_t*>(&byte_); }

 private:
  alignas(64) char byte_[64];
};

/// The CPU's memory, each operand an allocation of its own, so that a sanitizer sees its ends.
class CpuMemory final : public Operands {
 public:
  using Operands::New;
  Matrix New(DType dtype, int64_t rows, int64_t cols, int64_t stride) override {
    if (stride == 0) stride = cols;
    const auto bytes = static_cast<size_t>(rows * stride) * SizeOf(dtype);
    blocks_.emplace_back(std::aligned_alloc(64, (bytes + 63) / 64 * 64), &std::free);
    std::fill_n(static_cast<char*>(blocks_.back().get()), bytes, char{0x3d});  // about 0.05 in both types
    return {blocks_.back().get(), dtype, rows, cols, stride};
  }
  const int32_t* Copy(const std::vector<int32_t>& values) override { return integers_.emplace_back(values).data(); }

 private:
  std::deque<std::unique_ptr<void, decltype(&std::free)>> blocks_;
  std::deque<std::vector<int32_t>> integers_;
};

/// Only looks whether the matrices of a product fit.
class GemmShapes final : public ForwardingOps {
 public:
  void Gemm(const GemmArgs& args) override {
    const auto pair = [](const ConstMatrix& m, bool transpose) {
      return transpose ? std::pair(m.cols, m.rows) : std::pair(m.rows, m.cols);
    };
    const auto [m, k] = pair(args.a, args.transpose_a);
    const auto [k2, n] = pair(args.b, args.transpose_b);
    EXPECT_EQ(k, k2);
    EXPECT_EQ(m, args.c.rows);
    EXPECT_EQ(n, args.c.cols);
    for (const ConstMatrix& same : {ConstMatrix(args.pre_gelu), args.gelu_input}) {
      EXPECT_TRUE(same.data == nullptr || (same.rows == m && same.cols == n && same.dtype == args.c.dtype));
    }
    for (const ConstMatrix& matrix : {args.a, args.b, ConstMatrix(args.c)}) EXPECT_GE(matrix.stride, matrix.cols);
  }

 private:
  void Forward(std::function<void(Ops&)>) override {}
};

const KernelCase& Find(const std::vector<KernelCase>& cases, const std::string& name) {
  for (const KernelCase& c : cases) {
    if (c.name == name) return c;
  }
  ADD_FAILURE() << "no case " << name;
  return cases.front();
}

TEST(KernelCases, HaveTheOperationsOfTheirCalls) {
  std::set<std::string> names;
  for (const KernelCase& c : KernelCases()) {
    SCOPED_TRACE(c.name);
    EXPECT_TRUE(names.insert(c.name).second);
    EXPECT_GT(c.bytes, 0);
    const Expected expected = c.expected.value_or(Expected{0.1, 0.2});
    EXPECT_TRUE(0 < expected.least && expected.least < expected.most && expected.most < 1);
    NoMemory memory;
    const Prepared prepared = c.prepare(memory);
    CountingOps counted;
    prepared.call(counted);
    const bool documents = c.name.find("documents") != std::string::npos;  // which are not counted by their lengths
    EXPECT_THAT(documents ? c.flops : counted.flops(), DoubleNear(c.flops, 1e-9 * c.flops));
    GemmShapes shapes;
    prepared.call(shapes);
  }
}

TEST(KernelCases, HaveTheFiguresOfTheirShapes) {
  const std::vector<KernelCase> cases = KernelCases();
  const struct {
    const char* name;
    double flops, bytes;
  } by_hand[] = {
      {"product/forward/gpt2_124m/qkv", 115964116992.0, 204865536.0},
      {"product/forward/gpt2_124m/up", 154618822656.0, 457703424.0},  // writes its output and what was before GELU
      {"product/input_gradient/gpt2_124m/down", 154618822656.0, 457703424.0},
      {"product/weight_gradient/llama_1b/down", 274877906944.0, 234881024.0},
      {"attention/forward/d64/32x1024/12x12", 51539607552.0, 202899456.0},
      {"attention/backward/d64/8x1024/32x8", 85899345920.0, 168820736.0},
      {"attention/forward/d64/8x4096/12x12/documents512", 25769803776.0, 202899456.0},
      {"head/logits/4096x50257x768", 316189704192.0, 906896896.0},
      {"cross_entropy/4096x128256", 0.0, 3152019456.0},
      {"norm/forward/layer_norm/32768x768", 0.0, 201326592.0},
      {"adamw/124439808", 0.0, 3733194240.0},
      {"chunk_sum_squares/7087872", 0.0, 28351488.0},
      {"chunk_digests/42x65280", 0.0, 32901120.0},
      {"experts/forward/64x512/2048x1024", 137438953472.0, 469762048.0},
      {"router_report/16384x64", 0.0, 8454144.0},
      {"attention_sinks/forward/d64/8x1024/64x8", 0.0, 138412032.0},
      {"attention_sinks/backward/d64/8x1024/64x8", 0.0, 136314880.0},
      {"expert_bias/product/32x512/2880x5760", 543581798400.0, 1345536000.0},
      {"expert_bias/backward/32x512/2880x2880", 0.0, 95109120.0},
  };
  for (const auto& expected : by_hand) {
    SCOPED_TRACE(expected.name);
    const KernelCase& c = Find(cases, expected.name);
    EXPECT_EQ(c.flops, expected.flops);
    EXPECT_EQ(c.bytes, expected.bytes);
  }
}

TEST(KernelCases, CanBeCalled) {
  ThreadPool pool(2);
  const auto ops = MakeCpuOps(pool);
  int called = 0;
  for (const KernelCase& c : KernelCases(128)) {
    if (c.flops > 2e9 || c.bytes > 64e6) continue;  // products with large weights: GemmShapes has looked at them
    SCOPED_TRACE(c.name);
    CpuMemory memory;
    const Prepared prepared = c.prepare(memory);
    if (prepared.before != nullptr) prepared.before(*ops);
    prepared.call(*ops);
    ++called;
  }
  EXPECT_GT(called, 40);
}

TEST(KernelCases, AreFilteredByTheirNames) {
  EXPECT_EQ(Filtered(KernelCases(), "adamw").size(), 1u);
  EXPECT_EQ(Filtered(KernelCases(), "").size(), KernelCases().size());
  EXPECT_TRUE(Filtered(KernelCases(), "no such case").empty());
}

const KernelCase kProductCase{
    .name = "product/a", .flops = 989.4e9, .bytes = 1e9, .expected = Expected{0.7, 0.8}, .prepare = {}};
const KernelCase kMemoryCase{.name = "norm/a", .bytes = 4.8e9, .expected = {}, .prepare = {}};

TEST(Figures, AreSharesOfWhatBoundsTheCase) {
  const DevicePeaks h200 = PeaksOf("NVIDIA H200");
  EXPECT_DOUBLE_EQ(FloorSeconds(kProductCase, h200), 1e-3);  // moving its bytes takes a fifth of that
  EXPECT_DOUBLE_EQ(FloorSeconds(kMemoryCase, h200), 1e-3);
  EXPECT_DOUBLE_EQ(FloorSeconds(kMemoryCase, PeaksOf("NVIDIA H100 80GB HBM3")), 4.8 / 3.35 * 1e-3);
  EXPECT_EQ(FloorSeconds(kMemoryCase, PeaksOf("a GPU that nobody knows")), 0);
}

TEST(Figures, OfManyCallsAreTheMedianAndTheTenthOnEitherSide) {
  std::vector<double> seconds;
  for (int i = 30; i > 0; --i) seconds.push_back(i);
  const Timing timing = TimingOf(seconds);
  EXPECT_EQ(timing.median, 16);
  EXPECT_EQ(timing.low, 3);
  EXPECT_EQ(timing.high, 28);
  EXPECT_EQ(timing.calls, 30);
  EXPECT_EQ(TimingOf({5}).low, 5);
  EXPECT_EQ(TimingOf({5}).high, 5);
}

TEST(Figures, AsTextAndAsJson) {
  const DevicePeaks h200 = PeaksOf("NVIDIA H200");
  const Timing timing{.median = 2e-3, .low = 1.5e-3, .high = 2.5e-3, .calls = 30};
  const std::string row = TableRow(kProductCase, timing, h200);
  EXPECT_EQ(row.size(), TableHead().size());
  for (const char* part : {"product/a", "2000.0", "1500.0..2500.0", "494.7", "0.500", "50%", "70-80%"}) {
    EXPECT_THAT(row, HasSubstr(part));
  }
  EXPECT_THAT(TableRow(kProductCase, timing, {}), HasSubstr(" - "));

  const auto line = nlohmann::json::parse(JsonLine(kProductCase, timing, h200, "NVIDIA H200"));
  EXPECT_EQ(line["case"], "product/a");
  EXPECT_EQ(line["device"], "NVIDIA H200");
  EXPECT_EQ(line["median_s"], 2e-3);
  EXPECT_EQ(line["calls"], 30);
  EXPECT_DOUBLE_EQ(line["of_most"].get<double>(), 0.5);
  EXPECT_EQ(line["expected"], nlohmann::json({0.7, 0.8}));
  const auto unknown = nlohmann::json::parse(JsonLine(kMemoryCase, timing, {}, "?"));
  EXPECT_TRUE(unknown["of_most"].is_null());
  EXPECT_FALSE(unknown.contains("expected"));
}

}  // namespace
}  // namespace holdfast::kernels
