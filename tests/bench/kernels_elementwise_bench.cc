// Memory-bound kernels against a memcpy of the same number of bytes (read + written), with the same threads.
//
//   kernels_elementwise_bench                   one thread per processor; HOLDFAST_BENCH_THREADS=n changes it
//
// Counters: what the operation moves, `GB/s` of the median call and `min_`, `max_` of the slowest and the fastest;
// `memcpy_*` the same of ten calls of Ops::Copy, half of them before and half of them after; `of_memcpy` is the ratio
// of the medians.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/aligned_memory.h"
#include "framework/base/processors.h"
#include "framework/base/thread_pool.h"
#include "kernels/ops.h"

namespace holdfast::kernels {
namespace {

constexpr int64_t kRows = 4096;  // 4 sequences of 1024
constexpr int64_t kCols = 768;   // GPT-2 124M
constexpr int64_t kHidden = 3072;
constexpr int64_t kVocabulary = 50257;
constexpr int64_t kVector = int64_t{16} << 20;

int NumThreads() {
  const char* wanted = std::getenv("HOLDFAST_BENCH_THREADS");
  return wanted != nullptr ? std::atoi(wanted) : AvailableProcessors();
}

using Memory = std::unique_ptr<void, decltype(&std::free)>;  // as a device has it

Memory Allocate(size_t bytes) { return {AllocateAligned(bytes), &std::free}; }

template <typename Call>
double Seconds(Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Operations, and memory that stands for a matrix or vector of any type.
class Bench {
 public:
  Bench() : pool_(NumThreads()), ops_(MakeCpuOps(pool_)) {}
  Ops* operator->() { return ops_.get(); }

  /// Of normal values.
  Matrix New(DType dtype, int64_t rows, int64_t cols) {
    Memory values = Allocate(static_cast<size_t>(rows * cols) * sizeof(float));
    ops_->FillNormal(static_cast<float*>(values.get()), rows * cols, 0, 1.0f, {.seed = 1, .site = 1});
    return Keep(std::move(values), dtype, rows, cols);
  }
  float* NewVector(int64_t n) { return static_cast<float*>(New(DType::kF32, 1, n).data); }

  Matrix Constant(DType dtype, int64_t rows, int64_t cols, float value) {
    Memory values = Allocate(static_cast<size_t>(rows * cols) * sizeof(float));
    std::fill_n(static_cast<float*>(values.get()), rows * cols, value);
    return Keep(std::move(values), dtype, rows, cols);
  }

  /// Runs `call` until the benchmark is content, and sets the counters for `bytes` read and written by one call.
  template <typename Call>
  void Measure(benchmark::State& state, double bytes, Call&& call) {
    const auto copied = static_cast<size_t>(bytes / 2);
    const Memory from = Allocate(copied), to = Allocate(copied);
    std::memset(from.get(), 1, copied);
    const auto copy = [&] { ops_->Copy(to.get(), from.get(), copied); };
    std::vector<double> copies, calls;
    copy();
    for (int i = 0; i < 5; ++i) copies.push_back(Seconds(copy));
    call();
    for (auto unused : state) {
      (void)unused;
      calls.push_back(Seconds(call));
      state.SetIterationTime(calls.back());
    }
    for (int i = 0; i < 5; ++i) copies.push_back(Seconds(copy));
    SetRates(state, "", bytes, calls);
    SetRates(state, "memcpy_", bytes, copies);
    state.counters["of_memcpy"] = Median(copies) / Median(calls);
  }

 private:
  Matrix Keep(Memory values, DType dtype, int64_t rows, int64_t cols) {
    if (dtype == DType::kBF16) {
      Memory rounded = Allocate(static_cast<size_t>(rows * cols) * SizeOf(dtype));
      ops_->CastToBf16(static_cast<uint16_t*>(rounded.get()), static_cast<const float*>(values.get()), rows * cols);
      values = std::move(rounded);
    }
    buffers_.push_back(std::move(values));
    return {buffers_.back().get(), dtype, rows, cols, cols};
  }

  static void SetRates(benchmark::State& state, const std::string& prefix, double bytes,
                       const std::vector<double>& seconds) {
    const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
    state.counters[prefix + "GB/s"] = bytes / Median(seconds) / 1e9;
    state.counters[prefix + "min_GB/s"] = bytes / *most / 1e9;
    state.counters[prefix + "max_GB/s"] = bytes / *least / 1e9;
  }

  ThreadPool pool_;
  std::unique_ptr<Ops> ops_;
  std::vector<Memory> buffers_;
};

double MatrixBytes(DType dtype, int64_t rows, int64_t cols) {
  return static_cast<double>(rows * cols) * static_cast<double>(SizeOf(dtype));
}

DType Type(const benchmark::State& state) { return state.range(0) == 16 ? DType::kBF16 : DType::kF32; }

void NormForward(benchmark::State& state, NormKind kind, float rate) {
  Bench ops;
  const DType type = Type(state);
  const Matrix out = ops.New(type, kRows, kCols), x = ops.New(type, kRows, kCols), branch = ops.New(type, kRows, kCols);
  const Matrix sum = ops.New(type, kRows, kCols);
  const NormParams params = {kind, 1e-5f, ops.NewVector(kCols),
                             kind == NormKind::kLayerNorm ? ops.NewVector(kCols) : nullptr};
  const NormStats stats = {ops.NewVector(kRows), ops.NewVector(kRows)};
  ops.Measure(state, 4 * MatrixBytes(type, kRows, kCols), [&] {
    ops->NormForward(out, sum, stats, x, branch, params, {rate, {.seed = 2}});
  });
}
void LayerNormForward(benchmark::State& state) { NormForward(state, NormKind::kLayerNorm, 0); }
void LayerNormDropoutForward(benchmark::State& state) { NormForward(state, NormKind::kLayerNorm, 0.1f); }
void RmsNormForward(benchmark::State& state) { NormForward(state, NormKind::kRmsNorm, 0); }

void LayerNormBackward(benchmark::State& state) {
  Bench ops;
  const DType type = Type(state);
  const Matrix d_in = ops.New(type, kRows, kCols), d_out = ops.New(type, kRows, kCols), x = ops.New(type, kRows, kCols);
  const NormParams params = {NormKind::kLayerNorm, 1e-5f, ops.NewVector(kCols), ops.NewVector(kCols)};
  const NormStats stats = {ops.NewVector(kRows), ops.NewVector(kRows)};
  float *d_weight = ops.NewVector(kCols), *d_bias = ops.NewVector(kCols);
  ops.Measure(state, 4 * MatrixBytes(type, kRows, kCols),
              [&] { ops->NormBackward(d_in, d_weight, d_bias, d_in, d_out, x, stats, params); });
}

void ApplyDropout(benchmark::State& state) {
  Bench ops;
  const Matrix x = ops.New(Type(state), kRows, kCols), out = ops.New(Type(state), kRows, kCols);
  ops.Measure(state, 2 * MatrixBytes(x.dtype, kRows, kCols), [&] { ops->ApplyDropout(out, x, {0.1f, {.seed = 2}}); });
}

/// In place, as products call it. GELU's derivative is 1 at 8, so values stay as they are.
void GeluBackward(benchmark::State& state) {
  Bench ops;
  const Matrix d = ops.New(Type(state), kRows, kHidden), x = ops.Constant(Type(state), kRows, kHidden, 8.0f);
  ops.Measure(state, 3 * MatrixBytes(d.dtype, kRows, kHidden), [&] { ops->GeluBackward(d, d, x); });
}

template <GateKind kind>
void GatedForward(benchmark::State& state) {
  Bench ops;
  const Matrix gate_up = ops.New(Type(state), kRows, 2 * kHidden), out = ops.New(Type(state), kRows, kHidden);
  ops.Measure(state, 3 * MatrixBytes(out.dtype, kRows, kHidden), [&] { ops->GatedForward(out, gate_up, kind); });
}

template <GateKind kind>
void GatedBackward(benchmark::State& state) {
  Bench ops;
  const Matrix gate_up = ops.New(Type(state), kRows, 2 * kHidden), d_gate_up = ops.New(Type(state), kRows, 2 * kHidden);
  const Matrix d_out = ops.New(Type(state), kRows, kHidden);
  ops.Measure(state, 5 * MatrixBytes(d_out.dtype, kRows, kHidden),
              [&] { ops->GatedBackward(d_gate_up, d_out, gate_up, kind); });
}

AttentionShape SinkShape() {
  return {.batch = kRows / 1024, .sequence = 1024, .num_heads = 12, .num_kv_heads = 12, .head_dim = 64, .dropout = {}};
}

void SinkForward(benchmark::State& state) {
  Bench ops;
  const Matrix out = ops.New(Type(state), kRows, kCols);
  float *lse = ops.NewVector(kRows * 12), *sinks = ops.NewVector(12);
  ops.Measure(state, 2 * MatrixBytes(out.dtype, kRows, kCols), [&] { ops->SinkForward(out, lse, sinks, SinkShape()); });
}

void SinkBackward(benchmark::State& state) {
  Bench ops;
  const Matrix out = ops.New(Type(state), kRows, kCols), d_out = ops.New(Type(state), kRows, kCols);
  float *lse = ops.NewVector(kRows * 12), *sinks = ops.NewVector(12), *d_sinks = ops.NewVector(12);
  ops.Measure(state, 2 * MatrixBytes(out.dtype, kRows, kCols),
              [&] { ops->SinkBackward(d_sinks, d_out, out, lse, sinks, SinkShape()); });
}

/// Of eight experts that have the same number of rows.
class EvenRows {
 public:
  EvenRows() : offsets_(kExperts + 1), choices_(kRows) {
    for (size_t e = 0; e <= kExperts; ++e) offsets_[e] = static_cast<int32_t>(e * kRows / kExperts);
    std::iota(choices_.begin(), choices_.end(), 0);
  }
  static constexpr size_t kExperts = 8;
  ExpertRows view() const {
    return {.num_experts = kExperts,
            .chosen = 1,
            .slots = kRows,
            .offsets = offsets_.data(),
            .choices = choices_.data(),
            .slot_of = choices_.data()};
  }

 private:
  std::vector<int32_t> offsets_, choices_;
};

void ExpertBiasBackward(benchmark::State& state) {
  Bench ops;
  const EvenRows rows;
  const Matrix d_out = ops.New(Type(state), kRows, kHidden);
  const ExpertBiasBackwardArgs args = {.d_out = d_out,
                                       .weights = ops.NewVector(kRows),
                                       .d_bias = ops.NewVector(EvenRows::kExperts * kHidden),
                                       .d_bias_step = kHidden};
  ops.Measure(state, MatrixBytes(d_out.dtype, kRows, kHidden), [&] { ops->ExpertBiasBackward(args, rows.view()); });
}

/// In place, by real rotations: others would make values grow or shrink from call to call.
void Rope(benchmark::State& state) {
  Bench ops;
  const Matrix x = ops.New(Type(state), kRows, 24 * 64);
  float* cos_sin = ops.NewVector(1024 * 64);
  for (int64_t i = 0; i < 1024 * 32; ++i) {
    const auto angle = static_cast<float>(i);
    cos_sin[i / 32 * 64 + i % 32] = std::cos(angle);
    cos_sin[i / 32 * 64 + 32 + i % 32] = std::sin(angle);
  }
  ops.Measure(state, 2 * MatrixBytes(x.dtype, kRows, x.cols), [&] {
    ops->Rope(x, cos_sin, {24, 64, 64}, 1024, false);
  });
}

void ColumnSum(benchmark::State& state) {
  Bench ops;
  const Matrix x = ops.New(Type(state), kRows, kHidden);
  float* out = ops.NewVector(kHidden);
  ops.Measure(state, MatrixBytes(x.dtype, kRows, kHidden), [&] { ops->ColumnSum(out, x); });
}

std::vector<int32_t> Tokens() {
  std::vector<int32_t> tokens;  // squared: frequent small ids and rare large ones, as in text
  uint64_t state = 1;
  for (int64_t r = 0; r < kRows; ++r) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double u = static_cast<double>(state >> 40) * 0x1p-24;
    tokens.push_back(static_cast<int32_t>(u * u * static_cast<double>(kVocabulary)));
  }
  return tokens;
}

void EmbeddingForward(benchmark::State& state) {
  Bench ops;
  const DType type = Type(state);
  const Matrix table = ops.New(type, kVocabulary, kCols), position = ops.New(type, 1024, kCols);
  const Matrix out = ops.New(type, kRows, kCols);
  const auto tokens = Tokens();
  ops.Measure(state, 3 * MatrixBytes(type, kRows, kCols),
              [&] { ops->EmbeddingForward(out, tokens.data(), table, position, 1024, {}, 1); });
}

void EmbeddingBackward(benchmark::State& state) {
  Bench ops;
  const Matrix table = ops.New(DType::kF32, kVocabulary, kCols), position = ops.New(DType::kF32, 1024, kCols);
  const Matrix d_out = ops.New(Type(state), kRows, kCols);
  const auto tokens = Tokens();
  const double bytes = MatrixBytes(d_out.dtype, kRows, kCols) + 4 * MatrixBytes(DType::kF32, kRows, kCols);
  ops.Measure(state, bytes, [&] { ops->EmbeddingBackward(table, position, tokens.data(), d_out, 1024, {}, 1); });
}

/// In place, as the chunked head calls it: 256 rows of fp32 logits. Reads twice, writes once.
void SoftmaxCrossEntropy(benchmark::State& state) {
  Bench ops;
  constexpr int64_t kChunk = 256;
  const Matrix logits = ops.New(DType::kF32, kChunk, kVocabulary);
  Matrix gradient = logits;
  gradient.dtype = Type(state);
  gradient.stride = logits.stride * 4 / static_cast<int64_t>(SizeOf(gradient.dtype));
  if (gradient.dtype == DType::kBF16) gradient.data = ops.New(DType::kBF16, kChunk, 2 * kVocabulary).data;
  std::vector<float> losses(kChunk);
  const std::vector<int32_t> targets(kChunk, 17);
  const double bytes = MatrixBytes(DType::kF32, kChunk, kVocabulary) + MatrixBytes(gradient.dtype, kChunk, kVocabulary);
  ops.Measure(state, bytes, [&] { ops->SoftmaxCrossEntropy(losses.data(), gradient, logits, targets.data(), 1.0f); });
}

void AdamW(benchmark::State& state) {
  Bench ops;
  AdamWArgs args;
  args.n = kVector;
  args.weight = ops.NewVector(kVector), args.exp_avg = ops.NewVector(kVector), args.grad = ops.NewVector(kVector);
  args.exp_avg_sq = ops.NewVector(kVector);
  std::memset(args.exp_avg_sq, 0, sizeof(float) * kVector);
  if (state.range(0) == 16) args.weight_bf16 = static_cast<uint16_t*>(ops.New(DType::kBF16, 1, kVector).data);
  args.lr = 1e-4f, args.beta1 = 0.9f, args.beta2 = 0.95f, args.eps = 1e-8f, args.weight_decay = 0.1f;
  ops.Measure(state, static_cast<double>(kVector) * (28 + (args.weight_bf16 != nullptr ? 2 : 0)),
              [&] { ops->AdamW(args); });
}

void ChunkSumSquares(benchmark::State& state) {
  Bench ops;
  const float* x = ops.NewVector(kVector);
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i <= kVector; i += 1 << 18) offsets.push_back(i);
  std::vector<double> sums(offsets.size() - 1);
  ops.Measure(state, 4.0 * kVector,
              [&] { ops->ChunkSumSquares(sums.data(), x, offsets.data(), static_cast<int64_t>(sums.size())); });
}

void Add(benchmark::State& state) {
  Bench ops;
  float *a = ops.NewVector(kVector), *b = ops.NewVector(kVector);
  ops.Measure(state, 12.0 * kVector, [&] { ops->Add(a, b, kVector); });
}

void Zero(benchmark::State& state) {
  Bench ops;
  float* a = ops.NewVector(kVector);
  ops.Measure(state, 4.0 * kVector, [&] { ops->Zero(a, 4 * kVector); });
}

void Copy(benchmark::State& state) {
  Bench ops;
  float *a = ops.NewVector(kVector), *b = ops.NewVector(kVector);
  ops.Measure(state, 8.0 * kVector, [&] { ops->Copy(a, b, 4 * kVector); });
}

void CastToBf16(benchmark::State& state) {
  Bench ops;
  float *a = ops.NewVector(kVector), *b = ops.NewVector(kVector);
  ops.Measure(state, 6.0 * kVector, [&] { ops->CastToBf16(reinterpret_cast<uint16_t*>(b), a, kVector); });
}

void FillNormal(benchmark::State& state) {
  Bench ops;
  float* a = ops.NewVector(kVector);
  ops.Measure(state, 4.0 * kVector, [&] { ops->FillNormal(a, kVector, 0, 0.02f, {.seed = 1}); });
}

#define HOLDFAST_BENCH(name) BENCHMARK(name)->Arg(16)->Arg(32)->UseManualTime()->Unit(benchmark::kMillisecond)
HOLDFAST_BENCH(LayerNormForward);
HOLDFAST_BENCH(LayerNormDropoutForward);
HOLDFAST_BENCH(RmsNormForward);
HOLDFAST_BENCH(LayerNormBackward);
HOLDFAST_BENCH(ApplyDropout);
HOLDFAST_BENCH(GeluBackward);
HOLDFAST_BENCH(GatedForward<GateKind::kSilu>);
HOLDFAST_BENCH(GatedForward<GateKind::kGelu>);
HOLDFAST_BENCH(GatedBackward<GateKind::kSilu>);
HOLDFAST_BENCH(GatedBackward<GateKind::kGelu>);
HOLDFAST_BENCH(SinkForward);
HOLDFAST_BENCH(SinkBackward);
HOLDFAST_BENCH(ExpertBiasBackward);
HOLDFAST_BENCH(Rope);
HOLDFAST_BENCH(ColumnSum);
HOLDFAST_BENCH(EmbeddingForward);
HOLDFAST_BENCH(EmbeddingBackward);
HOLDFAST_BENCH(SoftmaxCrossEntropy);
HOLDFAST_BENCH(AdamW);
BENCHMARK(ChunkSumSquares)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(Add)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(Zero)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(Copy)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(CastToBf16)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(FillNormal)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace holdfast::kernels

BENCHMARK_MAIN();
