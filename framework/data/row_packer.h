#pragma once
// Documents of different lengths into rows of one length: each goes into the row with room for it that has the least
// (best fit; Johnson 1974), of those that are open. What stays free in a row repeats its documents, not learned:
// routers of experts balance all tokens, of which one over and over would make a few experts look busy.

#include <cstdint>
#include <map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

namespace holdfast {

/// Thread-safety: none. What comes out depends on the documents and their order only.
class RowPacker {
 public:
  struct Options {
    int64_t row_tokens = 0;    // of each row
    int64_t open_rows = 4096;  // at most; each is held in memory
  };
  /// A whole row: its documents' tokens with their marks, then what repeats them.
  using Emit = absl::FunctionRef<absl::Status(absl::Span<const uint32_t> row)>;

  explicit RowPacker(const Options& options) : options_(options) {}

  /// 1 to row_tokens tokens, marked (token_file.h); the first is marked as that of a document.
  absl::Status Add(absl::Span<const uint32_t> document, Emit emit);
  /// The rows that are still open.
  absl::Status Finish(Emit emit);

  int64_t open_rows() const { return static_cast<int64_t>(open_.size()); }
  int64_t rows() const { return rows_; }
  int64_t tokens() const { return tokens_; }  // of all documents

 private:
  using Rows = std::multimap<int64_t, std::vector<uint32_t>>;  // by the room that is left
  absl::Status Close(Rows::iterator row, Emit emit);

  Options options_;
  Rows open_;
  int64_t rows_ = 0, tokens_ = 0;
};

}  // namespace holdfast
