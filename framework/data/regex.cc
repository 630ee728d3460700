#include "framework/data/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "absl/algorithm/container.h"
#include "framework/base/status.h"
#include "framework/data/byte_level.h"

namespace holdfast {
namespace {

// Unicode's White_Space. PCRE2's own \s also takes U+180E, which stopped being a space with Unicode 6.3.
constexpr char kWhiteSpace[] =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr size_t kJitStackBytesMax = 1 << 20;
constexpr uint32_t kHeapKibMax = 64 << 10;  // of a match; PCRE2's own limit is 20 GB

// An expression in the words of PCRE2. What means something else there, or could, is refused: a pre-tokenizer that is
// almost right gives almost the right tokens.
class Translation {
 public:
  absl::StatusOr<std::string> Run(std::string_view pattern) {
    for (size_t i = 0; i < pattern.size();) {
      ASSIGN_OR_RETURN(const size_t length, Step(pattern.substr(i)));
      i += length;
    }
    return result_;
  }
  bool looks_back() const { return looks_back_; }

 private:
  // Translates the next item; its length in the pattern.
  absl::StatusOr<size_t> Step(std::string_view rest) {
    if (rest[0] == '\\' && rest.size() > 1) return Escape(rest);
    const std::string_view two = rest.substr(0, 2);
    if (in_class_ && ((rest[0] == '[') || two == "&&")) return absl::UnimplementedError("nested character class");
    if (!in_class_ && two == "{,") return absl::UnimplementedError("{,n} (in PCRE2 that is a text)");
    if (!in_class_ && two == "}+") return absl::UnimplementedError("{n,m}+ (Oniguruma and PCRE2 disagree on it)");
    if (!in_class_ && (rest[0] == '^' || rest[0] == '$')) {
      return absl::UnimplementedError(
          absl::StrCat(std::string(1, rest[0]), " (in Oniguruma it is at every line, in PCRE2 at the text's ends)"));
    }
    if (!in_class_ && (two == "(?" || two == "(*") && !IsGroupOfBoth(rest)) {
      return absl::UnimplementedError(
          absl::StrCat(std::string(rest.substr(0, 4)), " (a group that means something else in PCRE2)"));
    }
    if (!in_class_ && (rest.substr(0, 4) == "(?<=" || rest.substr(0, 4) == "(?<!")) looks_back_ = true;
    if (rest[0] == '[' || rest[0] == ']') in_class_ = rest[0] == '[';
    result_.push_back(rest[0]);
    if (two == "[^") result_.push_back('^');
    return two == "[^" ? 2 : 1;
  }

  // Options for the rest of a group, as in (?m) and a(?i)b|c, names, recursion and verbs differ.
  static bool IsGroupOfBoth(std::string_view rest) {
    constexpr std::string_view kGroups[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"};
    return absl::c_any_of(kGroups, [&](std::string_view group) { return rest.starts_with(group); });
  }

  absl::StatusOr<size_t> Escape(std::string_view rest) {
    const char c = rest[1];
    if (c == 's') {
      absl::StrAppend(&result_, in_class_ ? "" : "[", kWhiteSpace, in_class_ ? "" : "]");
      return 2;
    }
    if (c == 'S' && !in_class_) {
      absl::StrAppend(&result_, "[^", kWhiteSpace, "]");
      return 2;
    }
    constexpr std::string_view kSameInBoth = "dDrntfxpPAGzZ";
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_letter && kSameInBoth.find(c) == std::string_view::npos) {
      return absl::UnimplementedError(absl::StrCat("\\", std::string(1, c)));
    }
    if (c == 'A' || c == 'G') looks_back_ = true;
    size_t length = 2;
    if ((c == 'p' || c == 'P' || c == 'x') && rest.size() > 2 && rest[2] == '{') {
      length = std::min(rest.find('}'), rest.size() - 1) + 1;
    }
    result_.append(rest.substr(0, length));
    return length;
  }

  std::string result_;
  bool in_class_ = false, looks_back_ = false;
};

std::string MessageOf(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Regex::Workspace::Impl {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackBytesMax, nullptr);

  Impl() {
    HOLDFAST_CHECK(match != nullptr && context != nullptr);
    pcre2_set_heap_limit(context, kHeapKibMax);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Impl() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
};

Regex::Workspace::Workspace() : impl_(std::make_unique<Impl>()) {}
Regex::Workspace::~Workspace() = default;

absl::StatusOr<Regex> Regex::Compile(const std::string& pattern) {
  Translation translation;
  auto translated = translation.Run(pattern);
  if (!translated.ok()) return Annotate(translated.status(), absl::StrCat("regular expression ", pattern));
  const std::string& spelled = *translated;
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("regular expression ", pattern, ": ", MessageOf(error)));
  }
  Regex regex;
  regex.pattern_ = pattern;
  regex.code_ = std::shared_ptr<const void>(code, [code](const void*) { pcre2_code_free(code); });
  // Where there is no JIT (a hardened kernel), pcre2_match interprets: slower, the same matches.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  uint32_t lookbehind = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MAXLOOKBEHIND, &lookbehind);
  regex.ignores_the_past_ = lookbehind == 0 && !translation.looks_back();
  return regex;
}

absl::StatusOr<Regex::Match> Regex::Find(std::string_view text, size_t start, bool more_may_follow,
                                         Workspace& workspace) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  Workspace::Impl& memory = *workspace.impl_;
  const uint32_t options = PCRE2_NO_UTF_CHECK | (more_may_follow ? PCRE2_PARTIAL_HARD : 0);
  while (start < text.size()) {
    int result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start, options, memory.match,
                             memory.context);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
      result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start, options | PCRE2_NO_JIT,
                           memory.match, memory.context);
    }
    if (result == PCRE2_ERROR_PARTIAL) return Match{Match::Kind::kPartial, start, text.size()};
    if (result == PCRE2_ERROR_NOMATCH) return Match{};
    if (result < 0) {
      return absl::InvalidArgumentError(absl::StrCat("the tokenizer's regular expression ", pattern_,
                                                     " cannot be matched with this text: ", MessageOf(result),
                                                     "; use a tokenizer with an expression that backtracks less"));
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(memory.match);
    if (bounds[1] > bounds[0]) return Match{Match::Kind::kFound, bounds[0], bounds[1]};
    const size_t at = std::max<size_t>(bounds[1], start);
    start = at + std::max<size_t>(1, Utf8CharacterLength(text.substr(at)));
  }
  return Match{more_may_follow ? Match::Kind::kPartial : Match::Kind::kNone, start, text.size()};
}

}  // namespace holdfast
