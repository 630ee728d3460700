// What a line of any bytes becomes: it is refused with what is wrong, or it is a conversation that two formats, one
// with tokens over bytes and one over characters, encode or refuse; as many tokens as marks of what is learned. The
// same bytes as a conversation that is to be answered are refused, or one that a format renders or refuses. Runs in the
// root of the tree: it reads golden files.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "framework/chat/chat_template.h"

namespace holdfast {
namespace {

void Check(bool condition) {
  if (!condition) abort();
}

const ChatTemplate& Format(const char* directory) {
  auto opened = ChatTemplate::Open(directory, {.date = "2024-07-05"});
  Check(opened.ok());
  return *new ChatTemplate(*std::move(opened));
}

void Encode(const ChatTemplate& chat, const Conversation& conversation) {
  const auto encoded = chat.Encode(conversation);
  if (!encoded.ok()) {
    Check(!absl::IsInternal(encoded.status()) && !encoded.status().message().empty());
    return;
  }
  Check(encoded->tokens.size() == encoded->learned.size());
  for (const int32_t token : encoded->tokens) Check(token >= 0 && token < chat.tokenizer().vocab_size());
}

void Ask(const ChatTemplate& chat, absl::string_view json) {
  const auto conversation = ParseUnanswered(json);
  if (!conversation.ok()) return Check(absl::IsInvalidArgument(conversation.status()));
  Check(!absl::IsInternal(chat.Render(*conversation, /*add_generation_prompt=*/true).status()));
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const holdfast::ChatTemplate& chatml = holdfast::Format("tests/framework/chat/golden/chatml");
  static const holdfast::ChatTemplate& zephyr = holdfast::Format("tests/framework/chat/golden/zephyr");
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  holdfast::Ask(chatml, text);
  const auto conversation = holdfast::ParseConversation(text);
  if (!conversation.ok()) {
    if (!absl::IsInvalidArgument(conversation.status())) abort();
    return 0;
  }
  holdfast::Encode(chatml, *conversation);
  holdfast::Encode(zephyr, *conversation);
  return 0;
}
