#pragma once
// The text of a template to tokens, as Jinja2's lexer with trim_blocks and lstrip_blocks: what white space a tag takes
// with it is decided here.

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/jinja/value.h"

namespace holdfast::jinja {

struct Token {
  enum class Kind { kData, kVariableBegin, kVariableEnd, kBlockBegin, kBlockEnd, kName, kConstant, kOperator, kEnd };

  Kind kind = Kind::kEnd;
  size_t position = 0;  // in the source
  std::string text;     // kData, kName, kOperator
  Value value;          // kConstant: a string or a number

  bool IsName(absl::string_view name) const { return kind == Kind::kName && text == name; }
  bool IsOperator(absl::string_view wanted) const { return kind == Kind::kOperator && text == wanted; }
  bool IsString() const { return kind == Kind::kConstant && value.is_string(); }
};

/// With "\n" for every line end, and without the last one: what positions count in.
std::string NormalizeSource(absl::string_view source);

/// Of a normalized source; ends with kEnd.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

/// `status` with line, column and the line itself.
absl::Status Locate(const absl::Status& status, absl::string_view source, size_t position);

}  // namespace holdfast::jinja
