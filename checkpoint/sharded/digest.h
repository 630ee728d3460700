#pragma once
// The digests of checkpoints: XXH3-64 for chunks, XXH3-128 for files. They find damage, not malice.
//
//   FileDigest digest;
//   while (...) digest.Update(block);
//   return digest.Hex();

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace holdfast {

/// XXH3-64.
uint64_t DigestBytes(absl::Span<const std::byte> bytes);

/// The same of bytes that lie in several places.
uint64_t DigestPlaces(absl::Span<const absl::Span<std::byte>> places);

/// XXH3-128 in 32 hexadecimal digits, as `xxhsum -H2` prints it.
std::string DigestFile(absl::string_view contents);

/// DigestFile of contents that come in blocks. Thread-safety: none.
class FileDigest {
 public:
  FileDigest();
  ~FileDigest();
  FileDigest(const FileDigest&) = delete;
  FileDigest& operator=(const FileDigest&) = delete;

  void Update(absl::Span<const std::byte> block);
  std::string Hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace holdfast
