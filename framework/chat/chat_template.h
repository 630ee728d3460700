#pragma once
// Conversations to tokens, as transformers' apply_chat_template makes them, and which of them are learned.
//
//   ASSIGN_OR_RETURN(const auto chat, ChatTemplate::Open(directory, {.date = "2024-07-26"}));
//   ASSIGN_OR_RETURN(const ChatTokens tokens, chat->Encode(conversation));

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/chat/conversation.h"
#include "framework/data/tokenizer.h"

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

/// Of equal length.
struct ChatTokens {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> learned;  // 1: the loss counts this token where it is the target
};

/// Thread-safe.
class ChatTemplate {
 public:
  /// `directory` as transformers saves a tokenizer: tokenizer.json, tokenizer_config.json, chat_template.jinja,
  /// additional_chat_templates/.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Open(const std::string& directory,
                                                                  const ChatOptions& options);
  virtual ~ChatTemplate() = default;

  virtual const Tokenizer& tokenizer() const = 0;
  /// The token that ends a text or a turn ("eos_token"), if the tokenizer's settings name one.
  virtual std::optional<int32_t> end_of_text() const = 0;

  /// The whole text. `add_generation_prompt`: also the beginning of the next assistant turn, to sample from.
  virtual absl::StatusOr<std::string> Render(const Conversation& conversation, bool add_generation_prompt) const = 0;
  /// Tokens of the whole text; special tokens that the template writes are those tokens, none are put around it.
  virtual absl::StatusOr<ChatTokens> Encode(const Conversation& conversation) const = 0;
};

}  // namespace holdfast
