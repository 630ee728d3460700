#include "framework/data/bpe_tokenizer.h"

#include <algorithm>

#include "framework/base/status.h"
#include "framework/data/byte_level.h"

namespace holdfast {

absl::StatusOr<std::vector<int32_t>> BpeTokenizer::Encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size() / 4);
  std::unique_ptr<Workspace> workspace = workspaces_.Borrow();
  Call call{*workspace, tokens};
  const absl::Status status = CutAdded(0, text, false, call).status();
  workspaces_.GiveBack(std::move(workspace));
  RETURN_IF_ERROR(status);
  return tokens;
}

absl::StatusOr<TokensOfText> BpeTokenizer::EncodeWithRanges(std::string_view text) const {
  TokensOfText encoded;
  std::unique_ptr<Workspace> workspace = workspaces_.Borrow();
  Call call{*workspace, encoded.tokens, &encoded.ranges};
  const absl::Status status = CutAdded(0, text, false, call).status();
  workspaces_.GiveBack(std::move(workspace));
  RETURN_IF_ERROR(status);
  return encoded;
}

absl::StatusOr<size_t> BpeTokenizer::EncodeBeginning(std::string_view text, std::vector<int32_t>& out) const {
  // A text that is taken up again in its middle must look as if it began there.
  const auto forgets = [](const Regex& split) { return split.ignores_the_past(); };
  if (steps_.add_prefix_space || spec_.added_first.looks_around() || spec_.added_second.looks_around() ||
      !std::all_of(steps_.splits.begin(), steps_.splits.end(), forgets)) {
    return 0;
  }
  std::unique_ptr<Workspace> workspace = workspaces_.Borrow();
  Call call{*workspace, out};
  absl::StatusOr<size_t> done = CutAdded(0, text, true, call);
  workspaces_.GiveBack(std::move(workspace));
  return done;
}

absl::StatusOr<size_t> BpeTokenizer::CutAdded(int stage, std::string_view text, bool more_may_follow,
                                              Call& call) const {
  const AddedTokens& added = stage == 0 ? spec_.added_first : spec_.added_second;
  const auto next_stage = [&](std::string_view piece, bool open) {
    return stage == 0 ? Normalize(piece, open, call) : CutInvalid(piece, open, call);
  };
  size_t begin = 0;
  while (true) {
    const AddedTokens::Match match = added.Find(text, begin);
    const size_t unfinished = more_may_follow ? added.FindUnfinished(text, begin) : text.size();
    if (!match.found() || match.begin >= unfinished) {
      ASSIGN_OR_RETURN(const size_t done, next_stage(text.substr(begin, unfinished - begin), more_may_follow));
      return begin + done;
    }
    RETURN_IF_ERROR(next_stage(text.substr(begin, match.begin - begin), false).status());
    call.out.push_back(match.token);
    if (call.ranges != nullptr) call.ranges->push_back({call.at, call.at += match.length});
    begin = match.end();
  }
}

absl::StatusOr<size_t> BpeTokenizer::Normalize(std::string_view text, bool more_may_follow, Call& call) const {
  if (!steps_.is_nfc) return CutAdded(1, text, more_may_follow, call);
  if (more_may_follow) text = text.substr(0, NfcFinished(text));
  if (IsNfc(text)) return CutAdded(1, text, more_may_follow, call);
  const NfcText normalized(text);
  if (more_may_follow) return EncodeBeginningOf(normalized, call);
  const size_t at = call.at, first = call.out.size();
  RETURN_IF_ERROR(CutAdded(1, normalized.text(), false, call).status());
  if (call.ranges == nullptr) return text.size();
  for (ByteRange& range : absl::MakeSpan(*call.ranges).subspan(first)) {
    range = {at + normalized.InOriginal(range.begin - at, false), at + normalized.InOriginal(range.end - at, true)};
  }
  call.at = at + text.size();
  return text.size();
}

// A word may end between two characters that one of the original became, or that changed places: there, what has no
// tokens yet is not the normalized rest of the original.
absl::StatusOr<size_t> BpeTokenizer::EncodeBeginningOf(const NfcText& normalized, Call& call) const {
  call.normalized = &normalized;
  call.cut = 0;
  call.cut_tokens = call.out.size();
  const absl::StatusOr<size_t> done = CutAdded(1, normalized.text(), true, call);
  RETURN_IF_ERROR(done.status());
  NoteCut(*done, call);
  call.normalized = nullptr;
  call.out.resize(call.cut_tokens);
  return normalized.InOriginal(call.cut, false);
}

void BpeTokenizer::NoteCut(size_t at, Call& call) {
  if (!call.normalized->IsInOriginal(at)) return;
  call.cut = at;
  call.cut_tokens = call.out.size();
}

absl::StatusOr<size_t> BpeTokenizer::CutInvalid(std::string_view text, bool more_may_follow, Call& call) const {
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t valid = Utf8ValidLength(text.substr(begin));
    const std::string_view rest = text.substr(begin + valid);
    const bool open = more_may_follow && (rest.empty() || IsUtf8Incomplete(rest));
    ASSIGN_OR_RETURN(const size_t done, Split(0, text.substr(begin, valid), open, call));
    begin += done;
    if (open || rest.empty()) return begin;
    EncodeWord(rest.substr(0, 1), call);
    begin += 1;
  }
  return begin;
}

absl::StatusOr<size_t> BpeTokenizer::Split(size_t stage, std::string_view text, bool more_may_follow,
                                           Call& call) const {
  if (text.empty()) return 0;
  if (steps_.add_prefix_space && stage == static_cast<size_t>(steps_.splits_before_prefix_space) && text[0] != ' ') {
    const size_t at = call.at, first = call.out.size();
    RETURN_IF_ERROR(Split(stage, " " + std::string(text), more_may_follow, call).status());
    if (call.ranges == nullptr) return text.size();
    for (ByteRange& range : absl::MakeSpan(*call.ranges).subspan(first)) {  // the space is not in the text
      range.begin -= range.begin > at ? 1 : 0;
      range.end = std::max(range.end - 1, at + 1);
    }
    --call.at;
    return text.size();  // never more_may_follow: EncodeBeginning refuses
  }
  if (stage == steps_.splits.size()) {
    if (more_may_follow) return 0;  // no split at all: the whole text is one word
    EncodeWord(text, call);
    return text.size();
  }
  size_t begin = 0;
  while (begin < text.size()) {
    ASSIGN_OR_RETURN(const Regex::Match match,
                     steps_.splits[stage].Find(text, begin, more_may_follow, call.workspace.regex));
    if (match.kind == Regex::Match::Kind::kPartial) return begin;
    const bool found = match.kind == Regex::Match::Kind::kFound;
    const size_t end = found ? match.begin : text.size();
    if (!found && more_may_follow) return begin;
    RETURN_IF_ERROR(Split(stage + 1, text.substr(begin, end - begin), false, call).status());
    if (found)
      RETURN_IF_ERROR(Split(stage + 1, text.substr(match.begin, match.end - match.begin), false, call).status());
    begin = found ? match.end : end;
    if (stage == 0 && call.normalized != nullptr) {
      NoteCut(static_cast<size_t>(text.data() + begin - call.normalized->text().data()), call);
    }
  }
  return begin;
}

void BpeTokenizer::EncodeWord(std::string_view word, Call& call) const {
  const size_t before = call.out.size();
  spec_.model.Encode(word, call.workspace.bpe, call.out);
  if (call.ranges == nullptr) return;
  for (size_t i = before; i < call.out.size(); ++i) {
    const size_t bytes = spec_.token_bytes[call.out[i]]->size();
    call.ranges->push_back({call.at, call.at + bytes});
    call.at += bytes;
  }
}

}  // namespace holdfast
