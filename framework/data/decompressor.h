#pragma once
// gzip and zstd, undone as a stream: any number of members or frames, one after the other.

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace holdfast {

/// Of one file. It holds what its format looks back at: 32 KiB (gzip), or up to 128 MiB (zstd). Thread-safety: none.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  /// Takes bytes from the front of `in` and writes to the front of `out`, until one of them is empty; both become what
  /// is left. With room left in `out`, nothing more can be had of what was taken. DataLoss if it is damaged,
  /// InvalidArgument if it takes more memory.
  virtual absl::Status Advance(absl::Span<const char>& in, absl::Span<char>& out) = 0;
  /// DataLoss unless what was taken ends where a member or a frame does.
  virtual absl::Status CheckEnd() const = 0;
};

/// Of a file that begins so; null if it is not compressed.
std::unique_ptr<Decompressor> MakeDecompressor(std::string_view start);

}  // namespace holdfast
