#pragma once
// Measures the scratch memory that kernels take, by calling them without running a task. For kernels that touch memory
// in tasks only: matrix products and attention.
//
//   ScratchMeter meter(8);
//   kernels::MakeCpuOps(meter)->Gemm(args);  // of shapes; without data
//   meter.bytes()

#include <cstddef>
#include <cstdint>

#include "kernels/executor.h"

namespace holdfast {

class ScratchMeter final : public kernels::Executor {
 public:
  explicit ScratchMeter(int num_threads) : num_threads_(num_threads) {}

  int num_threads() const override { return num_threads_; }
  void Run(int64_t /*num_tasks*/, TaskFn /*fn*/, void* /*context*/) override {}
  void ExpectScratch(size_t bytes) override;
  void* Scratch(int slot, size_t bytes) override;

  /// What a ThreadPool of as many threads holds after these calls, if each thread had a task of each.
  size_t bytes() const;

 private:
  alignas(64) std::byte nothing_[64];
  int num_threads_;
  size_t shared_ = 0, of_thread_ = 0;
};

}  // namespace holdfast
