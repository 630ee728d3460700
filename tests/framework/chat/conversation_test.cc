// Proves which lines are conversations, and which texts are to be answered, and that others are refused with file,
// line, message and remedy; and that what lies in other fields of a line is checked, and not held.

#include "framework/chat/conversation.h"

#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/base/peak_memory.h"
#include "tests/framework/data/token_test_files.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Refusal(const std::string& line) { return std::string(ParseConversation(line).status().message()); }

TEST(Conversation, HasMessagesOrPromptAndCompletion) {
  const auto chat = ParseConversation(
      R"({"id": 7, "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
          {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]}], "tools": [{"type": "function"}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->messages[0].dict().FindName("content")->string(), "ab");
  EXPECT_EQ(chat->messages[1].dict().FindName("content"), nullptr);
  EXPECT_TRUE(chat->tools.is_list());
  const auto as_text = ParseConversation(
      R"({"messages": [{"role": "assistant", "content": "a"}], "tools": "[{\"type\": \"function\"}]"})");
  ASSERT_TRUE(as_text.ok()) << as_text.status();
  EXPECT_EQ(as_text->tools.items()[0].dict().FindName("type")->string(), "function");
  const auto none = ParseConversation(R"({"messages": [{"role": "assistant", "content": "a"}], "tools": "[]"})");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->tools.is_none());
  const auto texts = ParseConversation(R"({"prompt": "p", "completion": "c"})");
  ASSERT_TRUE(texts.ok());
  EXPECT_EQ(texts->kind, Conversation::Kind::kTexts);
  const auto lists = ParseConversation(
      R"({"prompt": [{"role": "user", "content": "p"}], "completion": [{"role": "assistant", "content": "c"}]})");
  ASSERT_TRUE(lists.ok());
  EXPECT_EQ(lists->prompt_messages, 1);
}

// They took 60 bytes for each list and number. In a process of its own, whose peak no other test has raised.
TEST(Conversation, HoldsNothingOfWhatLiesInOtherFields) {
  std::string line = R"({"other": [{"messages": 1}, )";
  for (int i = 0; i < 1'000'000; ++i) line += "[],";
  line += R"(5], "prompt": "a", "completion": "b", "last": [6]})";
  const auto take = [&line] {
    const int64_t before = PeakKiB();
    const auto conversation = ParseConversation(line);
    _exit(conversation.ok() && conversation->prompt == "a" && conversation->completion == "b" &&
                  PeakKiB() - before < 32 << 10
              ? 0
              : 1);
  };
  EXPECT_EXIT(take(), ::testing::ExitedWithCode(0), "");
}

TEST(Conversation, WhatLiesInOtherFieldsIsChecked) {
  const auto refusal = [](const std::string& other) {
    return Refusal(R"({"prompt": "a", "other": )" + other + R"(, "completion": "b"})");
  };
  EXPECT_EQ(refusal(R"({"a": [{"b": 1, "c": [2]}, [3.5]]})"), "");
  EXPECT_THAT(refusal(R"([{"a": {"b": [], "c": 1, "b": 2}}])"), HasSubstr("the key \"b\" twice"));
  EXPECT_THAT(refusal(R"([[9223372036854775808]])"), HasSubstr("the number 9223372036854775808"));
  EXPECT_THAT(refusal(R"(1, "other": 2)"), HasSubstr("the key \"other\" twice"));
  EXPECT_THAT(refusal("[1"), HasSubstr("malformed JSON"));
}

TEST(Conversation, RefusalsSayWhatToDo) {
  EXPECT_THAT(Refusal(R"({"messages": [{"role": "user", "content": "a"}]})"), HasSubstr("no turn of the assistant"));
  EXPECT_THAT(Refusal(R"({"messages": [{"role": "bot", "content": "a"}]})"),
              HasSubstr("message 1 of \"messages\": unknown role \"bot\"; use one of system, developer, user"));
  EXPECT_THAT(Refusal(R"({"messages": [{"from": "human", "value": "a"}]})"), HasSubstr("rename \"from\""));
  EXPECT_THAT(
      Refusal(R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})"),
      HasSubstr("rename \"conversations\" to \"messages\", and in each of them rename \"from\" to \"role\" and "));
  EXPECT_THAT(Refusal(R"({"conversations": [{"role": "user", "content": "a"}]})"),
              AllOf(HasSubstr("rename \"conversations\" to \"messages\""), Not(HasSubstr("from"))));
  EXPECT_THAT(Refusal(R"({"conversations": 3})"), HasSubstr("rename \"conversations\""));
  EXPECT_THAT(Refusal(R"({"messages": [{"role": "assistant", "content": "a", "weight": 0}]})"),
              HasSubstr("\"weight\""));
  EXPECT_THAT(Refusal(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"), HasSubstr("only text"));
  EXPECT_THAT(Refusal(R"({"messages": "a"})"), HasSubstr("is a string, not a list of messages"));
  EXPECT_THAT(Refusal(R"({"messages": [{"role": 5, "content": "a"}]})"),
              HasSubstr("\"role\" is a number, not a string"));
  EXPECT_THAT(Refusal(R"({"messages": [{"role": null, "content": "a"}]})"),
              HasSubstr("\"role\" is null, not a string"));
  EXPECT_THAT(Refusal(R"({"text": "a"})"), HasSubstr("neither \"messages\" nor"));
  EXPECT_THAT(Refusal("{\"messages\": \"\xff\"}"), HasSubstr("invalid UTF-8"));
  EXPECT_THAT(Refusal(R"({"prompt": "a", "completion": "b", "chat_template_kwargs": {"add_generation_prompt": true}})"),
              HasSubstr("cannot set \"add_generation_prompt\""));
  EXPECT_THAT(Refusal(R"({"prompt": "a", "prompt": "b"})"), HasSubstr("the key \"prompt\" twice"));
  EXPECT_THAT(Refusal(std::string(100, '[')), HasSubstr("deeper than 64"));
  EXPECT_THAT(Refusal("{"), HasSubstr("malformed JSON"));
  EXPECT_THAT(Refusal(R"({"prompt": "a\ud83d", "completion": "b"})"), HasSubstr("half of a character"));
  EXPECT_THAT(Refusal(R"({"prompt": "a", "completion": "b"})" + std::string("\0garbage", 8)),
              HasSubstr("malformed JSON: byte 35 is zero"));
  EXPECT_THAT(Refusal(R"({"messages": [], "tools": {}})"), HasSubstr("\"tools\" is an object, not a list"));
  EXPECT_THAT(Refusal(R"({"messages": [], "tools": "{}"})"),
              HasSubstr("not a list, and as JSON it is no list (an object)"));
  EXPECT_THAT(Refusal(R"({"messages": [], "tools": "none"})"), HasSubstr("no list (malformed JSON at byte"));
}

TEST(Conversation, OneToBeAnsweredNeedsNoAnswer) {
  const auto question = ParseUnanswered(R"({
    "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]},
                 {"role": "tool", "content": [{"type": "text", "text": "7"}]}],
    "tools": [{"type": "function"}], "chat_template_kwargs": {"enable_thinking": false}
  })");
  ASSERT_TRUE(question.ok()) << question.status();
  ASSERT_EQ(question->messages.size(), 3u);
  EXPECT_EQ(question->messages[2].dict().FindName("content")->string(), "7");
  EXPECT_EQ(question->tools.items().size(), 1u);
  EXPECT_FALSE(question->variables.FindName("enable_thinking")->boolean());
  EXPECT_TRUE(ParseUnanswered(R"({"messages": [{"role": "user", "content": "a"}]})").ok());
}

TEST(Conversation, AnAddedMessageIsWhatAFileCanHold) {
  Conversation typed;
  ASSERT_TRUE(AddMessage("user", "a\xff b\xc3\xa9\xf0\x9f", typed).ok());
  const auto read = ParseUnanswered(R"({"messages": [{"role": "user", "content": "a\ufffd b\u00e9\ufffd"}]})");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(typed.messages[0].dict().FindName("content")->string(),
            read->messages[0].dict().FindName("content")->string());
}

TEST(Conversation, OneThatCannotBeAnsweredIsRefused) {
  const auto refusal = [](const char* json) { return std::string(ParseUnanswered(json).status().message()); };
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"),
              HasSubstr("the last message is the assistant's, so there is nothing to answer; remove it"));
  EXPECT_THAT(refusal(R"({"messages": []})"), HasSubstr("\"messages\" is empty"));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "bot", "content": "a"}]})"),
              HasSubstr("message 1 of \"messages\": unknown role \"bot\""));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user", "content": "a"}], "tools": {}})"), HasSubstr("not a list"));
  EXPECT_THAT(refusal(R"({"conversations": [{"from": "human", "value": "a"}]})"), HasSubstr("rename \"from\""));
  EXPECT_THAT(refusal(R"({"prompt": "a"})"), HasSubstr("no \"messages\""));
  EXPECT_THAT(refusal("[]"), HasSubstr("is a list, not a JSON object"));
  const char* two = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n{\"messages\": []}\n";
  EXPECT_THAT(refusal(two), HasSubstr("a conversation has to be one whole JSON object"));
}

TEST(Conversation, OneToBeAnsweredIsTheWholeFile) {
  const TemporaryDirectory directory;
  LocalFileAccess files;
  const auto read = [&](const std::string& text) {
    WriteText(directory / "one.json", text);
    auto file = InputFile::Open(files, directory / "one.json");
    return file.ok() ? ReadUnanswered(*file) : file.status();
  };
  const auto question =
      read("{\n \"messages\":\n [{\"role\": \"user\", \"content\": \"" + std::string(3 << 20, 'x') + "\"}]}\n\n");
  ASSERT_TRUE(question.ok()) << question.status();
  EXPECT_EQ(question->messages[0].dict().FindName("content")->string().size(), 3u << 20);
  EXPECT_THAT(std::string(read("").status().message()), HasSubstr("one.json: malformed JSON"));
}

}  // namespace
}  // namespace holdfast
