#pragma once
// What tests of token files need: text and tokens in files of a temporary directory.

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
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

/// A file of which the last bytes to be written, its header, do not come to the disk.
class FileThatFails final : public OutputFile {
 public:
  explicit FileThatFails(std::unique_ptr<OutputFile> file) : file_(std::move(file)) {}
  const std::string& path() const override { return file_->path(); }
  absl::Status Append(absl::string_view bytes) override { return file_->Append(bytes); }
  absl::Status Overwrite(uint64_t /*offset*/, absl::string_view /*bytes*/) override {
    return absl::UnavailableError(path() + ": input/output error");
  }
  absl::Status Sync() override { return file_->Sync(); }
  absl::Status Commit() override { return file_->Commit(); }

 private:
  const std::unique_ptr<OutputFile> file_;
};

/// Local files, of which the one at `fails` is such a file.
class FilesOfWhichOneFails final : public FileAccess {
 public:
  explicit FilesOfWhichOneFails(std::string fails) : fails_(std::move(fails)) {}
  absl::StatusOr<std::shared_ptr<const RandomAccessFile>> Open(const std::string& path) override {
    return local_.Open(path);
  }
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) override {
    auto created = local_.Create(path);
    if (!created.ok() || path != fails_) return created;
    return std::make_unique<FileThatFails>(*std::move(created));
  }
  std::string ScratchDirectory(const std::string& path) override { return local_.ScratchDirectory(path); }

 private:
  LocalFileAccess local_;
  const std::string fails_;
};

}  // namespace holdfast
