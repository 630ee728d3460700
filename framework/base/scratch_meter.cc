#include "framework/base/scratch_meter.h"

#include <algorithm>

#include "framework/base/thread_pool.h"

namespace holdfast {

void ScratchMeter::ExpectScratch(size_t bytes) { of_thread_ = std::max(of_thread_, bytes); }

void* ScratchMeter::Scratch(int slot, size_t bytes) {
  size_t& most = slot == kShared ? shared_ : of_thread_;
  most = std::max(most, bytes);
  return nothing_;
}

size_t ScratchMeter::bytes() const {
  return ThreadPool::ScratchBlockBytes(shared_) +
         static_cast<size_t>(num_threads_) * ThreadPool::ScratchBlockBytes(of_thread_);
}

}  // namespace holdfast
