// Proves what a user sees of `sample --chat` as a conversation, with the real binary: every answer is the one to all
// turns before it, whether they were typed or stand in a file; how it ends; and what is refused.

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/command.h"
#include "tests/integration/tiny_runs.h"

namespace holdfast::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// User and assistant have to take turns.
constexpr char kTemplate[] =
    "{% for m in messages %}{% if loop.index0 % 2 == (m.role == 'user') | int %}{{ raise_exception('no turn of ' + "
    "m.role) }}{% endif %}{{ m.role[0] + ': ' + m.content + '|' }}{% endfor %}{% if add_generation_prompt %}a: "
    "{% endif %}";

/// A terminal that shell commands write to by its name.
class Terminal {
 public:
  Terminal() : user_(posix_openpt(O_RDWR | O_NOCTTY)) {
    EXPECT_TRUE(user_ >= 0 && grantpt(user_) == 0 && unlockpt(user_) == 0);
    terminal_ = open(ptsname(user_), O_RDWR | O_NOCTTY);
    EXPECT_GE(terminal_, 0);
  }
  ~Terminal() {
    close(terminal_);
    close(user_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  std::string name() const { return ptsname(user_); }
  /// All that was written to it, once. A terminal passes on in its own time, so a mark says where that ends.
  std::string Shown() const {
    const std::string mark = "<end>";
    EXPECT_EQ(write(terminal_, mark.data(), mark.size()), 5);
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; !text.ends_with(mark) && (n = read(user_, buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    text.resize(text.size() - mark.size());
    return absl::StrReplaceAll(text, {{"\r\n", "\n"}});  // as it writes line ends
  }

 private:
  int user_ = -1, terminal_ = -1;
};

bool HasControlCharacters(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return absl::ascii_iscntrl(c) && c != '\n' && c != '\t'; });
}

class TalkTest : public TinyRuns {
 protected:
  void SetUp() override {
    TinyRuns::SetUp();
    ASSERT_EQ(Train("a", {"--set", "model.max_sequence_length=512"}).exit_code, 0);
    WriteTemplate(kTemplate);
  }
  void WriteTemplate(const std::string& text) { WriteAll(Path("a/model/chat_template.jinja"), text); }
  /// Of a user's turn and the answer to it, again and again.
  void WriteConversation(const std::vector<std::string>& turns, const Json& tools = nullptr) {
    Json conversation;
    for (size_t i = 0; i < turns.size(); ++i) {
      const char* const role = i % 2 == 0 ? "user" : "assistant";
      conversation["messages"].push_back(Json::object({{"role", role}, {"content", turns[i]}}));
    }
    conversation["tools"] = tools;
    WriteAll(Path("talk.json"), conversation.dump(2, ' ', false, Json::error_handler_t::replace));
  }
  /// With "--conversation talk.json".
  CommandResult Ask(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"sample", Path("a"), "--chat", "--conversation", Path("talk.json"), "--tokens", "4"});
    return RunHoldfast(more);
  }
};

TEST_F(TalkTest, AnAnswerIsTheOneToAllTurnsBeforeIt) {
  const std::vector<std::string> lines{"line 4", "of the", "story", "line 9 of the story", "the"};
  for (const char* how : {"--temperature 0", "--top-k 3", "--temperature 50 --top-k 0"}) {
    const std::string sample =
        absl::StrCat("holdfast sample a --chat --tokens 12 --seed 3 --stop $'\\n' --log-level error ", how, " ");
    const CommandResult talk = RunCommands(absl::StrCat(
        "printf 'line 4\\nof the\\r\\nstory\\nline 9 of the story\\nthe' | ", sample, "--threads 1 > talk.txt"));
    ASSERT_EQ(talk.exit_code, 0) << talk.output;
    EXPECT_EQ(talk.output, "") << "nobody types there";
    const std::vector<std::string> answers = absl::StrSplit(ReadAll(Path("talk.txt")), '\n');
    ASSERT_EQ(answers.size(), lines.size() + 1) << "after the last line end is nothing";
    std::vector<std::string> turns;
    for (size_t i = 0; i < lines.size(); ++i) {
      turns.push_back(lines[i]);
      WriteConversation(turns);
      const CommandResult file = RunCommands(sample + "--threads 3 --conversation - < talk.json > answer.txt");
      ASSERT_EQ(file.exit_code, 0) << file.output;
      EXPECT_EQ(ReadAll(Path("answer.txt")), answers[i] + "\n") << how << ", turn " << i;
      turns.push_back(answers[i]);
    }
  }
}

TEST_F(TalkTest, EndsWithItsInputABlankLineOrTheContext) {
  const CommandResult nothing = RunCommands("holdfast sample a --chat < /dev/null");
  EXPECT_EQ(nothing.exit_code, 0);
  EXPECT_EQ(nothing.output, "");
  const std::string sample = "holdfast sample a --chat --tokens 12 --stop $'\\n' --log-level error";
  const CommandResult one = RunCommands("printf 'line\\n' | " + sample);
  EXPECT_EQ(one.exit_code, 0);
  EXPECT_EQ(RunCommands("printf 'line\\n \\nof\\n' | " + sample).output, one.output);
  // A turn has twelve bytes beside its answer.
  const CommandResult full = RunCommands("for i in {1..50}; do echo line; done | " + sample);
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.output, HasSubstr("error: the conversation has filled the model's context of 512 tokens and ends "
                                     "here; begin a new one, with shorter messages or answers (--tokens)\n"));
}

// Standard input is a terminal, what is printed goes into a pipe.
TEST_F(TalkTest, OnATerminalEachMessageIsAskedFor) {
  const std::vector<std::string> sample{"sample", Path("a"), "--chat", "--tokens", "4", "--log-level", "error"};
  std::vector<std::string> alone = sample;
  alone.insert(alone.end(), {"--prompt", "line 4"});
  const std::string answer = RunHoldfast(alone).output;
  const int user = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_TRUE(user >= 0 && grantpt(user) == 0 && unlockpt(user) == 0);
  const int terminal = open(ptsname(user), O_RDWR | O_NOCTTY), own = dup(STDIN_FILENO);
  ASSERT_GE(terminal, 0);
  dup2(terminal, STDIN_FILENO);
  Command talk(sample);
  dup2(own, STDIN_FILENO);
  EXPECT_TRUE(talk.WaitForOutput("an empty one ends the conversation.\n> "));
  ASSERT_EQ(write(user, "line 4\n", 7), 7);
  EXPECT_TRUE(talk.WaitForOutput("> " + answer + "> "));
  ASSERT_EQ(write(user, "\x04", 1), 1);  // Ctrl-D
  EXPECT_EQ(talk.Wait().exit_code, 0);
  for (const int each : {user, terminal, own}) close(each);
}

// At this temperature any byte is as likely as another.
TEST_F(TalkTest, ControlCharactersOfAModelDoNotReachATerminal) {
  const std::string sample = "holdfast sample a --tokens 100 --temperature 100 --top-k 0 --log-level error ";
  for (const char* how : {"--prompt line", "--prompt line --samples 2", "--chat"}) {
    const Terminal terminal;
    const std::string command = absl::StrCat("echo line | ", sample, how, " > ");
    const CommandResult to_file = RunCommands(command + "text.txt");
    ASSERT_EQ(to_file.exit_code, 0) << to_file.output;
    EXPECT_TRUE(HasControlCharacters(ReadAll(Path("text.txt")))) << how;
    const CommandResult to_terminal = RunCommands(command + terminal.name());
    ASSERT_EQ(to_terminal.exit_code, 0) << to_terminal.output;
    const std::string shown = terminal.Shown();
    EXPECT_FALSE(HasControlCharacters(shown)) << how;
    EXPECT_THAT(shown, HasSubstr("\\x")) << how;
  }
}

TEST_F(TalkTest, OnATerminalTheFirstAnswerThatTokensCutIsNamed) {
  const Terminal terminal;
  const std::string sample = "holdfast sample a --chat --log-level error > answers.txt --tokens ";
  const CommandResult cut =
      RunCommands(absl::StrCat("printf 'line\\nof\\nthe\\n' | ", sample, "4 --temperature 0 2> ", terminal.name()));
  EXPECT_EQ(cut.exit_code, 0) << cut.output;
  EXPECT_EQ(terminal.Shown(), "(cut off after 4 tokens: --tokens)\n");
  EXPECT_THAT(ReadAll(Path("answers.txt")), Not(HasSubstr("--tokens")));
}

TEST_F(TalkTest, ToolsOfAFileGoToTheTemplate) {
  const Json tools = Json::array({{{"type", "function"}, {"function", {{"name", "weather"}}}}});
  WriteConversation({"line"}, tools);
  EXPECT_THAT(Ask().output, HasSubstr("talk.json: the chat template leaves out the tools"));
  WriteTemplate("{% if tools %}{{ raise_exception('told of ' + tools[0].function.name) }}{% endif %}x");
  EXPECT_THAT(Ask().output, HasSubstr("told of weather"));
  WriteConversation({"line"});
  const CommandResult without = Ask({"--samples", "2"});
  EXPECT_EQ(without.exit_code, 0) << without.output;
  EXPECT_THAT(without.output, HasSubstr("--- sample 2\n"));
  EXPECT_THAT(without.output, Not(HasSubstr("tools")));
}

TEST_F(TalkTest, WhatCannotBeAnsweredIsRefusedInALine) {
  const auto refusal = [&](const CommandResult& result) {
    EXPECT_EQ(result.exit_code, 2) << result.output;
    return result.output;
  };
  EXPECT_THAT(refusal(Ask()), HasSubstr("talk.json"));
  WriteConversation({"line", "story"});
  EXPECT_THAT(refusal(Ask()), HasSubstr("talk.json: the last message is the assistant's"));
  WriteConversation({std::string(600, 'x')});
  EXPECT_THAT(refusal(Ask()), HasSubstr("error: the conversation has 607 tokens, and the model takes 512\n"));
  EXPECT_THAT(refusal(Ask({"--prompt", "line"})), HasSubstr("--prompt"));
  EXPECT_THAT(refusal(Ask({"--system", "line"})), HasSubstr("--system"));
  EXPECT_THAT(refusal(RunHoldfast({"sample", Path("a"), "--conversation", Path("talk.json")})), HasSubstr("--chat"));
  EXPECT_THAT(refusal(RunHoldfast({"sample", Path("a"), "--chat", "--samples", "2"})),
              HasSubstr("error: --samples: a conversation has one answer to each message"));
  EXPECT_THAT(refusal(RunCommands("head -c 70000000 /dev/zero | tr '\\0' x | holdfast sample a --chat")),
              HasSubstr("error: a message of more than 67108864 bytes; each line is one\n"));
}

}  // namespace
}  // namespace holdfast::integration
