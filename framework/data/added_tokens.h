#pragma once
// Tokens that are found in the text itself, before any splitting: <|endoftext|> and its like.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast {

/// A set of literal strings, searched leftmost first, then longest. Immutable and thread-safe.
class AddedTokens {
 public:
  struct Entry {
    std::string content;
    int32_t token;
  };
  struct Match {
    size_t begin = std::string_view::npos, length = 0;
    int32_t token = -1;
    bool found() const { return token >= 0; }
  };

  AddedTokens() = default;
  /// Empty contents are left out.
  explicit AddedTokens(std::vector<Entry> entries);

  bool empty() const { return entries_.empty(); }

  /// The first match in `text` from `start` on.
  Match Find(std::string_view text, size_t start) const;

  /// The first position from `start` on where the rest of `text` is the beginning of a longer token; text.size() if
  /// none.
  size_t FindUnfinished(std::string_view text, size_t start) const;

 private:
  struct Longest {
    const Entry* entry = nullptr;  // the longest that `rest` begins with
    bool unfinished = false;       // `rest` is the beginning of a longer one
  };
  /// `rest` is not empty.
  Longest At(std::string_view rest) const;

  std::array<bool, 256> begins_{};  // whether an entry begins with this byte: hardly any text does
  std::vector<Entry> entries_;      // in the order of their bytes, so that those with a common beginning are neighbours
  size_t length_max_ = 0;
};

}  // namespace holdfast
