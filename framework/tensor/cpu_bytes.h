#pragma once
// CPU memory for what is copied from a device.

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "framework/tensor/device.h"

namespace holdfast {

/// A block of CPU memory, uninitialised. Copies share it; the last gives it back to where it came from.
class CpuBytes {
 public:
  CpuBytes() = default;
  explicit CpuBytes(size_t size) : data_(new std::byte[size]), size_(size) {}
  CpuBytes(std::shared_ptr<std::byte[]> data, size_t size) : data_(std::move(data)), size_(size) {}

  std::byte* data() const { return data_.get(); }
  std::byte& operator[](size_t i) const { return data_[static_cast<std::ptrdiff_t>(i)]; }
  size_t size() const { return size_; }

 private:
  std::shared_ptr<std::byte[]> data_;
  size_t size_ = 0;
};

/// Blocks of one size of the memory that copies from a device are fastest with (Device::AllocateCpu), which is slow to
/// get and therefore kept. Where the device is the CPU it is ordinary memory and nothing is kept. Thread-safe. The
/// device must outlive all blocks.
class CpuBlocks : public std::enable_shared_from_this<CpuBlocks> {
 public:
  static std::shared_ptr<CpuBlocks> Create(Device& device, size_t block_bytes) {
    return std::shared_ptr<CpuBlocks>(new CpuBlocks(device, block_bytes));
  }
  ~CpuBlocks();
  CpuBlocks(const CpuBlocks&) = delete;
  CpuBlocks& operator=(const CpuBlocks&) = delete;

  /// The first `bytes` of a block; ordinary memory if the device has no more.
  CpuBytes Take(size_t bytes);

 private:
  CpuBlocks(Device& device, size_t block_bytes) : device_(device), block_bytes_(block_bytes) {}

  Device& device_;
  const size_t block_bytes_;
  std::mutex mutex_;
  std::vector<void*> free_;
};

}  // namespace holdfast
