#include "kernels/arithmetic.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/arithmetic.cc"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/foreach_target.h"
#include "kernels/cpu/gemm_bf16_dot-inl.h"
#include "kernels/cpu/native_dot.h"

HWY_BEFORE_NAMESPACE();
namespace holdfast::kernels {
namespace HWY_NAMESPACE {

/// Of the instructions by which attention rounds what a product of pairs takes.
bool ProcessorRoundsAsDefined() {
#if HWY_MAX_BYTES == 64  // what every processor with such instructions has
  return RoundsAsDefined<Avx512Dot>();
#else
  return false;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace holdfast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace holdfast::kernels {

HWY_EXPORT(ProcessorRoundsAsDefined);

namespace {

constexpr std::pair<Arithmetic, const char*> kNames[] = {
    {Arithmetic::kPortable, "portable"}, {Arithmetic::kAvx512Bf16, "avx512_bf16"}, {Arithmetic::kAmxBf16, "amx_bf16"}};

struct Features {
  bool avx512_bf16 = false, amx_bf16 = false, amd = false;
};

/// Linux hands out the tile registers, 8 KiB to save at each switch of threads, to processes that ask for them.
bool SystemGrantsTiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Features ReadFeatures() {
  Features features;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) features.avx512_bf16 = (a >> 5 & 1) != 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    const bool tiles = (d >> 24 & 1) != 0, bf16 = (d >> 22 & 1) != 0;
    features.amx_bf16 = tiles && bf16 && SystemGrantsTiles();
  }
  features.amd = __builtin_cpu_is("amd") != 0;
  return features;
}

const Features& CpuFeatures() {
  static const Features features = ReadFeatures();
  return features;
}

/// Everything on the calling thread.
class Serial final : public Executor {
 public:
  int num_threads() const override { return 1; }
  void Run(int64_t num_tasks, TaskFn fn, void* context) override {
    for (int64_t task = 0; task < num_tasks; ++task) fn(context, task, 0);
  }
  void* Scratch(int slot, size_t bytes) override {
    std::unique_ptr<void, decltype(&std::free)>& block = blocks_[slot + 1];
    block.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    return block.get();
  }

 private:
  std::unique_ptr<void, decltype(&std::free)> blocks_[2] = {{nullptr, &std::free}, {nullptr, &std::free}};
};

/// Whether a product of random values has the bits of its definition.
bool ComputesAsDefined(Arithmetic arithmetic) {
  constexpr int64_t kRows = 5, kCols = 19, kDepth = 70;
  std::mt19937 random(1);
  // Exponents on both sides of where products become subnormal, besides usual ones.
  const auto value = [&] { return static_cast<uint16_t>((random() & 0x80ffu) | (random() % 2 ? 0x3f00u : 0x1f80u)); };
  std::vector<uint16_t> a(kRows * kDepth), b(kCols * kDepth);
  for (uint16_t& x : a) x = value();
  for (uint16_t& x : b) x = value();
  std::vector<float> c(kRows * kCols);
  Serial executor;
  GemmArgs args;
  args.a = {a.data(), DType::kBF16, kRows, kDepth, kDepth};
  args.b = {b.data(), DType::kBF16, kCols, kDepth, kDepth};
  args.transpose_b = true;
  args.c = {c.data(), DType::kF32, kRows, kCols, kCols};
  CpuOps(executor, arithmetic).Gemm(args);
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    const float expected = NativeDot(
        arithmetic, kDepth, [&](int64_t k) { return a[i / kCols * kDepth + k]; },
        [&](int64_t k) { return b[i % kCols * kDepth + k]; });
    if (std::bit_cast<uint32_t>(expected) != std::bit_cast<uint32_t>(c[i])) return false;
  }
  return true;
}

}  // namespace

const char* NameOf(Arithmetic arithmetic) {
  for (const auto& [value, name] : kNames) {
    if (value == arithmetic) return name;
  }
  return "";
}

std::optional<Arithmetic> ArithmeticOf(std::string_view name) {
  for (const auto& [value, its_name] : kNames) {
    if (its_name == name) return value;
  }
  return std::nullopt;
}

bool CpuHas(Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::kPortable) return true;
  if ((hwy::SupportedTargets() & HWY_AVX3) == 0) return false;
  if (arithmetic == Arithmetic::kAvx512Bf16) {
    static const bool has =
        CpuFeatures().avx512_bf16 && ComputesAsDefined(arithmetic) && HWY_DYNAMIC_DISPATCH(ProcessorRoundsAsDefined)();
    return has;
  }
  // Attention multiplies pairs and rounds to them there, too.
  static const bool has = CpuFeatures().amx_bf16 && CpuHas(Arithmetic::kAvx512Bf16) && ComputesAsDefined(arithmetic);
  return has;
}

Arithmetic FastestArithmetic() {
  if (CpuHas(Arithmetic::kAmxBf16)) return Arithmetic::kAmxBf16;
  // VDPBF16PS has twice the throughput of fp32 on AMD's Zen 4 and 5, half of it on Intel's Sapphire and Emerald Rapids.
  if (CpuFeatures().amd && CpuHas(Arithmetic::kAvx512Bf16)) return Arithmetic::kAvx512Bf16;
  return Arithmetic::kPortable;
}

}  // namespace holdfast::kernels
#endif  // HWY_ONCE
