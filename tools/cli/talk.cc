#include "tools/cli/talk.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "framework/base/counted.h"
#include "framework/base/status.h"
#include "framework/data/document_reader.h"
#include "models/stop_text.h"
#include "tools/cli/terminal_text.h"

namespace holdfast {
namespace {

/// Continues the text of a conversation, again and again.
class Answerer {
 public:
  Answerer(const LoadedModel& model, const TalkOptions& options)
      : model_(model), options_(options), shown_(options.to_terminal) {}

  /// What follows `text`; it is printed as it is made.
  absl::StatusOr<std::string> Answer(const std::string& text) {
    SampleRequest request;
    ASSIGN_OR_RETURN(request.prompt, model_.Encode(text));
    RETURN_IF_ERROR(MakeRoomAfter(static_cast<int64_t>(request.prompt.size())));
    StopText wanted(options_.stops);
    std::string answer;
    const auto print = [&](const std::string& piece) {
      answer += piece;
      Show(piece);
    };
    const auto accept = [&](size_t, int32_t token) {
      if (std::find(options_.ends.begin(), options_.ends.end(), token) != options_.ends.end()) return false;
      print(wanted.Add(model_.tokenizer->Decode({token})));
      return !wanted.stopped();
    };
    ASSIGN_OR_RETURN(const std::vector<SampleEnd> ends,
                     GenerateTokens(*decoder_, {&request, 1}, options_.sample, accept));
    print(wanted.Rest());
    Show("\n");
    if (ends[0] == SampleEnd::kContextFull) return ContextFull();
    if (ends[0] == SampleEnd::kTokens && options_.tells_of_cuts && !std::exchange(has_told_of_cut_, true)) {
      std::fprintf(stderr, "(cut off after %s: --tokens)\n", Counted(options_.sample.tokens, "token").c_str());
    }
    return answer;
  }

 private:
  void Show(const std::string& piece) {
    const std::string text = shown_.Add(piece);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  absl::Status ContextFull() const {
    return absl::OutOfRangeError(absl::StrCat(
        "the conversation has filled the model's context of ", Counted(model_.config.max_sequence_length, "token"),
        " and ends here; begin a new one, with shorter messages or answers (--tokens)"));
  }

  /// For an answer to a prompt of so many tokens. Keys and values of the longest context may be many GiB, and few
  /// conversations come near it. A larger decoder knows nothing of what the one before held.
  absl::Status MakeRoomAfter(int64_t prompt) {
    const int64_t longest = model_.config.max_sequence_length;
    if (prompt == 0) return absl::InvalidArgumentError("the chat template writes nothing of the conversation");
    if (prompt > longest) return ContextFull();
    const int64_t needed = std::min(prompt + options_.sample.tokens, longest);
    const int64_t had = decoder_ == nullptr ? 0 : decoder_->capacity();
    if (needed <= had) return absl::OkStatus();
    decoder_.reset();  // never two at once
    ASSIGN_OR_RETURN(decoder_, model_.MakeDecoder(/*sequences=*/1, std::min(std::max(needed, 2 * had), longest)));
    return absl::OkStatus();
  }

  const LoadedModel& model_;
  const TalkOptions& options_;
  std::unique_ptr<CachedDecoder> decoder_;
  TerminalPieces shown_;
  bool has_told_of_cut_ = false;
};

/// Empty if there is none, or it is blank.
absl::StatusOr<std::string> ReadMessage(std::istream& lines, bool asks) {
  if (asks) std::fprintf(stderr, "> ");
  std::string message;
  for (char c = 0; lines.get(c) && c != '\n'; message += c) {
    if (message.size() < kDocumentHeldBytesMax) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a message of more than ", kDocumentHeldBytesMax, " bytes; each line is one"));
  }
  if (asks && !lines) std::fprintf(stderr, "\n");
  if (message.ends_with('\r')) message.pop_back();
  if (absl::StripAsciiWhitespace(message).empty()) message.clear();
  return message;
}

}  // namespace

absl::Status Talk(const LoadedModel& model, const ChatTemplate& chat, const TalkOptions& options, std::istream& lines) {
  if (options.asks) std::fprintf(stderr, "Each line is a message; an empty one ends the conversation.\n");
  Conversation conversation;
  if (!options.system.empty()) RETURN_IF_ERROR(AddMessage("system", options.system, conversation));
  Answerer answerer(model, options);
  while (true) {
    ASSIGN_OR_RETURN(const std::string message, ReadMessage(lines, options.asks));
    if (message.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(AddMessage("user", message, conversation));
    ASSIGN_OR_RETURN(const std::string text, chat.Render(conversation, /*add_generation_prompt=*/true));
    ASSIGN_OR_RETURN(const std::string answer, answerer.Answer(text));
    RETURN_IF_ERROR(chat.AddAnswer(answer, conversation));
  }
}

}  // namespace holdfast
