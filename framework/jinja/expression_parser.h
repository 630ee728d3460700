#pragma once
// Tokens to expressions, with Jinja2's precedence.

#include "absl/status/statusor.h"
#include "framework/jinja/syntax.h"
#include "framework/jinja/token_stream.h"

namespace holdfast::jinja {

/// Trees are not deeper, so that what walks them has enough stack.
inline constexpr int kExpressionDepthMax = 200;

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  absl::StatusOr<ExpressionPtr> Parse(bool with_conditional = true);
  /// `1, 2` is a tuple.
  absl::StatusOr<ExpressionPtr> ParseTuple(bool with_conditional = true);
  /// One after the other, from "|" on; the innermost is applied to null.
  absl::StatusOr<ExpressionPtr> ParseFilters(ExpressionPtr input);
  absl::StatusOr<Target> ParseTarget(bool with_attributes);

 private:
  class Depth;
  using Result = absl::StatusOr<ExpressionPtr>;

  Result Make(Expression expression);
  Result MakeOf(Expression::Kind kind, size_t position, ExpressionPtr first, ExpressionPtr second);
  bool IsTupleEnd() const;
  Result ParseTupleOf(bool with_conditional, bool in_parentheses);
  Result ParseConditional();
  Result ParseOr();
  Result ParseAnd();
  Result ParseNot();
  Result ParseCompare();
  Result ParseSum();
  Result ParseConcatenation();
  Result ParseProduct();
  Result ParsePower();
  Result ParseUnary(bool with_filters);
  Result ParsePrimary();
  Result ParseName();
  Result ParseString();
  Result ParseList();
  Result ParseDict();
  Result ParsePostfix(ExpressionPtr input);
  Result ParseFiltersAndTests(ExpressionPtr input);
  Result ParseAttribute(ExpressionPtr input);
  Result ParseSubscript(ExpressionPtr input);
  Result ParseTest(ExpressionPtr input);
  absl::Status ParseArguments(Expression& call);
  absl::StatusOr<Target> ParseTargetPart(bool with_attributes);

  TokenStream& tokens_;
  int depth_ = 0;
};

}  // namespace holdfast::jinja
