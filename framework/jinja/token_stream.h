#pragma once
// The tokens of a template, one after the other, with the errors of who reads them.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "framework/jinja/lexer.h"

namespace holdfast::jinja {

class TokenStream {
 public:
  TokenStream(absl::string_view source, std::vector<Token> tokens) : source_(source), tokens_(std::move(tokens)) {}

  absl::string_view source() const { return source_; }
  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  /// The current token; goes behind it.
  const Token& Take() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool TakeIfName(absl::string_view name) { return current().IsName(name) && (Take(), true); }
  bool TakeIfOperator(absl::string_view text) { return current().IsOperator(text) && (Take(), true); }
  bool Is(Token::Kind kind) const { return current().kind == kind; }

  absl::Status ExpectOperator(absl::string_view text) {
    return TakeIfOperator(text) ? absl::OkStatus() : FailExpecting(absl::StrCat("\"", text, "\""));
  }
  absl::Status ExpectBlockEnd() {
    if (!Is(Token::Kind::kBlockEnd)) return FailExpecting("\"%}\"");
    Take();
    return absl::OkStatus();
  }

  absl::Status FailExpecting(absl::string_view expected) const {
    return Fail(current().position, absl::StrCat("expected ", expected, ", found ", Describe(current())));
  }
  absl::Status Fail(size_t position, absl::string_view message) const {
    return Locate(absl::InvalidArgumentError(message), source_, position);
  }
  absl::Status FailUnsupported(size_t position, absl::string_view what) const {
    return Locate(absl::UnimplementedError(absl::StrCat(what, " is not in the subset of Jinja2 that is supported")),
                  source_, position);
  }

 private:
  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case Token::Kind::kData:
        return "text";
      case Token::Kind::kVariableBegin:
        return "\"{{\"";
      case Token::Kind::kVariableEnd:
        return "\"}}\"";
      case Token::Kind::kBlockBegin:
        return "\"{%\"";
      case Token::Kind::kBlockEnd:
        return "\"%}\"";
      case Token::Kind::kConstant:
        return token.value.is_string() ? "a string" : "a number";
      case Token::Kind::kEnd:
        return "the end of the template";
      case Token::Kind::kName:
      case Token::Kind::kOperator:
        break;
    }
    return absl::StrCat("\"", token.text, "\"");
  }

  absl::string_view source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace holdfast::jinja
