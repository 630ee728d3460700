// Proves what local storage does with a real file system's faults and traps: a full disk, no rights, no file handles,
// a directory that goes away, planted links and pipes, and temporary files of the living and the dead.

#include "framework/storage/local_storage.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/format_bytes.h"
#include "tests/framework/storage/child_process.h"
#include "tests/framework/storage/test_directory.h"

namespace holdfast {
namespace {

using testing::ElementsAre;
using Code = absl::StatusCode;

std::unique_ptr<Storage> Open(const std::string& path, const LocalStorageOptions& options = {}) {
  auto storage = OpenLocalStorage(path, options);
  EXPECT_TRUE(storage.ok()) << storage.status();
  return storage.ok() ? *std::move(storage) : nullptr;
}

class LocalStorageTest : public testing::Test {
 protected:
  absl::Status ReadByte(const std::string& name) {
    std::byte byte;
    return storage_->ReadAt(name, 0, absl::MakeSpan(&byte, 1));
  }
  std::string root() const { return directory_ / "store"; }

  TestDirectory directory_;
  std::unique_ptr<Storage> storage_ = Open(directory_ / "store");
};

TEST_F(LocalStorageTest, OpensWhereItIsTold) {
  EXPECT_EQ(storage_->Describe(), root());
  EXPECT_EQ(Open(directory_ / "x/../store//")->Describe(), root());
  EXPECT_THAT(EverythingIn(root()), ElementsAre()) << "the probe is left";
  std::filesystem::create_directory_symlink(root(), directory_ / "link");
  ASSERT_TRUE(Open(directory_ / "link")->Create("through-a-link", "x").ok()) << "the directory itself may be one";
  EXPECT_TRUE(storage_->Size("through-a-link").ok());
  std::ofstream(directory_ / "file").close();
  EXPECT_EQ(OpenLocalStorage(directory_ / "file").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(OpenLocalStorage(directory_ / "file/below").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(OpenLocalStorage("").status().code(), Code::kInvalidArgument);
}

TEST_F(LocalStorageTest, ReadOnlyChangesNothing) {
  EXPECT_EQ(OpenLocalStorage(directory_ / "none", {.read_only = true}).status().code(), Code::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "none"));
  ASSERT_TRUE(storage_->Create("a", "x").ok());
  const auto reader = Open(root(), {.read_only = true});
  EXPECT_EQ(*ReadObject(*reader, "a", 1), "x");
  EXPECT_EQ(reader->Create("b", "").code(), Code::kPermissionDenied);
  EXPECT_EQ(reader->Stage("b", 1).status().code(), Code::kPermissionDenied);
  EXPECT_EQ(reader->Delete("a").code(), Code::kPermissionDenied);
  EXPECT_EQ(reader->Sweep().code(), Code::kPermissionDenied);
  EXPECT_THAT(EverythingIn(root()), ElementsAre("a"));
}

TEST_F(LocalStorageTest, KeepsItsPlaceWhenTheProcessMoves) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory_.path());
  const auto relative = Open("relative");
  std::filesystem::current_path(before);
  ASSERT_TRUE(relative->Create("a", "").ok());
  EXPECT_TRUE(std::filesystem::exists(directory_ / "relative/a"));
}

TEST_F(LocalStorageTest, DirectoriesLeftEmptyDisappear) {
  ASSERT_TRUE(storage_->Create("a/b/c/d", "").ok());
  ASSERT_TRUE(storage_->Create("a/e", "").ok());
  ASSERT_TRUE(storage_->Delete("a/b/c/d").ok());
  EXPECT_THAT(EverythingIn(root()), ElementsAre("a/", "a/e"));
  ASSERT_TRUE(storage_->Delete("a/e").ok());
  EXPECT_THAT(EverythingIn(root()), ElementsAre());
  { const auto abandoned = storage_->Stage("x/y/z", 10); }
  EXPECT_THAT(EverythingIn(root()), ElementsAre());
  std::filesystem::create_directories(root() + "/left/by/a/crash");
  ASSERT_TRUE(storage_->Delete("left/by/a/crash/object").ok());
  EXPECT_THAT(EverythingIn(root()), ElementsAre());
}

TEST_F(LocalStorageTest, ANameIsNotAlsoADirectory) {
  ASSERT_TRUE(storage_->Create("a", "x").ok());
  ASSERT_TRUE(storage_->Create("d/e", "x").ok());
  EXPECT_EQ(storage_->Create("a/b", "x").code(), Code::kInvalidArgument);
  EXPECT_EQ(storage_->Create("d", "x").code(), Code::kAlreadyExists);
  EXPECT_THAT(EverythingIn(root()), ElementsAre("a", "d/", "d/e"));
}

// What an editor, a file manager, NFS or a user leaves behind is not an object.
TEST_F(LocalStorageTest, ListsNothingButObjects) {
  ASSERT_TRUE(storage_->Create("d/object", "12").ok());
  const auto staged = storage_->Stage("d/staged", 10);
  for (const std::string name : {"d/.hidden", "d/with space", "d/.nfs00001", "d/x~", "#x"}) {
    std::ofstream(root() + "/" + name) << "x";
  }
  std::filesystem::create_directories(root() + "/lost+found");
  std::filesystem::create_directories(root() + "/.snapshot/d");
  std::ofstream(root() + "/.snapshot/d/object") << "x";
  EXPECT_EQ(*storage_->List(""), (std::vector<StoredObject>{{"d/object", 2}}));
}

TEST_F(LocalStorageTest, LinksAreNotFollowed) {
  std::filesystem::create_directories(directory_ / "outside");
  std::ofstream(directory_ / "outside/secret") << "secret";
  std::filesystem::create_directory_symlink(directory_ / "outside", root() + "/dir");
  std::filesystem::create_symlink(directory_ / "outside/secret", root() + "/file");
  std::filesystem::create_symlink(directory_ / "outside/new", root() + "/dangling");
  std::filesystem::create_symlink(directory_ / "outside/secret", root() + "/.file.tmp-0123456789ab");
  std::filesystem::create_directory_symlink(root(), root() + "/loop");
  for (const std::string name : {"dir/secret", "file", "dangling", "loop/file"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(storage_->Size(name).status().code(), Code::kNotFound);
    EXPECT_EQ(ReadByte(name).code(), Code::kNotFound);
    EXPECT_TRUE(storage_->Delete(name).ok());
  }
  EXPECT_EQ(storage_->Create("dir/new", "x").code(), Code::kInvalidArgument);
  EXPECT_EQ(storage_->Stage("dir/new", 1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(storage_->Create("file", "x").code(), Code::kAlreadyExists);
  EXPECT_EQ(storage_->Create("dangling", "x").code(), Code::kAlreadyExists);
  EXPECT_TRUE(storage_->Sweep().ok());
  EXPECT_TRUE(storage_->List("")->empty());
  EXPECT_THAT(EverythingIn(directory_ / "outside"), ElementsAre("secret"));
  EXPECT_EQ(std::filesystem::file_size(directory_ / "outside/secret"), 6u);
  EXPECT_THAT(EverythingIn(root()), ElementsAre(".file.tmp-0123456789ab", "dangling", "dir", "file", "loop"));
}

// A user may name a directory for checkpoints in which there is something else.
TEST_F(LocalStorageTest, SweepLeavesWhatIsNotOurs) {
  const std::vector<std::string> ours{"step-1/.shard.tmp-0123456789ab", ".fence.tmp-0123456789ab",
                                      ".probe.tmp-0123456789ab"};
  const std::vector<std::string> others{".thesis.tmp-0123456789ab", "src/.main.c.tmp-0123456789ab"};
  for (const char* name : {"step-1", "step-2/empty", "src", "empty/below"}) {
    std::filesystem::create_directories(root() + "/" + name);
  }
  for (const auto* files : {&ours, &others}) {
    for (const std::string& name : *files) std::ofstream(root() + "/" + name) << "x";
  }
  const auto owns = [](absl::string_view first) { return first == "fence" || absl::StartsWith(first, "step-"); };
  ASSERT_TRUE(Open(root(), {.owns = owns})->Sweep().ok());
  for (const std::string& name : ours) EXPECT_FALSE(std::filesystem::exists(root() + "/" + name)) << name;
  for (const std::string& name : others) EXPECT_TRUE(std::filesystem::exists(root() + "/" + name)) << name;
  EXPECT_FALSE(std::filesystem::exists(root() + "/step-1"));
  EXPECT_FALSE(std::filesystem::exists(root() + "/step-2"));
  EXPECT_TRUE(std::filesystem::exists(root() + "/empty/below"));
}

TEST_F(LocalStorageTest, PipesAndDirectoriesAreNoObjects) {
  ASSERT_EQ(mkfifo((root() + "/pipe").c_str(), 0600), 0);
  ASSERT_EQ(mkfifo((root() + "/.pipe.tmp-0123456789ab").c_str(), 0600), 0);
  std::filesystem::create_directories(root() + "/.directory.tmp-0123456789ab");
  EXPECT_EQ(storage_->Size("pipe").status().code(), Code::kNotFound);  // and does not wait for somebody to write
  EXPECT_EQ(ReadByte("pipe").code(), Code::kNotFound);
  EXPECT_TRUE(storage_->List("")->empty());
  EXPECT_TRUE(storage_->Sweep().ok());
  EXPECT_TRUE(storage_->Delete("pipe").ok());
  EXPECT_EQ(EverythingIn(root()).size(), 3u);
}

// Somebody who may write into the directory exchanges a directory for a link, again and again.
TEST_F(LocalStorageTest, NobodyIsLedOutside) {
  std::filesystem::create_directories(directory_ / "outside");
  std::filesystem::create_directory_symlink(directory_ / "outside", directory_ / "link");
  std::filesystem::create_directories(root() + "/d");
  std::atomic<bool> done{false};
  std::thread attacker([&] {
    while (!done) {
      renameat2(AT_FDCWD, (directory_ / "link").c_str(), AT_FDCWD, (root() + "/d").c_str(), RENAME_EXCHANGE);
    }
  });
  int created = 0;
  for (int i = 0; i < 2000; ++i) created += storage_->Create(absl::StrCat("d/", i), "x").ok();
  done = true;
  attacker.join();
  // "link" and "outside" are one directory with names that change; the real one holds all that was created.
  const bool exchanged = std::filesystem::is_symlink(root() + "/d");
  const std::string real = exchanged ? directory_ / "link" : root() + "/d";
  EXPECT_THAT(EverythingIn(directory_ / "outside"), ElementsAre());
  EXPECT_EQ(EverythingIn(real).size(), static_cast<size_t>(created));
}

TEST_F(LocalStorageTest, AStagedFileThatWasExchangedIsNotCommitted) {
  std::ofstream(directory_ / "secret") << "secret";
  for (const bool link : {true, false}) {
    auto file = storage_->Stage("a/b", 0);
    ASSERT_TRUE(file.ok());
    std::filesystem::remove((*file)->path());
    if (link) std::filesystem::create_symlink(directory_ / "secret", (*file)->path());
    if (!link) std::ofstream((*file)->path()) << "another file";
    EXPECT_EQ((*file)->Commit().code(), Code::kUnavailable);
    EXPECT_EQ(storage_->Size("a/b").status().code(), Code::kNotFound);
  }
  EXPECT_EQ(std::filesystem::file_size(directory_ / "secret"), 6u);
}

// What was read last is kept open; that must not show, and not keep the space of what is deleted.
TEST_F(LocalStorageTest, ADeletedObjectIsNotReadAnyMore) {
  const auto other = Open(root());
  for (const bool again : {false, true}) {
    ASSERT_TRUE(other->Create("a/b", again ? "2" : "1").ok());
    EXPECT_TRUE(ReadByte("a/b").ok());
    EXPECT_EQ(*ReadObject(*storage_, "a/b", 1), again ? "2" : "1");
    ASSERT_TRUE(other->Delete("a/b").ok());
    EXPECT_EQ(ReadByte("a/b").code(), Code::kNotFound);
  }
}

TEST_F(LocalStorageTest, KeepsFewFilesOpenAndOnlyWhileReading) {
  const auto open_files = [] { return EverythingIn("/proc/self/fd").size(); };
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(storage_->Create(absl::StrCat("d/", i), "x").ok());
  const size_t before = open_files();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(ReadByte(absl::StrCat("d/", i % 40)).ok());
  EXPECT_LE(open_files(), before + 16);
  for (const bool create : {true, false}) {
    ASSERT_TRUE(ReadByte("d/0").ok());
    EXPECT_GT(open_files(), before);
    ASSERT_TRUE(create ? storage_->Create("new", "").ok() : storage_->List("").ok());
    EXPECT_EQ(open_files(), before);
  }
}

TEST_F(LocalStorageTest, ADirectoryThatIsGoneIsNotAnEmptyOne) {
  ASSERT_TRUE(storage_->Create("a/b", "x").ok());
  auto file = storage_->Stage("a/c", 10);
  ASSERT_TRUE(file.ok());
  std::filesystem::remove_all(root());
  EXPECT_EQ((*file)->Commit().code(), Code::kUnavailable);
  EXPECT_EQ(storage_->List("").status().code(), Code::kUnavailable);
  EXPECT_EQ(storage_->Size("a/b").status().code(), Code::kUnavailable);
  EXPECT_EQ(ReadByte("a/b").code(), Code::kUnavailable);
  EXPECT_EQ(storage_->Create("a/d", "").code(), Code::kUnavailable);
  EXPECT_EQ(storage_->Stage("a/d", 1).status().code(), Code::kUnavailable);
  EXPECT_EQ(storage_->Delete("a/b").code(), Code::kUnavailable);
  EXPECT_EQ(storage_->Sweep().code(), Code::kUnavailable);
  EXPECT_TRUE(absl::StrContains(storage_->List("").status().message(), root()));
  std::filesystem::create_directories(root());
  EXPECT_TRUE(storage_->Create("a/d", "").ok()) << "it is there again";
}

TEST_F(LocalStorageTest, ASubdirectoryThatIsGoneIsMadeAgain) {
  auto file = storage_->Stage("a/c", 10);
  ASSERT_TRUE(file.ok());
  std::filesystem::remove_all(root() + "/a");
  EXPECT_EQ((*file)->Commit().code(), Code::kUnavailable);
  EXPECT_TRUE(storage_->Create("a/c", "").ok());
}

TEST_F(LocalStorageTest, StagingTakesSpace) {
  const uint64_t bytes = 5 << 20;
  auto file = storage_->Stage("a", bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  struct stat info;
  ASSERT_EQ(stat((*file)->path().c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 0);
  EXPECT_GE(static_cast<uint64_t>(info.st_blocks) * 512, bytes);
  std::ofstream((*file)->path(), std::ios::trunc) << "x";  // gives it back
  ASSERT_TRUE((*file)->Reserve(bytes).ok());
  ASSERT_EQ(stat((*file)->path().c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 1);
  EXPECT_GE(static_cast<uint64_t>(info.st_blocks) * 512, bytes);
  ASSERT_TRUE((*file)->Commit().ok());
  ASSERT_EQ(stat((root() + "/a").c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 1);
  EXPECT_LT(static_cast<uint64_t>(info.st_blocks) * 512, bytes / 10) << "what was not needed is not given back";
  EXPECT_EQ((*file)->Reserve(bytes).code(), Code::kFailedPrecondition);
}

TEST_F(LocalStorageTest, MoreThanThereCanBeIsRefused) {
  for (const uint64_t bytes : {uint64_t{1} << 50, ~uint64_t{0}}) {
    const absl::Status status = storage_->Stage("a/b", bytes).status();
    EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
    for (const std::string& part :
         {root() + "/a/b", absl::StrCat(FormatBytes(static_cast<double>(bytes)), " wanted, "), std::string(" free")}) {
      EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
    }
    EXPECT_THAT(EverythingIn(root()), ElementsAre());
  }
}

// Runs in a mount namespace of its own, so nothing is left mounted.
std::string FillSmallDisk(const std::string& place) {
  const auto storage = OpenLocalStorage(place);
  if (!storage.ok()) return storage.status().ToString();
  const std::string fits(300'000, 'x'), too_large(2'000'000, 'x');
  std::string problem = Expected(Code::kOk, "", (*storage)->Create("d/fits", fits));
  problem +=
      Expected(Code::kResourceExhausted, "d/large: write: No space left", (*storage)->Create("d/large", too_large));
  problem += Expected(Code::kResourceExhausted, "d/large: no space left: 1.9 MiB wanted, ",
                      (*storage)->Stage("d/large", too_large.size()).status());
  auto first = (*storage)->Stage("d/first", 500'000);
  problem += Expected(Code::kOk, "", first.status());
  problem += Expected(Code::kResourceExhausted, "488.3 KiB wanted", (*storage)->Stage("d/second", 500'000).status());
  if (!first.ok()) return problem;
  std::ofstream((*first)->path(), std::ios::in | std::ios::out) << std::string(500'000, 'y');
  problem += Expected(Code::kOk, "", (*first)->Commit());
  for (int i = 0; i < 100; ++i) (*storage)->Create(absl::StrCat("fill/", i), std::string(10'000, 'z')).IgnoreError();
  problem +=
      Expected(Code::kResourceExhausted, "No space left", (*storage)->Create("d/last", std::string(10'000, 'z')));
  const auto kept = ReadObject(**storage, "d/fits", fits.size());
  if (!kept.ok() || *kept != fits) problem += "an object was lost; ";
  for (const std::string& name : EverythingIn(place)) {
    if (absl::StrContains(name, ".tmp-")) problem += name + " is left; ";
  }
  problem += Expected(Code::kOk, "", (*storage)->Delete("d/first"));
  return problem + Expected(Code::kOk, "", (*storage)->Create("d/last", std::string(10'000, 'z')));
}

// As root, or as root of a user namespace of its own.
bool MountSmallDisk(const std::string& place) {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
    std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
  }
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", place.c_str(), "tmpfs", 0, "size=1m") == 0;
}

TEST(LocalStorageFaults, AFullDisk) {
  const TestDirectory directory;
  const std::string problem = RunInChild([&]() -> std::string {
    if (!MountSmallDisk(directory.path())) return "cannot mount";
    return FillSmallDisk(directory.path());
  });
  if (problem == "cannot mount") GTEST_SKIP() << "no small file system can be mounted here";
  EXPECT_EQ(problem, "");
}

// Somebody who may read and not write; root, who may do everything, becomes nobody first.
TEST(LocalStorageFaults, NoPermission) {
  const TestDirectory directory;
  ASSERT_TRUE(Open(directory / "store")->Create("d/a", "x").ok());
  std::filesystem::create_directories(directory / "store/private");
  for (const std::string path : {"", "store", "store/d"}) chmod((directory / path).c_str(), 0555);
  chmod((directory / "store/private").c_str(), 0);
  const std::string problem = RunInChild([&] {
    constexpr uid_t kNobody = 65534;
    const auto opened = OpenLocalStorage(directory / "store");
    if (geteuid() == 0 && setresuid(kNobody, kNobody, kNobody) != 0) return std::string("cannot drop rights");
    std::string wrong = Expected(Code::kPermissionDenied, "cannot write in " + (directory / "store"),
                                 OpenLocalStorage(directory / "store").status());
    wrong += Expected(Code::kPermissionDenied, "new", OpenLocalStorage(directory / "new").status());
    const auto storage = OpenLocalStorage(directory / "store", {.read_only = true});
    if (!storage.ok()) return wrong + storage.status().ToString();
    wrong += Expected(Code::kOk, "", ReadObject(**storage, "d/a", 10).status());
    wrong += Expected(Code::kOk, "", (*storage)->List("d/").status());
    wrong += Expected(Code::kPermissionDenied, "private", (*storage)->List("").status());
    wrong += Expected(Code::kPermissionDenied, "private", (*storage)->Size("private/x").status());
    if (!opened.ok()) return wrong;  // it was nobody to begin with
    wrong += Expected(Code::kPermissionDenied, "d/b", (*opened)->Create("d/b", "x"));
    wrong += Expected(Code::kPermissionDenied, "e", (*opened)->Create("e/b", "x"));
    wrong += Expected(Code::kPermissionDenied, "d/b", (*opened)->Stage("d/b", 1).status());
    return wrong + Expected(Code::kPermissionDenied, "d/a", (*opened)->Delete("d/a"));
  });
  for (const std::string path : {"", "store", "store/d", "store/private"}) chmod((directory / path).c_str(), 0755);
  EXPECT_EQ(problem, "");
  EXPECT_THAT(EverythingIn(directory / "store"), ElementsAre("d/", "d/a", "private/"));
}

int LowestFreeHandle() {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(fd);
  return fd;
}

// One more handle is allowed each time, until everything works.
TEST(LocalStorageFaults, TooManyOpenFiles) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer asks the system about addresses through a pipe, for which no file is left";
#endif
  const TestDirectory directory;
  ASSERT_TRUE(Open(directory.path())->Create("d/a", "x").ok());
  const std::string problem = RunInChild([&] {
    const auto storage = OpenLocalStorage(directory.path());
    const int used = LowestFreeHandle();
    std::string wrong;
    for (int free = 0; free < 10; ++free) {
      const rlimit limit{static_cast<rlim_t>(used + free), static_cast<rlim_t>(used + 100)};
      setrlimit(RLIMIT_NOFILE, &limit);
      const absl::Status all[] = {(*storage)->Create(absl::StrCat("d/", free), "x"),
                                  (*storage)->Stage("d/staged", 1).status(),
                                  (*storage)->Size("d/a").status(),
                                  (*storage)->List("").status(),
                                  (*storage)->Delete("d/none"),
                                  (*storage)->Sweep()};
      bool ok = true;
      for (const absl::Status& status : all) {
        ok = ok && status.ok();
        if (!status.ok()) wrong += Expected(Code::kResourceExhausted, "Too many open files", status);
      }
      if (ok) return free >= 3 ? wrong : wrong + "never too few";
    }
    return wrong + "never enough";
  });
  EXPECT_EQ(problem, "");
  for (const std::string& name : EverythingIn(directory.path())) EXPECT_FALSE(absl::StrContains(name, ".tmp-")) << name;
}

TEST_F(LocalStorageTest, TheLockIsNotInTheWayOfHdf5) {
  const auto file = storage_->Stage("a", 10);
  ASSERT_TRUE(file.ok());
  const int fd = open((*file)->path().c_str(), O_RDWR | O_TRUNC | O_CLOEXEC);
  EXPECT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0) << "this is how HDF5 locks a file it writes";
  close(fd);  // would drop a lock of fcntl's other kind
  ASSERT_TRUE(Open(root())->Sweep().ok());
  EXPECT_TRUE((*file)->Commit().ok());
}

TEST_F(LocalStorageTest, SweepTellsTheLivingFromTheDead) {
  const auto living = storage_->Stage("d/living", 10);
  EXPECT_EQ(RunInChild([&] {
              auto file = OpenLocalStorage(root()).value()->Stage("dead/b", 10);
              file->release();  // NOLINT: as a process that is killed
              return file.status().ToString();
            }),
            "OK");
  EXPECT_EQ(EverythingIn(root()).size(), 4u);
  ASSERT_TRUE(storage_->Sweep().ok());
  EXPECT_EQ(EverythingIn(root()).size(), 2u);
  EXPECT_EQ(RunInChild([&] { return Open(root())->Sweep().ToString(); }), "OK") << "another process";
  EXPECT_TRUE((*living)->Commit().ok());
}

// Where locks cannot tell, age does.
TEST_F(LocalStorageTest, SweepLeavesOtherMachinesADay) {
  const std::string young = root() + "/.young.tmp-0123456789ab", old = root() + "/.old.tmp-0123456789ab";
  const auto age = [](const std::string& path, std::chrono::minutes minutes) {
    std::ofstream(path).close();
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - minutes);
  };
  age(young, std::chrono::minutes(24 * 60 - 5));
  age(old, std::chrono::minutes(24 * 60 + 5));
  ASSERT_TRUE(Open(root(), {.file_system = FileSystemKind::kShared})->Sweep().ok());
  EXPECT_THAT(EverythingIn(root()), ElementsAre(".young.tmp-0123456789ab"));
  ASSERT_TRUE(storage_->Sweep().ok());
  EXPECT_THAT(EverythingIn(root()), ElementsAre());
}

// Writing a large shard to a slow disk may take long: whoever holds the lock lives.
TEST_F(LocalStorageTest, SweepLeavesALockedFileHoweverOldItIs) {
  const auto living = storage_->Stage("d/living", 10);
  ASSERT_TRUE(living.ok()) << living.status();
  std::filesystem::last_write_time((*living)->path(),
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(72));
  ASSERT_TRUE(Open(root())->Sweep().ok());
  EXPECT_TRUE((*living)->Commit().ok());
}

// Creators and sweepers at the same time: nobody's file is taken for abandoned.
TEST_F(LocalStorageTest, SweepingWhileCreating) {
  std::atomic<bool> done{false};
  std::thread sweeper([&] {
    while (!done) EXPECT_TRUE(storage_->Sweep().ok());
  });
  for (int i = 0; i < 1000; ++i) {
    const absl::Status status = storage_->Create(absl::StrCat("d", i % 3, "/", i), "x");
    EXPECT_TRUE(status.ok()) << status;
    if (i % 2 == 0) continue;
    const absl::Status deleted = storage_->Delete(absl::StrCat("d", i % 3, "/", i));
    EXPECT_TRUE(deleted.ok()) << deleted;
  }
  done = true;
  sweeper.join();
  EXPECT_EQ(storage_->List("")->size(), 500u);
}

}  // namespace
}  // namespace holdfast
