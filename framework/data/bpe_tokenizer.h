#pragma once
// Byte-level BPE: added tokens are cut out of the text, the rest is split into words by regular expressions, each word
// is encoded. The stages and their order are those of Hugging Face's `tokenizers`.

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/added_tokens.h"
#include "framework/data/bpe.h"
#include "framework/data/regex.h"
#include "framework/data/tokenizer.h"

namespace holdfast {

/// What a tokenizer.json says, read and checked.
struct BpeSpec {
  BpeModel model;
  std::vector<std::optional<std::string>> token_bytes;  // by id
  AddedTokens added_first;                              // found first: those with "normalized": false
  AddedTokens added_second;                             // found in what is left
  std::vector<Regex> splits;                            // each splits every piece of the one before
  bool add_prefix_space = false;
  int splits_before_prefix_space = 0;  // that many splits come before the space is put in front of each piece
  std::optional<int32_t> end_of_text, begin_of_text;
};

/// Bytes that are not UTF-8 become one token each. Thread-safe.
class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeSpec spec) : spec_(std::move(spec)) {}

  int64_t vocab_size() const override { return static_cast<int64_t>(spec_.token_bytes.size()); }
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const override;
  absl::StatusOr<size_t> EncodeBeginning(std::string_view text, std::vector<int32_t>& out) const override;
  std::string Decode(absl::Span<const int32_t> tokens) const override;
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
  };

  std::unique_ptr<Workspace> Borrow() const;
  void GiveBack(std::unique_ptr<Workspace> workspace) const;

  // One stage each. They return how many bytes of `text` are encoded: all, unless more_may_follow.
  absl::StatusOr<size_t> CutAdded(int stage, std::string_view text, bool more_may_follow, Call& call) const;
  absl::StatusOr<size_t> CutInvalid(std::string_view text, bool more_may_follow, Call& call) const;
  absl::StatusOr<size_t> Split(size_t stage, std::string_view text, bool more_may_follow, Call& call) const;

  BpeSpec spec_;
  // Encoders are warm (cache, match memory), so they are kept; there are as many as there were calls at the same time.
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace holdfast
