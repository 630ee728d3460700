#include "framework/data/added_tokens.h"

#include <algorithm>

namespace holdfast {

void AddedTokens::Add(std::string content, int32_t token) {
  if (content.empty()) return;
  int32_t& list = list_of_[static_cast<uint8_t>(content[0])];
  if (list == 0) {
    by_first_byte_.emplace_back();
    list = static_cast<int32_t>(by_first_byte_.size());
  }
  length_max_ = std::max(length_max_, content.size());
  std::vector<Entry>& entries = by_first_byte_[list - 1];
  entries.push_back({std::move(content), token});
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.content.size() > b.content.size(); });
}

AddedTokens::Match AddedTokens::Find(std::string_view text, size_t start) const {
  if (empty()) return {};
  for (size_t i = start; i < text.size(); ++i) {
    const int32_t list = list_of_[static_cast<uint8_t>(text[i])];
    if (list == 0) continue;
    for (const Entry& entry : by_first_byte_[list - 1]) {
      if (text.substr(i, entry.content.size()) == entry.content) return {i, entry.content.size(), entry.token};
    }
  }
  return {};
}

size_t AddedTokens::FindUnfinished(std::string_view text, size_t start) const {
  if (empty()) return text.size();
  const size_t near_end = text.size() - std::min(text.size(), length_max_ - 1);
  for (size_t i = std::max(start, near_end); i < text.size(); ++i) {
    const int32_t list = list_of_[static_cast<uint8_t>(text[i])];
    if (list == 0) continue;
    const std::string_view rest = text.substr(i);
    for (const Entry& entry : by_first_byte_[list - 1]) {
      if (entry.content.size() > rest.size() && std::string_view(entry.content).substr(0, rest.size()) == rest)
        return i;
    }
  }
  return text.size();
}

}  // namespace holdfast
