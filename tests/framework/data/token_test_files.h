#pragma once
// What tests of token files need: text and tokens in files of a temporary directory.

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "framework/data/token_file.h"
#include "gtest/gtest.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

inline auto CreateTokens(const std::string& path, int64_t vocab_size) {
  LocalFileAccess files;
  return TokenFileWriter::Create(files, path, vocab_size);
}

inline auto OpenTokens(const std::string& path) {
  LocalFileAccess files;
  return TokenFile::Open(files, path);
}

inline void WriteTokens(const std::string& path, absl::Span<const int32_t> tokens, int64_t vocab_size = 65536) {
  auto writer = CreateTokens(path, vocab_size);
  ASSERT_TRUE(writer.ok()) << std::string(writer.status().message());
  ASSERT_TRUE((*writer)->Append(tokens).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
}

inline std::vector<int32_t> ReadTokens(const std::string& path) {
  auto file = OpenTokens(path);
  EXPECT_TRUE(file.ok()) << std::string(file.status().message());
  if (!file.ok()) return {};
  std::vector<int32_t> tokens((*file)->num_tokens());
  const absl::Status read = (*file)->Read(0, absl::MakeSpan(tokens));
  EXPECT_TRUE(read.ok()) << read;
  return tokens;
}

}  // namespace holdfast
