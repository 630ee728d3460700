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
#include "framework/storage/file_access.h"

namespace holdfast {

/// One input, read from its beginning to its end. "-" is standard input. Once `stop` is requested it is Cancelled to
/// open it or to read more.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(FileAccess& files, const std::string& path, std::stop_token stop = {});

  /// Name for messages.
  const std::string& name() const { return name_; }
  /// 0 if unknown (a pipe).
  int64_t size() const { return size_; }

  /// Appends up to `bytes_max` bytes to `buffer`; false if nothing follows them, which of a pipe is known only when
  /// there are none.
  absl::StatusOr<bool> ReadMore(size_t bytes_max, std::string& buffer);

 private:
  std::shared_ptr<const RandomAccessFile> file_;  // else a pipe or another thing without a size:
  std::stop_token stop_;
  FileDescriptor owned_;
  int fd_ = -1;
  std::string name_;
  int64_t size_ = 0, offset_ = 0;
};

/// What is done with the documents.
struct DocumentSink {
  /// Takes the beginning of `text` and returns how many bytes; all of them if `is_last`.
  std::function<absl::StatusOr<size_t>(std::string_view text, bool is_last)> take;
  std::function<void(int64_t bytes)> count_bytes;  // after each read
};

inline constexpr size_t kDocumentPieceBytes = 1 << 20;
inline constexpr size_t kDocumentHeldBytesMax = 64 << 20;

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
