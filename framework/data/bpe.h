#pragma once
// Byte pair encoding of one word (Sennrich et al. 2016): while any two neighbours have a merge, merge the pair that was
// learned first, leftmost first.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace holdfast {

/// The learned part of a BPE model, over bytes or over characters. Immutable once filled, and then thread-safe.
class BpeModel {
 public:
  /// Memory of one encoder: a bounded cache of words, and buffers.
  class Workspace {
   private:
    friend class BpeModel;
    struct Symbol {
      int32_t token, previous, next;  // neighbours as indices, -1 = none
    };
    struct Candidate {
      int32_t rank, position, left, right, merged;
    };
    struct Span {
      uint32_t first, count;
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
    absl::flat_hash_map<std::string, Span> cache_;  // word -> its run in cached_tokens_
    std::vector<int32_t> cached_tokens_;
  };

  /// The token of a byte that no character of its own stands for.
  void SetByteToken(uint8_t byte, int32_t token) { byte_tokens_[byte] = token; }
  /// Of a character of two to four bytes, which is then not begun with as its bytes.
  void SetCharacterToken(std::string_view character, int32_t token) { characters_[CharacterKey(character)] = token; }
  /// `left` followed by `right` becomes `merged`; a lower rank goes first.
  void AddMerge(int32_t left, int32_t right, int32_t rank, int32_t merged) {
    merges_[Key(left, right)] = {rank, merged};
  }
  /// Words that are a token of their own whatever the merges say (Llama 3's `ignore_merges`).
  void AddWholeWord(const std::string& bytes, int32_t token) { whole_words_[bytes] = token; }

  /// Appends the tokens of the bytes of `word`. O(n log n).
  void Encode(std::string_view word, Workspace& workspace, std::vector<int32_t>& out) const;

 private:
  struct Merge {
    int32_t rank, merged;
  };
  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  static uint32_t CharacterKey(std::string_view character);
  void FirstSymbols(std::string_view word, Workspace& workspace) const;
  void MergeAll(std::string_view word, Workspace& workspace, std::vector<int32_t>& out) const;
  void Consider(int32_t position, Workspace& workspace) const;

  std::array<int32_t, 256> byte_tokens_{};
  absl::flat_hash_map<uint32_t, int32_t> characters_;
  absl::flat_hash_map<uint64_t, Merge> merges_;
  absl::flat_hash_map<std::string, int32_t> whole_words_;
};

}  // namespace holdfast
