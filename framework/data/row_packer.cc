#include "framework/data/row_packer.h"

#include <utility>

#include "framework/base/status.h"
#include "framework/data/token_file.h"

namespace holdfast {

absl::Status RowPacker::Add(absl::Span<const uint32_t> document, Emit emit) {
  const auto length = static_cast<int64_t>(document.size());
  HOLDFAST_CHECK(length > 0 && length <= options_.row_tokens && (document[0] & kDocumentStart) != 0);
  tokens_ += length;
  std::vector<uint32_t> row;
  int64_t room = options_.row_tokens;
  if (const auto fits = open_.lower_bound(length); fits != open_.end()) {
    room = fits->first;
    row = std::move(open_.extract(fits).mapped());
  }
  row.insert(row.end(), document.begin(), document.end());
  const auto placed = open_.emplace(room - length, std::move(row));
  if (placed->first == 0) return Close(placed, emit);
  return static_cast<int64_t>(open_.size()) > options_.open_rows ? Close(open_.begin(), emit) : absl::OkStatus();
}

absl::Status RowPacker::Finish(Emit emit) {
  while (!open_.empty()) RETURN_IF_ERROR(Close(open_.begin(), emit));
  return absl::OkStatus();
}

absl::Status RowPacker::Close(Rows::iterator row, Emit emit) {
  std::vector<uint32_t> tokens = std::move(open_.extract(row).mapped());
  const size_t used = tokens.size();
  tokens.resize(static_cast<size_t>(options_.row_tokens));
  for (size_t i = used; i < tokens.size(); ++i) tokens[i] = tokens[i - used] | kNotLearned;
  ++rows_;
  return emit(tokens);
}

}  // namespace holdfast
