#include "framework/data/line_batch.h"

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

// Beside lines that are up to kDocumentHeldBytesMax long: enough that a thread is worth beginning.
constexpr size_t kBatchBytes = 1 << 18;

}  // namespace

void LineBatch::Add(std::string_view line, int64_t number) {
  lines_.push_back({text_.size(), line.size(), number});
  text_ += line;
}

absl::Status LineBatch::ForEach(absl::FunctionRef<absl::Status(std::string_view line)> take) const {
  for (const Line& line : lines_) {
    const absl::Status status = take(std::string_view(text_).substr(line.begin, line.size));
    if (!status.ok()) return Annotate(status, absl::StrCat(file_, ":", line.number));
  }
  return absl::OkStatus();
}

absl::Status ReadLineBatches(InputFile& file, const std::function<absl::Status(LineBatch batch)>& take,
                             const std::function<void(int64_t bytes)>& count_bytes) {
  LineBatch batch(file.name());
  const auto take_batch = [&] { return take(std::exchange(batch, LineBatch(file.name()))); };
  const auto take_line = [&](std::string_view line, int64_t number) {
    batch.Add(line, number);
    return batch.bytes() < kBatchBytes ? absl::OkStatus() : take_batch();
  };
  const absl::Status read = ReadNumberedLines(file, take_line, count_bytes);
  const absl::Status taken = take_batch();  // the lines before the one that could not be read
  return read.ok() ? taken : read;
}

}  // namespace holdfast
