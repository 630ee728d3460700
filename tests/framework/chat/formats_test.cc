// Proves that conversations in the formats of public models give the text, the tokens and the learned tokens that
// transformers gives (golden files, see tests/golden/make_chat_golden.py), with templates that mark what is learned and
// with the same templates without marks; and that what a format cannot say is refused with the template's own words.

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "framework/chat/chat_template.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/framework/data/token_test_files.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

using Json = nlohmann::json;
using ::testing::AnyOf;
using ::testing::HasSubstr;

const std::string kFormats = SourceDir() + "/tests/framework/chat/golden/";

std::string Bits(const std::vector<uint8_t>& learned) {
  std::string bits;
  for (const uint8_t one : learned) bits.push_back(static_cast<char>('0' + one));
  return bits;
}

class Formats : public ::testing::TestWithParam<std::string> {
 protected:
  ChatTemplate Open(const std::string& directory) {
    auto chat = ChatTemplate::Open(directory, {.date = "2024-07-05"});
    EXPECT_TRUE(chat.ok()) << chat.status();
    return *std::move(chat);
  }
  // Comments take white space away as blocks do.
  std::string WithoutMarks() {
    const TemporaryDirectory& copy = *copies_.emplace_back(std::make_unique<TemporaryDirectory>());
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
      std::filesystem::copy_file(golden_ + "/" + name, copy / name);
    }
    const std::regex marks(R"(\{%(-?)\s*(?:end)?generation\s*(-?)%\})");
    WriteText(copy / "chat_template.jinja",
              std::regex_replace(ReadText(golden_ + "/chat_template.jinja"), marks, "{#$1 $2#}"));
    return copy / "";
  }

  const std::string golden_ = kFormats + GetParam();
  const Json cases_ = Json::parse(ReadText(golden_ + "/cases.json"));
  std::vector<std::unique_ptr<TemporaryDirectory>> copies_;
};

TEST_P(Formats, GiveWhatTransformersGives) {
  const ChatTemplate chat = Open(golden_);
  ASSERT_GT(cases_.size(), 15);
  for (const Json& one : cases_) {
    const auto line = one.at("line").get<std::string>();
    const auto conversation = ParseConversation(line);
    ASSERT_TRUE(conversation.ok()) << conversation.status() << " " << line;
    const auto text = chat.Render(*conversation, false);
    if (one.contains("error")) {
      // What the template says itself; else that there is no such key.
      EXPECT_THAT(std::string(text.status().message()),
                  AnyOf(HasSubstr(one.at("error").get<std::string>()), HasSubstr("content")))
          << line;
      continue;
    }
    ASSERT_TRUE(text.ok()) << text.status() << " " << line;
    EXPECT_EQ(*text, one.at("text").get<std::string>());
    EXPECT_EQ(chat.Render(*conversation, true).value(), one.at("prompt").get<std::string>());
    const auto encoded = chat.Encode(*conversation);
    ASSERT_TRUE(encoded.ok()) << encoded.status() << " " << line;
    EXPECT_EQ(encoded->tokens, one.at("ids").get<std::vector<int32_t>>()) << line;
    EXPECT_EQ(Bits(encoded->learned), one.at("learned").get<std::string>()) << line;
  }
}

// "grows": each turn only adds to the text before it, so that no marks are needed.
TEST_P(Formats, WithoutMarksGiveTheSameOrSayThatTheyCannot) {
  const ChatTemplate chat = Open(WithoutMarks());
  int told = 0;
  for (const Json& one : cases_) {
    if (!one.contains("grows")) continue;
    const Conversation conversation = ParseConversation(one.at("line").get<std::string>()).value();
    const auto encoded = chat.Encode(conversation);
    if (!one.at("grows").get<bool>()) {
      EXPECT_THAT(std::string(encoded.status().message()), HasSubstr("message")) << one.at("line");
      continue;
    }
    ASSERT_TRUE(encoded.ok()) << encoded.status() << one.at("line");
    EXPECT_EQ(encoded->tokens, one.at("ids").get<std::vector<int32_t>>()) << one.at("line");
    EXPECT_EQ(Bits(encoded->learned), one.at("learned").get<std::string>()) << one.at("line");
    ++told;
  }
  EXPECT_GE(told, 10);
}

INSTANTIATE_TEST_SUITE_P(Chat, Formats,
                         ::testing::Values("chatml", "llama3", "mistral", "gemma", "zephyr", "phi3", "tulu", "deepseek",
                                           "harmony"),
                         [](const auto& format) { return format.param; });

}  // namespace
}  // namespace holdfast
