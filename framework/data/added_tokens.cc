#include "framework/data/added_tokens.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "framework/data/byte_level.h"

namespace holdfast {
namespace {

// What Unicode counts to words (UTS 18, annex C), as Rust's \w.
constexpr char kWordCharacter[] = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}])";

// Unicode's White_Space.
constexpr auto kSpaces = std::to_array<std::string_view>(
    {"\t",     "\n",     "\v",     "\f",     "\r",     " ",      "\u0085", "\u00a0", "\u1680",
     "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008",
     "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"});

/// How many bytes of white space `text` begins with.
size_t SpaceBytes(std::string_view text) {
  size_t bytes = 0;
  while (true) {
    const auto begins = [&](std::string_view space) { return text.substr(bytes).starts_with(space); };
    const auto space = std::find_if(kSpaces.begin(), kSpaces.end(), begins);
    if (space == kSpaces.end()) return bytes;
    bytes += space->size();
  }
}

size_t SpaceBytesAtEnd(std::string_view text) {
  size_t rest = text.size();
  while (true) {
    const auto ends = [&](std::string_view space) { return text.substr(0, rest).ends_with(space); };
    const auto space = std::find_if(kSpaces.begin(), kSpaces.end(), ends);
    if (space == kSpaces.end()) return text.size() - rest;
    rest -= space->size();
  }
}

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

absl::StatusOr<AddedTokens> AddedTokens::Create(std::vector<Entry> entries) {
  AddedTokens added;
  std::erase_if(entries, [](const Entry& entry) { return entry.content.empty(); });
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.content < b.content; });
  const Entry *strips = nullptr, *begins_with_space = nullptr, *word = nullptr;
  for (const Entry& entry : entries) {
    added.begins_[static_cast<uint8_t>(entry.content[0])] = true;
    added.length_max_ = std::max(added.length_max_, entry.content.size());
    added.looks_around_ |= entry.strips_left || entry.strips_right || entry.is_word;
    if (entry.strips_right) strips = &entry;
    if (SpaceBytes(entry.content) > 0) begins_with_space = &entry;
    if (entry.is_word) word = &entry;
  }
  if (strips != nullptr && begins_with_space != nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("rstrip of \"", strips->content, "\" beside another token that begins with white space"));
  }
  if (word != nullptr) {
    ASSIGN_OR_RETURN(Regex character, Regex::Compile(kWordCharacter));
    added.word_ = std::make_shared<const Regex>(std::move(character));
  }
  added.entries_ = std::move(entries);
  return added;
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
    if (entry == nullptr) continue;
    size_t begin = i, end = i + entry->content.size();
    if (entry->is_word && !IsWord(text, begin, end)) {
      i = end - 1;  // nothing is looked for inside, as in `tokenizers`
      continue;
    }
    if (entry->strips_left) begin -= SpaceBytesAtEnd(text.substr(start, begin - start));
    if (entry->strips_right) end += SpaceBytes(text.substr(end));
    return {begin, end - begin, entry->token};
  }
  return {};
}

bool AddedTokens::IsWord(std::string_view text, size_t begin, size_t end) const {
  size_t before = begin;
  while (before > 0 && begin - before < 4 && Utf8CharacterLength(text.substr(before, begin - before)) == 0) --before;
  const auto continues = [&](std::string_view character) {
    Regex::Workspace workspace;
    const auto match = word_->Find(character, 0, false, workspace);
    return match.ok() && match->kind == Regex::Match::Kind::kFound;
  };
  const std::string_view left = text.substr(before, begin - before);
  if (Utf8CharacterLength(left) > 0 && continues(left)) return false;
  const std::string_view right = text.substr(end, Utf8CharacterLength(text.substr(end)));
  return right.empty() || !continues(right);
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
