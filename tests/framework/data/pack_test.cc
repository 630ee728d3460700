// Proves that packing in pieces gives the ids of encoding each document whole, that the validation split is exact, and
// that every failure names file and line and leaves no file behind.

#include "framework/data/pack.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <latch>
#include <stop_token>
#include <thread>

#include "framework/base/file_descriptor.h"
#include "framework/base/json.h"
#include "framework/data/document_reader.h"
#include "framework/data/token_index.h"
#include "framework/data/token_stats.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/base/peak_memory.h"
#include "tests/framework/data/token_test_files.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

class PackTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    WriteText(directory_ / name, text);
    return directory_ / name;
  }
  absl::StatusOr<PackReport> Run(PackOptions options, bool bytes = false) {
    options.paths.output = out_;
    options.paths.overwrite = overwrite_;
    LocalFileAccess files;
    return Pack(bytes ? *bytes_ : *bpe_, options, files);
  }
  // Packing must fail so, and leave only its input.
  void ExpectError(const std::string& input, const std::string& says, PackOptions options = {}) {
    const size_t before = directory_.List().size();
    options.paths.inputs = {input};
    const auto report = Run(options);
    ASSERT_FALSE(report.ok()) << says;
    EXPECT_THAT(std::string(report.status().message()), HasSubstr(says));
    EXPECT_EQ(directory_.List().size(), before);
  }

  TemporaryDirectory directory_;
  std::string out_ = directory_ / "out.bin";
  bool overwrite_ = true;
  std::unique_ptr<const Tokenizer> bytes_ = *OpenTokenizer("bytes");
  std::unique_ptr<const Tokenizer> bpe_ =
      *OpenTokenizer(SourceDir() + "/tests/framework/data/golden/tokenizer_llama3_style.json");
};

// More than three pieces of 1 MiB, whose borders fall into words, spaces, special tokens and characters.
std::string LongText() {
  const std::string parts[] = {"The gradient of a step ", "  \n\n  ", "<|endoftext|>", "学习率 Größe 😀",
                               "12345 it's.\r\n"};
  std::string text;
  for (uint32_t i = 0, random = 1; text.size() < 3'300'000; ++i) {
    random = random * 1664525 + 1013904223;
    text += parts[random >> 24 & 3 ? (random >> 16) % 5 : 3];
  }
  return text + "   ";
}

TEST_F(PackTest, ALongTextHasTheIdsOfTheWhole) {
  const std::string text = LongText();
  std::vector<int32_t> expected = bpe_->Encode(text).value();
  expected.push_back(*bpe_->end_of_text());
  std::vector<int64_t> progress;
  const auto note = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, text.size());
    progress.push_back(done);
  };
  const auto report = Run({.paths = {.inputs = {Write("a.txt", text)}}, .progress = note});
  ASSERT_TRUE(report.ok()) << std::string(report.status().message());
  EXPECT_TRUE(ReadTokens(out_) == expected);
  EXPECT_EQ(report->tokens, expected.size());
  EXPECT_EQ(report->input_bytes, text.size());
  EXPECT_EQ(report->text_bytes, text.size());
  EXPECT_GE(progress.size(), 4);
  EXPECT_EQ(progress.back(), text.size());
}

// Of the end of the input, too, where everything is read and nothing written yet.
TEST_F(PackTest, AStopLeavesNoFile) {
  const std::string long_text = Write("a.txt", LongText()), lines = Write("a.jsonl", "{\"text\": \"a\"}\n");
  const std::string last = Write("z.txt", "the last");
  const std::vector<std::string> before = directory_.List();
  for (const std::string& input : {long_text, lines, last}) {
    for (const bool validation : {false, true}) {
      std::stop_source stop;
      PackOptions options{.paths = {.inputs = {input}}, .stop = stop.get_token()};
      options.progress = [&](int64_t, int64_t) { stop.request_stop(); };
      if (validation) {
        options.paths.validation_fraction = 0.5;
        options.paths.validation_output = directory_ / "validation.bin";
      }
      EXPECT_EQ(Run(options).status().code(), absl::StatusCode::kCancelled) << input;
      EXPECT_EQ(directory_.List(), before) << input;
    }
  }
}

// Nobody has opened the other end yet, or somebody has and writes nothing more.
TEST_F(PackTest, AStopEndsTheWaitForAPipe) {
  const std::string pipe = directory_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const bool is_open : {false, true}) {
    const FileDescriptor writer(is_open ? open(pipe.c_str(), O_RDWR) : -1);
    if (is_open) {
      ASSERT_EQ(write(writer.get(), "some", 4), 4);
    }
    std::stop_source stop;
    const std::jthread stops([&] {
      while (directory_.List().size() == 1) std::this_thread::yield();  // until the output is begun
      stop.request_stop();
    });
    const PackOptions options{.paths = {.inputs = {pipe}}, .stop = stop.get_token()};
    EXPECT_EQ(Run(options).status().code(), absl::StatusCode::kCancelled) << is_open;
    EXPECT_EQ(directory_.List(), (std::vector<std::string>{"pipe"})) << is_open;
  }
}

TEST_F(PackTest, APipeThatMayBeStoppedIsReadToItsEnd) {
  const std::string pipe = directory_ / "pipe", text = LongText();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::jthread writes([&] { WriteText(pipe, text); });
  std::stop_source stop;
  const auto report = Run({.paths = {.inputs = {pipe}}, .stop = stop.get_token()}, true);
  ASSERT_TRUE(report.ok()) << std::string(report.status().message());
  EXPECT_TRUE(bytes_->Decode(ReadTokens(out_)) == text);
}

TEST_F(PackTest, Bytes) {
  const std::string text("a\0b\xff\n", 5);
  ASSERT_TRUE(Run({.paths = {.inputs = {Write("a.txt", text), Write("b.txt", "x")}}}, true).ok());
  EXPECT_EQ(ReadTokens(out_), (std::vector<int32_t>{'a', 0, 'b', 255, '\n', 'x'}));
}

// Which of the two is meant cannot be told; the last one was taken. Those of what lies within are others.
TEST_F(PackTest, AFieldThatIsThereTwiceIsRefused) {
  ExpectError(Write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a\", \"n\": 1, \"text\": \"b\"}\n"),
              "a.jsonl:2: field \"text\" is there twice; keep one");
  ASSERT_TRUE(Run({.paths = {.inputs = {Write("b.jsonl",
                                              "{\"x\": {\"text\": 1, \"text\": 2}, \"text\": \"b\", "
                                              "\"n\": 1, \"n\": 2}\n")}}},
                  true)
                  .ok());
  EXPECT_EQ(ReadTokens(out_), (std::vector<int32_t>{'b'}));
}

// The second time there would be nothing left of it.
TEST_F(PackTest, StandardInputIsReadOnlyOnce) {
  const auto report = Run({.paths = {.inputs = {"-", Write("a.txt", "a"), "-"}}});
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("standard input (-) is named twice"));
}

// What editors of Windows write before a text is no part of it, as it is none of JSON Lines.
TEST_F(PackTest, AByteOrderMarkIsNoText) {
  const std::string mark = "\xef\xbb\xbf";
  const auto report = Run({.paths = {.inputs = {Write("a.txt", mark + "a" + mark), Write("b.txt", mark),
                                                Write("c.jsonl", mark + "{\"text\": \"c\"}\n")}}},
                          true);
  ASSERT_TRUE(report.ok()) << std::string(report.status().message());
  EXPECT_EQ(ReadTokens(out_), (std::vector<int32_t>{'a', 0xef, 0xbb, 0xbf, 'c'})) << "within a text it stays";
  EXPECT_EQ(report->empty_documents, 1);
  EXPECT_EQ(report->input_bytes, 27);
  EXPECT_EQ(report->text_bytes, 5);
}

TEST_F(PackTest, JsonlDocuments) {
  const std::string lines = "{\"text\": \"one \\u00e9\", \"n\": 1}\r\n\n{\"text\": \"\"}\n  \n{\"text\": \"two\"}";
  const auto report = Run({.paths = {.inputs = {Write("a.jsonl", lines)}}});
  ASSERT_TRUE(report.ok()) << std::string(report.status().message());
  EXPECT_EQ(report->documents, 3);
  EXPECT_EQ(report->empty_documents, 1);
  EXPECT_EQ(bpe_->Decode(ReadTokens(out_)), "one é<|endoftext|>two<|endoftext|>");
  ASSERT_TRUE(Run({.paths = {.inputs = {directory_ / "a.jsonl"}}, .append_end_of_text = false}).ok());
  EXPECT_EQ(bpe_->Decode(ReadTokens(out_)), "one étwo");
  ASSERT_TRUE(Run({.paths = {.inputs = {Write("b", "{\"b\": \"x\"}\n")}},
                   .format = PackOptions::Format::kJsonl,
                   .jsonl_field = "b"})
                  .ok());
  EXPECT_EQ(bpe_->Decode(ReadTokens(out_)), "x<|endoftext|>");
}

TEST_F(PackTest, DocumentsAreMarked) {
  const std::string lines = "{\"text\": \"ab\"}\n{\"text\": \"\"}\n{\"text\": \"c\"}";
  const std::string validation = directory_ / "validation.bin";
  ASSERT_TRUE(Run({.paths = {.inputs = {Write("a.jsonl", lines)}}, .documents = true}, true).ok());
  const auto marked = [](const std::string& path) {
    const auto file = *OpenTokens(path);
    std::vector<uint32_t> tokens(static_cast<size_t>(file->num_tokens()));
    EXPECT_TRUE(file->ReadMarked(0, absl::MakeSpan(tokens)).ok());
    return tokens;
  };
  EXPECT_EQ(marked(out_), (std::vector<uint32_t>{'a' | kDocumentStart, 'b', 'c' | kDocumentStart}));
  ASSERT_TRUE(
      Run({.paths = {.inputs = {directory_ / "a.jsonl"}, .validation_fraction = 0.34, .validation_output = validation},
           .documents = true},
          true)
          .ok());
  EXPECT_EQ(marked(validation), (std::vector<uint32_t>{'c' | kDocumentStart}));
  // A document that comes in pieces begins once.
  ASSERT_TRUE(Run({.paths = {.inputs = {Write("long.txt", LongText())}}, .documents = true}).ok());
  const std::vector<uint32_t> tokens = marked(out_);
  EXPECT_EQ(std::count_if(tokens.begin(), tokens.end(), [](uint32_t token) { return token >= kNotLearned; }), 1);
  EXPECT_GE(tokens[0], kDocumentStart);
}

TEST_F(PackTest, JsonlLinesLongerThanAPiece) {
  std::string lines, expected;
  for (int i = 0; i < 5; ++i) {
    const std::string text(700'000 * i + 1, static_cast<char>('a' + i));
    lines += "{\"text\":\"" + text + "\"}\n";
    expected += text;
  }
  ASSERT_TRUE(Run({.paths = {.inputs = {Write("a.jsonl", lines)}}}, true).ok());
  EXPECT_TRUE(bytes_->Decode(ReadTokens(out_)) == expected);
}

TEST_F(PackTest, AnyNumberOfThreadsMakesTheSameFile) {
  const std::string text = LongText();
  std::string lines;
  std::vector<int32_t> expected;
  size_t at = 0;
  for (size_t i = 0; at < text.size(); ++i) {  // some longer than a batch, some empty, some blank lines
    const size_t size = i % 50 == 7 ? 400'000 : i % 10 == 3 ? 0 : i * 37 % 2000 + 1;
    std::string document;
    for (const char c : text.substr(at, size)) {
      if (static_cast<unsigned char>(c) < 0x80 && c >= ' ') document += c;
    }
    at += size;
    lines += "{\"text\": \"" + document + (i % 20 == 5 ? "\"}\n\n" : "\"}\n");
    if (document.empty()) continue;
    const std::vector<int32_t> tokens = bpe_->Encode(document).value();
    expected.insert(expected.end(), tokens.begin(), tokens.end());
    expected.push_back(*bpe_->end_of_text());
  }
  const std::string input = Write("a.jsonl", lines);
  for (const int threads : {1, 2, 7}) {
    const auto report = Run({.paths = {.inputs = {input}}, .threads = threads});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(ReadTokens(out_) == expected) << threads;
    EXPECT_GT(report->empty_documents, 0);
  }
}

// Of each kind of tokenizer: with an expression, with form C before it, and one that is given texts whole.
TEST_F(PackTest, AnyNumberOfThreadsMakesTheSameFileOfTexts) {
  const std::string long_text = LongText();
  // A piece ends in a word that is longer than what is looked at first, another where characters compose.
  std::string broken = long_text.substr(0, 1'040'000) + std::string(20'000, 'a') + " ";
  while (broken.size() < 2'200'000) broken += "cafe\u0301 12\n";
  broken += "\xff\xff";
  const std::string first = Write("first.txt", long_text.substr(0, 2'300'000)), empty = Write("empty.txt", "");
  const std::string lines = Write("some.jsonl", "{\"text\": \"a line\"}\n{\"text\": \"\"}\n");
  const std::string last = Write("last.txt", broken);
  const std::string golden = SourceDir() + "/tests/framework/data/golden/tokenizer_";
  nlohmann::json composing = *ParseJson(ReadText(golden + "llama3_style.json"));
  composing["normalizer"] = {{"type", "NFC"}};
  const std::string nfc = Write("nfc.json", composing.dump());
  for (const std::string& name :
       {golden + "gpt2_style.json", golden + "llama3_style.json", nfc, golden + "llama2_style.json"}) {
    const auto tokenizer = OpenTokenizer(name).value();
    std::vector<int32_t> expected;
    for (const std::string& text : {ReadText(first), std::string("a line"), broken}) {
      const std::vector<int32_t> tokens = tokenizer->Encode(text).value();
      expected.insert(expected.end(), tokens.begin(), tokens.end());
      if (tokenizer->end_of_text().has_value()) expected.push_back(*tokenizer->end_of_text());
    }
    for (const int threads : {1, 2, 7}) {
      LocalFileAccess files;
      const auto report = Pack(
          *tokenizer,
          {.paths = {.inputs = {first, empty, lines, last}, .output = out_, .overwrite = true}, .threads = threads},
          files);
      ASSERT_TRUE(report.ok()) << name << ": " << report.status();
      EXPECT_TRUE(ReadTokens(out_) == expected) << name << ", " << threads;
      EXPECT_EQ(report->documents, 5) << name;
      EXPECT_EQ(report->empty_documents, 2) << name;
    }
  }
}

// Words of seven bytes, counted from the beginning of the text: begun elsewhere, all are others, to its end.
class SevensTokenizer : public Tokenizer {
 public:
  int64_t vocab_size() const override { return 65536; }
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    for (size_t at = 0; at < text.size(); at += 7) {
      uint32_t token = 0;
      for (const char c : text.substr(at, 7)) token = token * 31 + static_cast<uint8_t>(c);
      tokens.push_back(static_cast<int32_t>(token & 0xffff));
    }
    return tokens;
  }
  absl::StatusOr<TokensOfText> EncodeWithRanges(std::string_view) const override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<size_t> EncodeBeginning(std::string_view text, std::vector<int32_t>& out) const override {
    const size_t taken = text.size() / 7 * 7;
    out = *Encode(text.substr(0, taken));
    return taken;
  }
  std::string Decode(absl::Span<const int32_t>) const override { return ""; }
  std::optional<int32_t> end_of_text() const override { return std::nullopt; }
};

TEST_F(PackTest, AWrongGuessOfWhereToCutDecidesNoToken) {
  const SevensTokenizer sevens;
  std::string text;
  for (uint32_t random = 1; text.size() < 9'000'000;) {
    random = random * 1664525 + 1013904223;
    text.push_back(static_cast<char>(random >> 24));
  }
  const std::string input = Write("a.txt", text);
  for (const int threads : {1, 3}) {
    LocalFileAccess files;
    const auto report = Pack(
        sevens, {.paths = {.inputs = {input, input}, .output = out_, .overwrite = true}, .threads = threads}, files);
    ASSERT_TRUE(report.ok()) << report.status();
    const std::vector<int32_t> once = *sevens.Encode(text);
    std::vector<int32_t> expected = once;
    expected.insert(expected.end(), once.begin(), once.end());
    EXPECT_TRUE(ReadTokens(out_) == expected) << threads;
  }
}

// Words are lines. If it guesses wrong, what does not begin as the text does can be cut behind its first three bytes.
class LineTokenizer final : public SevensTokenizer {
 public:
  explicit LineTokenizer(bool guesses_wrong) : guesses_wrong_(guesses_wrong) {}
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const override {
    Count(text);
    return SevensTokenizer::Encode(text);
  }
  absl::StatusOr<size_t> EncodeBeginning(std::string_view text, std::vector<int32_t>& out) const override {
    Count(text);
    const size_t taken = guesses_wrong_ && text[0] != '^' ? 3 : text.rfind('\n') + 1;  // 0 if there is none
    out = *SevensTokenizer::Encode(text.substr(0, taken));
    return taken;
  }
  size_t bytes() const { return bytes_; }
  bool was_given_half_a_character() const { return was_given_half_; }

 private:
  void Count(std::string_view text) const {
    bytes_ += text.size();
    if ((text[0] & 0xc0) == 0x80) was_given_half_ = true;
  }
  const bool guesses_wrong_;
  mutable std::atomic<size_t> bytes_ = 0;
  mutable std::atomic<bool> was_given_half_ = false;
};

// With each MiB more all that was held was looked through, 60 MB 60 times.
TEST_F(PackTest, ATextWithoutAPlaceToCutIsLookedThroughAFewTimes) {
  std::string text = "^";
  while (text.size() < 12 << 20) text += "学";
  const std::string input = Write("a.txt", text);
  for (const bool guesses_wrong : {false, true}) {
    for (const int threads : {1, 3}) {
      const LineTokenizer lines(guesses_wrong);
      LocalFileAccess files;
      const auto report =
          Pack(lines, {.paths = {.inputs = {input}, .output = out_, .overwrite = true}, .threads = threads}, files);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_LT(lines.bytes(), 5 * text.size()) << guesses_wrong << ", " << threads;
      EXPECT_FALSE(lines.was_given_half_a_character()) << guesses_wrong << ", " << threads;
      EXPECT_TRUE(ReadTokens(out_) == *lines.Encode(text)) << guesses_wrong << ", " << threads;
    }
  }
}

TEST_F(PackTest, TheLastPlaceToCutBeforeTheLimitIsFound) {
  const LineTokenizer lines(false);
  const size_t most = 64 << 20, piece = 1 << 20;
  const std::string word(most + piece, 'a');
  const auto pack = [&](size_t place) {
    std::string text = word + word.substr(0, piece + 1);
    text[place] = '\n';
    LocalFileAccess files;
    return Pack(lines, {.paths = {.inputs = {Write("a.txt", text)}, .output = out_, .overwrite = true}}, files)
        .status();
  };
  EXPECT_TRUE(pack(most + piece / 2).ok());
  const absl::Status refused = pack(most + piece);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("without a place where the tokenizer could cut"));
}

// The first two calls with more than a window of a text wait for each other.
class TogetherTokenizer final : public SevensTokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const override {
    Wait(text);
    return SevensTokenizer::Encode(text);
  }
  absl::StatusOr<size_t> EncodeBeginning(std::string_view text, std::vector<int32_t>& out) const override {
    Wait(text);
    out.assign(text.size(), 0);
    return text.size();
  }

 private:
  void Wait(std::string_view text) const {
    if (text.size() > 100'000 && calls_.fetch_add(1) < 2) both_.arrive_and_wait();
  }
  mutable std::atomic<int> calls_ = 0;
  mutable std::latch both_{2};
};

TEST_F(PackTest, TextsAndPiecesOfATextAreEncodedAtTheSameTime) {
  const std::string one = Write("one.txt", std::string(200'000, 'a')),
                    two = Write("two.txt", std::string(200'000, 'b'));
  const std::string pieces = Write("pieces.txt", std::string(3'000'000, 'c'));
  for (const std::vector<std::string>& inputs : {std::vector{one, two}, {pieces}}) {
    const TogetherTokenizer together;
    LocalFileAccess files;
    const auto report =
        Pack(together, {.paths = {.inputs = inputs, .output = out_, .overwrite = true}, .threads = 2}, files);
    EXPECT_TRUE(report.ok()) << report.status();
  }
}

TEST_F(PackTest, OfSeveralLinesThatAreWrongTheFirstIsNamed) {
  const std::string line = "{\"text\": \"" + std::string(100'000, 'x') + "\"}\n";
  std::string lines;
  for (int i = 0; i < 5; ++i) lines += line;
  lines += "{\"text\": 5}\n" + line + line + line + "[1]\n" + line;
  ExpectError(Write("two.jsonl", lines), "two.jsonl:6: field \"text\" is a number", {.threads = 4});
  lines += std::string(66 << 20, 'x');
  ExpectError(Write("long.jsonl", lines), "long.jsonl:6: field \"text\" is a number", {.threads = 4});
}

TEST_F(PackTest, ValidationIsTheExactEnd) {
  const std::string text = LongText().substr(0, 1'000'003);
  const std::string validation = directory_ / "validation.bin";
  for (const double fraction : {0.1, 0.5, 0.999999, 0.000001}) {
    const auto report = Run(
        {.paths = {.inputs = {Write("a.txt", text)}, .validation_fraction = fraction, .validation_output = validation}},
        true);
    ASSERT_TRUE(report.ok()) << std::string(report.status().message());
    EXPECT_EQ(report->validation_tokens, std::llround(fraction * 1'000'003));
    std::vector<int32_t> tokens = ReadTokens(out_);
    const std::vector<int32_t> end = ReadTokens(validation);
    EXPECT_EQ(end.size(), report->validation_tokens);
    tokens.insert(tokens.end(), end.begin(), end.end());
    EXPECT_TRUE(tokens == bytes_->Encode(text).value());
  }
  EXPECT_EQ(directory_.List().size(), 5);  // the text, two token files, their indexes
}

TEST_F(PackTest, WhatFailsForOneOfTwoFilesReplacesNeither) {
  const std::string validation = directory_ / "validation.bin";
  const PackOptions options{.paths = {.inputs = {Write("a.txt", "0123456789")},
                                      .output = out_,
                                      .validation_fraction = 0.5,
                                      .validation_output = validation,
                                      .overwrite = true}};
  LocalFileAccess files;
  ASSERT_TRUE(Pack(*bytes_, options, files).ok());
  Write("a.txt", "abcdefghij");
  for (const std::string& fails : {out_, validation}) {
    FilesOfWhichOneFails failing(fails);
    EXPECT_FALSE(Pack(*bytes_, options, failing).ok());
    EXPECT_EQ(bytes_->Decode(ReadTokens(out_)), "01234") << fails;
    EXPECT_EQ(bytes_->Decode(ReadTokens(validation)), "56789") << fails;
    EXPECT_EQ(directory_.List().size(), 5) << fails;
  }
}

TEST_F(PackTest, Failures) {
  ExpectError(directory_ / "missing.txt", "missing.txt");
  ExpectError(directory_ / "", "directory");
  ExpectError(Write("empty.txt", ""), "no text");
  ExpectError(Write("bad.jsonl", "{\"text\": \"x\"}\n\n{\"text\": }\n"), "bad.jsonl:3: malformed JSON at byte ");
  ExpectError(Write("field.jsonl", "{\"text\": \"x\"}\n{\"txt\": \"x\"}\n"),
              "field.jsonl:2: no field \"text\"; name the one");
  ExpectError(Write("talks.jsonl", "{\"messages\": []}\n"), "with --jsonl-field, or pack conversations with --chat");
  ExpectError(Write("shared.jsonl", "{\"conversations\": []}\n"), "or pack conversations with --chat");
  ExpectError(Write("type.jsonl", "{\"text\": 5}\n"), "type.jsonl:1: field \"text\" is a number");
  ExpectError(Write("zero.jsonl", std::string("{\"text\": \"x\"}\0{\"text\": \"y\"}\n", 28)),
              "zero.jsonl:1: malformed JSON: byte 14 is zero");
  ExpectError(Write("list.jsonl", "[1]\n"), "list.jsonl:1: not a JSON object");
  ExpectError(Write("utf8.jsonl", "{\"text\": \"\xff\"}\n"), "utf8.jsonl:1: invalid UTF-8 at byte ");
  ExpectError(Write("half.jsonl", "{\"text\": \"\\ud800\"}\n"), "half.jsonl:1: half of a character");
  ExpectError(Write("large.jsonl", "{\"text\": 1e999}\n"), "large.jsonl:1: JSON with a number that is too large");
  ExpectError(Write("deep.jsonl", std::string(100'000, '[') + "\n"), "deep.jsonl:1: JSON nested");
  const std::string good = Write("good.txt", "good text");
  ExpectError(good, "needs a validation output", {.paths = {.validation_fraction = 0.5}});
  ExpectError(good, "a validation fraction of 0 leaves nothing for ",
              {.paths = {.validation_output = directory_ / "v.bin"}});
  for (const double none : {1.0, std::nan("")}) {
    ExpectError(good, "from 0 to below 1",
                {.paths = {.validation_fraction = none, .validation_output = directory_ / "v.bin"}});
  }
  ExpectError(good, "empty", {.paths = {.validation_fraction = 1e-9, .validation_output = directory_ / "v.bin"}});
  ExpectError(good, "both output", {.paths = {.validation_fraction = 0.5, .validation_output = out_}});
  ExpectError(good, "both the tokenizer's and output", {.paths = {.tokenizer = {directory_ / "/out.bin"}}});
  ExpectError(good, "both the tokenizer's and index of output", {.paths = {.tokenizer = {TokenIndexPath(out_)}}});
  out_ = good;
  ExpectError(good, "both input and output");
  EXPECT_EQ(ReadText(good), "good text");
  out_ = directory_ / "no/such/out.bin";
  ExpectError(good, "no/such");
}

// They took 50 bytes for each list and number. In a process of its own, whose peak no other test has raised.
TEST(DocumentOfLine, HoldsNothingOfWhatLiesInOtherFields) {
  std::string line = R"({"other": [)";
  for (int i = 0; i < 4'000'000; ++i) line += "[],";
  line += R"(5], "text": "a"})";
  const auto take = [&line] {
    const int64_t before = PeakKiB();
    const absl::StatusOr<std::string> document = DocumentOfLine(line, "text");
    _exit(document.ok() && *document == "a" && PeakKiB() - before < 96 << 10 ? 0 : 1);
  };
  EXPECT_EXIT(take(), ::testing::ExitedWithCode(0), "");
}

TEST_F(PackTest, WhatIsNoTextIsNotPacked) {
  using std::string_literals::operator""s;
  ASSERT_TRUE(Run({.paths = {.inputs = {Write("good.txt", "good text")}}}).ok());
  std::filesystem::rename(out_, directory_ / "tokens.txt");
  const std::pair<std::string, std::string> cases[] = {{"PAR1\x15\x04", "Parquet; write it as JSON Lines"},
                                                       {"ARROW1\0\0"s, "Arrow; write it as JSON Lines"},
                                                       {"PK\x03\x04...", "unzip -p "},
                                                       {"\xff\xfeH\0"s, "iconv -f UTF-16"},
                                                       {"\xfe\xff\0H"s, "iconv -f UTF-16"},
                                                       {"\xff\xfe\0\0H\0\0\0"s, "iconv -f UTF-32"},
                                                       {"\0\0\xfe\xff\0\0\0H"s, "iconv -f UTF-32"},
                                                       {ReadText(directory_ / "tokens.txt"), "a token file"}};
  for (const auto& [text, says] : cases) {
    for (const char* name : {"a.txt", "a.jsonl"}) ExpectError(Write(name, text), says);
  }
  ExpectError(Write("lines.json", "{\"text\": \"x\"}\n"), "lines.json: say what it is: --format jsonl");
  out_ = directory_ / "more.bin";
  EXPECT_TRUE(Run({.paths = {.inputs = {Write("PAR1.txt", "PAR1 is a gene")}}}).ok());
  ASSERT_TRUE(
      Run({.paths = {.inputs = {directory_ / "lines.json"}}, .format = PackOptions::Format::kJsonl}, true).ok());
  EXPECT_EQ(bytes_->Decode(ReadTokens(out_)), "x");
}

TEST_F(PackTest, OnlyATokenFileIsReplaced) {
  const std::string good = Write("good.txt", "good text"), mine = Write("mine.yaml", "a: 1\n");
  const PackOptions options{.paths = {.inputs = {good}, .validation_fraction = 0.5, .validation_output = mine}};
  ExpectError(good, "mine.yaml: there is something already that is no token file", options);
  ASSERT_TRUE(Run({.paths = {.inputs = {good}}}).ok());
  out_ = mine;
  ExpectError(good, "mine.yaml: there is something already that is no token file");
  EXPECT_EQ(ReadText(mine), "a: 1\n");
  out_ = directory_ / "out.bin";
  EXPECT_TRUE(Run({.paths = {.inputs = {good}}}).ok()) << "over its own";
  std::filesystem::resize_file(out_, 1000);
  EXPECT_TRUE(Run({.paths = {.inputs = {good}}}).ok()) << "over what is left of one";
  const std::string index = Write("other.bin.index", "mine");
  out_ = directory_ / "other.bin";
  ExpectError(good, "other.bin.index: not the index of a token file, and is not replaced");
  EXPECT_EQ(ReadText(index), "mine");
  out_ = Write("empty.bin", "");
  EXPECT_TRUE(Run({.paths = {.inputs = {good}}}).ok()) << "over a name that was only taken";
}

// It replaced them without a word, also with another tokenizer's.
TEST_F(PackTest, ATokenFileIsReplacedByWordOnly) {
  const std::string good = Write("good.txt", "good text"), other = Write("other.txt", "something else");
  const std::string validation = directory_ / "validation.bin";
  const auto pack = [&](const std::string& input, bool with_validation) {
    PackOptions options{.paths = {.inputs = {input}}};
    if (with_validation) {
      options.paths.validation_fraction = 0.5;
      options.paths.validation_output = validation;
    }
    return Run(options, /*bytes=*/true).status();
  };
  overwrite_ = false;
  ASSERT_TRUE(pack(good, true).ok());
  const std::string before = ReadText(out_), index = ReadText(TokenIndexPath(out_));
  const absl::Status refused = pack(other, false);
  EXPECT_TRUE(absl::IsAlreadyExists(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("out.bin: there is a token file already"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("or pass --overwrite"));
  EXPECT_EQ(ReadText(out_), before);
  EXPECT_EQ(ReadText(TokenIndexPath(out_)), index);
  out_ = directory_ / "new.bin";
  EXPECT_THAT(std::string(pack(other, true).message()), HasSubstr("validation.bin: there is a token file already"));
  EXPECT_FALSE(std::filesystem::exists(out_));
  EXPECT_EQ(bytes_->Decode(ReadTokens(validation)), " text");  // of "good text"
  overwrite_ = true;
  EXPECT_TRUE(pack(other, true).ok());
  EXPECT_EQ(bytes_->Decode(ReadTokens(validation)), "ng else");
  // What is left of a file that was removed.
  overwrite_ = false;
  std::filesystem::remove(out_);
  EXPECT_TRUE(pack(other, false).ok()) << "over an index alone";
}

// Of which a library has taken the number, as gRPC does before main.
TEST_F(PackTest, AClosedStandardInputIsCalledThat) {
  const int kept = dup(STDIN_FILENO);
  close(STDIN_FILENO);
  ASSERT_EQ(epoll_create1(0), STDIN_FILENO);
  ExpectError("-", "standard input is closed");
  close(STDIN_FILENO);
  if (kept < 0) return;
  EXPECT_EQ(dup2(kept, STDIN_FILENO), STDIN_FILENO);
  close(kept);
}

TEST_F(PackTest, OneFileSpelledInTwoWaysIsRefusedThoughItDoesNotExistYet) {
  const std::string good = Write("good.txt", "good text");
  std::filesystem::create_directory(directory_ / "real");
  std::filesystem::create_directory_symlink(directory_ / "real", directory_ / "link");
  const auto expect = [&](const std::string& out, const std::string& validation, const std::string& says) {
    SCOPED_TRACE(out + " and " + validation);
    out_ = out;
    ExpectError(good, says, {.paths = {.validation_fraction = 0.5, .validation_output = validation}});
    out_ = validation;
    ExpectError(good, says, {.paths = {.validation_fraction = 0.5, .validation_output = out}});
  };
  const std::string a = directory_ / "a.bin";
  const std::string both = "both output and validation output", index = "index of ";
  expect(a, directory_ / "./a.bin", both);
  expect(a, directory_ / "/a.bin", both);
  expect(a, directory_ / "real/../a.bin", both);
  expect(a, std::filesystem::relative(a), both);
  expect(directory_ / "real/a.bin", directory_ / "link/a.bin", both);
  expect(a, a + ".index", index);
  expect(directory_ / "real/a.bin", directory_ / "link/a.bin.index", index);
  out_ = directory_ / "other.bin";
  ASSERT_TRUE(Run({.paths = {.inputs = {good}, .validation_fraction = 0.5, .validation_output = a}}).ok());
  out_ = directory_ / "b";
  ExpectError(Write("b.index", "text"), "both input and index of output");
}

TEST_F(PackTest, Stats) {
  WriteTokens(out_, {3, 3, 7, 9}, 70000);
  std::vector<int64_t> read;
  const auto listen = [&](const std::string&, int64_t done, int64_t total) { read = {done, total}; };
  const TokenStats stats = *ComputeTokenStats(**OpenTokens(out_), listen);
  EXPECT_THAT(read, testing::ElementsAre(16, 16)) << "bytes";
  EXPECT_EQ(stats.count, 4);
  EXPECT_EQ(stats.smallest, 3);
  EXPECT_EQ(stats.largest, 9);
  EXPECT_EQ(stats.distinct, 3);
  EXPECT_DOUBLE_EQ(stats.entropy_bits, 1.5);
  WriteTokens(out_, {1 << 24}, 1 << 25);
  EXPECT_EQ(ComputeTokenStats(**OpenTokens(out_))->uncounted, 1);
}

}  // namespace
}  // namespace holdfast
