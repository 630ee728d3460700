#pragma once
// A queue of the emulated GPU: what is queued is done at once.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/cuda_queue.h"

namespace holdfast::kernels {

class EmulatedQueue : public CudaQueue {
 public:
  CUstream_st* stream() const override { return nullptr; }
  void* Scratch(size_t bytes) override {
    scratch_.assign(bytes / sizeof(uint64_t) + 64, 0x7fa7a7a77fa7a7a7);
    const auto at = reinterpret_cast<uintptr_t>(scratch_.data());
    return reinterpret_cast<void*>((at + 255) / 256 * 256);
  }
  void Fail(const char* operation, const char* cause) override { ADD_FAILURE() << operation << ": " << cause; }

 private:
  std::vector<uint64_t> scratch_;
};

}  // namespace holdfast::kernels
