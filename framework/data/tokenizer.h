#pragma once
// Text to tokens and back: raw bytes, or BPE read from a Hugging Face tokenizer.json, over bytes as in GPT-2 and Llama
// 3 or over characters as in Llama 2.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace holdfast {

/// Bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0, end = 0;
};

/// Of equal length.
struct TokensOfText {
  std::vector<int32_t> tokens;
  std::vector<ByteRange> ranges;  // what each token stands for; both ends never decrease
};

/// Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t vocab_size() const = 0;
  /// Without the tokens at its end that were added to the vocabulary.
  virtual int64_t base_vocab_size() const { return vocab_size(); }
  /// An error if the tokenizer cannot split this text (see Regex::Find).
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const = 0;
  virtual absl::StatusOr<TokensOfText> EncodeWithRanges(std::string_view text) const = 0;
  /// For a text that comes in pieces: appends the tokens of the beginning of `text` that no continuation can change;
  /// returns how many bytes they are. The rest belongs in front of the next piece; the end of the text goes through
  /// Encode. So the tokens are those of Encode(whole text). May be 0 bytes, whatever the length.
  virtual absl::StatusOr<size_t> EncodeBeginning(std::string_view /*text*/, std::vector<int32_t>& /*out*/) const {
    return 0;
  }
  /// The bytes of the tokens; unknown ids become U+FFFD. May end inside a UTF-8 character.
  virtual std::string Decode(absl::Span<const int32_t> tokens) const = 0;
  /// The token that separates documents, if the tokenizer has one: by its usual names (GPT-2: <|endoftext|>), else
  /// what tokenizer_config.json or special_tokens_map.json beside it call eos_token.
  virtual std::optional<int32_t> end_of_text() const = 0;
  /// The token that a text begins with for programs that want one (Llama 3: <|begin_of_text|>); if the tokenizer has
  /// none of its own, end_of_text by one of the usual names. Packing does not write it.
  virtual std::optional<int32_t> begin_of_text() const { return end_of_text(); }
};

/// The file of a tokenizer whose directory is named; any other name as it is, "bytes" too.
std::string TokenizerFileOf(const std::string& name);

/// "bytes": token = byte, vocabulary of 256, no end of text. Otherwise the path of a tokenizer.json, or of its
/// directory: BPE models with a ByteLevel pre-tokenizer (alone, or after a Split by regular expression), or with
/// byte_fallback and ▁ for spaces; anything else is Unimplemented and named.
absl::StatusOr<std::unique_ptr<const Tokenizer>> OpenTokenizer(const std::string& name);

/// That this tokenizer has none, for a message: "the tokenizer NAME has no end of text", and where one was looked for.
std::string NoEndOfText(const std::string& name);

/// InvalidArgument if it has tokens beyond a model's vocabulary, but for added ones: Gemma 3 1B has one for images, and
/// programs add them for padding. `name` as for OpenTokenizer.
absl::Status CheckVocabulary(const Tokenizer& tokenizer, const std::string& name, int64_t vocab_size);

/// InvalidArgument, with the first of them, if a text has tokens beyond a model's vocabulary.
absl::Status CheckTokens(const Tokenizer& tokenizer, absl::Span<const int32_t> tokens, int64_t vocab_size);

}  // namespace holdfast
