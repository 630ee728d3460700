#pragma once
// Token files: llm.c's `.bin` format, and one of our own for what it cannot say: where documents begin, what is not to
// be learned, more than 2^31 - 1 tokens. Formats: framework/data/README.md.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/data/token_index.h"
#include "framework/storage/file_access.h"

namespace holdfast {

/// A token of a file with marks: its id in the lower bits, and what is said of it in the upper two.
inline constexpr uint32_t kDocumentStart = uint32_t{1} << 31;  // it is the first of its document
inline constexpr uint32_t kNotLearned = uint32_t{1} << 30;     // it is read, and not counted as a target
inline constexpr uint32_t kTokenBits = kNotLearned - 1;
inline constexpr int64_t kTokensMax = int64_t{1} << 35;  // of one file

/// What a file is besides its tokens.
struct TokenFileKind {
  int bytes_per_token = 2;
  bool has_marks = false;  // with 4 bytes a token
  int64_t row_tokens =
      0;  // documents were put into rows of this many tokens, to be read as they are; 0 = they were not
};

/// Whether a file with this beginning is meant as a token file.
bool BeginsAsTokenFile(std::string_view start);

/// One token file, read in ranges. Thread-safe.
class TokenFile {
 public:
  /// Checks magic, version and that the file is exactly as long as its header says (DataLoss if damaged,
  /// InvalidArgument if it is no token file).
  static absl::StatusOr<std::shared_ptr<const TokenFile>> Open(std::shared_ptr<const RandomAccessFile> opened);
  static absl::StatusOr<std::shared_ptr<const TokenFile>> Open(FileAccess& files, const std::string& path);

  const std::string& path() const { return file_->path(); }
  int64_t num_tokens() const { return num_tokens_; }
  int bytes_per_token() const { return kind_.bytes_per_token; }
  const TokenFileKind& kind() const { return kind_; }
  int reads_at_once() const { return file_->reads_at_once(); }

  /// Reads tokens [first, first + out.size()) into `out`, without their marks. The range must lie inside the file.
  /// Errors, here and below, are those of RandomAccessFile::ReadUnlessStopped.
  absl::Status Read(int64_t first, absl::Span<int32_t> out) const;
  /// With their marks; in a file without them no token has one.
  absl::Status ReadMarked(int64_t first, absl::Span<uint32_t> out, const std::stop_token& stop = {}) const;

  /// The tokens as they are stored: bytes [begin, begin + out.size()) of token_bytes().
  int64_t token_bytes() const { return num_tokens_ * kind_.bytes_per_token; }
  absl::Status ReadStored(int64_t begin, absl::Span<std::byte> out, const std::stop_token& stop = {}) const;
  /// Where byte `begin` of the tokens lies in the file.
  static int64_t OffsetOfStored(int64_t begin);

 private:
  TokenFile() = default;

  std::shared_ptr<const RandomAccessFile> file_;
  int64_t num_tokens_ = 0;
  TokenFileKind kind_;
};

/// OutOfRange, naming the first token >= vocab_size and its position, if `index`, which is the file's, says that there
/// is one: then all of the file is read.
absl::Status CheckVocabulary(const TokenFile& file, const TokenIndex& index, int64_t vocab_size);

/// Writes a token file and its index: nothing is left behind, and nothing replaced, if Finish is not reached.
class TokenFileWriter {
 public:
  static absl::StatusOr<std::unique_ptr<TokenFileWriter>> Create(FileAccess& files, const std::string& path,
                                                                 const TokenFileKind& kind);
  /// Without marks; `vocab_size` decides between uint16 (<= 65536) and uint32 tokens.
  static absl::StatusOr<std::unique_ptr<TokenFileWriter>> Create(FileAccess& files, const std::string& path,
                                                                 int64_t vocab_size);

  absl::Status Append(absl::Span<const int32_t> tokens);
  /// Into a file with marks.
  absl::Status AppendMarked(absl::Span<const uint32_t> tokens);
  /// All of Finish but the names. Files that belong together are all prepared before the first is finished.
  absl::Status Prepare();
  /// The file first, then its index: a crash in between leaves a file without index, or with that of the file it has
  /// replaced, which is found when the file is opened.
  absl::Status Finish();
  int64_t num_tokens() const { return num_tokens_; }

 private:
  TokenFileWriter() = default;
  absl::Status Count(size_t tokens);
  absl::Status Put(uint32_t token);
  absl::Status Flush();

  std::unique_ptr<OutputFile> file_, index_file_;
  std::unique_ptr<TokenIndexBuilder> index_;
  TokenFileKind kind_;
  int64_t num_tokens_ = 0;
  std::string buffer_;  // tokens that are not written yet
  bool prepared_ = false;
};

/// The index beside the file; NotFound if there is none. Errors as ParseTokenIndex's.
absl::StatusOr<TokenIndex> ReadTokenIndex(FileAccess& files, const std::string& token_file);
/// AlreadyExists if a local file has its name that is none. Objects of a storage are never replaced.
absl::Status CheckIndexPlace(const std::string& token_file);
/// Writes or replaces it.
absl::Status WriteTokenIndex(FileAccess& files, const std::string& token_file, const TokenIndex& index);

}  // namespace holdfast
