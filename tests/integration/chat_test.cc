// Proves that `data pack --chat` says which line is wrong and what to do, exits with an error, and leaves no file; and
// that `data show` shows what is learned.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/integration/command.h"
#include "tests/paths.h"

namespace holdfast::integration {
namespace {

using ::testing::HasSubstr;

class ChatTest : public ::testing::Test {
 protected:
  CommandResult Pack(const std::string& talks, std::vector<std::string> more = {"--sequence-length", "64"}) {
    WriteAll(directory_ / "talks.jsonl", talks);
    const std::string golden = SourceDir() + "/tests/framework/chat/golden/mistral";
    std::vector<std::string> arguments = {"data",        "pack", "--chat", directory_ / "talks.jsonl",
                                          "--tokenizer", golden, "--out",  directory_ / "out.bin"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHoldfast(arguments);
  }
  void ExpectRefused(const std::string& talks, const std::string& says,
                     std::vector<std::string> more = {"--sequence-length", "64"}) {
    const CommandResult result = Pack(talks, std::move(more));
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(says));
    EXPECT_EQ(directory_.List(), std::vector<std::string>{"talks.jsonl"});
  }

  TemporaryDirectory directory_;
};

constexpr char kGood[] = R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"
                         "\n";
constexpr char kQuestion[] = R"({"messages":[{"role":"user","content":"q"}]})"
                             "\n";

TEST_F(ChatTest, BadConversationsAreNamedAndLeaveNoFile) {
  ExpectRefused(kGood + std::string(kQuestion), "talks.jsonl:2: no turn of the assistant");
  ExpectRefused(kGood + std::string("nothing like JSON\n"), "talks.jsonl:2: malformed JSON");
  ExpectRefused("", "talks.jsonl: no conversation");
  ExpectRefused(kGood, "no conversation is left of 1: 1 are longer than 4 tokens", {"--sequence-length", "4"});
  ExpectRefused(
      R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"}]})",
      "talks.jsonl:1: chat template: line 13, column 32: the template says: user and assistant");
  ExpectRefused(
      kGood, "validation",
      {"--sequence-length", "64", "--validation-fraction", "0.5", "--validation-out", directory_ / "validation.bin"});
}

TEST_F(ChatTest, WhatIsForTextsIsRefusedForConversations) {
  for (const char* option : {"--no-eot", "--documents", "--append-eot"}) {
    const CommandResult result = Pack(kGood, {"--sequence-length", "64", option});
    EXPECT_EQ(result.exit_code, 2) << option;
    EXPECT_THAT(result.output, HasSubstr("--chat")) << option;
  }
  const CommandResult bytes = RunHoldfast({"data", "pack", "--chat", directory_ / "talks.jsonl", "--out",
                                           directory_ / "out.bin", "--sequence-length", "64"});
  EXPECT_EQ(bytes.exit_code, 2);
  EXPECT_THAT(bytes.output, HasSubstr("the tokenizer bytes has no chat template"));
  const std::string missing = directory_ / "missing";
  const CommandResult nothing = RunHoldfast({"data", "pack", "--chat", directory_ / "talks.jsonl", "--tokenizer",
                                             missing, "--out", directory_ / "out.bin", "--sequence-length", "64"});
  EXPECT_NE(nothing.exit_code, 0);
  EXPECT_THAT(nothing.output, HasSubstr(missing + ": No such file or directory"));
}

TEST_F(ChatTest, WhatIsLearnedCanBeLookedAt) {
  ASSERT_EQ(Pack(kGood, {"--sequence-length", "16"}).exit_code, 0);
  const CommandResult ids = RunHoldfast({"data", "show", directory_ / "out.bin"});
  EXPECT_THAT(ids.output, HasSubstr("\n1 561 359 300 562 ⟦390 2⟧\n1 561 "));  // the rest of the row repeats it
  const CommandResult text = RunHoldfast(
      {"data", "show", directory_ / "out.bin", "--tokenizer", SourceDir() + "/tests/framework/chat/golden/mistral"});
  EXPECT_THAT(text.output, HasSubstr("\n<s>[INST] q[/INST]⟦ a</s>⟧\n<s>[INST] q[/INST] a</s>\n"));
}

// Of documents all is, but the first token of each, which nothing before it predicts.
TEST_F(ChatTest, TheFirstTokenOfADocumentIsNotShownAsLearned) {
  const std::string documents = directory_ / "documents.bin";
  WriteAll(directory_ / "a.txt", "abc");
  WriteAll(directory_ / "b.txt", "de");
  const CommandResult packed = RunHoldfast({"data", "pack", directory_ / "a.txt", directory_ / "b.txt", "--documents",
                                            "--tokenizer", "bytes", "--out", documents});
  ASSERT_EQ(packed.exit_code, 0) << packed.output;
  EXPECT_THAT(RunHoldfast({"data", "show", documents}).output, HasSubstr("\n97 ⟦98 99⟧\n100 ⟦101⟧\n"));
  EXPECT_THAT(RunHoldfast({"data", "show", documents, "--tokenizer", "bytes"}).output, HasSubstr("\na⟦bc⟧\nd⟦e⟧\n"));
}

// What was there stays as it was.
TEST_F(ChatTest, AFailureKeepsTheFileOfBefore) {
  ASSERT_EQ(Pack(kGood).exit_code, 0);
  const std::string before = ReadAll(directory_ / "out.bin"), index = ReadAll(directory_ / "out.bin.index");
  const CommandResult bad = Pack(kGood + std::string(kQuestion), {"--sequence-length", "64", "--overwrite"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.output, HasSubstr("talks.jsonl:2"));
  const CommandResult unasked = Pack(kGood + std::string(kGood));
  EXPECT_EQ(unasked.exit_code, 1);
  EXPECT_THAT(unasked.output, HasSubstr("out.bin: there is a token file already"));
  EXPECT_EQ(ReadAll(directory_ / "out.bin"), before);
  EXPECT_EQ(ReadAll(directory_ / "out.bin.index"), index);
  EXPECT_EQ(directory_.List().size(), 3);
  EXPECT_EQ(Pack(kGood + std::string(kGood), {"--sequence-length", "64", "--overwrite"}).exit_code, 0);
}

}  // namespace
}  // namespace holdfast::integration
