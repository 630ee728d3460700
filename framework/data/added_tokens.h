#pragma once
// Tokens that are found in the text itself, before any splitting: <|endoftext|> and its like.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast {

/// A set of literal strings, searched leftmost first, then longest. Immutable once filled, and then thread-safe.
class AddedTokens {
 public:
  struct Match {
    size_t begin = std::string_view::npos, length = 0;
    int32_t token = -1;
    bool found() const { return token >= 0; }
  };

  void Add(std::string content, int32_t token);
  bool empty() const { return by_first_byte_.empty(); }

  /// The first match in `text` from `start` on.
  Match Find(std::string_view text, size_t start) const;

  /// The first position from `start` on where the rest of `text` is the beginning of a longer token; text.size() if
  /// none.
  size_t FindUnfinished(std::string_view text, size_t start) const;

 private:
  struct Entry {
    std::string content;
    int32_t token;
  };

  std::array<int32_t, 256> list_of_{};             // 1 + index into by_first_byte_, 0 = none
  std::vector<std::vector<Entry>> by_first_byte_;  // each list longest first
  size_t length_max_ = 0;
};

}  // namespace holdfast
