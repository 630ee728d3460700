// Files are read whole and within their bound; odd ones are refused, not read.

#include "framework/base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

TEST(ReadFileTest, KeepsItsBound) {
  const TemporaryDirectory dir;
  std::ofstream(dir / "f") << "12345";
  EXPECT_EQ(*ReadFile(dir / "f", 5), "12345");
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFile(dir / "f", 4).status()));
}

TEST(ReadFileTest, RefusesWhatIsNoRegularFile) {
  const TemporaryDirectory dir;
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFile(dir / "pipe", 9).status()));  // and does not wait for a writer
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFile(dir.path(), 9).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFile("/dev/zero", 9).status()));
  EXPECT_TRUE(absl::IsNotFound(ReadFile(dir / "none", 9).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(MappedFile::Open(dir / "pipe").status()));
  EXPECT_TRUE(absl::IsNotFound(MappedFile::Open(dir / "none").status()));
}

TEST(OpenToReadTest, OpensFilesAndNothingElse) {
  const TemporaryDirectory dir;
  std::ofstream(dir / "f") << "12345";
  std::filesystem::create_symlink(dir / "f", dir / "link");
  std::string line;
  for (const char* file : {"f", "link"}) {
    EXPECT_TRUE(CheckIsFile(dir / file).ok());
    std::ifstream read = OpenToRead(dir / file);
    EXPECT_TRUE(std::getline(read, line));
    EXPECT_EQ(line, "12345");
  }
  EXPECT_TRUE(CheckIsFile(dir / "none").ok()) << "there is nothing else, either";
  EXPECT_FALSE(OpenToRead(dir / "none"));
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(OpenToRead(dir / "pipe"));  // and does not wait for a writer
  EXPECT_EQ(CheckIsFile(dir / "pipe").message(), dir / "pipe: a pipe, not a regular file");
  EXPECT_EQ(CheckIsFile(dir.path()).message(), dir.path() + ": a directory, not a file");
  EXPECT_EQ(CheckIsFile("/dev/null").message(), "/dev/null: a device, not a regular file");
}

TEST(MakeDirectoriesTest, MakesWhatIsMissingAndRefusesWhatIsNone) {
  const TemporaryDirectory dir;
  EXPECT_TRUE(MakeDirectories(dir / "a/b/").ok());
  EXPECT_TRUE(MakeDirectories(dir / "a/b/c").ok());
  EXPECT_TRUE(MakeDirectories(dir / "a/b/c").ok());
  EXPECT_TRUE(MakeDirectories(".").ok());
  EXPECT_TRUE(std::filesystem::is_directory(dir / "a/b/c"));
  std::ofstream(dir / "f") << "12345";
  EXPECT_TRUE(absl::IsInvalidArgument(MakeDirectories(dir / "f")));
  EXPECT_FALSE(MakeDirectories(dir / "f/g").ok());
}

TEST(MappedFileTest, ShowsTheFileAndSurvivesMoves) {
  const TemporaryDirectory dir;
  std::ofstream(dir / "f") << "12345";
  std::ofstream(dir / "empty") << "";
  MappedFile file = *MappedFile::Open(dir / "f");
  MappedFile other = *MappedFile::Open(dir / "empty");
  EXPECT_EQ(other.size(), 0u);
  other = std::move(file);
  EXPECT_EQ(std::string(other.data(), other.data() + other.size()), "12345");
}

}  // namespace
}  // namespace holdfast
