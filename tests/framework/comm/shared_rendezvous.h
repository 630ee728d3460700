#pragma once
// A rendezvous of processes forked from one: memory that they share, which forgets nobody who is killed.

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "framework/comm/rendezvous.h"

namespace holdfast {

/// Memory of `T` shared with all processes forked later; starts as zeros, is never given back.
template <typename T>
T* Shared(size_t count = 1) {
  void* memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<T*>(memory);
}

/// To be made before the fork, once for each world.
class SharedRendezvous {
 public:
  explicit SharedRendezvous(int size) : size_(size), slots_(Shared<Slot>(static_cast<size_t>(size))) {}

  std::unique_ptr<Rendezvous> Member(int rank) const { return std::make_unique<End>(*this, rank); }

 private:
  struct Slot {
    std::atomic<size_t> bytes;  // 0: has not come
    char blob[1 << 16];
  };

  class End final : public Rendezvous {
   public:
    End(const SharedRendezvous& all, int rank) : all_(all), rank_(rank) {}
    absl::StatusOr<std::vector<std::string>> Exchange(const std::string& mine, Deadline deadline) override {
      if (mine.empty() || mine.size() > sizeof(Slot::blob)) return absl::InvalidArgumentError("size of a blob");
      std::copy(mine.begin(), mine.end(), all_.slots_[rank_].blob);
      all_.slots_[rank_].bytes = mine.size();
      std::vector<std::string> blobs;
      while (static_cast<int>(blobs.size()) < all_.size_) {
        const Slot& slot = all_.slots_[blobs.size()];
        if (const size_t bytes = slot.bytes; bytes > 0) {
          blobs.emplace_back(slot.blob, bytes);
        } else if (std::chrono::steady_clock::now() > deadline) {
          return absl::DeadlineExceededError("somebody did not come");
        } else {
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
      }
      return blobs;
    }

   private:
    const SharedRendezvous& all_;
    int rank_;
  };

  int size_;
  Slot* slots_;
};

}  // namespace holdfast
