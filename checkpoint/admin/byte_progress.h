#pragma once
// How far a function is that reads or writes a checkpoint.

#include <atomic>
#include <cstdint>
#include <functional>

namespace holdfast {

/// Called by any thread; calls may overtake each other. May be null.
using ByteProgress = std::function<void(uint64_t done, uint64_t total)>;

/// Thread-safe.
class ByteCounter {
 public:
  /// `progress` must outlive it.
  ByteCounter(uint64_t total, const ByteProgress& progress) : total_(total), progress_(progress) { Add(0); }

  void Add(uint64_t bytes) {
    const uint64_t done = done_.fetch_add(bytes) + bytes;
    if (progress_ != nullptr) progress_(done, total_);
  }

 private:
  const uint64_t total_;
  const ByteProgress& progress_;
  std::atomic<uint64_t> done_ = 0;
};

}  // namespace holdfast
