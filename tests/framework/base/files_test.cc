// A file is seen whole or not at all, whatever fails; nothing temporary is left; odd files are refused, not read.

#include "framework/base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/framework/base/file_size_limit.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

using Names = std::vector<std::string>;

std::string MustRead(const std::string& path) {
  const auto contents = ReadFile(path, 1 << 20);
  EXPECT_TRUE(contents.ok()) << contents.status();
  return contents.value_or("");
}

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

TEST(AtomicFileTest, ReplacesTheOldFileAtCommit) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "f", "old").ok());
  auto file = AtomicFile::Create(dir / "f");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Reserve(8).ok());
  ASSERT_TRUE((*file)->Append("????").ok());
  ASSERT_TRUE((*file)->Append("tail").ok());
  ASSERT_TRUE((*file)->Overwrite(1, "new").ok());
  ASSERT_TRUE((*file)->Sync().ok());
  EXPECT_EQ(MustRead(dir / "f"), "old");
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(MustRead(dir / "f"), "?newtail");
  EXPECT_EQ(dir.List(), Names{"f"});
  EXPECT_FALSE((*file)->Append("late").ok());
  EXPECT_FALSE((*file)->Commit().ok());
}

TEST(AtomicFileTest, ReservingMoreThanWrittenDoesNotLengthenTheFile) {
  const TemporaryDirectory dir;
  auto file = *AtomicFile::Create(dir / "f");
  ASSERT_TRUE(file->Reserve(1 << 20).ok());
  ASSERT_TRUE(file->Append("short").ok());
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(MustRead(dir / "f"), "short");
}

TEST(AtomicFileTest, LeavesNothingWithoutCommit) {
  const TemporaryDirectory dir;
  {
    auto file = *AtomicFile::Create(dir / "f");
    ASSERT_TRUE(file->Append("data").ok());
    EXPECT_EQ(dir.List().size(), 1u);
  }
  EXPECT_EQ(dir.List(), Names{});
}

TEST(AtomicFileTest, TwoWritersOfOneNameDoNotMix) {
  const TemporaryDirectory dir;
  auto a = *AtomicFile::Create(dir / "f"), b = *AtomicFile::Create(dir / "f");
  ASSERT_TRUE(a->Append("aa").ok() && b->Append("b").ok() && a->Append("aa").ok());
  ASSERT_TRUE(a->Commit().ok());
  EXPECT_EQ(MustRead(dir / "f"), "aaaa");
  ASSERT_TRUE(b->Commit().ok());
  EXPECT_EQ(MustRead(dir / "f"), "b");
}

TEST(AtomicFileTest, RefusesPlacesWhereNoFileCanBe) {
  const TemporaryDirectory dir;
  EXPECT_TRUE(absl::IsInvalidArgument(AtomicFile::Create("").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(AtomicFile::Create(dir.path()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(AtomicFile::Create("/dev/null").status()));  // rename would replace the device
  EXPECT_TRUE(absl::IsNotFound(AtomicFile::Create(dir / "none/f").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(AtomicFile::Create(dir / std::string(300, 'x')).status()));
}

TEST(AtomicFileTest, FullDiskKeepsTheOldFile) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "f", "old").ok());
  const std::string large(1 << 20, 'x');
  {
    const FileSizeLimit limit(1 << 16);
    const absl::Status written = WriteFileAtomically(dir / "f", large);
    EXPECT_TRUE(absl::IsResourceExhausted(written)) << written;
    EXPECT_NE(written.message().find(dir / "f"), absl::string_view::npos) << written;

    auto file = *AtomicFile::Create(dir / "f");
    EXPECT_TRUE(absl::IsResourceExhausted(file->Reserve(1 << 20)));
    EXPECT_TRUE(absl::IsResourceExhausted(file->Append("x")));  // the first error stays
    EXPECT_TRUE(absl::IsResourceExhausted(file->Commit()));
  }
  EXPECT_EQ(MustRead(dir / "f"), "old");
  EXPECT_EQ(dir.List(), Names{"f"});
}

}  // namespace
}  // namespace holdfast
