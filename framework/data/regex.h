#pragma once
// PCRE2 as the engine of pre-tokenizer regular expressions, whose home is Oniguruma: Unicode throughout, and \s made to
// mean exactly Unicode's White_Space.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace holdfast {

/// A compiled expression. Thread-safe; every thread brings a Workspace.
class Regex {
 public:
  /// Memory of one match; usable with any Regex, by one thread at a time.
  class Workspace {
   public:
    Workspace();
    ~Workspace();
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

   private:
    friend class Regex;
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  struct Match {
    enum class Kind { kFound, kNone, kPartial } kind = Kind::kNone;
    size_t begin = 0, end = 0;
  };

  static absl::StatusOr<Regex> Compile(const std::string& pattern);

  /// The first non-empty match in `text` (valid UTF-8) from byte `start` on. With `more_may_follow`, kPartial as soon
  /// as the answer could change if `text` went on. InvalidArgument, naming the expression, where PCRE2 gives up: only
  /// hostile expressions try so many ways to match, and to take one for "no match" would give other tokens.
  absl::StatusOr<Match> Find(std::string_view text, size_t start, bool more_may_follow, Workspace& workspace) const;

  /// Whether matching from a position on never looks at what is before it.
  bool ignores_the_past() const { return ignores_the_past_; }

 private:
  std::shared_ptr<const void> code_;  // shared: copies of a Regex are cheap and PCRE2's code is immutable
  std::string pattern_;               // as it was given
  bool ignores_the_past_ = true;
};

}  // namespace holdfast
