#pragma once
// Documents out of text and JSONL files, in pieces of bounded size.

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/file_descriptor.h"
#include "framework/data/decompressor.h"
#include "framework/storage/file_access.h"

namespace holdfast {

/// One input, read from its beginning to its end; gzip and zstd, known by their first bytes, are undone. "-" is
/// standard input. Once `stop` is requested it is Cancelled to open it or to read more.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(FileAccess& files, const std::string& path, std::stop_token stop = {});

  /// Name for messages.
  const std::string& name() const { return name_; }
  /// In bytes, as it is stored; 0 if unknown (a pipe).
  int64_t size() const { return size_; }
  /// Of which so many were read, and became so many bytes of text.
  int64_t bytes_read() const { return offset_; }
  int64_t text_bytes() const { return text_bytes_; }

  /// Appends up to `bytes_max` bytes of text to `buffer`; false if nothing follows them, which of a pipe and of what is
  /// compressed is known only when there are none. DataLoss, which names the file, if what is compressed is damaged or
  /// cut short.
  absl::StatusOr<bool> ReadMore(size_t bytes_max, std::string& buffer);

 private:
  absl::StatusOr<bool> ReadStored(size_t bytes_max, std::string& buffer);
  absl::StatusOr<bool> Decompress(size_t bytes_max, std::string& buffer);

  std::shared_ptr<const RandomAccessFile> file_;  // else a pipe or another thing without a size:
  std::stop_token stop_;
  FileDescriptor owned_;
  int fd_ = -1;
  std::string name_;
  int64_t size_ = 0, offset_ = 0, text_bytes_ = 0;
  std::unique_ptr<Decompressor> decompressor_;  // null until something compressed was read
  // What was read and not yet decompressed: the end of `stored_`.
  std::string stored_;
  size_t stored_left_ = 0;
  bool more_stored_ = false;
};

/// What is done with the documents.
struct DocumentSink {
  /// Takes the beginning of `text` and returns how many bytes; all of them if `is_last`.
  std::function<absl::StatusOr<size_t>(std::string_view text, bool is_last)> take;
  std::function<void(int64_t bytes)> count_bytes;  // of the file, as it is stored; after each read
};

inline constexpr size_t kDocumentPieceBytes = 1 << 20;
inline constexpr size_t kDocumentHeldBytesMax = 64 << 20;

/// Whether `path` ends as JSON Lines do: .jsonl or .ndjson, alone or before .gz or .zst.
bool HasNameOfJsonLines(std::string_view path);
/// Without .gz or .zst.
std::string_view WithoutCompressionName(std::string_view path);

/// Of a text in which the tokenizer finds no place to cut.
absl::Status NoPlaceToCut(const std::string& file, size_t bytes);

/// The whole file as one document.
absl::Status ReadTextDocument(InputFile& file, const DocumentSink& sink);

/// Every line that is not blank, in order, whole, with its number, from 1. Errors of `take` are returned as they are.
absl::Status ReadNumberedLines(InputFile& file,
                               const std::function<absl::Status(std::string_view line, int64_t number)>& take,
                               const std::function<void(int64_t bytes)>& count_bytes);

/// The same without numbers; an error of `take` gets "FILE:LINE: " in front.
absl::Status ReadLines(InputFile& file, const std::function<absl::Status(std::string_view line)>& take,
                       const std::function<void(int64_t bytes)>& count_bytes);

/// Of a line that could not be parsed: the error with what is expected of a line.
absl::Status NoJsonLine(const absl::Status& status);

/// The document in a line of JSONL: the member `field`, a string, of an object.
absl::StatusOr<std::string> DocumentOfLine(std::string_view line, const std::string& field);

}  // namespace holdfast
