// Calls several versions of the matrix product, and oneDNN's sgemm, in turns on the same operands in one process: what
// a neighbour on the machine takes it takes from all alike. Built and run by product_versions.py.
//
//   product_versions ROUNDS ROWS fp32|bf16|native avx512|avx2

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "framework/base/thread_pool.h"
#include "kernels/types.h"
#include "tests/bench/operand.h"
#include "tests/bench/product_version.h"

#define HOLDFAST_DECLARE(label, entry) \
  extern "C" void entry(void* executor, const holdfast_bench::Product& p, bool avx512);
#include "versions.inc"
#undef HOLDFAST_DECLARE

namespace {

using holdfast_bench::Product;

struct Version {
  const char* name;
  void (*run)(void*, const Product&, bool);
};
#define HOLDFAST_DECLARE(label, entry) {#label, entry},
const std::vector<Version> kVersions = {
#include "versions.inc"
};
#undef HOLDFAST_DECLARE

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Values of both signs whose sums are not exact.
void Fill(const holdfast::kernels::Operand& x, uint32_t seed) {
  const int64_t values = x.view.rows * x.view.cols;
  for (int64_t i = 0; i < values; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const float value = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    if (x.view.dtype == holdfast::kernels::DType::kBF16) {
      static_cast<uint16_t*>(x.view.data)[i] = static_cast<uint16_t>(bits >> 16);
    } else {
      static_cast<float*>(x.view.data)[i] = value;
    }
  }
}

/// The third quartile of a version's times: a neighbour's minutes hit all versions alike.
double Slow(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() * 3 / 4];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int rounds = std::atoi(argv[1]);
  const int64_t rows = std::atoll(argv[2]);
  const std::string type = argv[3];
  const bool avx512 = std::string(argv[4]) == "avx512", fp32 = type == "fp32";
  const auto dtype = fp32 ? holdfast::kernels::DType::kF32 : holdfast::kernels::DType::kBF16;
  cpu_set_t processors;
  sched_getaffinity(0, sizeof(processors), &processors);
  holdfast::ThreadPool pool(CPU_COUNT(&processors));
  const size_t count = kVersions.size() + (fp32 ? 1 : 0);
  std::printf("GFLOP/s (third quartile of times)%12s", "");
  for (const auto& version : kVersions) std::printf(" %10s", version.name);
  std::printf("%s\n", fp32 ? "     oneDNN" : "");

  struct Layer {
    const char* name;
    int64_t out, in;
  };
  std::vector<double> log_ratio(count, 0.0);
  int cases = 0;
  for (const auto& [name, out, in] :
       {Layer{"qkv", 2304, 768}, Layer{"proj", 768, 768}, Layer{"fc", 3072, 768}, Layer{"fc_proj", 768, 3072}}) {
    for (const char* kind : {"forward_NT", "dx_NN", "dw_TN"}) {
      const bool dw = kind[1] == 'w', forward = kind[0] == 'f';
      const int64_t m = dw ? out : rows, n = forward ? out : in, k = forward ? in : dw ? rows : out;
      holdfast::kernels::Operand a(dtype, m, k), b(dtype, k, n);
      const auto c_dtype = dw ? holdfast::kernels::DType::kF32 : dtype;
      std::vector<holdfast::kernels::Operand> c;
      for (size_t i = 0; i < count; ++i) c.emplace_back(c_dtype, m, n);
      Fill(a, 1);
      Fill(b, 2);
      std::vector<std::function<void()>> calls;
      for (size_t i = 0; i < kVersions.size(); ++i) {
        const Product p{m, n, k, dw, forward, !fp32, type == "native", a.view.data, b.view.data, c[i].view.data};
        calls.emplace_back([&pool, avx512, i, p] { kVersions[i].run(&pool, p, avx512); });
      }
      if (fp32) {
        calls.emplace_back([&, m, n, k, dw, forward] {
          dnnl_sgemm(dw ? 'T' : 'N', forward ? 'T' : 'N', m, n, k, 1.0f, static_cast<const float*>(a.view.data),
                     dw ? m : k, static_cast<const float*>(b.view.data), forward ? k : n, 0.0f,
                     static_cast<float*>(c.back().view.data), n);
        });
      }
      const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
      const int repeats = std::max(1, static_cast<int>(1e9 / flops));  // about 10 ms
      std::vector<std::vector<double>> times(count);
      for (int round = -1; round < rounds; ++round) {
        for (size_t turn = 0; turn < count; ++turn) {
          const size_t i = (turn + static_cast<size_t>(round + 1)) % count;
          calls[i]();  // caches as this version leaves them
          const double start = Seconds();
          for (int repeat = 0; repeat < repeats; ++repeat) calls[i]();
          if (round >= 0) times[i].push_back((Seconds() - start) / repeats);
        }
      }
      std::printf("%-45s", (std::string(kind) + " " + name + " " + std::to_string(rows)).c_str());
      for (size_t i = 0; i < count; ++i) {
        std::printf(" %10.1f", flops / Slow(times[i]) / 1e9);
        log_ratio[i] += std::log(Slow(times[0]) / Slow(times[i]));
      }
      const size_t bytes = static_cast<size_t>(m * n) * holdfast::kernels::SizeOf(c_dtype);
      for (size_t i = 1; i < kVersions.size(); ++i) {
        if (std::memcmp(c[0].view.data, c[i].view.data, bytes) != 0) std::printf("  OTHER BITS: %s", kVersions[i].name);
      }
      std::printf("\n");
      std::fflush(stdout);
      ++cases;
    }
  }
  std::printf("%-45s", "rate beside the first, geometric mean");
  for (size_t i = 0; i < count; ++i) std::printf(" %10.3f", std::exp(log_ratio[i] / cases));
  std::printf("\n");
  return 0;
}
