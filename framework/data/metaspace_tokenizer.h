#pragma once
// BPE over characters, as SentencePiece's models are written to a tokenizer.json (Llama 2, Mistral, Gemma, Phi-3): in
// the text between added tokens spaces become U+2581 (▁); characters that have no token become their bytes.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/data/bpe_spec.h"
#include "framework/data/tokenizer.h"
#include "framework/data/workspace_pool.h"

namespace holdfast {

/// Bytes that are not UTF-8 become one token each. What is put in front of a text is part of what is decoded. A text
/// must come whole: what is put in front of each piece cannot be told from the piece. Thread-safe.
class MetaspaceTokenizer final : public Tokenizer {
 public:
  MetaspaceTokenizer(BpeSpec spec, MetaspaceSteps steps) : spec_(std::move(spec)), steps_(steps) {}

  int64_t vocab_size() const override { return static_cast<int64_t>(spec_.token_bytes.size()); }
  int64_t base_vocab_size() const override { return spec_.base_vocab_size; }
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const override;
  absl::StatusOr<TokensOfText> EncodeWithRanges(std::string_view text) const override;
  std::string Decode(absl::Span<const int32_t> tokens) const override { return spec_.Decode(tokens); }
  std::optional<int32_t> end_of_text() const override { return spec_.end_of_text; }
  std::optional<int32_t> begin_of_text() const override { return spec_.begin_of_text; }

 private:
  class Source;
  struct Call;

  void EncodeText(std::string_view text, Call& call) const;
  void EncodePiece(std::string_view piece, Call& call) const;
  void EncodeMarked(std::string_view marked, Call& call) const;
  void EncodeWord(std::string_view word, Call& call) const;
  bool HasPrefix(std::string_view piece, bool is_beginning) const;

  BpeSpec spec_;
  MetaspaceSteps steps_;
  mutable WorkspacePool<BpeModel::Workspace> workspaces_;
};

/// `text` with ▁ for each space, and one in front if `prefix`.
std::string MarkSpaces(std::string_view text, bool prefix);

}  // namespace holdfast
