#pragma once
// A lease store in memory that fails as a test wants it.

#include <memory>
#include <mutex>
#include <string>

#include "absl/strings/str_cat.h"
#include "elastic/lease/lease_store.h"

namespace holdfast {

/// What all stores of one place have in common. Thread-safe.
struct MemoryPlace {
  std::mutex mutex;
  LeaseStore::Entry entry;
  int64_t writes = 0;
  bool is_gone = false;     // no call succeeds
  int answers_to_lose = 0;  // of the next so many writes
};

class MemoryStore final : public LeaseStore {
 public:
  explicit MemoryStore(std::shared_ptr<MemoryPlace> place) : place_(std::move(place)) {}
  absl::StatusOr<Entry> Read() override {
    const std::lock_guard lock(place_->mutex);
    if (place_->is_gone) return absl::UnavailableError("gone");
    return place_->entry;
  }
  absl::StatusOr<std::string> Replace(const std::string& version, absl::string_view text) override {
    const std::lock_guard lock(place_->mutex);
    if (place_->is_gone) return absl::UnavailableError("gone");
    if (version != place_->entry.version) return absl::AbortedError("something else stands there");
    place_->entry = {std::string(text), absl::StrCat(++place_->writes)};
    if (place_->answers_to_lose > 0 && place_->answers_to_lose-- > 0) return absl::UnavailableError("no answer");
    return place_->entry.version;
  }
  std::string Describe() const override { return "memory://test"; }

 private:
  const std::shared_ptr<MemoryPlace> place_;
};

}  // namespace holdfast
