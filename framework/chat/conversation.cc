#include "framework/chat/conversation.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status.h"
#include "framework/jinja/json_value.h"

namespace holdfast {
namespace {

using jinja::Dict;
using jinja::Items;
using jinja::Value;

// Of a line. What lies in others takes many times its text.
constexpr auto kFields = std::to_array<absl::string_view>(
    {"messages", "prompt", "completion", "tools", "chat_template_kwargs", "conversations"});
constexpr std::array kRoles = {"system", "developer", "user", "assistant", "tool"};
// What other trainers read from messages and we do not: to pass over it would be to learn what must not be learned.
constexpr std::array kWeights = {"weight", "train", "training", "trainable", "loss_mask"};
// Of ShareGPT's messages.
constexpr char kRename[] =
    "rename \"from\" to \"role\" and \"value\" to \"content\", \"human\" to \"user\" and \"gpt\" to \"assistant\"";
constexpr std::array kReasoning = {"reasoning_content", "thinking", "reasoning"};

// Bytes that are not UTF-8, as half a character at the end of an answer is, become U+FFFD.
std::string AsUtf8(absl::string_view text) {
  using Json = nlohmann::json;
  return Json::parse(Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

absl::Status Wrong(absl::string_view what, const Value& value, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(what, " is ", jinja::JsonKindOf(value), ", not ", expected));
}

absl::StatusOr<Value> CheckRole(const Dict& message) {
  const Value* const role = message.FindName("role");
  if (role == nullptr) {
    return absl::InvalidArgumentError(message.FindName("from") != nullptr
                                          ? absl::StrCat("it has \"from\" and no \"role\"; ", kRename)
                                          : "it has no \"role\"");
  }
  if (!role->is_string()) return Wrong("\"role\"", *role, "a string");
  if (std::find(kRoles.begin(), kRoles.end(), role->string()) == kRoles.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown role \"", role->string(), "\"; use one of ", absl::StrJoin(kRoles, ", ")));
  }
  return *role;
}

// A list of texts becomes one text, because most templates expect one.
absl::StatusOr<Value> JoinParts(const Items& parts) {
  std::string text;
  for (const Value& part : parts) {
    const Value* const type = part.is_dict() ? part.dict().FindName("type") : nullptr;
    const Value* const content = part.is_dict() ? part.dict().FindName("text") : nullptr;
    if (type == nullptr || !type->is_string() || type->string() != "text" || content == nullptr ||
        !content->is_string()) {
      return absl::InvalidArgumentError(
          "a part of \"content\" is not {\"type\": \"text\", \"text\": ...}; only text can be learned");
    }
    text += content->string();
  }
  return Value(std::move(text));
}

absl::StatusOr<Value> CheckContent(const Dict& message, bool has_calls) {
  const Value* const content = message.FindName("content");
  if (content == nullptr || content->is_none()) {
    if (has_calls) return Value();
    return absl::InvalidArgumentError("it has no \"content\"; use \"\" for an empty one");
  }
  if (content->is_list()) return JoinParts(content->items());
  if (!content->is_string()) return Wrong("\"content\"", *content, "a string or a list of texts");
  return *content;
}

absl::StatusOr<bool> CheckToolCalls(const Dict& message) {
  const Value* const calls = message.FindName("tool_calls");
  if (calls == nullptr || calls->is_none()) return false;
  if (!calls->is_list()) return Wrong("\"tool_calls\"", *calls, "a list");
  for (const Value& call : calls->items()) {
    if (!call.is_dict()) return Wrong("an element of \"tool_calls\"", call, "an object");
  }
  return !calls->items().empty();
}

// As transformers hands messages to a template: without keys that are null, and reasoning under each of its names that
// templates read.
absl::StatusOr<Value> CheckMessage(const Value& given) {
  if (!given.is_dict()) return Wrong("it", given, "an object");
  const Dict& message = given.dict();
  for (const char* key : kWeights) {
    if (message.FindName(key) == nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", key, "\" of a message is not supported; remove it, or the turn"));
  }
  RETURN_IF_ERROR(CheckRole(message).status());
  ASSIGN_OR_RETURN(const bool has_calls, CheckToolCalls(message));
  ASSIGN_OR_RETURN(const Value content, CheckContent(message, has_calls));
  const Value* reasoning = nullptr;
  for (const char* key : kReasoning) {
    const Value* const found = message.FindName(key);
    if (reasoning == nullptr && found != nullptr && !found->is_none()) reasoning = found;
  }
  Dict checked;
  if (reasoning != nullptr) RETURN_IF_ERROR(checked.Set(Value("thinking"), *reasoning));
  for (const auto& [key, value] : message.entries()) {
    if (!value.is_none()) RETURN_IF_ERROR(checked.Set(key, key.string() == "content" ? content : value));
  }
  if (reasoning != nullptr) RETURN_IF_ERROR(checked.Set(Value("reasoning_content"), *reasoning));
  return Value(std::move(checked));
}

absl::Status AppendMessages(const char* field, const Value& given, Items& messages) {
  if (!given.is_list()) return Wrong(absl::StrCat("\"", field, "\""), given, "a list of messages");
  for (size_t i = 0; i < given.items().size(); ++i) {
    auto message = CheckMessage(given.items()[i]);
    if (!message.ok()) return Annotate(message.status(), absl::StrCat("message ", i + 1, " of \"", field, "\""));
    messages.push_back(*std::move(message));
  }
  return absl::OkStatus();
}

absl::Status CheckLearnable(const Conversation& conversation) {
  const auto begin = conversation.messages.begin() + static_cast<ptrdiff_t>(conversation.prompt_messages);
  if (std::any_of(begin, conversation.messages.end(), IsAssistant)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "no turn of the assistant, so there is nothing to learn; add one (\"role\": \"assistant\") or remove the line");
}

absl::Status ReadPromptAndCompletion(const Value& prompt, const Value& completion, Conversation& conversation) {
  if (prompt.is_string() && completion.is_string()) {
    conversation.kind = Conversation::Kind::kTexts;
    conversation.prompt = prompt.string();
    conversation.completion = completion.string();
    return completion.string().empty()
               ? absl::InvalidArgumentError("\"completion\" is empty, so there is nothing to learn")
               : absl::OkStatus();
  }
  RETURN_IF_ERROR(AppendMessages("prompt", prompt, conversation.messages));
  conversation.prompt_messages = conversation.messages.size();
  RETURN_IF_ERROR(AppendMessages("completion", completion, conversation.messages));
  return CheckLearnable(conversation);
}

// Some data sets hold the list as a string of JSON, because each of its elements has other keys.
absl::StatusOr<Value> ReadToolList(const Value& tools) {
  if (tools.is_list()) return tools;
  if (!tools.is_string()) return Wrong("\"tools\"", tools, "a list");
  auto parsed = jinja::ParseJson(tools.string());
  if (parsed.ok() && parsed->is_list()) return *std::move(parsed);
  const std::string holds(parsed.ok() ? jinja::JsonKindOf(*parsed) : parsed.status().message());
  return Wrong("\"tools\"", tools, absl::StrCat("a list, and as JSON it is no list (", holds, "); write a list"));
}

absl::Status ReadTools(const Dict& line, Conversation& conversation) {
  if (const Value* const tools = line.FindName("tools"); tools != nullptr && !tools->is_none()) {
    ASSIGN_OR_RETURN(Value list, ReadToolList(*tools));
    if (!list.items().empty()) conversation.tools = std::move(list);
  }
  const Value* const variables = line.FindName("chat_template_kwargs");
  if (variables == nullptr || variables->is_none()) return absl::OkStatus();
  if (!variables->is_dict()) return Wrong("\"chat_template_kwargs\"", *variables, "an object");
  for (const char* own : {"messages", "tools", "documents", "add_generation_prompt"}) {
    if (variables->dict().FindName(own) == nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat("\"chat_template_kwargs\" cannot set \"", own, "\""));
  }
  conversation.variables = variables->dict();
  return absl::OkStatus();
}

absl::Status NoConversation(const Dict& line) {
  const Value* const turns = line.FindName("conversations");
  if (turns == nullptr) {
    return absl::InvalidArgumentError(
        "neither \"messages\" nor \"prompt\" and \"completion\"; see framework/chat/README.md for the two forms");
  }
  const bool is_share_gpt = turns->is_list() && !turns->items().empty() && turns->items()[0].is_dict() &&
                            turns->items()[0].dict().FindName("from") != nullptr;
  return absl::InvalidArgumentError(
      absl::StrCat("it has \"conversations\" and no \"messages\"; rename \"conversations\" to \"messages\"",
                   is_share_gpt ? ", and in each of them " : "", is_share_gpt ? kRename : ""));
}

}  // namespace

bool IsAssistant(const jinja::Value& message) { return message.dict().FindName("role")->string() == "assistant"; }

absl::StatusOr<Conversation> ParseConversation(absl::string_view line) {
  const auto parsed = jinja::ParseJson(line, jinja::LargeNumbers::kRefused, kFields);
  if (!parsed.ok()) return NoJsonLine(parsed.status());
  const Value& root = *parsed;
  if (!root.is_dict()) return Wrong("the line", root, "a JSON object");
  const Value* const messages = root.dict().FindName("messages");
  const Value* const prompt = root.dict().FindName("prompt");
  const Value* const completion = root.dict().FindName("completion");
  Conversation conversation;
  RETURN_IF_ERROR(ReadTools(root.dict(), conversation));
  if (messages != nullptr && completion != nullptr) {
    return absl::InvalidArgumentError("both \"messages\" and \"completion\"; keep one");
  }
  if (messages != nullptr) {
    RETURN_IF_ERROR(AppendMessages("messages", *messages, conversation.messages));
    RETURN_IF_ERROR(CheckLearnable(conversation));
    return conversation;
  }
  if (prompt == nullptr || completion == nullptr) return NoConversation(root.dict());
  RETURN_IF_ERROR(ReadPromptAndCompletion(*prompt, *completion, conversation));
  return conversation;
}

absl::StatusOr<Conversation> ParseUnanswered(absl::string_view json) {
  const auto parsed = jinja::ParseJson(json);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(parsed.status().message(), "; a conversation has to be one whole JSON object in UTF-8"));
  }
  if (!parsed->is_dict()) return Wrong("the conversation", *parsed, "a JSON object");
  const Dict& root = parsed->dict();
  const Value* const messages = root.FindName("messages");
  if (messages == nullptr) {
    return root.FindName("conversations") != nullptr ? NoConversation(root)
                                                     : absl::InvalidArgumentError("it has no \"messages\"");
  }
  Conversation conversation;
  RETURN_IF_ERROR(ReadTools(root, conversation));
  RETURN_IF_ERROR(AppendMessages("messages", *messages, conversation.messages));
  if (conversation.messages.empty()) return absl::InvalidArgumentError("\"messages\" is empty");
  if (IsAssistant(conversation.messages.back())) {
    return absl::InvalidArgumentError(
        "the last message is the assistant's, so there is nothing to answer; remove it, or add what follows it");
  }
  return conversation;
}

absl::StatusOr<Conversation> ReadUnanswered(InputFile& file) {
  std::string text;
  for (bool more = true; more;) {
    if (text.size() > kDocumentHeldBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.name(), ": more than ", kDocumentHeldBytesMax, " bytes; it has to be one conversation"));
    }
    ASSIGN_OR_RETURN(more, file.ReadMore(kDocumentPieceBytes, text));
  }
  auto conversation = ParseUnanswered(text);
  if (!conversation.ok()) return Annotate(conversation.status(), file.name());
  return conversation;
}

absl::Status AddMessage(absl::string_view role, absl::string_view content, Conversation& conversation) {
  Dict message;
  RETURN_IF_ERROR(message.Set("role", role));
  RETURN_IF_ERROR(message.Set("content", AsUtf8(content)));
  conversation.messages.emplace_back(std::move(message));
  return absl::OkStatus();
}

}  // namespace holdfast
