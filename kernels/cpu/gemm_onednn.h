#pragma once
// The matrix product on oneDNN, for processors that multiply bf16 themselves (AVX512_BF16, AMX), where it is ahead of
// our own kernel. C is cut into tiles of a fixed size; each is one single-threaded oneDNN call into scratch memory,
// followed by the same epilogue as our own kernel. So the bits depend on no number of threads, and on no number of rows
// as far as oneDNN's do not (tests/kernels/gemm_test.cc asks).
//
// Thread-safety: Run from one thread at a time, as CpuOps.

#include <cstdint>
#include <map>
#include <memory>

#include "kernels/executor.h"
#include "kernels/ops.h"

namespace holdfast::kernels {

class OneDnnGemm {
 public:
  OneDnnGemm();
  ~OneDnnGemm();
  OneDnnGemm(const OneDnnGemm&) = delete;
  OneDnnGemm& operator=(const OneDnnGemm&) = delete;

  /// Whether this processor has the bf16 instructions that make oneDNN worth its call.
  static bool Pays();

  /// CpuOps::Gemm, or false (nothing done) where oneDNN has no primitive for the arguments.
  bool Run(Executor& executor, const GemmArgs& args);

 private:
  struct Key;
  struct Product;
  struct State;

  const Product* Find(const Key& key);

  std::unique_ptr<State> state_;
};

}  // namespace holdfast::kernels
