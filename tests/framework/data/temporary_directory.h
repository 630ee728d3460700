#pragma once
// A directory that lives as long as a test, and what tests of files need.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/types/span.h"
#include "framework/data/token_file.h"
#include "gtest/gtest.h"

namespace holdfast {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "holdfast_test_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  size_t num_files() const {
    return std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator());
  }

 private:
  std::filesystem::path path_;
};

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

inline void WriteTokens(const std::string& path, absl::Span<const int32_t> tokens, int64_t vocab_size = 65536) {
  auto writer = TokenFileWriter::Create(path, vocab_size);
  ASSERT_TRUE(writer.ok()) << std::string(writer.status().message());
  ASSERT_TRUE((*writer)->Append(tokens).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
}

inline std::vector<int32_t> ReadTokens(const std::string& path) {
  auto file = TokenFile::Open(path);
  EXPECT_TRUE(file.ok()) << std::string(file.status().message());
  if (!file.ok()) return {};
  std::vector<int32_t> tokens((*file)->num_tokens());
  (*file)->Read(0, absl::MakeSpan(tokens));
  return tokens;
}

}  // namespace holdfast
