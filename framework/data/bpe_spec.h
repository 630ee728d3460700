#pragma once
// What a tokenizer.json says, read and checked.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "framework/data/added_tokens.h"
#include "framework/data/bpe.h"
#include "framework/data/regex.h"

namespace holdfast {

/// Byte-level BPE, as GPT-2's: how a text becomes words.
struct ByteLevelSteps {
  std::vector<Regex> splits;  // each splits every piece of the one before
  bool is_nfc = false;        // text between added tokens without "normalized" is brought into Unicode's form C
  bool add_prefix_space = false;
  int splits_before_prefix_space = 0;  // that many splits come before the space is put in front of each piece
};

inline constexpr std::string_view kSpaceMark = "\u2581";  // ▁

/// BPE over characters, as SentencePiece's: spaces become U+2581 (▁).
struct MetaspaceSteps {
  enum class Prefix { kNone, kAlways, kUnlessThere, kUnlessThereAtBeginning };

  Prefix prefix = Prefix::kNone;  // where a ▁ is put in front of a piece of text between added tokens
  bool is_normalizer = false;     // added tokens with "normalized" are looked for after that, else before
  bool splits = false;            // each ▁ begins a word
  bool joins_words = false;       // some merge joins what comes before a ▁ with it
};

struct BpeSpec {
  BpeModel model;
  std::vector<std::optional<std::string>> token_bytes;  // by id
  int64_t base_vocab_size = 0;                          // of these, without added tokens at the end
  AddedTokens added_first;                              // found first: those with "normalized": false
  AddedTokens added_second;                             // found in what is left
  std::optional<int32_t> end_of_text, begin_of_text;
  std::variant<ByteLevelSteps, MetaspaceSteps> steps;

  /// Unknown ids become U+FFFD.
  std::string Decode(absl::Span<const int32_t> tokens) const;
};

}  // namespace holdfast
