#include "framework/data/added_tokens.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace holdfast {
namespace {

/// Entries by their byte at one position; those that have none there come first.
struct ByByte {
  size_t at;

  int Of(const AddedTokens::Entry& entry) const {
    return entry.content.size() > at ? static_cast<uint8_t>(entry.content[at]) : -1;
  }
  bool operator()(const AddedTokens::Entry& entry, int byte) const { return Of(entry) < byte; }
  bool operator()(int byte, const AddedTokens::Entry& entry) const { return byte < Of(entry); }
};

}  // namespace

AddedTokens::AddedTokens(std::vector<Entry> entries) : entries_(std::move(entries)) {
  std::erase_if(entries_, [](const Entry& entry) { return entry.content.empty(); });
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.content < b.content; });
  for (const Entry& entry : entries_) {
    begins_[static_cast<uint8_t>(entry.content[0])] = true;
    length_max_ = std::max(length_max_, entry.content.size());
  }
}

// Byte by byte the entries that begin as `rest` does become fewer: one binary search each, whatever their number.
AddedTokens::Longest AddedTokens::At(std::string_view rest) const {
  Longest longest;
  if (!begins_[static_cast<uint8_t>(rest[0])]) return longest;
  auto first = entries_.begin(), last = entries_.end();
  for (size_t length = 0; first != last; ++length) {
    if (first->content.size() == length) longest.entry = &*first;
    if (length == rest.size()) {
      longest.unfinished = (last - 1)->content.size() > length;
      break;
    }
    std::tie(first, last) = std::equal_range(first, last, int{static_cast<uint8_t>(rest[length])}, ByByte{length});
  }
  return longest;
}

AddedTokens::Match AddedTokens::Find(std::string_view text, size_t start) const {
  if (empty()) return {};
  for (size_t i = start; i < text.size(); ++i) {
    const Entry* entry = At(text.substr(i)).entry;
    if (entry != nullptr) return {i, entry->content.size(), entry->token};
  }
  return {};
}

size_t AddedTokens::FindUnfinished(std::string_view text, size_t start) const {
  if (empty()) return text.size();
  const size_t near_end = text.size() - std::min(text.size(), length_max_ - 1);
  for (size_t i = std::max(start, near_end); i < text.size(); ++i) {
    if (At(text.substr(i)).unfinished) return i;
  }
  return text.size();
}

}  // namespace holdfast
