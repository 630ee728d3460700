#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/half.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_header.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kPiece = size_t{1} << 18;  // elements checked, converted and written at a time

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, std::vector<Entry> entries, const std::map<std::string, std::string>& metadata) {
  auto header = FormatSafetensorsHeader(entries, metadata);
  if (!header.ok()) return Annotate(header.status(), path);
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter);
  uint64_t bytes = header->size();
  for (const Entry& entry : entries) {
    ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(entry.shape));
    writer->elements_.push_back(elements);
    bytes += static_cast<uint64_t>(elements * BytesPerElement(entry.dtype));
  }
  writer->entries_ = std::move(entries);
  ASSIGN_OR_RETURN(writer->file_, AtomicFile::Create(path));
  RETURN_IF_ERROR(writer->file_->Reserve(bytes));
  RETURN_IF_ERROR(writer->file_->Append(*header));
  writer->SkipFinishedTensors();
  return writer;
}

absl::Status SafetensorsWriter::Append(absl::Span<const float> values) {
  const auto count = static_cast<int64_t>(values.size());
  if (count == 0) return absl::OkStatus();
  if (current_ == entries_.size() || count > elements_[current_] - written_in_current_) {
    return absl::InvalidArgumentError(absl::StrCat(
        file_->path(), ": ", count, " values are more than ",
        current_ == entries_.size() ? "the file holds"
                                    : absl::StrCat("tensor ", Quoted(entries_[current_].name), " has left")));
  }
  for (size_t begin = 0; begin < values.size(); begin += kPiece) {
    RETURN_IF_ERROR(WritePiece(values.subspan(begin, std::min(kPiece, values.size() - begin))));
  }
  SkipFinishedTensors();
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::WritePiece(absl::Span<const float> values) {
  const Entry& entry = entries_[current_];
  const bool is_f32 = entry.dtype == FileDType::kF32;
  if (!is_f32) converted_.resize(std::max(converted_.size(), values.size()));
  const int64_t bad = is_f32 ? FindNonFinite(values) : EncodeHalves(entry.dtype, values, converted_.data());
  if (bad >= 0) {
    return absl::InvalidArgumentError(absl::StrCat(file_->path(), ": tensor ", Quoted(entry.name), ": element ",
                                                   written_in_current_ + bad, " is ", values[static_cast<size_t>(bad)],
                                                   ", which cannot be saved as ",
                                                   is_f32                           ? "F32"
                                                   : entry.dtype == FileDType::kF16 ? "F16"
                                                                                    : "BF16"));
  }
  RETURN_IF_ERROR(
      file_->Append(is_f32 ? AsBytes(values) : AsBytes(absl::MakeConstSpan(converted_).subspan(0, values.size()))));
  written_in_current_ += static_cast<int64_t>(values.size());
  return absl::OkStatus();
}

void SafetensorsWriter::SkipFinishedTensors() {
  while (current_ < entries_.size() && written_in_current_ == elements_[current_]) {
    ++current_;
    written_in_current_ = 0;
  }
}

absl::Status SafetensorsWriter::CheckComplete() const {
  if (current_ == entries_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file_->path(), ": tensor ", Quoted(entries_[current_].name), " has ",
                                                 written_in_current_, " of ", elements_[current_], " elements"));
}

absl::Status SafetensorsWriter::Sync() {
  RETURN_IF_ERROR(CheckComplete());
  return file_->Sync();
}

absl::Status SafetensorsWriter::Finish() {
  RETURN_IF_ERROR(CheckComplete());
  return file_->Commit();
}

}  // namespace holdfast
