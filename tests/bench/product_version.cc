// One version of the matrix product, compiled for product_versions.py by the sources of that version, with the
// project's namespace renamed so that several can be linked into one program: HOLDFAST_VERSION names its entry.
#include "kernels/cpu/gemm.cc"

#if HWY_ONCE
#include "tests/bench/product_version.h"

extern "C" void HOLDFAST_VERSION(void* executor, const holdfast_bench::Product& p, bool avx512) {
  namespace kernels = holdfast::kernels;
  const auto dtype = p.bf16 ? kernels::DType::kBF16 : kernels::DType::kF32;
  const auto c_dtype = p.transpose_a ? kernels::DType::kF32 : dtype;  // weight gradients are added up in fp32
  kernels::GemmArgs args;
  args.a = {p.a, dtype, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.transpose_a ? p.m : p.k};
  args.transpose_a = p.transpose_a;
  args.b = {p.b, dtype, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.transpose_b ? p.k : p.n};
  args.transpose_b = p.transpose_b;
  args.c = {p.c, c_dtype, p.m, p.n, p.n};
  const auto arithmetic = p.native ? kernels::Arithmetic::kAvx512Bf16 : kernels::Arithmetic::kPortable;
  // Executor has the same layout in all versions that are worth comparing.
  auto& threads = *static_cast<kernels::Executor*>(executor);
  avx512 ? kernels::N_AVX3::Gemm(threads, args, arithmetic) : kernels::N_AVX2::Gemm(threads, args, arithmetic);
}
#endif
