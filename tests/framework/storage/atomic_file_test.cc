// A file is seen whole or not at all, whatever fails; nothing temporary is left.

#include "framework/storage/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "framework/base/files.h"
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

TEST(AtomicFileTest, TheNewFileHasTheOldOnesPermissionsAndIsWhereALinkLeads) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "f", "old").ok());
  std::filesystem::permissions(dir / "f", std::filesystem::perms{0640});
  std::filesystem::create_symlink("f", dir / "link");
  ASSERT_TRUE(WriteFileAtomically(dir / "link", "new").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link"));
  EXPECT_EQ(MustRead(dir / "f"), "new");
  EXPECT_EQ(std::filesystem::status(dir / "f").permissions(), std::filesystem::perms{0640});
}

TEST(AtomicFileTest, APrivateOneIsNeverAnybodyElses) {
  const TemporaryDirectory dir;
  const std::filesystem::perms all{0666}, own{0600};
  ASSERT_TRUE(WriteFileAtomically(dir / "f", "").ok());
  std::filesystem::permissions(dir / "f", all);
  for (const std::string& path : {dir / "f", dir / "new"}) {
    const auto file = AtomicFile::CreatePrivate(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(std::filesystem::status((*file)->temporary_path()).permissions(), own) << "before anything is written";
    ASSERT_TRUE((*file)->Append("secret").ok());
    ASSERT_TRUE((*file)->Commit().ok());
    EXPECT_EQ(std::filesystem::status(path).permissions(), own);
    EXPECT_EQ(MustRead(path), "secret");
  }
}

TEST(AtomicFileTest, CopiesAFileAlsoOverItself) {
  const TemporaryDirectory dir;
  const std::string text = std::string(size_t{1} << 18, 'a') + std::string(size_t{1} << 18, 'b');
  ASSERT_TRUE(WriteFileAtomically(dir / "f", text).ok());
  std::filesystem::create_hard_link(dir / "f", dir / "g");
  ASSERT_TRUE(CopyFileAtomically(dir / "f", dir / "f").ok());
  EXPECT_EQ(std::filesystem::hard_link_count(dir / "f"), 1u);
  ASSERT_TRUE(CopyFileAtomically(dir / "f", dir / "h").ok());
  for (const char* name : {"f", "g", "h"}) EXPECT_TRUE(MustRead(dir / name) == text) << name;
  EXPECT_FALSE(CopyFileAtomically(dir / "none", dir / "h").ok());
  const auto not_ours = [] { return absl::AbortedError("it is another's by now"); };
  EXPECT_TRUE(absl::IsAborted(CopyFileAtomically(dir / "g", dir / "none", not_ours)));
  EXPECT_TRUE(MustRead(dir / "h") == text);
  EXPECT_EQ(dir.List(), (Names{"f", "g", "h"}));
}

TEST(AtomicFileTest, ReservingMoreThanWrittenDoesNotLengthenTheFile) {
  const TemporaryDirectory dir;
  auto file = *AtomicFile::Create(dir / "f");
  ASSERT_TRUE(file->Reserve(1 << 20).ok());
  ASSERT_TRUE(file->Append("short").ok());
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(MustRead(dir / "f"), "short");
}

TEST(AtomicFileTest, ReservingMoreThanThereIsFailsAtOnce) {
  const TemporaryDirectory dir;
  auto file = *AtomicFile::Create(dir / "f");
  const absl::Status status = file->Reserve(uint64_t{1} << 60);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(absl::IsResourceExhausted(file->Commit()));
  file.reset();
  EXPECT_EQ(dir.List(), Names{});
}

TEST(AtomicFileTest, CommitNewDoesNotReplace) {
  const TemporaryDirectory dir;
  auto a = *AtomicFile::Create(dir / "a name with spaces"), b = *AtomicFile::Create(dir / "a name with spaces");
  ASSERT_TRUE(a->Append("first").ok() && b->Append("second").ok());
  ASSERT_TRUE(a->CommitNew().ok());
  EXPECT_TRUE(absl::IsAlreadyExists(b->CommitNew()));
  EXPECT_FALSE(b->Commit().ok()) << "once, whatever comes of it";
  b.reset();
  EXPECT_EQ(MustRead(dir / "a name with spaces"), "first");
  EXPECT_EQ(dir.List(), Names{"a name with spaces"});
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

// In a process of its own, which ends without destructors.
bool LeavesHalfAFile(const std::string& path) {
  const pid_t writer = fork();
  if (writer == 0) {
    auto file = AtomicFile::Create(path);
    const bool written = file.ok() && (*file)->Append("half").ok();
    _exit(written ? 0 : 1);
  }
  int exited = 0;
  return waitpid(writer, &exited, 0) == writer && exited == 0;
}

TEST(AtomicFileTest, WhatAKilledWriterLeftGoesWithTheNext) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(LeavesHalfAFile(dir / "f"));
  ASSERT_EQ(dir.List().size(), 1u);
  for (const char* other : {".f.tmp-xyz", ".f2.tmp-0123456789ab", ".f.tmp-000000000000"}) {
    std::ofstream(dir / other) << "another's";
  }
  auto live = *AtomicFile::Create(dir / "f");
  auto both = *AtomicFile::Create(dir / "f");
  EXPECT_EQ(dir.List().size(), 5u) << "two that are written, and what is not ours to remove";
  ASSERT_TRUE(live->Append("whole").ok() && live->Commit().ok());
  both.reset();
  EXPECT_EQ(MustRead(dir / "f"), "whole");
  EXPECT_EQ(dir.List(), (Names{".f.tmp-000000000000", ".f.tmp-xyz", ".f2.tmp-0123456789ab", "f"}));
}

TEST(AtomicFileTest, WhatAKilledWriterLeftGoesWhateverTheName) {
  const TemporaryDirectory dir;
  for (const std::string name : {"two words.bin", "größe", ".hidden", "a,b=c", "f.tmp-0123456789ab"}) {
    ASSERT_TRUE(LeavesHalfAFile(dir / name));
    ASSERT_EQ(dir.List().size(), 1u) << name;
    ASSERT_TRUE(WriteFileAtomically(dir / name, "whole").ok());
    EXPECT_EQ(dir.List(), Names{name});
    std::filesystem::remove(dir / name);
  }
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
  EXPECT_EQ(AtomicFile::Create(dir / "none/f").status(),
            absl::NotFoundError((dir / "none/f") + ": there is no directory " + (dir / "none")));
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
    EXPECT_TRUE(absl::IsResourceExhausted(file->Append(large)));
    EXPECT_TRUE(absl::IsResourceExhausted(file->Append("x")));  // the first error stays
    EXPECT_TRUE(absl::IsResourceExhausted(file->Commit()));
  }
  EXPECT_EQ(MustRead(dir / "f"), "old");
  EXPECT_EQ(dir.List(), Names{"f"});
}

}  // namespace
}  // namespace holdfast
