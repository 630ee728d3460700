#include "framework/data/metaspace_tokenizer.h"

#include <algorithm>

#include "framework/data/byte_level.h"

namespace holdfast {
std::string MarkSpaces(std::string_view text, bool prefix) {
  std::string marked(prefix ? kSpaceMark : "");
  marked.reserve(marked.size() + text.size() + text.size() / 2);
  for (const char c : text) {
    if (c == ' ') {
      marked += kSpaceMark;
    } else {
      marked.push_back(c);
    }
  }
  return marked;
}

/// Walks over a piece of the text as its marked form is walked over.
class MetaspaceTokenizer::Source {
 public:
  Source(std::string_view text, size_t begin, bool prefix) : text_(text), begin_(begin), prefix_(prefix) {}

  /// What the next `marked_bytes` bytes of the marked text stand for. As in `tokenizers` the mark in front stands for
  /// the first character.
  ByteRange Next(size_t marked_bytes) {
    const size_t first = at_;
    for (size_t i = 0; i < marked_bytes;) {
      if (prefix_ || text_[at_] == ' ') {
        i += kSpaceMark.size();
        at_ += prefix_ ? 0 : 1;
        prefix_ = false;
      } else {
        ++i;
        ++at_;
      }
    }
    const size_t end = at_ > first ? at_ : first + std::max<size_t>(1, Utf8CharacterLength(text_.substr(first)));
    return {begin_ + first, begin_ + end};
  }

 private:
  std::string_view text_;
  size_t begin_, at_ = 0;
  bool prefix_;
};

// Where a call puts its tokens.
struct MetaspaceTokenizer::Call {
  BpeModel::Workspace& workspace;
  std::vector<int32_t>& out;
  std::vector<ByteRange>* ranges;  // nullptr: nobody asks
  size_t at = 0;                   // bytes of the text before the piece
  Source* source = nullptr;        // of the piece, if somebody asks

  void Put(int32_t token, size_t marked_bytes) {
    out.push_back(token);
    if (ranges != nullptr) ranges->push_back(source->Next(marked_bytes));
  }
};

absl::StatusOr<std::vector<int32_t>> MetaspaceTokenizer::Encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  auto workspace = workspaces_.Borrow();
  Call call{*workspace, tokens, nullptr};
  EncodeText(text, call);
  workspaces_.GiveBack(std::move(workspace));
  return tokens;
}

absl::StatusOr<TokensOfText> MetaspaceTokenizer::EncodeWithRanges(std::string_view text) const {
  TokensOfText encoded;
  auto workspace = workspaces_.Borrow();
  Call call{*workspace, encoded.tokens, &encoded.ranges};
  EncodeText(text, call);
  workspaces_.GiveBack(std::move(workspace));
  return encoded;
}

void MetaspaceTokenizer::EncodeText(std::string_view text, Call& call) const {
  while (call.at < text.size()) {
    const AddedTokens::Match match = spec_.added_first.Find(text, call.at);
    const size_t end = match.found() ? match.begin : text.size();
    EncodePiece(text.substr(call.at, end - call.at), call);
    call.at = end;
    if (!match.found()) return;
    call.out.push_back(match.token);
    if (call.ranges != nullptr) call.ranges->push_back({match.begin, match.end()});
    call.at = match.end();
  }
}

bool MetaspaceTokenizer::HasPrefix(std::string_view piece, bool is_beginning) const {
  using Prefix = MetaspaceSteps::Prefix;
  if (steps_.prefix == Prefix::kNone || steps_.prefix == Prefix::kAlways) return steps_.prefix == Prefix::kAlways;
  if (steps_.prefix == Prefix::kUnlessThereAtBeginning && !is_beginning) return false;
  return !piece.starts_with(' ') && !piece.starts_with(kSpaceMark);
}

// What is between added tokens of the first kind.
void MetaspaceTokenizer::EncodePiece(std::string_view piece, Call& call) const {
  if (piece.empty()) return;
  const auto encode = [&](std::string_view part, size_t begin, bool cut) {
    const bool prefix = HasPrefix(part, begin == 0);
    Source source(part, begin, prefix);
    call.source = &source;
    const std::string marked = MarkSpaces(part, prefix);
    size_t at = 0;
    while (at < marked.size()) {
      const AddedTokens::Match match = cut ? spec_.added_second.Find(marked, at) : AddedTokens::Match{};
      const size_t end = match.found() ? match.begin : marked.size();
      EncodeMarked(std::string_view(marked).substr(at, end - at), call);
      if (match.found()) call.Put(match.token, match.length);
      at = match.found() ? match.end() : end;
    }
  };
  if (steps_.is_normalizer) return encode(piece, call.at, true);
  size_t at = 0;
  while (at < piece.size()) {
    const AddedTokens::Match match = spec_.added_second.Find(piece, at);
    const size_t end = match.found() ? match.begin : piece.size();
    if (end > at) encode(piece.substr(at, end - at), call.at + at, false);
    if (!match.found()) return;
    call.out.push_back(match.token);
    if (call.ranges != nullptr) call.ranges->push_back({call.at + match.begin, call.at + match.end()});
    at = match.end();
  }
}

// Words are those of the tokenizer, or else what no merge joins: shorter ones are found in the cache.
void MetaspaceTokenizer::EncodeMarked(std::string_view marked, Call& call) const {
  while (!marked.empty()) {
    size_t end = marked.size();
    if (steps_.splits) {
      end = marked.find(kSpaceMark, marked.starts_with(kSpaceMark) ? kSpaceMark.size() : 0);
    } else if (!steps_.joins_words) {
      size_t text = 0;  // behind the marks in front
      while (marked.substr(text).starts_with(kSpaceMark)) text += kSpaceMark.size();
      end = marked.find(kSpaceMark, text);
    }
    end = std::min(end, marked.size());
    EncodeWord(marked.substr(0, end), call);
    marked.remove_prefix(end);
  }
}

void MetaspaceTokenizer::EncodeWord(std::string_view word, Call& call) const {
  const size_t before = call.out.size();
  spec_.model.Encode(word, call.workspace, call.out);
  if (call.ranges == nullptr) return;
  for (size_t i = before; i < call.out.size(); ++i) {
    const std::string& bytes = *spec_.token_bytes[call.out[i]];
    const auto spaces = static_cast<size_t>(std::count(bytes.begin(), bytes.end(), ' '));
    call.ranges->push_back(call.source->Next(bytes.size() + spaces * (kSpaceMark.size() - 1)));
  }
}

}  // namespace holdfast
