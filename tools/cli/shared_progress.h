#pragma once
// A progress bar that any thread may move.

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/admin/byte_progress.h"
#include "framework/metrics/progress.h"

namespace holdfast {

/// Thread-safe.
class SharedProgress {
 public:
  explicit SharedProgress(std::string label, std::string unit = "B")
      : label_(std::move(label)), unit_(std::move(unit)) {}

  /// For a function that says how far it is. This must outlive it.
  ByteProgress Listener() {
    return [this](uint64_t done, uint64_t total) { Update(done, total); };
  }
  void Finish() {
    const std::scoped_lock lock(mutex_);
    if (progress_.has_value()) progress_->Finish();
  }

 private:
  void Update(uint64_t done, uint64_t total) {
    const std::scoped_lock lock(mutex_);
    if (!progress_.has_value()) progress_.emplace(label_, static_cast<int64_t>(total), unit_);
    if (done <= done_) return;  // calls may overtake each other
    done_ = done;
    progress_->Update(static_cast<int64_t>(done));
  }

  const std::string label_, unit_;
  std::mutex mutex_;
  std::optional<Progress> progress_;  // from the first call on
  uint64_t done_ = 0;
};

}  // namespace holdfast
