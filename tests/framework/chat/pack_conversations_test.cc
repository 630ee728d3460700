// Proves what becomes of conversations in a token file: rows in which each is there once and says what is learned, what
// is too long, which are for validation, whose tools, reasoning or system messages are left out, which teach no end;
// that no bit depends on the number of threads; and that a failure names file and line, the first, and leaves nothing,
// as a stop does.

#include "framework/chat/pack_conversations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "framework/data/dataset.h"
#include "framework/data/token_file.h"
#include "tests/framework/data/token_test_files.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kTemplate[] =
    "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}|"
    "{% endgeneration %}{% else %}{{ m.content }}|{% endif %}{% endfor %}";

class PackConversationsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string tokenizer = SourceDir() + "/tests/framework/data/golden/";
    std::filesystem::create_directory(directory_ / "tokenizer");
    std::filesystem::copy_file(tokenizer + "tokenizer_llama3_style.json", directory_ / "tokenizer/tokenizer.json");
    // As transformers writes it where no length was set.
    WriteText(directory_ / "tokenizer/tokenizer_config.json",
              R"({"model_max_length": 1000000000000000019884624838656})");
    WriteText(directory_ / "tokenizer/chat_template.jinja", kTemplate);
  }

  std::string Talks(const std::string& lines) {
    WriteText(directory_ / "talks.jsonl", lines);
    return directory_ / "talks.jsonl";
  }
  static std::string Turns(const std::string& question, const std::string& answer) {
    return R"({"messages":[{"role":"user","content":")" + question + R"("},{"role":"assistant","content":")" + answer +
           "\"}]}\n";
  }
  absl::StatusOr<PackConversationsReport> Run(const std::string& lines, PackConversationsOptions options,
                                              ChatOptions::Learn learn = ChatOptions::Learn::kAllTurns) {
    options.paths.inputs = {Talks(lines)};
    options.paths.output = directory_ / "out.bin";
    options.paths.overwrite = true;
    const auto chat = ChatTemplate::Open(directory_ / "tokenizer", {.learn = learn});
    if (!chat.ok()) return chat.status();
    LocalFileAccess files;
    return PackConversations(*chat, options, files);
  }
  /// All that was counted.
  static std::string Counts(const PackConversationsReport& report) {
    const auto rows = [](const PackedRows& of) {
      return absl::StrCat(of.conversations, " ", of.rows, " ", of.tokens, " ", of.learned_tokens);
    };
    return absl::StrCat(report.conversations, " ", report.too_long, " ", report.longest, " ", report.without_learned,
                        " ", report.left_out_tools, " ", report.left_out_reasoning, " ", report.left_out_calls, " ",
                        report.left_out_system, " ", report.without_end, ", ", rows(report.training), ", ",
                        rows(report.validation));
  }
  /// Of sample `i`, the text of what is learned, by document.
  std::vector<std::string> Learned(const std::string& file, int64_t row_tokens, int64_t i) {
    const Dataset data = *Dataset::Open({file}, row_tokens, 1 << 20);
    const Microbatch row = *ReadValidationMicrobatch(data, 1, i);
    const auto chat = *ChatTemplate::Open(directory_ / "tokenizer", {});
    std::vector<std::string> texts;
    for (size_t t = 0; t < row.targets.size(); ++t) {
      if (row.document_begins[t] == static_cast<int32_t>(t)) texts.emplace_back();
      if (row.targets[t] >= 0) texts.back() += chat.tokenizer().Decode({row.targets[t]});
    }
    return texts;
  }

  TemporaryDirectory directory_;
};

// A frame of zstd: its header, and one block as it is, the last.
TEST_F(PackConversationsTest, ConversationsMayBeCompressed) {
  const std::string lines = Turns("one", "two") + Turns("three", "four");
  const size_t block = lines.size() << 3 | 1;
  std::string frame("\x28\xb5\x2f\xfd\x00\x38", 6);
  for (const size_t shift : {0, 8, 16}) frame += static_cast<char>(block >> shift & 0xff);
  const auto report = Run(frame + lines, {.row_tokens = 200});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->conversations, 2);
}

TEST_F(PackConversationsTest, RowsSayWhatIsLearned) {
  const auto report = Run(Turns("one", "two") + "\n" + Turns("three", "four and five"), {.row_tokens = 200});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->conversations, 2);
  EXPECT_EQ(report->training.rows, 1);
  std::vector<std::string> learned = Learned(directory_ / "out.bin", 200, 0);
  std::erase(learned, "");  // what is free of the row repeats both
  EXPECT_EQ(learned, (std::vector<std::string>{"two|", "four and five|"}));
  EXPECT_LT(report->training.learned_tokens, report->training.tokens);
}

// A call would be learned as a turn that says nothing.
TEST_F(PackConversationsTest, ToolsThatTheTemplateDoesNotNameAreCounted) {
  const std::string user = R"({"messages":[{"role":"user","content":"q"},{"role":"assistant",)";
  const std::string lines = Turns("one", "two") + user + R"("content":"a"}],"tools":[{"type":"function"}]})" + "\n" +
                            user + R"("tool_calls":[{"function":{"name":"f"}}]}]})" + "\n" + user +
                            R"("content":"a","tool_calls":[]}],"tools":[]})" + "\n";
  const auto count = [&] {
    const auto report = Run(lines, {.row_tokens = 40});
    return report.ok() ? std::to_string(report->left_out_tools) : std::string(report.status().message());
  };
  EXPECT_EQ(count(), "2");
  WriteText(directory_ / "tokenizer/chat_template.jinja", std::string("{% if tools %}t{% endif %}") + kTemplate);
  EXPECT_EQ(count(), "1");
  WriteText(directory_ / "tokenizer/chat_template.jinja",
            std::string("{% if tools or messages[1].tool_calls %}t{% endif %}") + kTemplate);
  EXPECT_EQ(count(), "0");
}

TEST_F(PackConversationsTest, ReasoningThatTheTemplateDoesNotNameIsCounted) {
  const std::string user = R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a",)";
  const std::string lines = Turns("one", "two") + user + R"("reasoning_content":"r"}]})" + "\n" + user +
                            R"("thinking":"r"}]})" + "\n" + user + R"("reasoning_content":""}]})" + "\n";
  const auto count = [&] {
    const auto report = Run(lines, {.row_tokens = 40});
    return report.ok() ? std::to_string(report->left_out_reasoning) : std::string(report.status().message());
  };
  EXPECT_EQ(count(), "2");
  WriteText(directory_ / "tokenizer/chat_template.jinja",
            std::string("{{ messages[1].reasoning_content }}") + kTemplate);
  EXPECT_EQ(count(), "0");
}

// As gpt-oss' with {% generation %}, which writes the thought of the last turn alone.
TEST_F(PackConversationsTest, ReasoningThatIsNotWrittenInALearnedTurnIsCounted) {
  WriteText(directory_ / "tokenizer/chat_template.jinja",
            "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}"
            "{% if loop.last and m.thinking %}{{ m.thinking | trim }}{% endif %}{{ m.content }}|{% endgeneration %}"
            "{% else %}{{ m.content }}|{% endif %}{% endfor %}");
  const auto turn = [](const std::string& role, const std::string& rest) {
    return R"({"role":")" + role + R"(","content":"q")" + rest + "}";
  };
  const auto count = [&](const std::string& first, const std::string& last, ChatOptions::Learn learn) {
    const std::string turns =
        turn("user", "") + "," + turn("assistant", first) + "," + turn("user", "") + "," + turn("assistant", last);
    const auto report = Run(R"({"messages":[)" + turns + "]}\n", {.row_tokens = 80}, learn);
    return report.ok() ? std::to_string(report->left_out_reasoning) : std::string(report.status().message());
  };
  constexpr auto kAll = ChatOptions::Learn::kAllTurns, kLast = ChatOptions::Learn::kLastTurn;
  const std::string thought = R"(,"thinking":"\nwhy\n")", other = R"(,"thinking":"so")";
  EXPECT_EQ(count("", thought, kAll), "0");
  EXPECT_EQ(count(thought, "", kAll), "1");
  EXPECT_EQ(count(thought, other, kAll), "1");
  EXPECT_EQ(count(thought, other, kLast), "0") << "that turn is not learned";
}

// As gpt-oss', which writes one call of a message and the first system message.
TEST_F(PackConversationsTest, FurtherCallsAndSystemMessagesThatAreNotWrittenAreCounted) {
  const auto counts = [&](const std::string& calls, const std::string& role, const std::string& source) {
    WriteText(directory_ / "tokenizer/chat_template.jinja", source);
    const auto report = Run(R"({"messages":[{"role":"system","content":" be kind\n"},{"role":"user","content":"q"},)"
                            R"({"role":"assistant","content":"a","tool_calls":[)" +
                                calls + R"(]},{"role":")" + role + R"(","content":"be brief "},)" +
                                R"({"role":"assistant","content":"b"}]})" + "\n",
                            {.row_tokens = 200});
    if (!report.ok()) return std::string(report.status().message());
    return absl::StrCat(report->left_out_tools, report->left_out_calls, report->left_out_system);
  };
  const std::string first = R"({"function":{"name":"f"}})", both = first + "," + first;
  const std::string one = "{% if m.tool_calls %}{{ m.tool_calls[0].function.name }}{% endif %}";
  const std::string all = "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}";
  const auto with = [](const std::string& write_calls, const std::string& condition) {
    return "{% for m in messages if " + condition + " %}{% generation %}{{ m.content | trim }}|" + write_calls +
           "{% endgeneration %}{% endfor %}";
  };
  EXPECT_EQ(counts(both, "system", with(all, "true")), "000");
  EXPECT_EQ(counts(first, "system", with(one, "true")), "000");
  EXPECT_EQ(counts(both, "system", with(one, "true")), "010");
  EXPECT_EQ(counts(both, "system", with("", "true")), "100") << "which it does not name";
  EXPECT_EQ(counts(first, "system", with(all, "m.content != 'be brief '")), "001");
  EXPECT_EQ(counts(first, "developer", with(all, "m.role != 'developer'")), "001");
  EXPECT_EQ(counts(first, "user", with(all, "m.content != 'be brief '")), "000");
}

// A model that learns such answers alone does not learn to stop.
TEST_F(PackConversationsTest, AnswersWhoseEndIsNotLearnedAreCounted) {
  const auto count = [&](const std::string& source, const std::string& lines) {
    WriteText(directory_ / "tokenizer/chat_template.jinja", source);
    const auto report = Run(lines, {.row_tokens = 40});
    return report.ok() ? std::to_string(report->without_end) : std::string(report.status().message());
  };
  const std::string answers = Turns("one", "two") + Turns("one", R"( three \n)");
  EXPECT_EQ(count(kTemplate, answers), "0");
  // As GLM-4.5's, where the turn that follows ends an answer.
  const std::string endless =
      "{% for m in messages %}<{{ m.role[0] }}>{{ m.content | trim }}{% endfor %}"
      "{% if add_generation_prompt %}<a>{% endif %}";
  EXPECT_EQ(count(endless, answers), "2");
  EXPECT_EQ(count("{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}"
                  "{{ m.content }}{% endgeneration %}|{% else %}{{ m.content }}|{% endif %}{% endfor %}",
                  answers),
            "2");
  // An answer that says nothing, and one that ends itself.
  WriteText(directory_ / "tokenizer/tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  EXPECT_EQ(count(endless, answers + Turns("one", "") + Turns("one", "four<|endoftext|>")), "2");
}

TEST_F(PackConversationsTest, TooLongIsLeftOutOrCut) {
  const std::string lines = Turns("a", "short") + Turns("a", std::string(300, 'x') + " end");
  auto report = Run(lines, {.row_tokens = 40});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->too_long, 1);
  EXPECT_GT(report->longest, 40);
  EXPECT_EQ(report->training.conversations, 1);
  report = Run(lines, {.row_tokens = 40, .too_long = PackConversationsOptions::TooLong::kCut});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->training.conversations, 2);
  EXPECT_EQ(report->training.rows, 2);
  // What is left of a long question has no answer.
  report = Run(Turns("a", "b") + Turns(std::string(300, 'x'), "never"),
               {.row_tokens = 40, .too_long = PackConversationsOptions::TooLong::kCut});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->without_learned, 1);
}

TEST_F(PackConversationsTest, ValidationIsSpreadOverTheInput) {
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += Turns("q", "answer " + std::to_string(i));
  PackConversationsOptions options{.row_tokens = 16};
  options.paths.validation_fraction = 0.2;
  options.paths.validation_output = directory_ / "validation.bin";
  const auto report = Run(lines, options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->validation.conversations, 4);
  EXPECT_EQ(report->training.conversations, 16);
  std::string learned;
  for (int64_t row = 0; row < report->validation.rows; ++row) {
    for (const std::string& text : Learned(directory_ / "validation.bin", 16, row)) learned += text;
  }
  for (const char* answer : {"answer 4|", "answer 9|", "answer 14|", "answer 19|"}) {
    EXPECT_THAT(learned, HasSubstr(answer));
  }
}

// Of every kind that is counted, some longer than a batch, among blank lines; by a template with variables that change,
// and with values that all renderings share. Files of one conversation each are batches of one.
TEST_F(PackConversationsTest, AnyNumberOfThreadsMakesTheSameFiles) {
  WriteText(directory_ / "tokenizer/chat_template.jinja",
            "{% set seen = namespace(turns=0) %}{% macro say(m) %}{{ m.content | trim }}{{ '|' * 2 }}{% endmacro %}"
            "{% for m in messages if m.role != 'system' %}{% set seen.turns = seen.turns + 1 %}"
            "{{ {'user': '<u>', 'assistant': '<a>'}[m.role] ~ seen.turns }}"
            "{% if m.role == 'assistant' %}{% generation %}{{ say(m) if 'endless' not in m.content else m.content }}"
            "{% if m.tool_calls %}{{ m.tool_calls[0].function.name }}{% endif %}{% endgeneration %}"
            "{% else %}{{ say(m) }}{% endif %}{% endfor %}");
  const auto conversation = [](int i) {
    const std::string number = std::to_string(i);
    const size_t size = i % 60 == 31 ? 300'000 : i % 40 == 13 ? 4'000 : static_cast<size_t>(i * 37 % 1500);
    const std::string text = "talk " + number + " " + std::string(size, static_cast<char>('a' + i % 26));
    const std::string call = R"({"function":{"name":"f)" + number + R"("}})";
    switch (i % 8) {
      case 1:
        return R"({"messages":[{"role":"system","content":"be kind"},{"role":"user","content":")" + text +
               R"("},{"role":"assistant","content":"yes"}]})" + "\n\n";
      case 2:
        return R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":")" + text +
               R"(","tool_calls":[)" + call + "," + call + "]}]}\n";
      case 3:
        return R"({"prompt":")" + text + R"(","completion":" the end of )" + number + "\"}\n";
      case 4:
        return R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":")" + text +
               R"(","thinking":"why"}],"tools":[{"type":"function"}]})" + "\n";
      case 5:
        return Turns(text, "endless " + number);
      default:
        return Turns("q" + number, text);
    }
  };
  constexpr int kConversations = 300;
  std::string lines;
  std::vector<std::string> each;
  for (int i = 0; i < kConversations; ++i) {
    lines += conversation(i);
    each.push_back(directory_ / absl::StrCat("talk", i, ".jsonl"));
    WriteText(each.back(), conversation(i));
  }
  ASSERT_GT(lines.size(), 5 * (1 << 18));
  const auto chat = *ChatTemplate::Open(directory_ / "tokenizer", {});
  for (const auto too_long : {PackConversationsOptions::TooLong::kDrop, PackConversationsOptions::TooLong::kCut}) {
    const auto pack = [&](const std::vector<std::string>& inputs, int threads) {
      PackConversationsOptions options{.row_tokens = 1024, .too_long = too_long, .threads = threads};
      options.paths = {.inputs = inputs,
                       .output = directory_ / "out.bin",
                       .validation_fraction = 0.1,
                       .validation_output = directory_ / "validation.bin",
                       .overwrite = true};
      LocalFileAccess files;
      const auto report = PackConversations(chat, options, files);
      if (!report.ok()) return std::string(report.status().message());
      std::string all = Counts(*report);
      for (const char* name : {"out.bin", "out.bin.index", "validation.bin", "validation.bin.index"}) {
        all += "\n" + ReadText(directory_ / name);
      }
      return all;
    };
    const std::string expected = pack(each, 1);
    ASSERT_THAT(expected.substr(0, 100), testing::StartsWith("300 ")) << "what was counted";
    for (const int threads : {1, 2, 5}) {
      EXPECT_TRUE(pack({Talks(lines)}, threads) == expected) << threads;
    }
    EXPECT_TRUE(pack(each, 5) == expected);
  }
}

// The first is found last: what comes before its error takes long.
TEST_F(PackConversationsTest, OfSeveralConversationsThatAreWrongTheFirstIsNamed) {
  WriteText(directory_ / "tokenizer/chat_template.jinja",
            std::string("{% if messages[0].content == 'slow' %}{% for i in range(99999) %}{{ i }}{% endfor %}"
                        "{{ raise_exception('slowly') }}{% endif %}") +
                kTemplate);
  const std::string line = Turns("q", std::string(100'000, 'x'));
  std::string lines = line + line + Turns("slow", "a") + line + "[1]\n";
  for (int i = 0; i < 5; ++i) lines += line + "[1]\n" + line + line;
  const auto expect_first = [&](int threads) {
    const auto report = Run(lines, {.row_tokens = 100, .threads = threads});
    EXPECT_THAT(std::string(report.status().message()),
                AllOf(HasSubstr("talks.jsonl:3: chat template"), HasSubstr("the template says: slowly")))
        << threads;
    EXPECT_EQ(directory_.List(), (std::vector<std::string>{"talks.jsonl", "tokenizer"}));
  };
  for (const int threads : {1, 2, 5}) expect_first(threads);
  lines += std::string(66 << 20, 'x');  // which cannot be read
  expect_first(40);
}

// Lines that are a batch each: with an error in the first, no more is read than threads have work for.
TEST_F(PackConversationsTest, ThreadsHaveWorkAheadButNotMore) {
  std::string lines = "[1]" + std::string(1 << 20, ' ') + "\n";
  const std::string line = Turns("q", std::string(1 << 20, 'x'));
  for (int i = 0; i < 30; ++i) lines += line;
  const auto mebibytes_read = [&](int threads) {
    PackConversationsOptions options{.row_tokens = 100, .threads = threads};
    int64_t read = 0;
    options.progress = [&](int64_t done, int64_t) { read = done; };
    EXPECT_THAT(std::string(Run(lines, options).status().message()), HasSubstr("talks.jsonl:1: the line is a list"));
    return read >> 20;
  };
  EXPECT_LE(mebibytes_read(1), 3);
  const int64_t of_five = mebibytes_read(5);
  EXPECT_GE(of_five, 5);
  EXPECT_LE(of_five, 13);
}

TEST_F(PackConversationsTest, AStopLeavesNoFile) {
  std::string lines;
  for (int i = 0; i < 3'000; ++i) lines += Turns("q", std::string(1'000, 'x'));
  const std::string few = Turns("a", "b");
  for (const std::string& talks : {lines, few}) {
    for (const int threads : {1, 5}) {
      std::stop_source stop;
      PackConversationsOptions options{.row_tokens = 2048, .threads = threads, .stop = stop.get_token()};
      options.progress = [&](int64_t, int64_t) { stop.request_stop(); };
      EXPECT_EQ(Run(talks, options).status().code(), absl::StatusCode::kCancelled) << threads;
      EXPECT_EQ(directory_.List(), (std::vector<std::string>{"talks.jsonl", "tokenizer"})) << threads;
    }
  }
}

TEST_F(PackConversationsTest, WhatFailsForValidationLeavesNothing) {
  PackConversationsOptions options{.row_tokens = 16};
  options.paths = {.inputs = {Talks(Turns("q", "one") + Turns("q", "two"))},
                   .output = directory_ / "out.bin",
                   .validation_fraction = 0.5,
                   .validation_output = directory_ / "validation.bin"};
  const auto chat = *ChatTemplate::Open(directory_ / "tokenizer", {});
  FilesOfWhichOneFails failing(options.paths.validation_output);
  EXPECT_FALSE(PackConversations(chat, options, failing).ok());
  EXPECT_EQ(directory_.List(), (std::vector<std::string>{"talks.jsonl", "tokenizer"}));
  LocalFileAccess files;
  EXPECT_TRUE(PackConversations(chat, options, files).ok());
}

TEST_F(PackConversationsTest, BadLinesAreNamedAndLeaveNothing) {
  const std::string good = Turns("a", "b");
  const auto expect_error = [&](const std::string& bad, const std::string& says, const std::string& remedy) {
    const auto report = Run(good + "\n" + bad + "\n" + good, {.row_tokens = 100});
    ASSERT_FALSE(report.ok()) << bad.substr(0, 100);
    EXPECT_THAT(std::string(report.status().message()), AllOf(HasSubstr("talks.jsonl:3: " + says), HasSubstr(remedy)));
    EXPECT_EQ(directory_.List(), (std::vector<std::string>{"talks.jsonl", "tokenizer"}));
  };
  const auto said = [](const std::string& text) { return Turns("q", text); };
  expect_error(R"({"messages":[{"role":"user","content":"q"}]})", "no turn of the assistant", "remove the line");
  expect_error(R"({"messages":[]})", "no turn of the assistant", "add one");
  expect_error(R"({"messages":[{"role":"bot","content":"q"}]})", "message 1", "use one of system, developer");
  expect_error(R"({"messages":[{"role":"assistant"}]})", "message 1", "use \"\" for an empty one");
  expect_error(R"({"prompt":"p","completion":""})", "\"completion\" is empty", "nothing to learn");
  expect_error("{\"messages\": \"\xff\"}", "invalid UTF-8 at byte 15", "in UTF-8");
  expect_error(said("\xed\xa0\x80"), "invalid UTF-8", "in UTF-8");  // a surrogate's bytes
  expect_error(said("\\ud800x"), "half of a character", "without its other half");
  expect_error(said("\\udc00"), "half of a character", "without its other half");
  expect_error("{\"n\": 1e999}", "JSON with a number that is too large", "one whole JSON object");
  expect_error("{", "malformed JSON at byte", "each line has to be one whole JSON object");
  expect_error("[1, 2]", "the line is a list", "not a JSON object");
  expect_error("{\"text\": \"a\"}", "neither \"messages\" nor", "framework/chat/README.md");
  expect_error("{\"messages\":" + std::string(100'000, '['), "JSON nested deeper than 64", "");
  expect_error("{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"x\":" + std::string(70, '[') +
                   std::string(70, ']') + "}]}",
               "JSON nested deeper than 64", "");
  expect_error(R"({"messages":[{"role":"assistant","content":"a","n":9223372036854775808}]})", "the number", "string");
}

TEST_F(PackConversationsTest, BadTemplatesAreNamedAndLeaveNothing) {
  const auto expect_error = [&](const std::string& source, const std::string& says) {
    WriteText(directory_ / "tokenizer/chat_template.jinja", source);
    const auto report = Run(Turns("a", "b"), {.row_tokens = 100});
    ASSERT_FALSE(report.ok()) << source;
    EXPECT_THAT(std::string(report.status().message()), HasSubstr(says));
    EXPECT_EQ(directory_.List(), (std::vector<std::string>{"talks.jsonl", "tokenizer"}));
  };
  expect_error("{{ 'x' }}\n{% include 'y' %}", "line 2, column 4: {% include %} is not in the subset");
  expect_error("{{ 'x' }}\n{{ 'y'|format }}", "the line: {{ 'y'|format }}");
  expect_error("{% for m in messages %}\n{{ m.content.encode() }}{% endfor %}",
               "talks.jsonl:1: chat template: line 2, column 20: the method encode");
  expect_error("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "without end?");
  expect_error("{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}", "does it grow without end?");
  expect_error("{{ raise_exception('roles!') }}",
               "talks.jsonl:1: chat template: line 1, column 19: the template says: roles!");
  expect_error("{{ strftime_now('%Y') }}", "--date YYYY-MM-DD");
  expect_error("a\xff", "chat_template.jinja: not UTF-8 at byte 2");
  expect_error("{{ 'x' }}", "1 have nothing to learn");
  std::filesystem::remove(directory_ / "tokenizer/chat_template.jinja");
  const auto report = Run(Turns("a", "b"), {.row_tokens = 100});
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("put a chat_template.jinja beside"));
}

TEST_F(PackConversationsTest, FailuresNameTheLineAndLeaveNothing) {
  const auto expect_error = [&](const std::string& lines, const std::string& says, int64_t row_tokens = 100) {
    const auto report = Run(lines, {.row_tokens = row_tokens});
    ASSERT_FALSE(report.ok()) << says;
    EXPECT_THAT(std::string(report.status().message()), HasSubstr(says));
    EXPECT_FALSE(std::filesystem::exists(directory_ / "out.bin"));
    EXPECT_FALSE(std::filesystem::exists(directory_ / "out.bin.index"));
  };
  const std::string no_answer = "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}\n";
  expect_error(Turns("a", "b") + no_answer, "talks.jsonl:2: ");
  expect_error(Turns("a", std::string(300, 'x')), "no conversation is left of 1: 1 are longer than 20 tokens", 20);
  expect_error("", "talks.jsonl: no conversation; one is expected in each line");
  expect_error(" \n\t\n", "talks.jsonl: no conversation");
  expect_error(Turns("a", "b"), "rows of 1 token hold", 1);
}

}  // namespace
}  // namespace holdfast
