#pragma once
// Lines of JSONL in batches, each of which is the work of a task.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "framework/data/document_reader.h"

namespace holdfast {

/// Some lines of a file, none of them blank.
class LineBatch {
 public:
  explicit LineBatch(std::string file) : file_(std::move(file)) {}

  void Add(std::string_view line, int64_t number);
  size_t bytes() const { return text_.size(); }
  /// One after the other, up to the first error, which gets "FILE:LINE: " in front.
  absl::Status ForEach(absl::FunctionRef<absl::Status(std::string_view line)> take) const;

 private:
  struct Line {
    size_t begin, size;
    int64_t number;
  };

  std::string file_;
  std::string text_;
  std::vector<Line> lines_;
};

/// All lines of `file` that are not blank, in order; those before one that cannot be read, too. Errors of `take` are
/// returned as they are.
absl::Status ReadLineBatches(InputFile& file, const std::function<absl::Status(LineBatch batch)>& take,
                             const std::function<void(int64_t bytes)>& count_bytes);

}  // namespace holdfast
