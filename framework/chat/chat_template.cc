#include "framework/chat/chat_template.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status.h"

namespace holdfast {

using jinja::Dict;
using jinja::Items;
using jinja::Rendered;
using jinja::Span;
using jinja::Value;

namespace {

size_t NumCalls(const Value& message) {
  const Value* const calls = message.dict().FindName("tool_calls");
  return calls != nullptr && calls->is_list() ? calls->items().size() : 0;
}

bool HasCalls(const Value& message) { return NumCalls(message) > 0; }

Value WithoutLastCall(const Value& message) {
  Dict without = message.dict();
  Items calls = without.FindName("tool_calls")->items();
  calls.pop_back();
  HOLDFAST_CHECK(without.Set(Value("tool_calls"), Value(std::move(calls))).ok());
  return Value(std::move(without));
}

// Stripped, as most templates do.
absl::string_view TextOf(const Value& message, absl::string_view key) {
  const Value* const text = message.dict().FindName(key);
  if (text == nullptr || !text->is_string()) return {};
  return absl::StripAsciiWhitespace(text->string());
}

absl::string_view ThoughtOf(const Value& message) { return TextOf(message, "reasoning_content"); }

bool LeavesOutSystem(const Conversation& conversation, absl::string_view text) {
  return std::any_of(conversation.messages.begin(), conversation.messages.end(), [&](const Value& message) {
    const std::string& role = message.dict().FindName("role")->string();
    return (role == "system" || role == "developer") && !absl::StrContains(text, TextOf(message, "content"));
  });
}

// Message `index` follows them.
absl::Status WritesOthersOtherwise(size_t index) {
  return absl::InvalidArgumentError(
      absl::StrCat("the chat template writes the messages before message ", index + 1,
                   " otherwise when it follows, so it cannot be told what it adds; leave out of them what is not "
                   "written then, as thoughts of calls of tools"));
}

// Of an answer in channels, as gpt-oss writes them, what is for the user; empty if it has not come to that.
absl::string_view FinalChannel(absl::string_view answer) {
  constexpr absl::string_view kMessage = "<|message|>";
  const size_t channel = answer.rfind("<|channel|>final");
  const size_t message = channel == std::string::npos ? channel : answer.find(kMessage, channel);
  if (message == std::string::npos) return {};
  answer.remove_prefix(message + kMessage.size());
  return answer.substr(0, answer.find("<|end|>"));
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Open(const std::string& directory, const ChatOptions& options) {
  ChatTemplate chat;
  chat.options_ = options;
  ASSIGN_OR_RETURN(chat.tokenizer_, OpenTokenizer(directory + "/tokenizer.json"));
  ASSIGN_OR_RETURN(chat.settings_, ReadTokenizerSettings(directory));
  if (const absl::Status prefix = CheckPrefix(chat.settings_, chat.tokenizer_->vocab_size()); !prefix.ok()) {
    return Annotate(prefix, directory);
  }
  for (const auto& [name, source] : chat.settings_.templates) {
    auto parsed = jinja::Template::Parse(source);
    if (!parsed.ok()) return Annotate(parsed.status(), absl::StrCat(directory, ": chat template \"", name, "\""));
    chat.templates_.emplace(name, *std::move(parsed));
  }
  if (!options.template_name.empty() && !chat.templates_.contains(options.template_name)) {
    return absl::NotFoundError(absl::StrCat(directory, " has no chat template \"", options.template_name, "\""));
  }
  auto end_of_text = EndOfText(*chat.tokenizer_, chat.settings_);
  if (!end_of_text.ok()) return Annotate(end_of_text.status(), directory);
  chat.end_of_text_ = *end_of_text;
  return chat;
}

absl::StatusOr<const jinja::Template*> ChatTemplate::TemplateFor(const Conversation& conversation) const {
  auto found = templates_.find(options_.template_name);
  if (options_.template_name.empty()) {
    found = conversation.tools.is_none() ? templates_.end() : templates_.find("tool_use");
    if (found == templates_.end()) found = templates_.find("default");
  }
  if (found != templates_.end()) return &found->second;
  if (templates_.empty()) {
    return absl::InvalidArgumentError(
        "the tokenizer has no chat template; put a chat_template.jinja beside its tokenizer.json");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the tokenizer has no chat template \"default\"; choose one of ",
                   absl::StrJoin(templates_, ", ", [](std::string* out, const auto& one) { *out += one.first; })));
}

absl::StatusOr<Rendered> ChatTemplate::RenderFirst(const Conversation& conversation, size_t messages,
                                                   bool add_generation_prompt) const {
  ASSIGN_OR_RETURN(const jinja::Template* const used, TemplateFor(conversation));
  Dict variables;
  Items first(conversation.messages.begin(), conversation.messages.begin() + static_cast<ptrdiff_t>(messages));
  RETURN_IF_ERROR(variables.Set(Value("messages"), Value(std::move(first))));
  RETURN_IF_ERROR(variables.Set(Value("tools"), conversation.tools));
  RETURN_IF_ERROR(variables.Set(Value("documents"), Value()));
  RETURN_IF_ERROR(variables.Set(Value("add_generation_prompt"), Value(add_generation_prompt)));
  for (const auto& [name, text] : settings_.special_tokens) RETURN_IF_ERROR(variables.Set(Value(name), Value(text)));
  for (const auto& [name, value] : conversation.variables.entries()) RETURN_IF_ERROR(variables.Set(name, value));
  auto rendered = used->Render(variables, {.now = options_.date});
  if (!rendered.ok()) return Annotate(rendered.status(), "chat template");
  return rendered;
}

absl::StatusOr<std::string> ChatTemplate::Render(const Conversation& conversation, bool add_generation_prompt) const {
  ASSIGN_OR_RETURN(Rendered rendered, RenderFirst(conversation, conversation.messages.size(), add_generation_prompt));
  return std::move(rendered.text);
}

absl::StatusOr<std::string> ChatTemplate::RenderPrompt(const std::string& system, const std::string& user) const {
  Conversation conversation;
  if (!system.empty()) RETURN_IF_ERROR(AddMessage("system", system, conversation));
  RETURN_IF_ERROR(AddMessage("user", user, conversation));
  return Render(conversation, /*add_generation_prompt=*/true);
}

absl::Status ChatTemplate::AddAnswer(absl::string_view answer, Conversation& conversation) const {
  const bool has_channels = absl::StrContains(SourceFor(conversation), "<|channel|>final<|message|>") &&
                            absl::StrContains(answer, "<|channel|>");
  return AddMessage("assistant", has_channels ? FinalChannel(answer) : answer, conversation);
}

absl::StatusOr<ChatTokens> ChatTemplate::Encode(const Conversation& conversation) const {
  if (conversation.kind == Conversation::Kind::kTexts) return EncodeTexts(conversation);
  ASSIGN_OR_RETURN(const Rendered rendered, RenderFirst(conversation, conversation.messages.size(), false));
  ASSIGN_OR_RETURN(const std::vector<Span> learned, LearnedSpans(conversation, rendered));
  ASSIGN_OR_RETURN(ChatTokens encoded, EncodeText(rendered.text, learned));
  const absl::string_view text = rendered.text;
  encoded.leaves_out_thought = LeavesOutReasoning(conversation) || LeavesOutLearnedThought(conversation, text);
  encoded.leaves_out_calls = LeavesOutCalls(conversation, text);
  encoded.leaves_out_system = LeavesOutSystem(conversation, text);
  encoded.learns_end = WritesEnd(conversation, text.substr(0, learned.back().end));  // there is one
  return encoded;
}

// Of the template that writes the conversation; empty where none does.
absl::string_view ChatTemplate::SourceFor(const Conversation& conversation) const {
  const absl::StatusOr<const jinja::Template*> used = TemplateFor(conversation);
  if (conversation.kind == Conversation::Kind::kTexts || !used.ok()) return {};
  const auto entry =
      std::find_if(templates_.begin(), templates_.end(), [&](const auto& one) { return &one.second == *used; });
  return settings_.templates.at(entry->first);
}

bool ChatTemplate::LeavesOutTools(const Conversation& conversation) const {
  const absl::string_view source = SourceFor(conversation);
  if (source.empty()) return false;
  const bool calls = std::any_of(conversation.messages.begin(), conversation.messages.end(), HasCalls);
  return (!conversation.tools.is_none() && !absl::StrContains(source, "tools")) ||
         (calls && !absl::StrContains(source, "tool_calls"));
}

bool ChatTemplate::LeavesOutReasoning(const Conversation& conversation) const {
  const absl::string_view source = SourceFor(conversation);
  if (source.empty() || absl::StrContains(source, "reasoning") || absl::StrContains(source, "thinking")) return false;
  return std::any_of(conversation.messages.begin(), conversation.messages.end(),
                     [](const Value& message) { return !ThoughtOf(message).empty(); });
}

// `learned`: the text up to where the last learned turn of the assistant ends. Whether that is more than what it says.
bool ChatTemplate::WritesEnd(const Conversation& conversation, absl::string_view learned) const {
  const auto eos = settings_.special_tokens.find("eos_token");
  if (eos != settings_.special_tokens.end() && absl::EndsWith(learned, eos->second)) return true;
  const auto turn = std::find_if(conversation.messages.rbegin(), conversation.messages.rend(), IsAssistant);
  const Value* const content = turn->dict().FindName("content");
  // What ends calls, and what is no text, is not told from what the turn says.
  if (HasCalls(*turn) || content == nullptr || !content->is_string()) return true;
  const absl::string_view stripped = absl::StripAsciiWhitespace(content->string());  // as templates do
  return stripped.empty() || !(absl::EndsWith(learned, stripped) || absl::EndsWith(learned, content->string()));
}

size_t ChatTemplate::FirstLearned(const Conversation& conversation) const {
  if (options_.learn == ChatOptions::Learn::kAllTurns) return conversation.prompt_messages;
  size_t last = conversation.messages.size() - 1;
  while (!IsAssistant(conversation.messages[last])) --last;  // there is one
  return last;
}

// Templates drop thoughts of earlier turns, and {% generation %} blocks learn what is left of these.
bool ChatTemplate::LeavesOutLearnedThought(const Conversation& conversation, absl::string_view text) const {
  const auto first = conversation.messages.begin() + static_cast<ptrdiff_t>(FirstLearned(conversation));
  return std::any_of(first, conversation.messages.end(), [&](const Value& message) {
    return IsAssistant(message) && !absl::StrContains(text, ThoughtOf(message));
  });
}

// Some templates, as that of gpt-oss, write only the first call of a message: without the last the text is the same.
bool ChatTemplate::LeavesOutCalls(const Conversation& conversation, absl::string_view text) const {
  if (!absl::StrContains(SourceFor(conversation), "tool_calls")) return false;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    if (NumCalls(conversation.messages[i]) < 2) continue;
    Conversation without = conversation;
    without.messages[i] = WithoutLastCall(conversation.messages[i]);
    const auto rendered = RenderFirst(without, without.messages.size(), false);
    if (rendered.ok() && rendered->text == text) return true;
  }
  return false;
}

absl::StatusOr<std::vector<Span>> ChatTemplate::LearnedSpans(const Conversation& conversation,
                                                             const Rendered& rendered) const {
  const size_t first = FirstLearned(conversation);
  ASSIGN_OR_RETURN(const jinja::Template* const used, TemplateFor(conversation));
  if (used->marks_generation()) return MarkedSpans(conversation, rendered, first);
  std::vector<Span> spans;
  for (size_t i = first; i < conversation.messages.size(); ++i) {
    if (!IsAssistant(conversation.messages[i])) continue;
    ASSIGN_OR_RETURN(const Span span, SpanOfTurn(conversation, i, rendered.text));
    spans.push_back(span);
  }
  return spans;
}

// Some templates end every text with eos_token, also one that is continued: `part` without it, if `whole` does not
// begin with it.
absl::string_view ChatTemplate::AsContinued(absl::string_view part, absl::string_view whole) const {
  const auto eos = settings_.special_tokens.find("eos_token");
  if (!absl::StartsWith(whole, part) && eos != settings_.special_tokens.end() && absl::EndsWith(part, eos->second)) {
    part.remove_suffix(eos->second.size());
  }
  return part;
}

// What {% generation %} blocks wrote, from message `first` on.
absl::StatusOr<std::vector<Span>> ChatTemplate::MarkedSpans(const Conversation& conversation, const Rendered& rendered,
                                                            size_t first) const {
  size_t begin = 0;
  if (first > 0) {
    ASSIGN_OR_RETURN(const Rendered before, RenderFirst(conversation, first, false));
    const absl::string_view continued = AsContinued(before.text, rendered.text);
    if (!absl::StartsWith(rendered.text, continued)) {
      return WritesOthersOtherwise(first);
    }
    begin = continued.size();
  }
  std::vector<Span> spans;
  for (const Span& span : rendered.generations) {
    if (span.begin >= begin && span.begin < span.end) spans.push_back(span);
  }
  if (!spans.empty()) return spans;
  return absl::InvalidArgumentError("the chat template's {% generation %} blocks wrote nothing that could be learned");
}

// What the template adds for message `turn`: from where it would have been asked for, to its end.
absl::StatusOr<Span> ChatTemplate::SpanOfTurn(const Conversation& conversation, size_t turn,
                                              const std::string& text) const {
  const std::string where = absl::StrCat("message ", turn + 1);
  auto before = RenderFirst(conversation, turn, true);
  if (!before.ok() && turn == 0) {
    return absl::Status(
        before.status().code(),
        absl::StrCat(where,
                     ": the conversation begins with a turn of the assistant, and the chat template cannot ask for "
                     "one before the first message, so it cannot be told what is to be learned; put a user turn before "
                     "it, learn only the last turn (--learn last), or mark it in the template with {% generation %} (",
                     before.status().message(), ")"));
  }
  if (!before.ok()) return Annotate(before.status(), absl::StrCat("the messages before ", where));
  auto after = RenderFirst(conversation, turn + 1, false);
  if (!after.ok()) return Annotate(after.status(), absl::StrCat("the messages up to ", where));
  const absl::string_view end = AsContinued(after->text, text);
  const bool is_as_asked = absl::StartsWith(end, before->text);
  if (!is_as_asked || !absl::StartsWith(text, end)) {
    const auto others = RenderFirst(conversation, turn, false);
    if (!is_as_asked && others.ok() && !absl::StartsWith(text, AsContinued(others->text, text))) {
      return WritesOthersOtherwise(turn);
    }
    const absl::string_view instead = options_.learn == ChatOptions::Learn::kLastTurn
                                          ? "remove the messages after it, or "
                                          : "learn only the last turn (--learn last), or ";
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": the chat template writes it otherwise when ", is_as_asked ? "messages follow" : "it is asked for",
        ", so it cannot be told what is to be learned; ", is_as_asked ? instead : "",
        "mark it in the template with {% generation %}"));
  }
  return Span{before->text.size(), end.size()};
}

absl::StatusOr<ChatTokens> ChatTemplate::EncodeText(const std::string& text, const std::vector<Span>& learned) const {
  ASSIGN_OR_RETURN(TokensOfText encoded, tokenizer_->EncodeWithRanges(text));
  ChatTokens all;
  all.tokens = std::move(encoded.tokens);
  all.learned.reserve(all.tokens.size());
  auto span = learned.begin();
  for (const ByteRange& range : encoded.ranges) {
    while (span != learned.end() && span->end <= range.begin) ++span;
    all.learned.push_back(span != learned.end() && span->begin < range.end ? 1 : 0);
  }
  return all;
}

// The prompt and the completion without a template, as a text of the tokenizer; the completion and its end are learned.
absl::StatusOr<ChatTokens> ChatTemplate::EncodeTexts(const Conversation& conversation) const {
  const std::string text = conversation.prompt + conversation.completion;
  ASSIGN_OR_RETURN(ChatTokens all, EncodeText(text, {{conversation.prompt.size(), text.size()}}));
  PutBefore(settings_.prefix, all.tokens);
  all.learned.insert(all.learned.begin(), all.tokens.size() - all.learned.size(), 0);
  if (end_of_text_.has_value() && (all.tokens.empty() || all.tokens.back() != *end_of_text_)) {
    all.tokens.push_back(*end_of_text_);
    all.learned.push_back(1);
  }
  all.learns_end = end_of_text_.has_value();
  return all;
}

}  // namespace holdfast
