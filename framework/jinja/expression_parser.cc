#include "framework/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "framework/base/status.h"
#include "framework/jinja/filters.h"
#include "framework/jinja/tests.h"

namespace holdfast::jinja {

// Counts how deep the parser calls itself.
class ExpressionParser::Depth {
 public:
  explicit Depth(ExpressionParser& parser) : depth_(++parser.depth_), count_(parser.depth_) {}
  ~Depth() { --count_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  absl::Status Check(const TokenStream& tokens) const {
    return depth_ <= kExpressionDepthMax ? absl::OkStatus()
                                         : tokens.Fail(tokens.current().position, "expressions nest deeper than 200");
  }

 private:
  int depth_;
  int& count_;
};

absl::StatusOr<ExpressionPtr> ExpressionParser::Make(Expression expression) {
  for (const ExpressionPtr& operand : expression.operands) {
    if (operand != nullptr) expression.depth = std::max(expression.depth, 1 + operand->depth);
  }
  for (const auto& [name, value] : expression.keywords) expression.depth = std::max(expression.depth, 1 + value->depth);
  for (const ExpressionPtr* rest : {&expression.list, &expression.dict}) {
    if (*rest != nullptr) expression.depth = std::max(expression.depth, 1 + (*rest)->depth);
  }
  if (expression.depth > kExpressionDepthMax) {
    return tokens_.Fail(expression.position, "an expression of more than 200 operations in each other");
  }
  return std::make_unique<const Expression>(std::move(expression));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::MakeOf(Expression::Kind kind, size_t position, ExpressionPtr first,
                                                       ExpressionPtr second) {
  Expression expression{.kind = kind, .position = position};
  expression.operands.push_back(std::move(first));
  if (second != nullptr) expression.operands.push_back(std::move(second));
  return Make(std::move(expression));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Parse(bool with_conditional) {
  const Depth depth(*this);
  RETURN_IF_ERROR(depth.Check(tokens_));
  return with_conditional ? ParseConditional() : ParseOr();
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTuple(bool with_conditional) {
  return ParseTupleOf(with_conditional, false);
}

bool ExpressionParser::IsTupleEnd() const {
  return tokens_.Is(Token::Kind::kVariableEnd) || tokens_.Is(Token::Kind::kBlockEnd) ||
         tokens_.current().IsOperator(")");
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTupleOf(bool with_conditional, bool in_parentheses) {
  Expression tuple{.kind = Expression::Kind::kTuple, .position = tokens_.current().position};
  bool is_tuple = false;
  while (!IsTupleEnd()) {
    ASSIGN_OR_RETURN(ExpressionPtr item, Parse(with_conditional));
    tuple.operands.push_back(std::move(item));
    if (!tokens_.TakeIfOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !tuple.operands.empty()) return std::move(tuple.operands[0]);
  if (!is_tuple && !in_parentheses) return tokens_.FailExpecting("an expression");
  return Make(std::move(tuple));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConditional() {
  const size_t position = tokens_.current().position;
  ASSIGN_OR_RETURN(ExpressionPtr result, ParseOr());
  while (tokens_.TakeIfName("if")) {
    Expression conditional{.kind = Expression::Kind::kConditional, .position = position};
    conditional.operands.push_back(std::move(result));
    ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
    conditional.operands.push_back(std::move(condition));
    ExpressionPtr other;
    if (tokens_.TakeIfName("else")) {
      ASSIGN_OR_RETURN(other, Parse());
    }
    conditional.operands.push_back(std::move(other));
    ASSIGN_OR_RETURN(result, Make(std::move(conditional)));
  }
  return result;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseOr() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (tokens_.current().IsName("or")) {
    const size_t position = tokens_.Take().position;
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    ASSIGN_OR_RETURN(left, MakeOf(Expression::Kind::kOr, position, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAnd() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (tokens_.current().IsName("and")) {
    const size_t position = tokens_.Take().position;
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    ASSIGN_OR_RETURN(left, MakeOf(Expression::Kind::kAnd, position, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNot() {
  if (!tokens_.current().IsName("not")) return ParseCompare();
  const Depth depth(*this);
  RETURN_IF_ERROR(depth.Check(tokens_));
  const size_t position = tokens_.Take().position;
  ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
  return MakeOf(Expression::Kind::kNot, position, std::move(operand), nullptr);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCompare() {
  constexpr std::array<absl::string_view, 6> kComparisons = {"==", "!=", "<", "<=", ">", ">="};
  Expression compare{.kind = Expression::Kind::kCompare, .position = tokens_.current().position};
  ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
  compare.operands.push_back(std::move(first));
  while (true) {
    const Token& token = tokens_.current();
    const bool compares = token.kind == Token::Kind::kOperator &&
                          std::find(kComparisons.begin(), kComparisons.end(), token.text) != kComparisons.end();
    const bool is_not_in = token.IsName("not") && tokens_.next().IsName("in");
    if (!compares && !is_not_in && !token.IsName("in")) break;
    compare.names.push_back(is_not_in ? "not in" : token.text);
    if (compare.names.size() == 1) compare.position = token.position;
    tokens_.Take();
    if (is_not_in) tokens_.Take();
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseSum());
    compare.operands.push_back(std::move(right));
  }
  if (compare.names.empty()) return std::move(compare.operands[0]);
  return Make(std::move(compare));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSum() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseConcatenation());
  while (tokens_.current().IsOperator("+") || tokens_.current().IsOperator("-")) {
    Expression sum{
        .kind = Expression::Kind::kArithmetic, .position = tokens_.current().position, .name = tokens_.current().text};
    tokens_.Take();
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseConcatenation());
    sum.operands.push_back(std::move(left));
    sum.operands.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Make(std::move(sum)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConcatenation() {
  Expression all{.kind = Expression::Kind::kConcatenate, .position = tokens_.current().position};
  do {
    ASSIGN_OR_RETURN(ExpressionPtr part, ParseProduct());
    all.operands.push_back(std::move(part));
  } while (tokens_.TakeIfOperator("~"));
  if (all.operands.size() == 1) return std::move(all.operands[0]);
  return Make(std::move(all));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseProduct() {
  constexpr std::array<absl::string_view, 4> kProducts = {"*", "/", "//", "%"};
  ASSIGN_OR_RETURN(ExpressionPtr left, ParsePower());
  while (tokens_.Is(Token::Kind::kOperator) &&
         std::find(kProducts.begin(), kProducts.end(), tokens_.current().text) != kProducts.end()) {
    Expression product{
        .kind = Expression::Kind::kArithmetic, .position = tokens_.current().position, .name = tokens_.current().text};
    tokens_.Take();
    ASSIGN_OR_RETURN(ExpressionPtr right, ParsePower());
    product.operands.push_back(std::move(left));
    product.operands.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Make(std::move(product)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePower() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseUnary(true));
  while (tokens_.current().IsOperator("**")) {
    Expression power{.kind = Expression::Kind::kArithmetic, .position = tokens_.Take().position, .name = "**"};
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseUnary(true));
    power.operands.push_back(std::move(left));
    power.operands.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Make(std::move(power)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseUnary(bool with_filters) {
  const Depth depth(*this);
  RETURN_IF_ERROR(depth.Check(tokens_));
  const bool is_minus = tokens_.current().IsOperator("-");
  ExpressionPtr operand;
  if (is_minus || tokens_.current().IsOperator("+")) {
    const size_t position = tokens_.Take().position;
    ASSIGN_OR_RETURN(operand, ParseUnary(false));
    ASSIGN_OR_RETURN(operand, MakeOf(is_minus ? Expression::Kind::kNegative : Expression::Kind::kPositive, position,
                                     std::move(operand), nullptr));
  } else {
    ASSIGN_OR_RETURN(operand, ParsePrimary());
  }
  ASSIGN_OR_RETURN(operand, ParsePostfix(std::move(operand)));
  if (!with_filters) return operand;
  return ParseFiltersAndTests(std::move(operand));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePrimary() {
  const Token& token = tokens_.current();
  if (token.kind == Token::Kind::kName) return ParseName();
  if (token.IsString()) return ParseString();
  if (token.kind == Token::Kind::kConstant) {
    tokens_.Take();
    return Make({.kind = Expression::Kind::kConstant, .position = token.position, .value = token.value});
  }
  if (token.IsOperator("(")) {
    tokens_.Take();
    ASSIGN_OR_RETURN(ExpressionPtr inner, ParseTupleOf(true, true));
    RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
    return inner;
  }
  if (token.IsOperator("[")) return ParseList();
  if (token.IsOperator("{")) return ParseDict();
  return tokens_.FailExpecting("an expression");
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseName() {
  const Token& token = tokens_.Take();
  Expression name{.kind = Expression::Kind::kConstant, .position = token.position};
  if (token.text == "true" || token.text == "True") {
    name.value = true;
  } else if (token.text == "false" || token.text == "False") {
    name.value = false;
  } else if (token.text != "none" && token.text != "None") {
    name.kind = Expression::Kind::kName;
    name.name = token.text;
    if (name.name == "caller") ++callers_;
  }
  return Make(std::move(name));
}

// Strings beside each other are one.
absl::StatusOr<ExpressionPtr> ExpressionParser::ParseString() {
  const size_t position = tokens_.current().position;
  std::string text;
  while (tokens_.current().IsString()) text += tokens_.Take().value.string();
  return Make({.kind = Expression::Kind::kConstant, .position = position, .value = Value(std::move(text))});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseList() {
  Expression list{.kind = Expression::Kind::kList, .position = tokens_.Take().position};
  while (!tokens_.current().IsOperator("]")) {
    ASSIGN_OR_RETURN(ExpressionPtr item, Parse());
    list.operands.push_back(std::move(item));
    if (!tokens_.TakeIfOperator(",")) break;
  }
  RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  return Make(std::move(list));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseDict() {
  Expression dict{.kind = Expression::Kind::kDict, .position = tokens_.Take().position};
  while (!tokens_.current().IsOperator("}")) {
    ASSIGN_OR_RETURN(ExpressionPtr key, Parse());
    RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    ASSIGN_OR_RETURN(ExpressionPtr item, Parse());
    dict.operands.push_back(std::move(key));
    dict.operands.push_back(std::move(item));
    if (!tokens_.TakeIfOperator(",")) break;
  }
  RETURN_IF_ERROR(tokens_.ExpectOperator("}"));
  return Make(std::move(dict));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePostfix(ExpressionPtr input) {
  while (true) {
    const Token& token = tokens_.current();
    if (token.IsOperator(".")) {
      ASSIGN_OR_RETURN(input, ParseAttribute(std::move(input)));
    } else if (token.IsOperator("[")) {
      ASSIGN_OR_RETURN(input, ParseSubscript(std::move(input)));
    } else if (token.IsOperator("(")) {
      Expression call{.kind = Expression::Kind::kCall, .position = token.position};
      call.operands.push_back(std::move(input));
      RETURN_IF_ERROR(ParseArguments(call));
      ASSIGN_OR_RETURN(input, Make(std::move(call)));
    } else {
      return input;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFiltersAndTests(ExpressionPtr input) {
  while (true) {
    const Token& token = tokens_.current();
    if (token.IsOperator("|")) {
      ASSIGN_OR_RETURN(input, ParseFilters(std::move(input)));
    } else if (token.IsName("is")) {
      ASSIGN_OR_RETURN(input, ParseTest(std::move(input)));
    } else if (token.IsOperator("(")) {
      ASSIGN_OR_RETURN(input, ParsePostfix(std::move(input)));
    } else {
      return input;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAttribute(ExpressionPtr input) {
  const size_t position = tokens_.Take().position;
  const Token& token = tokens_.Take();
  if (token.kind == Token::Kind::kName) {
    Expression attribute{.kind = Expression::Kind::kAttribute, .position = position, .name = token.text};
    attribute.operands.push_back(std::move(input));
    return Make(std::move(attribute));
  }
  if (token.kind != Token::Kind::kConstant || !token.value.is_int()) {
    return tokens_.Fail(token.position, "expected a name or a number after \".\"");
  }
  ASSIGN_OR_RETURN(ExpressionPtr index,
                   Make({.kind = Expression::Kind::kConstant, .position = token.position, .value = token.value}));
  return MakeOf(Expression::Kind::kItem, position, std::move(input), std::move(index));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSubscript(ExpressionPtr input) {
  Expression item{.kind = Expression::Kind::kItem, .position = tokens_.Take().position};
  item.operands.push_back(std::move(input));
  for (int part = 0; part < 3; ++part) {
    ExpressionPtr index;
    if (!tokens_.current().IsOperator(":") && !tokens_.current().IsOperator("]")) {
      ASSIGN_OR_RETURN(index, Parse());
    }
    item.operands.push_back(std::move(index));
    if (part == 2 || !tokens_.TakeIfOperator(":")) break;
    item.kind = Expression::Kind::kSlice;
  }
  if (tokens_.current().IsOperator(",")) {
    return tokens_.FailUnsupported(tokens_.current().position, "a subscript of several parts");
  }
  if (item.kind == Expression::Kind::kItem && item.operands[1] == nullptr) return tokens_.FailExpecting("an index");
  RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  if (item.kind == Expression::Kind::kSlice) item.operands.resize(4);
  return Make(std::move(item));
}

absl::Status ExpressionParser::ParseArguments(Expression& call) {
  RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  while (!tokens_.current().IsOperator(")")) {
    RETURN_IF_ERROR(ParseArgument(call));
    if (!tokens_.TakeIfOperator(",")) break;
  }
  return tokens_.ExpectOperator(")");
}

absl::Status ExpressionParser::ParseArgument(Expression& call) {
  const Token& token = tokens_.current();
  if (call.dict != nullptr) return tokens_.Fail(token.position, "an argument after one with \"**\"");
  if (tokens_.TakeIfOperator("**")) {
    ASSIGN_OR_RETURN(call.dict, Parse());
    return absl::OkStatus();
  }
  const bool has_name = token.kind == Token::Kind::kName && tokens_.next().IsOperator("=");
  if (!has_name && call.list != nullptr) {
    return tokens_.Fail(token.position, "an argument without a name after one with \"*\"");
  }
  if (tokens_.TakeIfOperator("*")) {
    ASSIGN_OR_RETURN(call.list, Parse());
    return absl::OkStatus();
  }
  if (!has_name && !call.keywords.empty()) {
    return tokens_.Fail(token.position, "an argument without a name after one with a name");
  }
  if (has_name) {
    tokens_.Take();
    tokens_.Take();
  }
  ASSIGN_OR_RETURN(ExpressionPtr argument, Parse());
  if (has_name) {
    call.keywords.emplace_back(token.text, std::move(argument));
  } else {
    call.operands.push_back(std::move(argument));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilter(ExpressionPtr input) {
  if (!tokens_.Is(Token::Kind::kName)) return tokens_.FailExpecting("the name of a filter");
  const Token& name = tokens_.Take();
  Expression filter{.kind = Expression::Kind::kFilter, .position = name.position, .name = name.text};
  filter.filter = FindFilter(name.text);
  if (filter.filter == nullptr) {
    return tokens_.FailUnsupported(name.position, absl::StrCat("the filter \"", name.text, "\""));
  }
  filter.operands.push_back(std::move(input));
  if (tokens_.current().IsOperator("(")) RETURN_IF_ERROR(ParseArguments(filter));
  return Make(std::move(filter));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilters(ExpressionPtr input) {
  while (tokens_.TakeIfOperator("|")) {
    ASSIGN_OR_RETURN(input, ParseFilter(std::move(input)));
  }
  return input;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTest(ExpressionPtr input) {
  const size_t position = tokens_.Take().position;
  const bool negated = tokens_.TakeIfName("not");
  if (!tokens_.Is(Token::Kind::kName)) return tokens_.FailExpecting("the name of a test");
  const Token& name = tokens_.Take();
  Expression test{.kind = Expression::Kind::kTest, .position = name.position, .name = name.text};
  test.test = FindTest(name.text);
  if (test.test == nullptr) {
    return tokens_.FailUnsupported(name.position, absl::StrCat("the test \"", name.text, "\""));
  }
  test.operands.push_back(std::move(input));
  const Token& token = tokens_.current();
  const bool ends = token.IsName("else") || token.IsName("or") || token.IsName("and");
  const bool has_argument = token.kind == Token::Kind::kName || token.kind == Token::Kind::kConstant ||
                            token.IsOperator("[") || token.IsOperator("{");
  if (token.IsOperator("(")) {
    RETURN_IF_ERROR(ParseArguments(test));
  } else if (has_argument && !ends) {
    if (token.IsName("is")) return tokens_.Fail(token.position, "tests cannot follow each other");
    ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
    ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    test.operands.push_back(std::move(argument));
  }
  ASSIGN_OR_RETURN(ExpressionPtr result, Make(std::move(test)));
  return negated ? MakeOf(Expression::Kind::kNot, position, std::move(result), nullptr) : std::move(result);
}

absl::StatusOr<Target> ExpressionParser::ParseTargetPart(bool with_attributes) {
  Target part{.position = tokens_.current().position};
  if (tokens_.TakeIfOperator("(")) {
    const Depth depth(*this);
    RETURN_IF_ERROR(depth.Check(tokens_));
    ASSIGN_OR_RETURN(part, ParseTarget(with_attributes));
    RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
    return part;
  }
  if (!tokens_.Is(Token::Kind::kName)) return tokens_.FailExpecting("a name to assign to");
  part.name = tokens_.Take().text;
  if (part.name == "loop") return tokens_.FailUnsupported(part.position, "assigning to \"loop\"");
  constexpr std::array<absl::string_view, 6> kConstants = {"true", "True", "false", "False", "none", "None"};
  if (std::find(kConstants.begin(), kConstants.end(), part.name) != kConstants.end()) {
    return tokens_.Fail(part.position, absl::StrCat("\"", part.name, "\" cannot be assigned to"));
  }
  if (!with_attributes || !tokens_.TakeIfOperator(".")) return part;
  if (!tokens_.Is(Token::Kind::kName)) return tokens_.FailExpecting("the name of an attribute");
  part.attribute = tokens_.Take().text;
  return part;
}

absl::StatusOr<Target> ExpressionParser::ParseTarget(bool with_attributes) {
  Target tuple{.position = tokens_.current().position};
  bool is_tuple = false;
  while (!IsTupleEnd() && !tokens_.current().IsName("in") && !tokens_.current().IsOperator("=")) {
    ASSIGN_OR_RETURN(Target part, ParseTargetPart(with_attributes));
    tuple.parts.push_back(std::move(part));
    if (!tokens_.TakeIfOperator(",")) break;
    is_tuple = true;
  }
  if (tuple.parts.empty()) return tokens_.FailExpecting("a name to assign to");
  if (!is_tuple) {
    Target only = std::move(tuple.parts[0]);
    return only;
  }
  return tuple;
}

}  // namespace holdfast::jinja
