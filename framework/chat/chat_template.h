#pragma once
// Conversations to tokens, as transformers' apply_chat_template makes them, and which of them are learned.
//
//   ASSIGN_OR_RETURN(const auto chat, ChatTemplate::Open(directory, {.date = "2024-07-26"}));
//   ASSIGN_OR_RETURN(const ChatTokens tokens, chat->Encode(conversation));

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/chat/conversation.h"
#include "framework/chat/tokenizer_settings.h"
#include "framework/data/tokenizer.h"
#include "framework/jinja/template.h"

namespace holdfast {

struct ChatOptions {
  enum class Learn { kAllTurns, kLastTurn };

  Learn learn = Learn::kAllTurns;  // of the assistant
  /// Of a tokenizer with several templates; empty: "tool_use" for conversations with tools if there is one, else
  /// "default".
  std::string template_name = {};
  /// YYYY-MM-DD, what strftime_now tells a template that asks for the date; empty: such a template is an error.
  std::string date = {};
};

struct ChatTokens {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> learned;  // as many; 1: the loss counts this token where it is the target
  // A thought of the assistant ("reasoning_content" and its other names) that the template never names, or does not
  // write in a turn that is learned.
  bool leaves_out_thought = false;
  bool leaves_out_calls = false;   // the template names calls of tools, and writes not all of those of a message
  bool leaves_out_system = false;  // the template does not write what a message of the system or the developer says
  bool learns_end = true;          // false: of the assistant's last turn nothing is learned after what it says
};

/// Thread-safe.
class ChatTemplate {
 public:
  /// `directory` as transformers saves a tokenizer: tokenizer.json, tokenizer_config.json, chat_template.jinja,
  /// additional_chat_templates/.
  static absl::StatusOr<ChatTemplate> Open(const std::string& directory, const ChatOptions& options);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// The token that ends a text ("eos_token"), if the tokenizer's settings name one, else the tokenizer's own.
  std::optional<int32_t> end_of_text() const { return end_of_text_; }
  /// Tokens after which a model writes no more, by its generation_config.json.
  const std::vector<int32_t>& ends() const { return settings_.ends; }

  /// The whole text of the messages. `add_generation_prompt`: also the beginning of the next assistant turn, to sample
  /// from.
  absl::StatusOr<std::string> Render(const Conversation& conversation, bool add_generation_prompt) const;
  /// That of a user's message, after a system's unless that is empty, and of the beginning of the answer.
  absl::StatusOr<std::string> RenderPrompt(const std::string& system, const std::string& user) const;
  /// Adds what was sampled after the text of `conversation`. Of channels, where the template writes such (gpt-oss),
  /// only the final one, because these templates refuse the others in a message.
  absl::Status AddAnswer(absl::string_view answer, Conversation& conversation) const;
  /// Tokens of the whole text; special tokens that the template writes are those tokens, none are put around it.
  absl::StatusOr<ChatTokens> Encode(const Conversation& conversation) const;
  /// Whether the conversation has tools, or calls of tools, that its template never names and so cannot write.
  bool LeavesOutTools(const Conversation& conversation) const;
  /// The same of what the assistant thinks.
  bool LeavesOutReasoning(const Conversation& conversation) const;

 private:
  ChatTemplate() = default;
  absl::StatusOr<const jinja::Template*> TemplateFor(const Conversation& conversation) const;
  absl::string_view SourceFor(const Conversation& conversation) const;
  absl::StatusOr<jinja::Rendered> RenderFirst(const Conversation& conversation, size_t messages,
                                              bool add_generation_prompt) const;
  absl::StatusOr<ChatTokens> EncodeTexts(const Conversation& conversation) const;
  absl::StatusOr<std::vector<jinja::Span>> LearnedSpans(const Conversation& conversation,
                                                        const jinja::Rendered& rendered) const;
  size_t FirstLearned(const Conversation& conversation) const;
  bool LeavesOutLearnedThought(const Conversation& conversation, absl::string_view text) const;
  bool LeavesOutCalls(const Conversation& conversation, absl::string_view text) const;
  bool WritesEnd(const Conversation& conversation, absl::string_view learned) const;
  absl::string_view AsContinued(absl::string_view part, absl::string_view whole) const;
  absl::StatusOr<std::vector<jinja::Span>> MarkedSpans(const Conversation& conversation,
                                                       const jinja::Rendered& rendered, size_t first) const;
  absl::StatusOr<jinja::Span> SpanOfTurn(const Conversation& conversation, size_t turn, const std::string& text) const;
  absl::StatusOr<ChatTokens> EncodeText(const std::string& text, const std::vector<jinja::Span>& learned) const;

  ChatOptions options_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::map<std::string, jinja::Template> templates_;  // by name
  TokenizerSettings settings_;
  std::optional<int32_t> end_of_text_;
};

}  // namespace holdfast
