#pragma once
// A rendezvous of threads of one process.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "framework/comm/rendezvous.h"

namespace holdfast {

/// Where the members of one world meet. One for each world.
class MemoryRendezvous {
 public:
  explicit MemoryRendezvous(int size) : blobs_(static_cast<size_t>(size)), missing_(size) {}

  std::unique_ptr<Rendezvous> Member(int rank) { return std::make_unique<End>(*this, rank); }

 private:
  class End final : public Rendezvous {
   public:
    End(MemoryRendezvous& all, int rank) : all_(all), rank_(rank) {}
    absl::StatusOr<std::vector<std::string>> Exchange(const std::string& mine, Deadline deadline) override {
      std::unique_lock lock(all_.mutex_);
      all_.blobs_[static_cast<size_t>(rank_)] = mine;
      --all_.missing_;
      all_.changed_.notify_all();
      if (all_.changed_.wait_until(lock, deadline, [&] { return all_.missing_ == 0; })) return all_.blobs_;
      return absl::DeadlineExceededError("somebody did not come");
    }

   private:
    MemoryRendezvous& all_;
    int rank_;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> blobs_;
  int missing_;
};

}  // namespace holdfast
