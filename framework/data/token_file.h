#pragma once
// Token files: llm.c's `.bin` format. Header of 256 little-endian int32: magic (20240520: uint16 tokens; 20240801:
// uint32 tokens), version (1; llm.c's uint32 files say 7), number of tokens, zeros; then the tokens. Formats:
// framework/data/README.md.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/data/token_index.h"
#include "framework/storage/file_access.h"

namespace holdfast {

inline constexpr int64_t kTokensMax = std::numeric_limits<int32_t>::max();  // of one file

/// One token file, read in ranges. Thread-safe.
class TokenFile {
 public:
  /// Checks magic, version and that the file is exactly as long as its header says (DataLoss if truncated,
  /// InvalidArgument if it is no token file).
  static absl::StatusOr<std::shared_ptr<const TokenFile>> Open(std::shared_ptr<const RandomAccessFile> opened);
  static absl::StatusOr<std::shared_ptr<const TokenFile>> Open(FileAccess& files, const std::string& path);

  const std::string& path() const { return file_->path(); }
  int64_t num_tokens() const { return num_tokens_; }
  int bytes_per_token() const { return bytes_per_token_; }
  int reads_at_once() const { return file_->reads_at_once(); }

  /// Reads tokens [first, first + out.size()) into `out`. The range must lie inside the file. Errors are those of
  /// RandomAccessFile::ReadAt.
  absl::Status Read(int64_t first, absl::Span<int32_t> out) const;

  /// The tokens as they are stored: bytes [begin, begin + out.size()) of token_bytes().
  int64_t token_bytes() const { return num_tokens_ * bytes_per_token_; }
  absl::Status ReadStored(int64_t begin, absl::Span<std::byte> out) const;
  /// Where byte `begin` of the tokens lies in the file.
  static int64_t OffsetOfStored(int64_t begin);

 private:
  TokenFile() = default;

  std::shared_ptr<const RandomAccessFile> file_;
  int64_t num_tokens_ = 0;
  int bytes_per_token_ = 2;
};

/// OutOfRange, naming the first token >= vocab_size and its position, if `index`, which is the file's, says that there
/// is one: then all of the file is read.
absl::Status CheckVocabulary(const TokenFile& file, const TokenIndex& index, int64_t vocab_size);

/// Writes a token file and its index: nothing is left behind, and nothing replaced, if Finish is not reached.
class TokenFileWriter {
 public:
  /// `vocab_size` decides between uint16 (<= 65536) and uint32 tokens.
  static absl::StatusOr<std::unique_ptr<TokenFileWriter>> Create(FileAccess& files, const std::string& path,
                                                                 int64_t vocab_size);

  absl::Status Append(absl::Span<const int32_t> tokens);
  /// The file first, then its index: a crash in between leaves a file without index, or with that of the file it has
  /// replaced, which is found when the file is opened.
  absl::Status Finish();
  int64_t num_tokens() const { return num_tokens_; }

 private:
  TokenFileWriter() = default;
  absl::Status Flush();

  std::unique_ptr<OutputFile> file_, index_file_;
  std::unique_ptr<TokenIndexBuilder> index_;
  int bytes_per_token_ = 2;
  int64_t num_tokens_ = 0;
  std::string buffer_;  // tokens that are not written yet
};

/// The index beside the file; NotFound if there is none. Errors as ParseTokenIndex's.
absl::StatusOr<TokenIndex> ReadTokenIndex(FileAccess& files, const std::string& token_file);
/// Writes or replaces it.
absl::Status WriteTokenIndex(FileAccess& files, const std::string& token_file, const TokenIndex& index);

}  // namespace holdfast
