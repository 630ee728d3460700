// What a tokenizer's directory says besides its template, and templates that end every text.

#include "framework/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <utility>

#include "framework/chat/conversation.h"
#include "framework/chat/tokenizer_settings.h"
#include "tests/framework/data/token_test_files.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ChatTemplateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string golden = SourceDir() + "/tests/framework/data/golden/";
    std::filesystem::copy_file(golden + "tokenizer_llama3_style.json", directory_ / "tokenizer.json");
    WriteText(directory_ / "tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
    WriteText(directory_ / "chat_template.jinja", "{{ 'x' }}");
  }
  ChatTemplate Open(ChatOptions::Learn learn = ChatOptions::Learn::kAllTurns) {
    auto opened = ChatTemplate::Open(directory_ / "", {.learn = learn});
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  static std::string Learned(const ChatTemplate& chat, const std::string& line) {
    const auto encoded = chat.Encode(*ParseConversation(line));
    if (!encoded.ok()) return std::string(encoded.status().message());
    std::string text;
    for (size_t i = 0; i < encoded->tokens.size(); ++i) {
      if (encoded->learned[i] != 0) text += chat.tokenizer().Decode({encoded->tokens[i]});
    }
    return text;
  }

  TemporaryDirectory directory_;
};

// As Phi-3's, in TRL's form.
TEST_F(ChatTemplateTest, OneThatMarksTurnsAndEndsEveryTextTellsTheLastTurn) {
  WriteText(directory_ / "chat_template.jinja",
            "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}|"
            "{% endgeneration %}{% else %}{{ m.content }}|{% endif %}{% endfor %}"
            "{% if not add_generation_prompt %}{{ eos_token }}{% endif %}");
  const std::string turns = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                                             {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})";
  EXPECT_EQ(Learned(Open(), turns), "b|d|");
  EXPECT_EQ(Learned(Open(ChatOptions::Learn::kLastTurn), turns), "d|");
  EXPECT_EQ(Learned(Open(), R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                                           {"role": "user", "content": "c"}],
                                "completion": [{"role": "assistant", "content": "d"}]})"),
            "d|");
}

TEST_F(ChatTemplateTest, OneThatLooksAtTheFirstMessageCannotAskForItsTurn) {
  const std::string begins = R"({"messages": [{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
                                              {"role": "assistant", "content": "d"}]})";
  const std::string looks = "{% if messages[0].role == 'system' %}s{% endif %}";
  WriteText(directory_ / "chat_template.jinja",
            looks +
                "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}|{% endfor %}"
                "{% if add_generation_prompt %}a:{% endif %}");
  EXPECT_THAT(Learned(Open(), begins),
              AllOf(HasSubstr("message 1: the conversation begins with a turn of the assistant"),
                    HasSubstr("put a user turn before it, learn only the last turn (--learn last), or mark it"),
                    HasSubstr("a list has no element 0")));
  EXPECT_EQ(Learned(Open(ChatOptions::Learn::kLastTurn), begins), "d|");
  WriteText(directory_ / "chat_template.jinja",
            looks +
                "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}"
                "{{ m.content }}|{% endgeneration %}{% else %}{{ m.content }}|{% endif %}{% endfor %}");
  EXPECT_EQ(Learned(Open(), begins), "b|d|");
}

// As Qwen3's, which writes an empty thought before the last answer only.
TEST_F(ChatTemplateTest, OneThatWritesEarlierTurnsOtherwiseCanLearnTheLast) {
  WriteText(directory_ / "chat_template.jinja",
            "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' and loop.last %}!{% endif %}"
            "{{ m.content }}|{% endfor %}{% if add_generation_prompt %}a:{% endif %}");
  const std::string turns = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                                             {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})";
  EXPECT_THAT(Learned(Open(), turns), AllOf(HasSubstr("message 2: the chat template writes it otherwise when messages"),
                                            HasSubstr("learn only the last turn (--learn last), or mark it")));
  EXPECT_EQ(Learned(Open(ChatOptions::Learn::kLastTurn), turns), "!d|");
  const std::string goes_on = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                                               {"role": "user", "content": "c"}]})";
  EXPECT_THAT(Learned(Open(ChatOptions::Learn::kLastTurn), goes_on),
              HasSubstr("learned; remove the messages after it, or mark it"));
}

// As gpt-oss', which writes the thought of a call only until an answer follows; without and with {% generation %}.
TEST_F(ChatTemplateTest, OneThatDropsAThoughtOnceAnAnswerFollowsSaysToLeaveItOut) {
  const std::string turns =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"THOUGHT},
                                             {"role": "tool", "content": "c"}, {"role": "assistant", "content": "d"}]})";
  const auto with = [&](const std::string& thought) {
    std::string line = turns;
    return line.replace(line.find("THOUGHT"), 7, thought);
  };
  for (const auto& [begin, end] : {std::pair("", ""), std::pair("{% generation %}", "{% endgeneration %}")}) {
    WriteText(directory_ / "chat_template.jinja",
              std::string("{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}") + begin +
                  "{% if messages[-1].role != 'assistant' %}{{ m.thinking }}{% endif %}{{ m.content }}|" + end +
                  "{% else %}{{ m.content }}|{% endif %}{% endfor %}{% if add_generation_prompt %}a:{% endif %}");
    EXPECT_THAT(Learned(Open(ChatOptions::Learn::kLastTurn), with(R"(, "thinking": "why")")),
                AllOf(HasSubstr("writes the messages before message 4 otherwise when it follows"),
                      HasSubstr("leave out of them what is not written then, as thoughts of calls of tools")));
    EXPECT_EQ(Learned(Open(ChatOptions::Learn::kLastTurn), with("")), "d|");
  }
}

// As gpt-oss', which refuses channels in a message.
TEST_F(ChatTemplateTest, OfAnAnswerInChannelsLaterTurnsSeeTheFinalOne) {
  const auto said = [](const ChatTemplate& chat, const std::string& answer) {
    Conversation conversation;
    EXPECT_TRUE(AddMessage("user", "Hi", conversation).ok());
    EXPECT_TRUE(chat.AddAnswer(answer, conversation).ok());
    const auto text = chat.Render(conversation, true);
    EXPECT_TRUE(text.ok()) << text.status();
    return conversation.messages.back().dict().FindName("content")->string();
  };
  const auto harmony = ChatTemplate::Open(SourceDir() + "/tests/framework/chat/golden/harmony", {.date = "2024-07-05"});
  ASSERT_TRUE(harmony.ok()) << harmony.status();
  const std::string thought = "<|channel|>analysis<|message|>They greet.";
  const std::string next = thought + "<|end|><|start|>assistant<|channel|>";
  EXPECT_EQ(said(*harmony, "<|channel|>final<|message|>Hello!"), "Hello!");
  EXPECT_EQ(said(*harmony, next + "final<|message|>Hello!<|end|>"), "Hello!");
  EXPECT_EQ(said(*harmony, next + "final <|constrain|>json<|message|>{}"), "{}");
  EXPECT_EQ(said(*harmony, next + "final"), "") << "cut off";
  EXPECT_EQ(said(*harmony, thought), "") << "cut off";
  EXPECT_EQ(said(*harmony, "Hello!"), "Hello!");
  EXPECT_EQ(said(Open(), thought), thought) << "a template without channels";
}

// As transformers 4.57 and 5.24 have it.
TEST_F(ChatTemplateTest, SpecialTokensAreThoseOfTheOlderFileUnlessTheNewerOneAddsTokens) {
  const auto read = [&](const std::string& config, const std::string& map) {
    WriteText(directory_ / "tokenizer_config.json", config);
    WriteText(directory_ / "special_tokens_map.json", map);
    return ReadTokenizerSettings(directory_ / "").value().special_tokens;
  };
  using Tokens = std::map<std::string, std::string>;
  EXPECT_EQ(read(R"({"bos_token": "a", "eos_token": "b"})", R"({"eos_token": {"content": "c"}})"),
            (Tokens{{"bos_token", "a"}, {"eos_token", "c"}}));
  EXPECT_EQ(read(R"({"bos_token": "a", "eos_token": "b"})", R"({"eos_token": null})"), (Tokens{{"bos_token", "a"}}));
  EXPECT_EQ(read(R"({"bos_token": "a", "eos_token": "b", "added_tokens_decoder": {}})", R"({"eos_token": "c"})"),
            (Tokens{{"bos_token", "a"}, {"eos_token", "b"}}));
}

TEST_F(ChatTemplateTest, EndsAreThoseOfTheGenerationSettings) {
  EXPECT_TRUE(Open().ends().empty());
  WriteText(directory_ / "generation_config.json", R"({"eos_token_id": 7})");
  EXPECT_THAT(Open().ends(), ElementsAre(7));
  WriteText(directory_ / "generation_config.json", R"({"eos_token_id": [3, -1, "x", 4294967296, 9]})");
  EXPECT_THAT(Open().ends(), ElementsAre(3, 9));
  WriteText(directory_ / "generation_config.json", R"({"eos_token_id": null})");
  EXPECT_TRUE(Open().ends().empty());
}

}  // namespace
}  // namespace holdfast
