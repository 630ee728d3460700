#pragma once
// Byte-level BPE: added tokens are cut out of the text, the rest is split into words by regular expressions, each word
// is encoded. The stages and their order are those of Hugging Face's `tokenizers`.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/data/bpe_spec.h"
#include "framework/data/nfc.h"
#include "framework/data/regex.h"
#include "framework/data/tokenizer.h"
#include "framework/data/workspace_pool.h"

namespace holdfast {

/// Bytes that are not UTF-8 become one token each. Thread-safe.
class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(BpeSpec spec, ByteLevelSteps steps) : spec_(std::move(spec)), steps_(std::move(steps)) {}

  int64_t vocab_size() const override { return static_cast<int64_t>(spec_.token_bytes.size()); }
  int64_t base_vocab_size() const override { return spec_.base_vocab_size; }
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const override;
  absl::StatusOr<TokensOfText> EncodeWithRanges(std::string_view text) const override;
  absl::StatusOr<size_t> EncodeBeginning(std::string_view text, std::vector<int32_t>& out) const override;
  std::string Decode(absl::Span<const int32_t> tokens) const override { return spec_.Decode(tokens); }
  std::optional<int32_t> end_of_text() const override { return spec_.end_of_text; }
  std::optional<int32_t> begin_of_text() const override { return spec_.begin_of_text; }

 private:
  struct Workspace {
    Regex::Workspace regex;
    BpeModel::Workspace bpe;
  };
  // Where a call puts its tokens.
  struct Call {
    Workspace& workspace;
    std::vector<int32_t>& out;
    std::vector<ByteRange>* ranges = nullptr;  // nullptr: nobody asks
    size_t at = 0;                             // if somebody does: bytes of the text that have their tokens
    // Of a normalized text that may go on: the last end of a word that is also a place in the original.
    const NfcText* normalized = nullptr;
    size_t cut = 0, cut_tokens = 0;
  };

  // One stage each. They return how many bytes of `text` are encoded: all, unless more_may_follow.
  absl::StatusOr<size_t> CutAdded(int stage, std::string_view text, bool more_may_follow, Call& call) const;
  absl::StatusOr<size_t> Normalize(std::string_view text, bool more_may_follow, Call& call) const;
  absl::StatusOr<size_t> CutInvalid(std::string_view text, bool more_may_follow, Call& call) const;
  absl::StatusOr<size_t> Split(size_t stage, std::string_view text, bool more_may_follow, Call& call) const;
  absl::StatusOr<size_t> EncodeBeginningOf(const NfcText& normalized, Call& call) const;
  void EncodeWord(std::string_view word, Call& call) const;
  static void NoteCut(size_t at, Call& call);

  BpeSpec spec_;
  ByteLevelSteps steps_;
  mutable WorkspacePool<Workspace> workspaces_;
};

}  // namespace holdfast
