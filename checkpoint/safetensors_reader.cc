#include <algorithm>

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

// Called some runs before `data` is read, of which the processor cannot guess where they lie.
void Prefetch(const uint8_t* data, int64_t bytes) {
  constexpr int64_t kLine = 64, kPrefetchedBytes = 256;  // the rest of a long run the processor does guess
  for (int64_t at = 0; at < std::min(bytes, kPrefetchedBytes); at += kLine) __builtin_prefetch(data + at);
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
  return ReadRuns(name, {.first = first, .length = static_cast<int64_t>(out.size())}, out);
}

absl::Status SafetensorsReader::ReadRuns(const std::string& name, const ElementRuns& runs,
                                         absl::Span<float> out) const {
  constexpr int64_t kAhead = 16;  // runs
  ASSIGN_OR_RETURN(const SafetensorsEntry* const entry, Find(name));
  if (entry->dtype == FileDType::kOther) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(name), " has dtype ", Quoted(entry->dtype_name), "; F32, F16 and BF16 can be read"));
  }
  const int64_t count = out.empty() ? 0 : static_cast<int64_t>(out.size()) / runs.length;
  const int64_t span = count == 0 ? 0 : (count - 1) * runs.step + runs.length;
  const int64_t bytes = BytesPerElement(entry->dtype), run_bytes = runs.length * bytes;
  RETURN_IF_ERROR(CheckRange(name, *entry, bytes, runs.first, static_cast<size_t>(span)));
  const uint8_t* data = file_.data() + data_begin_ + entry->begin + static_cast<uint64_t>(runs.first * bytes);
  for (int64_t run = 0; run < count; ++run, data += runs.step * bytes) {
    if (run + kAhead < count) Prefetch(data + kAhead * runs.step * bytes, run_bytes);
    const int64_t bad = DecodeFloats(entry->dtype, data, out.subspan(run * runs.length, runs.length));
    Forget(data, run_bytes);
    if (bad < 0) continue;
    // As where a loss is not finite: no other worker reads it otherwise, so the run ends.
    return absl::FailedPreconditionError(
        absl::StrCat(Where(name), ": element ", runs.first + run * runs.step + bad, " is NaN or infinite"));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsReader::ReadBytes(const std::string& name, int64_t first, absl::Span<uint8_t> out) const {
  ASSIGN_OR_RETURN(const SafetensorsEntry* const entry, Find(name));
  RETURN_IF_ERROR(CheckRange(name, *entry, 1, first, out.size()));
  const uint8_t* data = file_.data() + data_begin_ + entry->begin + static_cast<uint64_t>(first);
  std::copy_n(data, out.size(), out.begin());
  Forget(data, static_cast<int64_t>(out.size()));
  return absl::OkStatus();
}

std::string SafetensorsReader::Where(const std::string& tensor) const {
  return absl::StrCat(path_, ": tensor ", Quoted(tensor));
}

absl::StatusOr<const SafetensorsEntry*> SafetensorsReader::Find(const std::string& name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return absl::NotFoundError(absl::StrCat(Where(name), " is not there"));
  return &it->second;
}

absl::Status SafetensorsReader::CheckRange(const std::string& name, const SafetensorsEntry& entry, int64_t bytes,
                                           int64_t first, size_t count) const {
  const int64_t elements = static_cast<int64_t>(entry.end - entry.begin) / bytes;
  if (first >= 0 && first <= elements && static_cast<int64_t>(count) <= elements - first) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat(Where(name), " has ", elements, " elements; ", count, " from ", first, " were asked for"));
}

void SafetensorsReader::Forget(const uint8_t* data, int64_t bytes) const {
  constexpr int64_t kForgottenBytes = 1 << 20;  // a model is not to be in memory twice; less is not worth the call
  if (bytes < kForgottenBytes) return;
  const auto begin = static_cast<size_t>(data - file_.data());
  file_.Forget(begin, begin + static_cast<size_t>(bytes));
}

}  // namespace holdfast
