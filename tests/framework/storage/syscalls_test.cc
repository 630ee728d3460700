// Proves, by watching local storage's calls to the operating system, that things are made durable in the right order,
// and by disturbing them one after the other that no error is lost and none leaves anything half done.

#include "tests/framework/storage/syscalls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/files.h"
#include "framework/storage/abandoned_file.h"
#include "framework/storage/file_lock.h"
#include "framework/storage/local_storage.h"
#include "framework/storage/open_at.h"
#include "tests/framework/storage/test_directory.h"

namespace holdfast {
namespace {

using testing::ElementsAre;

class LocalStorageSyscalls : public testing::Test {
 protected:
  void SetUp() override { Reopen(FileSystemKind::kDetect); }
  void Reopen(FileSystemKind file_system) {
    auto storage = OpenLocalStorage(root_, {.file_system = file_system});
    ASSERT_TRUE(storage.ok()) << storage.status();
    storage_ = *std::move(storage);
  }
  // The calls of `work`, with the root written as "R".
  std::vector<std::string> CallsOf(const std::function<absl::Status()>& work) {
    const SyscallWatch watch;
    const absl::Status status = work();
    std::vector<std::string> calls = watch.Calls();
    for (std::string& call : calls) call = absl::StrReplaceAll(call, {{root_, "R"}});
    EXPECT_TRUE(status.ok()) << status;
    return calls;
  }

  TestDirectory directory_;
  std::string root_ = std::filesystem::canonical(directory_.path()).string();
  std::unique_ptr<Storage> storage_;
};

TEST_F(LocalStorageSyscalls, CreateSyncsTheFileBeforeItsNameAndThenTheDirectories) {
  EXPECT_THAT(
      CallsOf([&] { return storage_->Create("a/b/c", "contents"); }),
      ElementsAre("mkdirat R/a", "mkdirat R/a/b", "write R/a/b/.c.tmp-*", "fsync R/a/b/.c.tmp-*",
                  "renameat2 R/a/b/.c.tmp-* c", "unlinkat R/a/b/.c.tmp-*", "fsync R/a/b", "fsync R/a", "fsync R"));
}

TEST_F(LocalStorageSyscalls, SoItIsWithLinks) {
  Reopen(FileSystemKind::kShared);
  EXPECT_THAT(CallsOf([&] { return storage_->Create("a/c", "contents"); }),
              ElementsAre("mkdirat R/a", "write R/a/.c.tmp-*", "fsync R/a/.c.tmp-*", "linkat R/a/.c.tmp-* c",
                          "unlinkat R/a/.c.tmp-*", "fsync R/a", "fsync R"));
}

TEST_F(LocalStorageSyscalls, SoItIsWithClaims) {
  Reopen(FileSystemKind::kPlain);
  EXPECT_THAT(CallsOf([&] { return storage_->Create("c", "contents"); }),
              ElementsAre("write R/.c.tmp-*", "fsync R/.c.tmp-*", "renameat R/.c.tmp-* c", "unlinkat R/.c.tmp-*",
                          "unlinkat R/.c.tmp-*", "fsync R"));
}

TEST_F(LocalStorageSyscalls, ACommitWritesNothing) {
  absl::StatusOr<std::unique_ptr<StagedFile>> file;
  EXPECT_THAT(CallsOf([&] {
                file = storage_->Stage("a/c", 1000);
                return file.status();
              }),
              ElementsAre("mkdirat R/a", "fallocate R/a/.c.tmp-*"));
  EXPECT_THAT(CallsOf([&] { return (*file)->Commit(); }),
              ElementsAre("ftruncate R/a/.c.tmp-*", "fsync R/a/.c.tmp-*", "renameat2 R/a/.c.tmp-* c",
                          "unlinkat R/a/.c.tmp-*", "fsync R/a", "fsync R"));
}

TEST_F(LocalStorageSyscalls, ANewRootIsDurableWithAllDirectoriesAroundIt) {
  EXPECT_THAT(CallsOf([&] { return OpenLocalStorage(root_ + "/a/b", {}).status(); }),
              testing::IsSupersetOf({"fsync R", "fsync R/a"}));
  EXPECT_THAT(CallsOf([&] { return MakeDirectories(root_ + "/a/b/c/d"); }),
              ElementsAre("fsync R/a/b", "fsync R/a/b/c"));
  EXPECT_THAT(CallsOf([&] { return MakeDirectories(root_ + "/a/b"); }), ElementsAre());
}

// A manifest is deleted before its shards: that it is gone must be durable before the next thing is done.
TEST_F(LocalStorageSyscalls, DeleteSyncsBeforeItReturns) {
  ASSERT_TRUE(storage_->Create("a/b/c", "").ok());
  ASSERT_TRUE(storage_->Create("a/d", "").ok());
  EXPECT_THAT(CallsOf([&] { return storage_->Delete("a/b/c"); }),
              ElementsAre("unlinkat R/a/b/c", "fsync R/a/b", "unlinkat R/a/b", "fsync R/a", "unlinkat R/a"));
  EXPECT_THAT(CallsOf([&] { return storage_->Delete("a/d"); }),
              ElementsAre("unlinkat R/a/d", "fsync R/a", "unlinkat R/a", "fsync R"));
}

TEST_F(LocalStorageSyscalls, NewParentsOfTheDirectoryAreSynced) {
  EXPECT_THAT(CallsOf([&] { return OpenLocalStorage(root_ + "/x/y").status(); }),
              ElementsAre("fsync R", "fsync R/x", "unlinkat R/x/y/.probe.tmp-*"));
}

TEST_F(LocalStorageSyscalls, ShortAndInterruptedReadsAndWritesAreCarriedOn) {
  std::string contents(700'000, ' ');
  for (size_t i = 0; i < contents.size(); ++i) contents[i] = static_cast<char>('a' + i % 23);
  {
    const SyscallWatch watch({{.name = "write", .count = 3},
                              {.name = "write", .skip = 1, .error = EINTR},
                              {.name = "fsync", .error = EINTR}});
    const absl::Status status = storage_->Create("a", contents);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(watch.Disturbed(), 5);
  }
  {
    const SyscallWatch watch({{.name = "preadv", .count = 3}, {.name = "preadv", .error = EINTR}});
    const absl::StatusOr<std::string> got = ReadObject(*storage_, "a", contents.size());
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(*got == contents);
    EXPECT_EQ(watch.Disturbed(), 4);
  }
  std::string scattered(contents.size(), ' ');
  const auto all = absl::MakeSpan(reinterpret_cast<std::byte*>(scattered.data()), scattered.size());
  const std::vector<absl::Span<std::byte>> places{all.first(1), all.subspan(1, 0), all.subspan(1, 6), all.subspan(7)};
  const SyscallWatch watch({{.name = "preadv", .count = 5}});
  ASSERT_TRUE(storage_->ReadInto("a", 0, places).ok());
  EXPECT_TRUE(scattered == contents);
  EXPECT_EQ(watch.Disturbed(), 5);
}

TEST_F(LocalStorageSyscalls, WhatADiskOfThisMachineCannotReadIsNamedAsLost) {
  ASSERT_TRUE(storage_->Create("a/b", "contents").ok());
  const SyscallWatch watch({{.name = "preadv", .error = EIO}});
  const absl::Status status = ReadObject(*storage_, "a/b", 100).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "a/b: read at byte 0: Input/output error")) << status;
}

struct Disturbance {
  const char* syscall;
  int error;
  absl::StatusCode code;
};

// One call after the other fails, in creations of either kind.
TEST_F(LocalStorageSyscalls, NoErrorOfAWriterIsLost) {
  const Disturbance disturbances[] = {{"write", EIO, absl::StatusCode::kUnavailable},
                                      {"write", ENOSPC, absl::StatusCode::kResourceExhausted},
                                      {"write", EDQUOT, absl::StatusCode::kResourceExhausted},
                                      {"fsync", EIO, absl::StatusCode::kUnavailable},
                                      {"fsync", ENOSPC, absl::StatusCode::kResourceExhausted},
                                      {"fallocate", ENOSPC, absl::StatusCode::kResourceExhausted},
                                      {"ftruncate", EIO, absl::StatusCode::kUnavailable},
                                      {"mkdirat", EACCES, absl::StatusCode::kPermissionDenied},
                                      {"mkdirat", ENOSPC, absl::StatusCode::kResourceExhausted},
                                      {"renameat2", EIO, absl::StatusCode::kUnavailable},
                                      {"renameat2", EROFS, absl::StatusCode::kPermissionDenied}};
  for (const Disturbance& disturbance : disturbances) {
    for (int skip = 0; skip < 10; ++skip) {
      SCOPED_TRACE(absl::StrCat(disturbance.syscall, " ", disturbance.error, ", after ", skip));
      const std::string contents(300'000, 'x');  // two writes
      absl::Status created, committed;
      int disturbed = 0;
      {
        const SyscallWatch watch({{.name = disturbance.syscall, .skip = skip, .error = disturbance.error}});
        created = storage_->Create("a/created", contents);
        absl::StatusOr<std::unique_ptr<StagedFile>> file = storage_->Stage("b/staged", 1000);
        committed = file.ok() ? (*file)->Commit() : file.status();
        disturbed = watch.Disturbed();
      }
      const absl::Status& hurt = created.ok() ? committed : created;
      EXPECT_EQ(hurt.code(), disturbed ? disturbance.code : absl::StatusCode::kOk) << hurt;
      EXPECT_TRUE(hurt.ok() || absl::StrContains(hurt.message(), root_)) << hurt;
      // Whole, or not there at all. (There, although an error was returned, if the directory could not be synced.)
      const std::vector<StoredObject> objects = storage_->List("").value();
      for (const StoredObject& object : objects) {
        EXPECT_EQ(object.size, object.name == "a/created" ? contents.size() : 0u);
        ASSERT_TRUE(storage_->Delete(object.name).ok());
      }
      ASSERT_TRUE(storage_->Sweep().ok());
      EXPECT_THAT(EverythingIn(root_), ElementsAre());
      ASSERT_TRUE(disturbed > 0 || skip > 0) << "no such call";
      if (disturbed == 0) break;  // fewer calls than that
    }
  }
}

// Somebody deletes a directory's last object while we are on our way into it.
TEST_F(LocalStorageSyscalls, ADirectoryThatVanishesOnTheWayIsMadeAgain) {
  {
    const SyscallWatch watch({{.name = "mkdirat", .skip = 1, .count = 3, .error = ENOENT}});
    const absl::Status status = storage_->Create("a/b/c", "x");
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(watch.Disturbed(), 3);
  }
  const SyscallWatch watch({{.name = "mkdirat", .count = 1'000'000, .error = ENOENT}});
  const absl::Status status = storage_->Create("x/y", "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), root_ + "/x")) << status;
}

TEST_F(LocalStorageSyscalls, ADeletionThatFailsSaysSo) {
  for (const char* syscall : {"unlinkat", "fsync"}) {
    ASSERT_TRUE(storage_->Create("a/b", "").ok());
    const SyscallWatch watch({{.name = syscall, .error = EIO}});
    const absl::Status status = storage_->Delete("a/b");
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(storage_->Delete("a/b").ok()) << "tried again";
  }
}

// A file system that knows neither RENAME_NOREPLACE nor links.
TEST_F(LocalStorageSyscalls, WhatTheFileSystemLacksIsDoneAnotherWay) {
  for (const int no_link : {EPERM, EOPNOTSUPP, ENOSYS}) {
    for (const int no_rename : {EINVAL, ENOSYS}) {
      const SyscallWatch watch({{.name = "renameat2", .count = 9, .error = no_rename},
                                {.name = "linkat", .count = 9, .error = no_link},
                                {.name = "fallocate", .count = 9, .error = EOPNOTSUPP}});
      const std::string name = absl::StrCat("a/", no_link, "-", no_rename);
      ASSERT_TRUE(storage_->Create(name, "first").ok());
      EXPECT_EQ(storage_->Create(name, "second").code(), absl::StatusCode::kAlreadyExists);
      auto staged = storage_->Stage(name + "-staged", 100);
      ASSERT_TRUE(staged.ok()) << staged.status();
      ASSERT_TRUE((*staged)->Commit().ok());
      EXPECT_EQ(*ReadObject(*storage_, name, 100), "first");
      EXPECT_EQ(watch.Disturbed(), 7);
    }
  }
  EXPECT_EQ(EverythingIn(root_).size(), 1u + 2 * 6);
}

// Where names are taken by looking first: what cannot be looked at may be an object.
TEST_F(LocalStorageSyscalls, AnObjectThatCannotBeLookedAtIsNotReplaced) {
  Reopen(FileSystemKind::kPlain);
  ASSERT_TRUE(storage_->Create("a", "first").ok());
  {
    // The first look is at the temporary file.
    const SyscallWatch watch({{.name = "fstatat", .skip = 1, .error = EIO}});
    const absl::Status status = storage_->Create("a", "second");
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), root_ + "/a: Input/output error")) << status;
    EXPECT_EQ(watch.Disturbed(), 1);
  }
  EXPECT_EQ(*ReadObject(*storage_, "a", 100), "first");
  EXPECT_EQ(storage_->Create("a", "third").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(EverythingIn(root_), ElementsAre("a"));
}

// A name is taken only for as long as two calls take; who never gives it back does not block others for ever.
TEST_F(LocalStorageSyscalls, AClaimOfAWriterThatIsGone) {
  Reopen(FileSystemKind::kPlain);
  std::ofstream(root_ + "/.a.tmp-000000000000").close();
  const absl::Status status = storage_->Create("a", "");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), ".a.tmp-000000000000: another writer")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "remove that file")) << status;
  Reopen(FileSystemKind::kDetect);  // locks tell that nobody holds it
  ASSERT_TRUE(storage_->Sweep().ok());
  Reopen(FileSystemKind::kPlain);
  EXPECT_TRUE(storage_->Create("a", "").ok());
  EXPECT_THAT(EverythingIn(root_), ElementsAre("a"));
}

// The name of a claim is used again: another Sweep has removed the old one, and a writer has it now.
TEST_F(LocalStorageSyscalls, AClaimThatIsNewIsNotTakenForAnOldOne) {
  const std::string name = ".a.tmp-000000000000", path = root_ + "/" + name;
  std::ofstream(path).close();
  const FileDescriptor directory = OpenDirectory(root_);
  FileDescriptor living;
  const auto claim_anew = [&] {
    ASSERT_EQ(unlink(path.c_str()), 0);
    living = *CreateLocked(directory.get(), name, FileSystemKind::kDetect, path);
  };
  const SyscallWatch watch({{.name = "fstat", .first = claim_anew}});  // of the old one, which is open
  EXPECT_TRUE(RemoveIfAbandoned(directory.get(), name, path, FileSystemKind::kDetect).ok());
  EXPECT_EQ(watch.Disturbed(), 1);
  EXPECT_THAT(EverythingIn(root_), ElementsAre(name));
}

}  // namespace
}  // namespace holdfast
