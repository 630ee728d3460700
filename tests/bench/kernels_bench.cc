// How close the matrix product and attention come to the machine's peak, measured in the same moment: before each case
// all threads run unrolled chains of the widest fused multiply-add that the processor has (for products by its bf16
// instructions, of those) for a few milliseconds. Beside ours, where libdnnl-dev is installed: oneDNN's own sgemm.
//
//   build/release/tests/kernels_bench --benchmark_filter='gemm/.*/1024/bf16'
//
// Counters, in wall time and so meaningful on a quiet machine only: GFLOPS (of useful arithmetic, median), best_GFLOPS
// (of the fastest call), peak_GFLOPS, of_peak (of the median). Threads: all the process may use (taskset limits them).

#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#ifdef HOLDFAST_BENCH_ONEDNN
#include <oneapi/dnnl/dnnl.hpp>
#endif

#include "framework/base/aligned_memory.h"
#include "framework/base/processors.h"
#include "framework/base/thread_pool.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/bench/operand.h"

namespace holdfast::kernels {
namespace {

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

constexpr int kChains = 12, kRounds = 400000;

/// GFLOP/s of one thread in `step`, which does `flops` operations to a vector. The chains must differ, or the compiler
/// runs one of them.
#define HOLDFAST_CHAINS(Vector, start_value, step, flops)                                    \
  Vector x[kChains];                                                                         \
  _Pragma("GCC unroll 12") for (int i = 0; i < kChains; ++i) x[i] = start_value;             \
  const double start = Seconds();                                                            \
  for (int round = 0; round < kRounds; ++round) {                                            \
    _Pragma("GCC unroll 12") for (int i = 0; i < kChains; ++i) x[i] = step;                  \
  }                                                                                          \
  const double seconds = Seconds() - start;                                                  \
  _Pragma("GCC unroll 12") for (int i = 0; i < kChains; ++i) benchmark::DoNotOptimize(x[i]); \
  return (flops)*1.0 * kChains * kRounds / seconds / 1e9

double Avx2Rate() {
  const __m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(0.001f);
  HOLDFAST_CHAINS(__m256, _mm256_set1_ps(1.0f + static_cast<float>(i)), _mm256_fmadd_ps(x[i], factor, term), 16);
}

__attribute__((target("avx512f"))) double Avx512Rate() {
  const __m512 factor = _mm512_set1_ps(0.999f), term = _mm512_set1_ps(0.001f);
  HOLDFAST_CHAINS(__m512, _mm512_set1_ps(1.0f + static_cast<float>(i)), _mm512_fmadd_ps(x[i], factor, term), 32);
}

__attribute__((target("avx512f,avx512bf16"))) double Avx512Bf16Rate() {
  const __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f803c00), b = (__m512bh)_mm512_set1_epi32(0x3c003c00);
  HOLDFAST_CHAINS(__m512, _mm512_set1_ps(1.0f + static_cast<float>(i)), _mm512_dpbf16_ps(x[i], a, b), 64);
}

/// Of the instruction set that kernels use.
double FmaRate() { return CpuInstructionSets().front() == "AVX2" ? Avx2Rate() : Avx512Rate(); }

struct Machine {
  ThreadPool pool{AvailableProcessors()};
  CpuOps portable{pool}, native{pool, FastestArithmetic()};

  /// Of all threads in fp32, or by the instructions that native products take.
  double PeakGflops(bool bf16_dots) {
    const auto rate = bf16_dots ? Avx512Bf16Rate : FmaRate;
    std::vector<double> rates(static_cast<size_t>(pool.num_threads()));
    double best = 0;
    for (int attempt = 0; attempt < 3; ++attempt) {
      ParallelFor(pool, pool.num_threads(), [&](int64_t task, int) { rates[static_cast<size_t>(task)] = rate(); });
      double sum = 0;
      for (double rate : rates) sum += rate;
      best = std::max(best, sum);
    }
    return best;
  }
};

/// Runs `call` and reports its rate.
template <typename Call>
void Measure(benchmark::State& state, Machine& machine, double flops, Call&& call, bool bf16_dots = false) {
  const double peak = machine.PeakGflops(bf16_dots);
  call();
  std::vector<double> times;
  for (auto _ : state) {
    const double start = Seconds();
    call();
    times.push_back(Seconds() - start);
    state.SetIterationTime(times.back());
  }
  std::sort(times.begin(), times.end());
  const double gflops = flops / times[times.size() / 2] / 1e9;
  state.counters["GFLOPS"] = gflops;
  state.counters["best_GFLOPS"] = flops / times.front() / 1e9;
  state.counters["peak_GFLOPS"] = peak;
  state.counters["of_peak"] = gflops / peak;
}

enum class Engine { kPortable, kNative, kOneDnnSgemm };

/// oneDNN on all processors; nothing where it is not installed.
void OneDnnSgemm([[maybe_unused]] const GemmArgs& args) {
#ifdef HOLDFAST_BENCH_ONEDNN
  const int64_t k = args.transpose_a ? args.a.rows : args.a.cols;
  dnnl_sgemm(args.transpose_a ? 'T' : 'N', args.transpose_b ? 'T' : 'N', args.c.rows, args.c.cols, k, 1.0f,
             static_cast<const float*>(args.a.data), args.a.stride, static_cast<const float*>(args.b.data),
             args.b.stride, args.accumulate ? 1.0f : 0.0f, static_cast<float*>(args.c.data), args.c.stride);
#endif
}

struct Product {
  const char* name;
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  bool is_added = false;  // to what C holds
};

void BenchGemm(benchmark::State& state, Machine& machine, const Product& p, DType dtype, Engine engine) {
  Operand a(dtype, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k);
  Operand b(dtype, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n);
  Operand c(p.transpose_a ? DType::kF32 : dtype, p.m, p.n);  // weight gradients are added up in fp32
  GemmArgs args;
  args.a = a.view;
  args.transpose_a = p.transpose_a;
  args.b = b.view;
  args.transpose_b = p.transpose_b;
  args.c = c.view;
  args.accumulate = p.is_added;
  const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const auto call = [&] {
    if (engine == Engine::kOneDnnSgemm) return OneDnnSgemm(args);
    engine == Engine::kNative ? machine.native.Gemm(args) : machine.portable.Gemm(args);
  };
  Measure(state, machine, flops, call, engine == Engine::kNative);
}

struct AttentionBuffers {
  AttentionShape shape;
  Operand qkv, out, d_out, d_qkv;
  std::vector<float> lse;

  AttentionBuffers(const AttentionShape& s, DType dtype)
      : shape(s),
        qkv(dtype, s.batch * s.sequence, (s.num_heads + 2 * s.num_kv_heads) * s.head_dim),
        out(dtype, s.batch * s.sequence, s.num_heads * s.head_dim),
        d_out(dtype, s.batch * s.sequence, s.num_heads * s.head_dim),
        d_qkv(dtype, s.batch * s.sequence, (s.num_heads + 2 * s.num_kv_heads) * s.head_dim),
        lse(static_cast<size_t>(s.batch * s.num_heads * s.sequence)) {}

  /// Of the products of what queries see, all sequences alike: 2 going forward, 5 going back.
  double Flops(double products) const {
    const AttentionShape first = shape.OfSequence(0);
    int64_t pairs = 0;
    for (int64_t query = 0; query < shape.sequence; ++query) pairs += first.EndKey(query) - first.FirstKey(query);
    return products * 2 * static_cast<double>(shape.batch * shape.num_heads * shape.head_dim * pairs);
  }
};

void BenchAttention(benchmark::State& state, Machine& machine, const AttentionShape& shape, DType dtype, bool native,
                    bool backward) {
  CpuOps& ops = native ? machine.native : machine.portable;
  AttentionBuffers x(shape, dtype);
  const auto forward = [&] { ops.AttentionForward(x.out.view, x.lse.data(), x.qkv.view, shape); };
  forward();
  if (!backward) return Measure(state, machine, x.Flops(2), forward, native);
  const auto call = [&] {
    ops.AttentionBackward(x.d_qkv.view, x.d_out.view, x.out.view, x.lse.data(), x.qkv.view, shape);
  };
  Measure(state, machine, x.Flops(5), call, native);
}

/// The products of GPT-2 124M (C = 768) for a number of tokens: forward, input gradients, weight gradients.
std::vector<Product> Gpt2Products(int64_t tokens) {
  std::vector<Product> products;
  const struct {
    const char* name;
    int64_t out, in;
  } layers[] = {{"qkv", 2304, 768}, {"proj", 768, 768}, {"fc", 3072, 768}, {"fc_proj", 768, 3072}};
  for (const auto& [name, out, in] : layers) {
    products.push_back({name, tokens, out, in, false, true});   // y = x w^T
    products.push_back({name, tokens, in, out, false, false});  // dx = dy w
    products.push_back({name, out, in, tokens, true, false});   // dw = dy^T x
  }
  const int64_t rows = std::min<int64_t>(tokens, 1024);  // the loss cuts the head into chunks
  products.push_back({"head", rows, 50257, 768, false, true});
  products.push_back({"head", rows, 768, 50257, false, false});
  products.push_back({"head", 50257, 768, rows, true, false, /*is_added=*/true});  // of all chunks but the first
  return products;
}

std::string NameOf(const Product& p) { return p.transpose_a ? "dw_TN" : p.transpose_b ? "forward_NT" : "dx_NN"; }

void RegisterGemm(Machine& machine, const Product& p, int64_t tokens) {
  const struct {
    const char* name;
    DType dtype;
    Engine engine;
  } variants[] = {
      {"fp32", DType::kF32, Engine::kPortable},
      {"bf16", DType::kBF16, Engine::kPortable},
      {"bf16_native", DType::kBF16, Engine::kNative},
#ifdef HOLDFAST_BENCH_ONEDNN
      {"fp32_onednn_sgemm", DType::kF32, Engine::kOneDnnSgemm},
#endif
  };
  for (const auto& v : variants) {
    if (v.engine == Engine::kNative && FastestArithmetic() != Arithmetic::kAvx512Bf16) continue;
    const std::string name = "gemm/" + NameOf(p) + "/" + p.name + "/" + std::to_string(tokens) + "/" + v.name;
    benchmark::RegisterBenchmark(
        name.c_str(), [&machine, p, v](benchmark::State& state) { BenchGemm(state, machine, p, v.dtype, v.engine); })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

/// GPT-2's heads over one sequence of documents of `length` tokens.
AttentionShape InDocuments(int64_t sequence, int32_t length) {
  static std::vector<int32_t> begins, ends;  // a shape is a view
  for (int32_t row = 0; row < sequence; ++row) {
    begins.push_back(row / length * length);
    ends.push_back(begins.back() + length);
  }
  AttentionShape shape{1, sequence, 12, 12, 64, {}};
  shape.documents = {begins.data(), ends.data()};
  return shape;
}

void RegisterAttention(Machine& machine) {
  for (const auto& [name, shape] : {std::pair{"gpt2_1x1024", AttentionShape{1, 1024, 12, 12, 64, {}}},
                                    std::pair{"gpt2_1x1024_of_64", InDocuments(1024, 64)},
                                    std::pair{"gpt2_4x64", AttentionShape{4, 64, 12, 12, 64, {}}},
                                    std::pair{"llama_1x2048", AttentionShape{1, 2048, 32, 8, 64, {}}}}) {
    for (const std::string variant : {"fp32", "bf16", "bf16_native"}) {
      const bool native = variant == "bf16_native";
      if (native && FastestArithmetic() != Arithmetic::kAvx512Bf16) continue;
      for (bool backward : {false, true}) {
        const std::string full =
            std::string("attention/") + (backward ? "backward/" : "forward/") + name + "/" + variant;
        const DType dtype = variant == "fp32" ? DType::kF32 : DType::kBF16;
        benchmark::RegisterBenchmark(full.c_str(),
                                     [&machine, shape = shape, dtype, native, backward](benchmark::State& state) {
                                       BenchAttention(state, machine, shape, dtype, native, backward);
                                     })
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace
}  // namespace holdfast::kernels

int main(int argc, char** argv) {
  const char* set = std::getenv("HOLDFAST_INSTRUCTION_SET");
  if (set != nullptr && !holdfast::kernels::UseCpuInstructionSet(set)) return 1;
  holdfast::kernels::Machine machine;
  for (int64_t tokens : {256, 1024, 4096}) {
    for (const auto& product : holdfast::kernels::Gpt2Products(tokens)) {
      holdfast::kernels::RegisterGemm(machine, product, tokens);
    }
  }
  for (const auto& product : {holdfast::kernels::Product{"head", 1, 50257, 768, false, true},
                              holdfast::kernels::Product{"head", 8, 50257, 768, false, true}}) {
    holdfast::kernels::RegisterGemm(machine, product, product.m);  // sampling
  }
  holdfast::kernels::RegisterAttention(machine);
  benchmark::AddCustomContext("instruction_set", holdfast::kernels::CpuInstructionSets().front());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
