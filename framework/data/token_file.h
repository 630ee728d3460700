#pragma once
// Token files: llm.c's `.bin` format, memory-mapped. Header of 256 little-endian int32: magic (20240520: uint16 tokens;
// 20240801: uint32 tokens), version (1; llm.c's uint32 files say 7), number of tokens, zeros; then the tokens. Formats:
// framework/data/README.md.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/files.h"

namespace holdfast {

/// A read-only view of one token file. Thread-safe.
class TokenFile {
 public:
  /// Checks magic, version and that the file is exactly as long as its header says (DataLoss if truncated,
  /// InvalidArgument if it is no token file).
  static absl::StatusOr<std::shared_ptr<const TokenFile>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t num_tokens() const { return num_tokens_; }
  int bytes_per_token() const { return bytes_per_token_; }

  /// Copies tokens [first, first + out.size()) to `out`. The range must lie inside the file.
  void Read(int64_t first, absl::Span<int32_t> out) const;

  /// XXH3-64 of all tokens as they are stored. OutOfRange naming the first token >= vocab_size and its position, if
  /// there is one. Reads the whole file.
  absl::StatusOr<uint64_t> CheckVocabulary(int64_t vocab_size) const;

 private:
  TokenFile() = default;

  std::string path_;
  MappedFile file_;
  int64_t num_tokens_ = 0;
  int bytes_per_token_ = 2;
};

/// Writes a token file through AtomicFile: nothing is left behind, and nothing replaced, if Finish is not reached.
class TokenFileWriter {
 public:
  /// `vocab_size` decides between uint16 (<= 65536) and uint32 tokens.
  static absl::StatusOr<std::unique_ptr<TokenFileWriter>> Create(const std::string& path, int64_t vocab_size);

  absl::Status Append(absl::Span<const int32_t> tokens);
  absl::Status Finish();
  int64_t num_tokens() const { return num_tokens_; }

 private:
  TokenFileWriter() = default;

  std::unique_ptr<AtomicFile> file_;
  int bytes_per_token_ = 2;
  int64_t num_tokens_ = 0;
  std::string buffer_;
};

}  // namespace holdfast
