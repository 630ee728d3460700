#include "framework/data/bpe.h"

#include <algorithm>

#include "absl/strings/string_view.h"
#include "framework/data/byte_level.h"

namespace holdfast {
namespace {

// About 10 MB per encoder. A full cache is emptied: cheaper than keeping an order of use, and the frequent words are
// back within a page of text.
constexpr size_t kCachedWordsMax = 1 << 16;
constexpr size_t kCachedWordBytesMax = 64;

// The heap's order: the lowest rank on top, then the leftmost.
constexpr auto kGoesLater = [](const auto& a, const auto& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
};

absl::string_view AsAbsl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

void BpeModel::Encode(std::string_view word, Workspace& workspace, std::vector<int32_t>& out) const {
  if (word.size() == 1) {
    out.push_back(byte_tokens_[static_cast<uint8_t>(word[0])]);
    return;
  }
  if (const auto whole = whole_words_.find(AsAbsl(word)); whole != whole_words_.end()) {
    out.push_back(whole->second);
    return;
  }
  if (word.size() > kCachedWordBytesMax) return MergeAll(word, workspace, out);
  auto& cache = workspace.cache_;
  std::vector<int32_t>& tokens = workspace.cached_tokens_;
  if (const auto cached = cache.find(AsAbsl(word)); cached != cache.end()) {
    const auto first = tokens.begin() + cached->second.first;
    out.insert(out.end(), first, first + cached->second.count);
    return;
  }
  if (cache.size() >= kCachedWordsMax) {
    cache.clear();
    tokens.clear();
  }
  const size_t before = tokens.size();
  MergeAll(word, workspace, tokens);
  cache[std::string(word)] = {static_cast<uint32_t>(before), static_cast<uint32_t>(tokens.size() - before)};
  out.insert(out.end(), tokens.begin() + before, tokens.end());
}

// Puts the pair at `position` and its right neighbour on the heap, if it has a merge.
void BpeModel::Consider(int32_t position, Workspace& workspace) const {
  const auto& left = workspace.symbols_[position];
  if (left.next < 0) return;
  const int32_t right = workspace.symbols_[left.next].token;
  const auto merge = merges_.find(Key(left.token, right));
  if (merge == merges_.end()) return;
  workspace.heap_.push_back({merge->second.rank, position, left.token, right, merge->second.merged});
  std::push_heap(workspace.heap_.begin(), workspace.heap_.end(), kGoesLater);
}

uint32_t BpeModel::CharacterKey(std::string_view character) {
  uint32_t key = 0;
  for (const char c : character) key = key << 8 | static_cast<uint8_t>(c);
  return key;
}

void BpeModel::FirstSymbols(std::string_view word, Workspace& workspace) const {
  auto& symbols = workspace.symbols_;
  symbols.clear();
  for (size_t at = 0; at < word.size();) {
    const auto index = static_cast<int32_t>(symbols.size());
    const size_t length = characters_.empty() ? 1 : Utf8CharacterLength(word.substr(at));
    const auto character = length > 1 ? characters_.find(CharacterKey(word.substr(at, length))) : characters_.end();
    const bool found = character != characters_.end();
    symbols.push_back({found ? character->second : byte_tokens_[static_cast<uint8_t>(word[at])], index - 1, index + 1});
    at += found ? length : 1;
  }
  if (!symbols.empty()) symbols.back().next = -1;
}

void BpeModel::MergeAll(std::string_view word, Workspace& workspace, std::vector<int32_t>& out) const {
  auto& symbols = workspace.symbols_;
  auto& heap = workspace.heap_;
  FirstSymbols(word, workspace);
  heap.clear();
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) Consider(i, workspace);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), kGoesLater);
    const auto pair = heap.back();
    heap.pop_back();
    auto& left = symbols[pair.position];
    // Merges since then may have changed either side; a symbol merged into its left neighbour has token -1.
    if (left.token != pair.left || left.next < 0 || symbols[left.next].token != pair.right) continue;
    auto& right = symbols[left.next];
    left.token = pair.merged;
    right.token = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = pair.position;
    if (left.previous >= 0) Consider(left.previous, workspace);
    Consider(pair.position, workspace);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) out.push_back(symbols[i].token);
}

}  // namespace holdfast
