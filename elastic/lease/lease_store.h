#pragma once
// A place with one short text, which only those replace who know what stands there.

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

/// One call at a time of each thread; thread-safe.
class LeaseStore {
 public:
  static constexpr size_t kMaxBytes = 4096;  // of a text
  struct Entry {
    std::string text;
    std::string version{};  // another for each write; empty = nothing is there
  };
  virtual ~LeaseStore() = default;
  /// Not older than any write that had succeeded before. Unavailable: the store cannot be reached now;
  /// PermissionDenied: it does not let us; InvalidArgument: it cannot do what is asked of it.
  virtual absl::StatusOr<Entry> Read() = 0;
  /// In the place of what stands there in `version`; returns the new one, or "" where the store does not say it.
  /// Aborted: something else stands there. Unavailable: perhaps it has been written.
  virtual absl::StatusOr<std::string> Replace(const std::string& version, absl::string_view text) = 0;
  virtual std::string Describe() const = 0;
};

}  // namespace holdfast
