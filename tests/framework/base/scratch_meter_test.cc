// A meter says what a pool holds after the same calls on data: of products of many shapes, whose k is cut or not, of
// few rows, of experts, and of attention, with any number of threads, in every arithmetic of this processor.

#include "framework/base/scratch_meter.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/base/thread_pool.h"
#include "kernels/ops.h"

namespace holdfast {
namespace {

using kernels::DType;

/// Matrices of zeros.
class Zeros {
 public:
  explicit Zeros(DType dtype) : dtype_(dtype) {}
  kernels::Matrix New(int64_t rows, int64_t cols) {
    memory_.emplace_back(static_cast<size_t>(rows * cols * 4));
    return {memory_.back().data(), dtype_, rows, cols, cols};
  }
  float* Floats(int64_t n) { return static_cast<float*>(New(1, n).data); }

 private:
  DType dtype_;
  std::vector<std::vector<std::byte>> memory_;
};

using Call = std::function<void(kernels::Ops&, DType)>;

Call Product(int64_t m, int64_t n, int64_t k, bool transpose_a) {
  return [=](kernels::Ops& ops, DType dtype) {
    Zeros zeros(dtype);
    kernels::GemmArgs args{.a = transpose_a ? zeros.New(k, m) : zeros.New(m, k),
                           .transpose_a = transpose_a,
                           .b = zeros.New(k, n),
                           .c = zeros.New(m, n)};
    ops.Gemm(args);
  };
}

Call Experts(const std::vector<int32_t>& offsets, bool gradient) {
  return [=](kernels::Ops& ops, DType dtype) {
    constexpr int64_t kIn = 40, kOut = 300;
    const int64_t slots = offsets.back(), experts = static_cast<int64_t>(offsets.size()) - 1;
    Zeros zeros(dtype), floats(DType::kF32);
    const kernels::ExpertRows rows{.num_experts = experts, .slots = slots, .offsets = offsets.data()};
    if (gradient) {
      kernels::Matrix c = floats.New(experts * kIn, kOut);
      c.rows = kIn;
      ops.ExpertGradient({zeros.New(slots, kIn), zeros.New(slots, kOut), c, kIn * kOut}, rows);
      return;
    }
    kernels::Matrix b = zeros.New(experts * kIn, kOut);
    b.rows = kIn;
    ops.ExpertGemm({.a = zeros.New(slots, kIn), .b = b, .b_step = kIn * kOut, .c = zeros.New(slots, kOut)}, rows);
  };
}

Call Attention(const kernels::AttentionShape& shape) {
  return [=](kernels::Ops& ops, DType dtype) {
    Zeros zeros(dtype), floats(DType::kF32);
    const int64_t rows = shape.batch * shape.sequence, width = shape.num_heads * shape.head_dim;
    const int64_t all = width + 2 * shape.num_kv_heads * shape.head_dim;
    const kernels::Matrix out = zeros.New(rows, width), qkv = zeros.New(rows, all);
    float* const lse = floats.Floats(rows * shape.num_heads);
    ops.AttentionForward(out, lse, qkv, shape);
    ops.AttentionBackward(zeros.New(rows, all), zeros.New(rows, width), out, lse, qkv, shape);
  };
}

std::vector<Call> Calls() {
  // A window takes no memory, and spares time.
  const auto attention = [](int64_t batch, int64_t sequence, int64_t heads, int64_t kv_heads, int64_t d) {
    return Attention({.batch = batch,
                      .sequence = sequence,
                      .num_heads = heads,
                      .num_kv_heads = kv_heads,
                      .head_dim = d,
                      .dropout = {},
                      .window = 8});
  };
  return {Product(1, 70, 1030, false),    Product(24, 70, 300, false),       Product(24, 70, 300, true),
          Product(300, 200, 2600, false), Product(30, 40, 120'000, true),    Product(5000, 100, 20, false),
          Product(4200, 10, 1100, false), Experts({0, 0, 900, 1000}, false), Experts({0, 0, 900, 1000}, true),
          attention(1, 1024, 4, 4, 64),   attention(1, 1024, 12, 2, 64),     attention(1, 1, 2, 1, 8),
          attention(2, 4000, 2, 1, 256)};  // the backward pass packs less at a time
}

TEST(ScratchMeterTest, SaysWhatAPoolHolds) {
  const std::vector<Call> calls = Calls();
  for (const kernels::Arithmetic arithmetic :
       {kernels::Arithmetic::kPortable, kernels::Arithmetic::kAvx512Bf16, kernels::Arithmetic::kAmxBf16}) {
    if (!kernels::CpuHas(arithmetic)) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      if (dtype == DType::kF32 && arithmetic != kernels::Arithmetic::kPortable) continue;  // the same
      for (size_t i = 0; i < calls.size(); ++i) {
        SCOPED_TRACE(std::to_string(i) + " " + kernels::NameOf(arithmetic) +
                     (dtype == DType::kF32 ? " fp32" : " bf16"));
        for (const int threads : {1, 3}) {
          ThreadPool pool(threads);
          calls[i](*kernels::MakeCpuOps(pool, arithmetic), dtype);
          ScratchMeter meter(threads);
          calls[i](*kernels::MakeCpuOps(meter, arithmetic), dtype);
          if (threads == 1) {
            EXPECT_EQ(meter.bytes(), pool.scratch_bytes());
          } else {
            EXPECT_GE(meter.bytes(), pool.scratch_bytes());  // a thread may have come to no task
          }
        }
      }
    }
  }
}

TEST(ScratchMeterTest, EachSlotHasTheMostThatIsAskedOfIt) {
  constexpr size_t kMib = size_t{1} << 20;
  ScratchMeter meter(3);
  int ran = 0;
  for (const size_t bytes : {2 * kMib, 4 * kMib, 2 * kMib}) {
    kernels::ParallelForWithScratch(meter, 5, bytes, [&](int64_t, void*) { ++ran; });
  }
  EXPECT_EQ(meter.bytes(), 12 * kMib);
  EXPECT_NE(meter.Scratch(kernels::Executor::kShared, 5 * kMib), nullptr);
  EXPECT_EQ(meter.bytes(), 18 * kMib);  // huge pages
  EXPECT_EQ(ran, 0);
}

}  // namespace
}  // namespace holdfast
