#pragma once
// Who holds a device's memory: bytes by what they are for, so that an error that there is none left can say where it
// went.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace holdfast {

/// Thread-safe.
class MemoryAccount {
 public:
  void Take(const char* what, size_t bytes) { Add(what, static_cast<int64_t>(bytes)); }
  void GiveBack(const char* what, size_t bytes) { Add(what, -static_cast<int64_t>(bytes)); }

  /// The largest three: "optimizer state 2.00 GiB, activations 1.50 GiB, weights 0.50 GiB"; "nothing" if that is so.
  std::string LargestHolders() const;

  /// The most that was held at the same time.
  int64_t peak_bytes() const;

 private:
  void Add(const char* what, int64_t bytes);

  mutable std::mutex mutex_;
  std::map<std::string, int64_t, std::less<>> bytes_;
  int64_t held_ = 0, peak_ = 0;
};

}  // namespace holdfast
