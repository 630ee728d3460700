#pragma once
// One example to learn from, as a line of JSONL holds it: {"messages": [...], "tools": [...]}, or {"prompt": ...,
// "completion": ...} with two strings or two lists of messages. And one that is to be answered.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/data/document_reader.h"
#include "framework/jinja/value.h"

namespace holdfast {

struct Conversation {
  enum class Kind { kMessages, kTexts };

  Kind kind = Kind::kMessages;
  jinja::Items messages = {};      // dicts, checked
  size_t prompt_messages = 0;      // that many are a prompt: nothing of them is learned
  std::string prompt, completion;  // kTexts
  jinja::Value tools = {};         // a list, or none
  jinja::Dict variables = {};      // "chat_template_kwargs": what else the template is told
};

/// Of one line. InvalidArgument says what is wrong with which message, and what to do; without file and line.
absl::StatusOr<Conversation> ParseConversation(absl::string_view line);

/// One whose last turn is to be answered: a JSON object as a line holds it, with "messages" that do not end with a turn
/// of the assistant. Errors as of ParseConversation.
absl::StatusOr<Conversation> ParseUnanswered(absl::string_view json);

/// All of `file`, over any number of lines; an error gets "FILE: " in front.
absl::StatusOr<Conversation> ReadUnanswered(InputFile& file);

/// Adds a message of a text alone. Bytes of it that are not UTF-8 become U+FFFD, so that a file can hold the message.
absl::Status AddMessage(absl::string_view role, absl::string_view content, Conversation& conversation);

bool IsAssistant(const jinja::Value& message);

}  // namespace holdfast
