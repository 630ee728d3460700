#include "framework/jinja/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "framework/base/status.h"
#include "framework/jinja/expression_parser.h"
#include "framework/jinja/lexer.h"
#include "framework/jinja/token_stream.h"

namespace holdfast::jinja {
namespace {

constexpr int kStatementDepthMax = 100;

constexpr std::array<absl::string_view, 10> kUnsupportedTags = {"block",  "extends", "print",      "include", "from",
                                                                "import", "with",    "autoescape", "do",      "trans"};

class Parser {
 public:
  explicit Parser(TokenStream tokens) : tokens_(std::move(tokens)), expressions_(tokens_) {}

  absl::StatusOr<Statements> Run() {
    ASSIGN_OR_RETURN(Statements body, ParseBody({}));
    return body;
  }
  bool marks_generation() const { return marks_generation_; }

 private:
  using Ends = std::initializer_list<absl::string_view>;

  // Where a statement stands.
  struct Surroundings {
    int depth = 0;
    bool in_loop = false;
    bool is_captured = false;  // what is written goes into a variable or a macro's result
  };

  // Up to a tag that is one of `ends`, whose name is the current token then; to the end of the template without any.
  absl::StatusOr<Statements> ParseBody(Ends ends) {
    Statements body;
    while (true) {
      const Token& token = tokens_.current();
      if (token.kind == Token::Kind::kEnd) {
        if (ends.size() == 0) return body;
        return tokens_.FailExpecting(absl::StrCat("{% ", absl::StrJoin(ends, " %} or {% "), " %}"));
      }
      tokens_.Take();
      if (token.kind == Token::Kind::kData) {
        body.push_back({.kind = Statement::Kind::kText, .position = token.position, .text = token.text});
      } else if (token.kind == Token::Kind::kVariableBegin) {
        Statement output{.kind = Statement::Kind::kOutput, .position = token.position};
        ASSIGN_OR_RETURN(output.expression, expressions_.ParseTuple());
        if (!tokens_.Is(Token::Kind::kVariableEnd)) return tokens_.FailExpecting("\"}}\"");
        tokens_.Take();
        body.push_back(std::move(output));
      } else {
        const auto is_current = [&](absl::string_view end) { return tokens_.current().IsName(end); };
        if (std::any_of(ends.begin(), ends.end(), is_current)) return body;
        ASSIGN_OR_RETURN(Statement statement, ParseStatement());
        RETURN_IF_ERROR(tokens_.ExpectBlockEnd());
        body.push_back(std::move(statement));
      }
    }
  }

  // Behind a tag: its body, and the name of the tag that ends it.
  absl::StatusOr<std::pair<Statements, std::string>> ParseBlock(Ends ends) {
    tokens_.TakeIfOperator(":");
    RETURN_IF_ERROR(tokens_.ExpectBlockEnd());
    const Surroundings before = around_;
    if (++around_.depth > kStatementDepthMax) {
      return tokens_.Fail(tokens_.current().position, "blocks nest deeper than 100");
    }
    ASSIGN_OR_RETURN(Statements body, ParseBody(ends));
    around_ = before;
    return std::pair(std::move(body), tokens_.Take().text);
  }

  // One whose body is not part of the loop around it.
  absl::StatusOr<Statements> ParseCapturedBlock(absl::string_view end) {
    const Surroundings before = around_;
    around_.in_loop = false;
    around_.is_captured = true;
    ASSIGN_OR_RETURN(auto block, ParseBlock({end}));
    around_ = before;
    return std::move(block.first);
  }

  absl::StatusOr<Statement> ParseStatement() {
    const Token& token = tokens_.current();
    if (token.kind != Token::Kind::kName) return tokens_.FailExpecting("the name of a tag");
    tokens_.Take();
    Statement statement{.position = token.position};
    absl::Status status;
    if (token.text == "if") {
      status = ParseIf(statement);
    } else if (token.text == "for") {
      status = ParseFor(statement);
    } else if (token.text == "set") {
      status = ParseSet(statement);
    } else if (token.text == "filter") {
      status = ParseFilter(statement);
    } else if (token.text == "macro") {
      status = ParseMacro(statement);
    } else if (token.text == "call") {
      status = ParseCall(statement);
    } else if (token.text == "generation") {
      status = ParseGeneration(statement);
    } else if (token.text == "break" || token.text == "continue") {
      statement.kind = token.text == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue;
      if (!around_.in_loop) status = tokens_.Fail(token.position, absl::StrCat("{% ", token.text, " %} in no loop"));
    } else if (std::find(kUnsupportedTags.begin(), kUnsupportedTags.end(), token.text) != kUnsupportedTags.end()) {
      status = tokens_.FailUnsupported(token.position, absl::StrCat("{% ", token.text, " %}"));
    } else {
      status = tokens_.Fail(token.position, absl::StrCat("{% ", token.text, " %} is not expected here"));
    }
    RETURN_IF_ERROR(status);
    return statement;
  }

  absl::Status ParseIf(Statement& statement) {
    statement.kind = Statement::Kind::kIf;
    std::string end = "elif";
    while (end == "elif") {
      ASSIGN_OR_RETURN(ExpressionPtr condition, expressions_.ParseTuple(/*with_conditional=*/false));
      statement.conditions.push_back(std::move(condition));
      ASSIGN_OR_RETURN(auto block, ParseBlock({"elif", "else", "endif"}));
      statement.bodies.push_back(std::move(block.first));
      end = block.second;
    }
    if (end != "else") return absl::OkStatus();
    ASSIGN_OR_RETURN(auto block, ParseBlock({"endif"}));
    statement.bodies.push_back(std::move(block.first));
    return absl::OkStatus();
  }

  absl::Status ParseFor(Statement& statement) {
    statement.kind = Statement::Kind::kFor;
    ASSIGN_OR_RETURN(statement.target, expressions_.ParseTarget(/*with_attributes=*/false));
    if (!tokens_.TakeIfName("in")) return tokens_.FailExpecting("\"in\"");
    ASSIGN_OR_RETURN(statement.expression, expressions_.ParseTuple(/*with_conditional=*/false));
    if (tokens_.TakeIfName("if")) {
      ASSIGN_OR_RETURN(statement.condition, expressions_.Parse());
    }
    if (tokens_.current().IsName("recursive")) {
      return tokens_.FailUnsupported(tokens_.current().position, "a recursive loop");
    }
    const bool was_in_loop = std::exchange(around_.in_loop, true);
    ASSIGN_OR_RETURN(auto block, ParseBlock({"endfor", "else"}));
    around_.in_loop = was_in_loop;
    statement.bodies.push_back(std::move(block.first));
    if (block.second == "endfor") return absl::OkStatus();
    ASSIGN_OR_RETURN(block, ParseBlock({"endfor"}));
    statement.bodies.push_back(std::move(block.first));
    return absl::OkStatus();
  }

  absl::Status ParseSet(Statement& statement) {
    statement.kind = Statement::Kind::kSet;
    ASSIGN_OR_RETURN(statement.target, expressions_.ParseTarget(/*with_attributes=*/true));
    if (tokens_.TakeIfOperator("=")) {
      ASSIGN_OR_RETURN(statement.expression, expressions_.ParseTuple());
      return absl::OkStatus();
    }
    statement.kind = Statement::Kind::kSetBlock;
    ASSIGN_OR_RETURN(statement.expression, expressions_.ParseFilters(nullptr));
    ASSIGN_OR_RETURN(Statements body, ParseCapturedBlock("endset"));
    statement.bodies.push_back(std::move(body));
    return absl::OkStatus();
  }

  absl::Status ParseFilter(Statement& statement) {
    statement.kind = Statement::Kind::kFilter;
    ASSIGN_OR_RETURN(ExpressionPtr first, expressions_.ParseFilter(nullptr));
    ASSIGN_OR_RETURN(statement.expression, expressions_.ParseFilters(std::move(first)));
    ASSIGN_OR_RETURN(Statements body, ParseCapturedBlock("endfilter"));
    statement.bodies.push_back(std::move(body));
    return absl::OkStatus();
  }

  absl::Status ParseMacro(Statement& statement) {
    statement.kind = Statement::Kind::kMacro;
    if (!tokens_.Is(Token::Kind::kName)) return tokens_.FailExpecting("the name of the macro");
    statement.text = tokens_.Take().text;
    RETURN_IF_ERROR(ParseParameters(statement));
    return ParseMacroBody(statement, "endmacro");
  }

  absl::Status ParseCall(Statement& statement) {
    statement.kind = Statement::Kind::kCall;
    if (tokens_.current().IsOperator("(")) RETURN_IF_ERROR(ParseParameters(statement));
    const size_t position = tokens_.current().position;
    ASSIGN_OR_RETURN(statement.expression, expressions_.Parse());
    if (statement.expression->kind != Expression::Kind::kCall) {
      return tokens_.Fail(position, "expected a call of a macro");
    }
    return ParseMacroBody(statement, "endcall");
  }

  absl::Status ParseParameters(Statement& statement) {
    RETURN_IF_ERROR(tokens_.ExpectOperator("("));
    while (!tokens_.current().IsOperator(")")) {
      if (!tokens_.Is(Token::Kind::kName)) return tokens_.FailExpecting("the name of a parameter");
      const Token& name = tokens_.Take();
      Parameter parameter{.name = name.text, .fallback = nullptr};
      if (tokens_.TakeIfOperator("=")) {
        ASSIGN_OR_RETURN(parameter.fallback, expressions_.Parse());
      } else if (!statement.parameters.empty() && statement.parameters.back().fallback != nullptr) {
        return tokens_.Fail(name.position, "a parameter without a default after one with a default");
      }
      statement.parameters.push_back(std::move(parameter));
      if (!tokens_.TakeIfOperator(",")) break;
    }
    return tokens_.ExpectOperator(")");
  }

  absl::Status ParseMacroBody(Statement& statement, absl::string_view end) {
    const int callers_before = expressions_.callers();
    ASSIGN_OR_RETURN(Statements body, ParseCapturedBlock(end));
    statement.bodies.push_back(std::move(body));
    statement.names_caller = expressions_.callers() > callers_before;
    return absl::OkStatus();
  }

  absl::Status ParseGeneration(Statement& statement) {
    statement.kind = Statement::Kind::kGeneration;
    if (around_.is_captured) {
      return tokens_.FailUnsupported(statement.position,
                                     "{% generation %} in a macro, a set, call or filter block or another generation");
    }
    marks_generation_ = true;
    ASSIGN_OR_RETURN(Statements body, ParseCapturedBlock("endgeneration"));
    statement.bodies.push_back(std::move(body));
    return absl::OkStatus();
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  Surroundings around_;
  bool marks_generation_ = false;
};

}  // namespace

absl::StatusOr<TemplateNode> ParseTemplate(absl::string_view source) {
  TemplateNode node;
  node.source = NormalizeSource(source);
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(node.source));
  Parser parser(TokenStream(node.source, std::move(tokens)));
  ASSIGN_OR_RETURN(node.body, parser.Run());
  node.marks_generation = parser.marks_generation();
  return node;
}

}  // namespace holdfast::jinja
