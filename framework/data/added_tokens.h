#pragma once
// Tokens that are found in the text itself, before any splitting: <|endoftext|> and its like.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/data/regex.h"

namespace holdfast {

/// A set of literal strings, searched leftmost first, then longest. Immutable and thread-safe.
class AddedTokens {
 public:
  struct Entry {
    std::string content;
    int32_t token;
    bool strips_left = false, strips_right = false;  // takes the white space there, too
    bool is_word = false;                            // found only where no letter, digit or _ is beside it
  };
  struct Match {
    size_t begin = std::string_view::npos, length = 0;  // with the white space that it takes
    int32_t token = -1;
    bool found() const { return token >= 0; }
    size_t end() const { return begin + length; }
  };

  AddedTokens() = default;
  /// Empty contents are left out. Unimplemented for a set in which two matches might share white space.
  static absl::StatusOr<AddedTokens> Create(std::vector<Entry> entries);

  bool empty() const { return entries_.empty(); }
  /// Whether a match depends on what is beside it.
  bool looks_around() const { return looks_around_; }

  /// The first match in `text` from `start` on, which is where the match before ended.
  Match Find(std::string_view text, size_t start) const;

  /// The first position from `start` on where the rest of `text` is the beginning of a longer token; text.size() if
  /// none. Not for sets that look around.
  size_t FindUnfinished(std::string_view text, size_t start) const;

 private:
  struct Longest {
    const Entry* entry = nullptr;  // the longest that `rest` begins with
    bool unfinished = false;       // `rest` is the beginning of a longer one
  };
  /// `rest` is not empty.
  Longest At(std::string_view rest) const;
  bool IsWord(std::string_view text, size_t begin, size_t end) const;

  std::array<bool, 256> begins_{};  // whether an entry begins with this byte: hardly any text does
  std::vector<Entry> entries_;      // in the order of their bytes, so that those with a common beginning are neighbours
  size_t length_max_ = 0;
  bool looks_around_ = false;
  std::shared_ptr<const Regex> word_;  // a character of a word, if an entry is one; shared as a Regex is
};

}  // namespace holdfast
