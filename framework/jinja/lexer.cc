#include "framework/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "framework/jinja/string_literal.h"
#include "framework/jinja/unicode.h"

namespace holdfast::jinja {
namespace {

constexpr size_t kNotFound = absl::string_view::npos;
constexpr size_t kLineBytesShown = 200;

// Longer ones first.
constexpr auto kOperators =
    std::to_array<absl::string_view>({"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","});

bool IsNameStart(char c) { return absl::ascii_isalpha(c) || c == '_'; }
bool IsNamePart(char c) { return absl::ascii_isalnum(c) || c == '_'; }

// One template. A tag is "{%", an optional sign, its content, an optional sign, "%}".
class Lexer {
 public:
  explicit Lexer(absl::string_view source) : source_(source) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      const absl::Status status = ReadPiece();
      if (!status.ok()) return Locate(status, source_, failed_at_);
    }
    Add(Token::Kind::kEnd, source_.size());
    return std::move(tokens_);
  }

 private:
  absl::Status Fail(size_t position, absl::string_view message) {
    failed_at_ = position;
    return absl::InvalidArgumentError(message);
  }

  Token& Add(Token::Kind kind, size_t position, absl::string_view text = {}) {
    tokens_.push_back({kind, position, std::string(text), {}});
    return tokens_.back();
  }

  bool Continues(absl::string_view expected) const { return absl::StartsWith(source_.substr(at_), expected); }

  void SkipSpace() { at_ = source_.size() - StripLeft(source_.substr(at_)).size(); }

  char SignAt(size_t position) const {
    const char c = position < source_.size() ? source_[position] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  // What of the text before a tag is kept.
  static absl::string_view KeptOf(absl::string_view text, bool starts_line, char sign, bool is_variable) {
    if (sign == '-') return StripRight(text);
    if (sign == '+' || is_variable) return text;
    const size_t newline = text.rfind('\n');
    if (newline == kNotFound && !starts_line) return text;
    const size_t line = newline == kNotFound ? 0 : newline + 1;
    return StripLeft(text.substr(line)).empty() ? text.substr(0, line) : text;
  }

  void AddText(size_t begin, absl::string_view kept) {
    if (!kept.empty()) Add(Token::Kind::kData, begin, kept);
  }

  // At the end of a tag, `close` with an optional sign: goes behind it and the white space it takes.
  bool SkipClose(absl::string_view close, bool is_variable) {
    const size_t sign_bytes = SignAt(at_) == '\0' ? 0 : 1;
    const char sign = SignAt(at_);
    if ((is_variable && sign == '+') || !absl::StartsWith(source_.substr(at_ + sign_bytes), close)) return false;
    at_ += sign_bytes + close.size();
    if (sign == '-') SkipSpace();
    if (sign == '\0' && !is_variable && Continues("\n")) ++at_;
    line_starts_ = source_[at_ - 1] == '\n';
    return true;
  }

  // Text up to the next tag, and the tag.
  absl::Status ReadPiece() {
    const size_t begin = at_;
    size_t tag = begin;
    while (true) {
      tag = source_.find('{', tag);
      const char next = tag != kNotFound && tag + 1 < source_.size() ? source_[tag + 1] : '\0';
      if (tag == kNotFound || next == '%' || next == '{' || next == '#') break;
      ++tag;
    }
    if (tag == kNotFound) {
      Add(Token::Kind::kData, begin, source_.substr(begin));
      at_ = source_.size();
      return absl::OkStatus();
    }
    const char sign = SignAt(tag + 2);
    const bool is_variable = source_[tag + 1] == '{';
    AddText(begin, KeptOf(source_.substr(begin, tag - begin), line_starts_, sign, is_variable));
    at_ = tag + 2 + (sign == '\0' ? 0 : 1);
    if (source_[tag + 1] == '#') return SkipComment(tag);
    if (!is_variable && BeginsRaw()) return ReadRaw(tag);
    Add(is_variable ? Token::Kind::kVariableBegin : Token::Kind::kBlockBegin, tag);
    return ReadTag(is_variable);
  }

  absl::Status SkipComment(size_t tag) {
    while (at_ < source_.size()) {
      if (SkipClose("#}", false)) return absl::OkStatus();
      ++at_;
    }
    return Fail(tag, "the comment is not closed with #}");
  }

  // Goes behind "raw %}".
  bool BeginsRaw() {
    const size_t begin = at_;
    SkipSpace();
    if (Continues("raw")) {
      at_ += 3;
      SkipSpace();
      const bool trims = Continues("-%}");
      if (trims || Continues("%}")) {
        at_ += trims ? 3 : 2;
        if (trims) SkipSpace();
        line_starts_ = source_[at_ - 1] == '\n';
        return true;
      }
    }
    at_ = begin;
    return false;
  }

  absl::Status ReadRaw(size_t tag) {
    const size_t begin = at_;
    for (size_t end = begin; (end = source_.find("{%", end)) != kNotFound; end += 2) {
      const char sign = SignAt(end + 2);
      at_ = end + 2 + (sign == '\0' ? 0 : 1);
      SkipSpace();
      if (!Continues("endraw")) continue;
      at_ += 6;
      SkipSpace();
      const absl::string_view kept = KeptOf(source_.substr(begin, end - begin), line_starts_, sign, false);
      if (!SkipClose("%}", false)) continue;
      AddText(begin, kept);
      return absl::OkStatus();
    }
    return Fail(tag, "the raw block is not closed with {% endraw %}");
  }

  absl::Status ReadTag(bool is_variable) {
    const size_t begin = tokens_.back().position;
    const absl::string_view close = is_variable ? "}}" : "%}";
    std::string open;  // the brackets that are not closed yet
    while (at_ < source_.size()) {
      const size_t position = at_;
      if (open.empty() && SkipClose(close, is_variable)) {
        Add(is_variable ? Token::Kind::kVariableEnd : Token::Kind::kBlockEnd, position);
        return absl::OkStatus();
      }
      SkipSpace();
      if (at_ > position) continue;
      RETURN_IF_ERROR(ReadToken());
      if (tokens_.back().kind == Token::Kind::kOperator) RETURN_IF_ERROR(Balance(tokens_.back(), open));
    }
    return Fail(begin, absl::StrCat("the tag is not closed with ", close));
  }

  absl::Status Balance(const Token& token, std::string& open) {
    constexpr absl::string_view kOpening = "([{", kClosing = ")]}";
    if (kOpening.find(token.text) != kNotFound) open += token.text;
    const size_t closing = kClosing.find(token.text);
    if (closing == kNotFound) return absl::OkStatus();
    if (open.empty() || open.back() != kOpening[closing]) {
      return Fail(token.position, absl::StrCat("\"", token.text, "\" closes nothing that is open"));
    }
    open.pop_back();
    return absl::OkStatus();
  }

  absl::Status ReadToken() {
    const char c = source_[at_];
    if (absl::ascii_isdigit(c)) return ReadNumber();
    if (c == '"' || c == '\'') return ReadString();
    const size_t begin = at_;
    if (IsNameStart(c)) {
      while (at_ < source_.size() && IsNamePart(source_[at_])) ++at_;
      Add(Token::Kind::kName, begin, source_.substr(begin, at_ - begin));
      return absl::OkStatus();
    }
    for (const absl::string_view one : kOperators) {
      if (!Continues(one)) continue;
      at_ += one.size();
      Add(Token::Kind::kOperator, begin, one);
      return absl::OkStatus();
    }
    return Fail(begin, absl::StrCat("unexpected \"", source_.substr(at_, FirstCharacter(source_.substr(at_)).bytes),
                                    "\" in a tag"));
  }

  absl::Status ReadString() {
    const size_t begin = at_;
    const char quote = source_[at_++];
    while (at_ < source_.size() && source_[at_] != quote) at_ += source_[at_] == '\\' ? 2 : 1;
    if (at_ >= source_.size()) return Fail(begin, "the string is not closed");
    auto text = ParseStringLiteral(source_.substr(begin + 1, at_ - begin - 1));
    if (!text.ok()) return Fail(begin, text.status().message());
    ++at_;
    Add(Token::Kind::kConstant, begin).value = *std::move(text);
    return absl::OkStatus();
  }

  // Digits with single "_" between them.
  size_t DigitsEnd(size_t begin) const {
    size_t end = begin;
    while (end < source_.size() &&
           (absl::ascii_isdigit(source_[end]) || (source_[end] == '_' && end > begin && source_[end - 1] != '_' &&
                                                  end + 1 < source_.size() && absl::ascii_isdigit(source_[end + 1])))) {
      ++end;
    }
    return end;
  }

  absl::Status ReadNumber() {
    const size_t begin = at_;
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';
    const size_t whole = DigitsEnd(begin);
    size_t end = whole;
    if (!after_dot && end < source_.size() && source_[end] == '.' && DigitsEnd(end + 1) > end + 1) {
      end = DigitsEnd(end + 1);
    }
    if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t digits = SignAt(end + 1) == '\0' ? end + 1 : end + 2;
      if (DigitsEnd(digits) > digits) end = DigitsEnd(digits);
    }
    std::string text(source_.substr(begin, end - begin));
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    int64_t integer = 0;
    double real = 0;
    if (end == whole) {
      const bool has_base = text == "0" && end < source_.size() && absl::ascii_isalpha(source_[end]);
      if (has_base || (text[0] == '0' && text.find_first_not_of('0') != kNotFound)) {
        return Fail(begin, "numbers with a base or leading zeros are not supported");
      }
      if (!absl::SimpleAtoi(text, &integer)) return Fail(begin, absl::StrCat(text, " is beyond 2^63"));
      Add(Token::Kind::kConstant, begin).value = integer;
    } else {
      if (!absl::SimpleAtod(text, &real)) return Fail(begin, absl::StrCat(text, " is no number"));
      Add(Token::Kind::kConstant, begin).value = real;
    }
    at_ = end;
    return absl::OkStatus();
  }

  absl::string_view source_;
  size_t at_ = 0, failed_at_ = 0;
  bool line_starts_ = true;  // whether the text that follows begins a line
  std::vector<Token> tokens_;
};

}  // namespace

std::string NormalizeSource(absl::string_view source) {
  std::string normal;
  normal.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    normal.push_back(source[i] == '\r' ? '\n' : source[i]);
  }
  if (!normal.empty() && normal.back() == '\n') normal.pop_back();
  return normal;
}

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source) { return Lexer(source).Run(); }

absl::Status Locate(const absl::Status& status, absl::string_view source, size_t position) {
  const absl::string_view before = source.substr(0, position);
  const size_t newline = before.rfind('\n');
  const size_t begin = newline == kNotFound ? 0 : newline + 1;
  const absl::string_view line = source.substr(begin, std::min(source.find('\n', begin), source.size()) - begin);
  const auto number = std::count(before.begin(), before.end(), '\n') + 1;
  const int64_t column = CountCharacters(source.substr(begin, position - begin)) + 1;
  // Of a long line, what is around the place.
  const auto whole = [&](size_t at) {  // where the next character begins
    while (at < line.size() && (static_cast<uint8_t>(line[at]) & 0xc0) == 0x80) ++at;
    return std::min(at, line.size());
  };
  const size_t shown = whole(position - begin < kLineBytesShown / 2 ? 0 : position - begin - kLineBytesShown / 2);
  return absl::Status(status.code(),
                      absl::StrCat("line ", number, ", column ", column, ": ", status.message(),
                                   "; the line: ", line.substr(shown, whole(shown + kLineBytesShown) - shown)));
}

}  // namespace holdfast::jinja
