#pragma once
// Bytes that go up: from memory or from a range of a file, read again for each attempt, never held twice.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

/// Thread-safe.
class BodySource {
 public:
  virtual ~BodySource() = default;
  virtual uint64_t size() const = 0;
  /// Up to `bytes` bytes from `offset`, as many as there are at hand; none only at the end.
  virtual absl::StatusOr<size_t> Read(uint64_t offset, char* out, size_t bytes) const = 0;
};

class MemoryBody final : public BodySource {
 public:
  explicit MemoryBody(absl::string_view bytes) : bytes_(bytes) {}
  uint64_t size() const override { return bytes_.size(); }
  absl::StatusOr<size_t> Read(uint64_t offset, char* out, size_t bytes) const override {
    const absl::string_view piece = bytes_.substr(std::min<uint64_t>(offset, bytes_.size()), bytes);
    if (!piece.empty()) std::memcpy(out, piece.data(), piece.size());
    return piece.size();
  }

 private:
  absl::string_view bytes_;
};

/// Bytes [begin, begin + size) of an open file; DataLoss if it ends before. Does not own the descriptor.
class FileRangeBody final : public BodySource {
 public:
  FileRangeBody(int fd, uint64_t begin, uint64_t size) : fd_(fd), begin_(begin), size_(size) {}
  uint64_t size() const override { return size_; }
  absl::StatusOr<size_t> Read(uint64_t offset, char* out, size_t bytes) const override;

 private:
  int fd_;
  uint64_t begin_, size_;
};

}  // namespace holdfast
