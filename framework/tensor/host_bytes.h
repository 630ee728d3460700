#pragma once
// Host memory for what is copied from a device.

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "framework/tensor/device.h"

namespace holdfast {

/// A run of host memory, uninitialised. Copies share it; the last gives it back to where it came from.
class HostBytes {
 public:
  HostBytes() = default;
  explicit HostBytes(size_t size) : data_(new std::byte[size]), size_(size) {}
  HostBytes(std::shared_ptr<std::byte[]> data, size_t size) : data_(std::move(data)), size_(size) {}

  std::byte* data() const { return data_.get(); }
  std::byte& operator[](size_t i) const { return data_[static_cast<std::ptrdiff_t>(i)]; }
  size_t size() const { return size_; }

 private:
  std::shared_ptr<std::byte[]> data_;
  size_t size_ = 0;
};

/// Blocks of one size of the memory that copies from a device are fastest with (Device::AllocateHost), which is slow to
/// get and therefore kept. Where the device is the host it is ordinary memory and nothing is kept. Thread-safe. The
/// device must outlive all blocks.
class HostBlocks : public std::enable_shared_from_this<HostBlocks> {
 public:
  static std::shared_ptr<HostBlocks> Create(Device& device, size_t block_bytes) {
    return std::shared_ptr<HostBlocks>(new HostBlocks(device, block_bytes));
  }
  ~HostBlocks();
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  /// The first `bytes` of a block; ordinary memory if the device has no more.
  HostBytes Take(size_t bytes);

 private:
  HostBlocks(Device& device, size_t block_bytes) : device_(device), block_bytes_(block_bytes) {}

  Device& device_;
  const size_t block_bytes_;
  std::mutex mutex_;
  std::vector<void*> free_;
};

}  // namespace holdfast
