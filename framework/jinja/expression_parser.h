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
  /// `name(arguments)`, a filter that is applied to `input`.
  absl::StatusOr<ExpressionPtr> ParseFilter(ExpressionPtr input);
  /// One after the other, from "|" on.
  absl::StatusOr<ExpressionPtr> ParseFilters(ExpressionPtr input);
  absl::StatusOr<Target> ParseTarget(bool with_attributes);
  /// How often the name "caller" has been read.
  int callers() const { return callers_; }

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
  absl::Status ParseArgument(Expression& call);
  absl::StatusOr<Target> ParseTargetPart(bool with_attributes);

  TokenStream& tokens_;
  int depth_ = 0, callers_ = 0;
};

}  // namespace holdfast::jinja
