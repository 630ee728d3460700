// Proves that a token file gives back what was written, in llm.c's bytes; that every kind of broken file is refused
// with its name and sizes; and that a writer that fails leaves nothing behind.

#include "framework/data/token_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/data/token_test_files.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

std::string Header(int32_t magic, int32_t version, int32_t tokens) {
  std::string header(1024, '\0');
  const int32_t words[] = {magic, version, tokens};
  header.replace(0, sizeof(words), reinterpret_cast<const char*>(words), sizeof(words));
  return header;
}

TEST(TokenFile, BytesAreThoseOfLlmC) {
  const TemporaryDirectory directory;
  WriteTokens(directory / "16.bin", {1, 50256, 65535});
  const std::string header16("\x88\xd8\x34\x01\x01\0\0\0\x03\0\0\0", 12), body16("\x01\0\x50\xc4\xff\xff", 6);
  EXPECT_EQ(ReadText(directory / "16.bin"), header16 + std::string(1012, '\0') + body16);
  WriteTokens(directory / "32.bin", {1, 128000}, 128256);
  const std::string header32("\xa1\xd9\x34\x01\x07\0\0\0\x02\0\0\0", 12), body32("\x01\0\0\0\0\xf4\x01\0", 8);
  EXPECT_EQ(ReadText(directory / "32.bin"), header32 + std::string(1012, '\0') + body32);
}

TEST(TokenFile, GivesBackWhatWasWritten) {
  const TemporaryDirectory directory;
  for (const int64_t vocab_size : {65536, 65537}) {
    std::vector<int32_t> tokens(3'000'001);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 2654435761u % vocab_size);
    WriteTokens(directory / "a.bin", tokens, vocab_size);
    EXPECT_EQ(ReadTokens(directory / "a.bin"), tokens);
    const auto file = *OpenTokens(directory / "a.bin");
    EXPECT_EQ(file->bytes_per_token(), vocab_size <= 65536 ? 2 : 4);
    std::vector<int32_t> part(1000);
    ASSERT_TRUE(file->Read(3'000'001 - 1000, absl::MakeSpan(part)).ok());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), tokens.end() - 1000));
  }
  EXPECT_EQ(directory.List().size(), 2);  // and its index
  WriteTokens(directory / "none.bin", {});
  EXPECT_TRUE(ReadTokens(directory / "none.bin").empty());
}

std::string OurHeader(int32_t version, int32_t bytes, int32_t marks, int64_t tokens, int64_t row) {
  std::string header = Header(20261123, version, bytes);
  header.replace(12, 4, reinterpret_cast<const char*>(&marks), 4);
  header.replace(16, 8, reinterpret_cast<const char*>(&tokens), 8);
  header.replace(24, 8, reinterpret_cast<const char*>(&row), 8);
  return header;
}

TEST(TokenFile, MarksAreKeptApartFromTokens) {
  const TemporaryDirectory directory;
  const std::vector<uint32_t> tokens = {7 | kDocumentStart, 8 | kNotLearned, 9 | kDocumentStart | kNotLearned, 0};
  LocalFileAccess files;
  const TokenFileKind kind{.bytes_per_token = 4, .has_marks = true, .row_tokens = 3};
  auto writer = *TokenFileWriter::Create(files, directory / "a.bin", kind);
  ASSERT_TRUE(writer->AppendMarked(tokens).ok() && writer->Finish().ok());
  EXPECT_EQ(ReadText(directory / "a.bin").substr(0, 1024), OurHeader(1, 4, 1, 4, 3));
  EXPECT_EQ(ReadTokens(directory / "a.bin"), (std::vector<int32_t>{7, 8, 9, 0}));
  const auto file = *OpenTokens(directory / "a.bin");
  std::vector<uint32_t> marked(4);
  ASSERT_TRUE(file->ReadMarked(0, absl::MakeSpan(marked)).ok());
  EXPECT_EQ(marked, tokens);
  EXPECT_TRUE(file->kind().has_marks);
  EXPECT_EQ(file->kind().row_tokens, 3);
  const TokenIndex index = *ReadTokenIndex(files, directory / "a.bin");
  EXPECT_EQ(index.largest, 9u);
  EXPECT_EQ(*IndexTokens(*file), index);
}

// Without the terabytes: a header that says so, and a file of that length that holds nothing.
TEST(TokenFile, MoreThanTwoThousandMillionTokens) {
  const TemporaryDirectory directory;
  constexpr int64_t kTokens = (int64_t{1} << 31) + 5;
  WriteText(directory / "a.bin", OurHeader(1, 2, 0, kTokens, 0));
  std::filesystem::resize_file(directory / "a.bin", 1024 + 2 * kTokens);
  const auto file = OpenTokens(directory / "a.bin");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->num_tokens(), kTokens);
  std::vector<int32_t> last(3, 1);
  ASSERT_TRUE((*file)->Read(kTokens - 3, absl::MakeSpan(last)).ok());
  EXPECT_EQ(last, std::vector<int32_t>(3, 0));
}

TEST(TokenFile, VersionsOfUint32) {
  const TemporaryDirectory directory;
  for (const int version : {1, 7}) {
    WriteText(directory / "a.bin", Header(20240801, version, 1) + std::string("\x05\0\0\0", 4));
    EXPECT_EQ(ReadTokens(directory / "a.bin"), std::vector<int32_t>{5});
  }
}

struct BrokenFile {
  std::string content;
  absl::StatusCode code;
  std::vector<std::string> says;
};

TEST(TokenFile, BrokenFilesAreRefused) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kLost = absl::StatusCode::kDataLoss;
  const BrokenFile broken[] = {
      {"", kInvalid, {"empty"}},
      {"short", kInvalid, {"5 bytes", "1024"}},
      {Header(20240520, 1, 3).substr(0, 1000), kLost, {"truncated", "1000 bytes"}},
      {Header(123, 1, 3) + "abcdef", kInvalid, {"magic is 123", "20240520"}},
      {Header(20240520, 2, 3) + "abcdef", kInvalid, {"version 2"}},
      {Header(20240520, 7, 3) + "abcdef", kInvalid, {"version 7"}},
      {Header(20240520, 1, -1) + "abcdef", kLost, {"-1 tokens", "damaged"}},
      {Header(20240520, 1, INT32_MIN), kLost, {"-2147483648 tokens"}},
      {Header(20240801, 1, INT32_MAX), kLost, {"truncated", "8589935612 bytes", "has 1024 bytes"}},
      {Header(20240520, 1, 3) + "abcde", kLost, {"truncated", "1030 bytes", "1029 bytes"}},
      {Header(20240520, 1, 3) + "abcdefg", kLost, {"too long", "1030 bytes", "1031 bytes"}},
      {OurHeader(2, 4, 1, 0, 0), kInvalid, {"version 2"}},
      {OurHeader(1, 4, 1, 3, 0), kLost, {"truncated", "1036 bytes"}},
      {OurHeader(1, 2, 1, 0, 0), kLost, {"damaged"}},
      {OurHeader(1, 3, 0, 0, 0), kLost, {"of 3 bytes", "damaged"}},
      {OurHeader(1, 4, 2, 0, 0), kLost, {"damaged"}},
      {OurHeader(1, 4, 1, -1, 0), kLost, {"-1 tokens", "damaged"}},
      {OurHeader(1, 4, 1, INT64_MAX, 0), kLost, {"damaged"}},
      {OurHeader(1, 4, 1, 0, -5), kLost, {"rows of -5", "damaged"}},
  };
  const TemporaryDirectory directory;
  const std::string path = directory / "broken.bin";
  for (const BrokenFile& one : broken) {
    WriteText(path, one.content);
    const absl::Status status = OpenTokens(path).status();
    EXPECT_EQ(status.code(), one.code) << one.says[0];
    for (const std::string& words : one.says) EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
}

TEST(TokenFile, WhatIsNoFile) {
  const TemporaryDirectory directory;
  EXPECT_EQ(OpenTokens(directory / "missing.bin").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(OpenTokens(directory / "").status().message()), HasSubstr("directory"));
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(std::string(OpenTokens(directory / "pipe").status().message()), HasSubstr("regular"));
}

absl::Status CheckWholeFile(const std::string& path, int64_t vocab_size) {
  const auto file = *OpenTokens(path);
  return CheckVocabulary(*file, *IndexTokens(*file), vocab_size);
}

TEST(TokenFile, VocabularyCheckFindsEveryPosition) {
  const TemporaryDirectory directory;
  for (const int64_t vocab_size : {1000, 70000}) {
    const std::vector<int32_t> good(2'500'001, static_cast<int32_t>(vocab_size - 1));
    WriteTokens(directory / "good.bin", good, vocab_size + 1);
    EXPECT_TRUE(CheckWholeFile(directory / "good.bin", vocab_size).ok());
    for (const size_t position : {0, 1, 255, 256, 299'999, 2'097'151, 2'097'152, 2'500'000}) {
      std::vector<int32_t> tokens = good;
      tokens[position] = static_cast<int32_t>(vocab_size);
      WriteTokens(directory / "bad.bin", tokens, vocab_size + 1);
      const absl::Status status = CheckWholeFile(directory / "bad.bin", vocab_size);
      EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
      const std::string words = absl::StrCat("token ", vocab_size, " at position ", position, " ");
      EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    }
  }
  WriteText(directory / "huge.bin", Header(20240801, 1, 1) + "\xff\xff\xff\xff");
  EXPECT_THAT(CheckWholeFile(directory / "huge.bin", INT64_MAX).ToString(),
              HasSubstr("token 4294967295 at position 0 "));
}

TEST(TokenFileWriter, LeavesNothingBehindUnlessFinished) {
  const TemporaryDirectory directory;
  WriteTokens(directory / "a.bin", {7});
  {
    auto writer = *CreateTokens(directory / "a.bin", 256);
    ASSERT_TRUE(writer->Append({1, 2, 3}).ok());
    EXPECT_EQ(directory.List().size(), 4);
  }
  EXPECT_EQ(directory.List().size(), 2);
  EXPECT_EQ(ReadTokens(directory / "a.bin"), std::vector<int32_t>{7});
  for (const std::string& path : {directory / "no/such/a.bin", directory / "", std::string("/dev/null")}) {
    EXPECT_THAT(CreateTokens(path, 256).status().ToString(), HasSubstr("cannot create token file")) << path;
  }
}

// A full disk, by way of a limit on the size of files.
TEST(TokenFileWriter, DiskFull) {
  const TemporaryDirectory directory;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  for (const size_t count : {1'000'000, 100'000}) {  // fails in Append, and in Finish
    auto writer = *CreateTokens(directory / "a.bin", 256);
    rlimit small = before;
    small.rlim_cur = 100'000;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    absl::Status status = writer->Append(std::vector<int32_t>(count, 1));
    EXPECT_EQ(status.ok(), count == 100'000);
    if (status.ok()) status = writer->Finish();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_THAT(std::string(status.message()), HasSubstr(directory / "a.bin"));
    writer.reset();
    EXPECT_EQ(directory.List().size(), 0);
  }
}

}  // namespace
}  // namespace holdfast
