#include "framework/tensor/cpu_bytes.h"

#include "framework/base/status.h"

namespace holdfast {

CpuBlocks::~CpuBlocks() {
  for (void* block : free_) device_.FreeCpu(block);
}

CpuBytes CpuBlocks::Take(size_t bytes) {
  HOLDFAST_CHECK(bytes <= block_bytes_);
  if (device_.is_cpu()) return CpuBytes(bytes);
  void* block = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      block = free_.back();
      free_.pop_back();
    }
  }
  if (block == nullptr) {
    const absl::StatusOr<void*> allocated = device_.AllocateCpu(block_bytes_);
    if (!allocated.ok()) return CpuBytes(bytes);
    block = *allocated;
  }
  const auto give_back = [blocks = shared_from_this()](std::byte* data) {
    const std::lock_guard lock(blocks->mutex_);
    blocks->free_.push_back(data);
  };
  return {std::shared_ptr<std::byte[]>(static_cast<std::byte*>(block), give_back), bytes};
}

}  // namespace holdfast
