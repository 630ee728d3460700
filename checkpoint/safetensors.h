#pragma once
// Hugging Face's safetensors format: u64 little-endian header length, a JSON header of at most 100 MB, tensor bytes
// without holes. Nothing in a file is trusted before it is checked; nothing in it can run code.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/files.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {

/// `kOther`: one that files may hold (integers, fp8, ...) and that cannot be read as numbers of a model.
enum class FileDType : uint8_t { kF32, kF16, kBF16, kOther };

struct SafetensorsEntry {
  FileDType dtype = FileDType::kF32;
  std::string dtype_name;  // "F32", "I64", as in the file
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the start of the data
};

/// Of a tensor: `length` elements from `first` on, from `first + step` on, and so on.
struct ElementRuns {
  int64_t first = 0, step = 0, length = 0;
};

/// A memory-mapped file. Thread-safe.
class SafetensorsReader {
 public:
  /// DataLoss for a truncated file; InvalidArgument naming the tensor for holes, overlaps, wrong sizes, bad JSON.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(const std::string& path);

  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }

  /// Elements [first, first + out.size()) of a tensor as fp32. FailedPrecondition naming the tensor and the element if
  /// one is NaN or infinite; InvalidArgument if the dtype is kOther; NotFound for an unknown name; OutOfRange beyond
  /// the tensor's end.
  absl::Status Read(const std::string& name, int64_t first, absl::Span<float> out) const;
  /// Several runs of elements, one after the other in `out`: as many as fill it.
  absl::Status ReadRuns(const std::string& name, const ElementRuns& runs, absl::Span<float> out) const;
  /// Bytes [first, first + out.size()) of a tensor of any dtype; NotFound and OutOfRange as above.
  absl::Status ReadBytes(const std::string& name, int64_t first, absl::Span<uint8_t> out) const;

 private:
  SafetensorsReader() = default;

  std::string Where(const std::string& tensor) const;
  /// NotFound if there is none.
  absl::StatusOr<const SafetensorsEntry*> Find(const std::string& name) const;
  /// OutOfRange unless [first, first + count) are some of the tensor's elements, of `bytes` each.
  absl::Status CheckRange(const std::string& name, const SafetensorsEntry& entry, int64_t bytes, int64_t first,
                          size_t count) const;
  /// Called when these have been read.
  void Forget(const uint8_t* data, int64_t bytes) const;

  std::string path_;
  MappedFile file_;
  size_t data_begin_ = 0;
  std::map<std::string, SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// Writes a file tensor by tensor with bounded memory, through AtomicFile: without Finish nothing is left behind and an
/// older file at `path` stays as it was.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    FileDType dtype;
    std::vector<int64_t> shape;
  };

  /// Tensors are laid out, and must be appended, in the order of `entries`.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(const std::string& path, std::vector<Entry> entries,
                                                                   const std::map<std::string, std::string>& metadata);

  /// The next values of the current tensor, converted to its dtype; a tensor may come in pieces. InvalidArgument,
  /// naming tensor and element, for NaN, infinity and what the dtype cannot hold: nobody could load the file.
  absl::Status Append(absl::Span<const float> values);
  /// Everything is on the disk, but not under its name: of several files, each before the first is finished.
  /// InvalidArgument if tensors are missing.
  absl::Status Sync();
  absl::Status Finish();

 private:
  SafetensorsWriter() = default;

  absl::Status WritePiece(absl::Span<const float> values);
  absl::Status CheckComplete() const;
  void SkipFinishedTensors();

  std::unique_ptr<AtomicFile> file_;
  std::vector<Entry> entries_;
  std::vector<int64_t> elements_;  // of each entry
  size_t current_ = 0;
  int64_t written_in_current_ = 0;
  std::vector<uint16_t> converted_;
};

}  // namespace holdfast
