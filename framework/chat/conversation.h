#pragma once
// One example to learn from, as a line of JSONL holds it: {"messages": [...], "tools": [...]}, or {"prompt": ...,
// "completion": ...} with two strings or two lists of messages.

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/data/document_reader.h"
#include "framework/jinja/value.h"

namespace holdfast {

struct Conversation {
  enum class Kind { kMessages, kPromptAndCompletion, kTexts };

  Kind kind = Kind::kMessages;
  jinja::Value messages;           // a list of dicts; empty if kTexts
  int64_t prompt_messages = 0;     // kPromptAndCompletion: that many of `messages` are the prompt
  std::string prompt, completion;  // kTexts
  jinja::Value tools;              // a list, or none
  jinja::Value extra;              // a dict: chat_template_kwargs, handed to the template as variables
};

/// Of one line. InvalidArgument says what is wrong with which message, and what to do; without file and line.
absl::StatusOr<Conversation> ParseConversation(std::string_view line);

/// Every line of `file` that is not blank, in order; an error, also one of `take`, gets "FILE:LINE: " in front.
absl::Status ReadConversations(InputFile& file, const std::function<absl::Status(const Conversation&)>& take,
                               const std::function<void(int64_t bytes)>& count_bytes);

}  // namespace holdfast
