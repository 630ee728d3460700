#include "absl/strings/str_cat.h"
#include "checkpoint/half.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_header.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kLengthBytes = 8;

uint64_t LoadLength(const uint8_t* data) {
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= uint64_t{data[i]} << (8 * i);
  return length;
}

absl::Status Truncated(const std::string& path, size_t size, uint64_t needed) {
  return absl::DataLossError(absl::StrCat(path, ": truncated: ", size, " bytes, at least ", needed, " are needed"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(const std::string& path) {
  std::unique_ptr<SafetensorsReader> reader(new SafetensorsReader);
  reader->path_ = path;
  ASSIGN_OR_RETURN(reader->file_, MappedFile::Open(path));
  const size_t size = reader->file_.size();
  if (size < kLengthBytes) return Truncated(path, size, kLengthBytes);
  const uint64_t length = LoadLength(reader->file_.data());
  if (length > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a safetensors file: its header would be ", length, " bytes long"));
  }
  if (length > size - kLengthBytes) return Truncated(path, size, kLengthBytes + length);
  reader->data_begin_ = kLengthBytes + static_cast<size_t>(length);

  const absl::string_view json(reinterpret_cast<const char*>(reader->file_.data()) + kLengthBytes,
                               static_cast<size_t>(length));
  auto header = ParseSafetensorsHeader(json, size - reader->data_begin_);
  if (!header.ok()) return Annotate(header.status(), path);
  reader->entries_ = std::move(header->entries);
  reader->metadata_ = std::move(header->metadata);
  return reader;
}

absl::Status SafetensorsReader::Read(const std::string& name, int64_t first, absl::Span<float> out) const {
  const auto it = entries_.find(name);
  const std::string where = absl::StrCat(path_, ": tensor ", Quoted(name));
  if (it == entries_.end()) return absl::NotFoundError(absl::StrCat(where, " is not there"));
  const SafetensorsEntry& entry = it->second;
  if (entry.dtype == FileDType::kOther) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, " has dtype ", Quoted(entry.dtype_name), "; F32, F16 and BF16 can be read"));
  }
  const int64_t bytes = BytesPerElement(entry.dtype);
  const int64_t elements = static_cast<int64_t>(entry.end - entry.begin) / bytes;
  if (first < 0 || first > elements || static_cast<int64_t>(out.size()) > elements - first) {
    return absl::OutOfRangeError(
        absl::StrCat(where, " has ", elements, " elements; ", out.size(), " from ", first, " were asked for"));
  }
  if (out.empty()) return absl::OkStatus();
  const uint8_t* data = file_.data() + data_begin_ + entry.begin + static_cast<uint64_t>(first * bytes);
  const int64_t bad = DecodeFloats(entry.dtype, data, out);
  constexpr int64_t kForgottenBytes = 1 << 20;  // a model is not to be in memory twice; less is not worth the call
  if (const auto read = static_cast<int64_t>(out.size()) * bytes; read >= kForgottenBytes) {
    const auto begin = static_cast<size_t>(data - file_.data());
    file_.Forget(begin, begin + static_cast<size_t>(read));
  }
  if (bad < 0) return absl::OkStatus();
  // As where a loss is not finite: no other worker reads it otherwise, so the run ends.
  return absl::FailedPreconditionError(absl::StrCat(where, ": element ", first + bad, " is NaN or infinite"));
}

}  // namespace holdfast
