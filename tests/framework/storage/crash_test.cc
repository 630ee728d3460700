// Proves that a writer may be killed anywhere: a child process works through a script of creations and deletions and
// is killed at one crash point, at each of its passages in turn, for every crash point there is and each way to give a
// file its name. Afterwards every object is there whole or not at all, what the child was told is done is done, and a
// Sweep leaves nothing but objects and their directories.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/storage/crash_point.h"
#include "framework/storage/local_crash_points.h"
#include "framework/storage/local_storage.h"
#include "tests/framework/base/slower.h"
#include "tests/framework/storage/child_process.h"
#include "tests/framework/storage/test_directory.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

// Of the file systems that can do less, only what is done there in another way.
bool IsTried(const std::string& point, FileSystemKind file_system) {
  if (file_system == FileSystemKind::kDetect) return true;
  return absl::StrContains(point, "link") || absl::StrContains(point, "claim");
}

constexpr FileSystemKind kFileSystems[] = {FileSystemKind::kDetect, FileSystemKind::kShared, FileSystemKind::kPlain};
constexpr size_t kCreatedBytes = (256 << 10) + 5;  // two writes
constexpr size_t kStagedBytes = 30'000;

std::string CreatedContents() { return std::string(kCreatedBytes, 'c') + "end"; }
std::string StagedContents() { return std::string(kStagedBytes, 's') + "end"; }

// What the child does. Each step that has returned OK is noted outside of the storage.
class Script {
 public:
  Script(Storage& storage, const std::string& log) : storage_(storage), log_(log) {}

  void Run() {
    Note("created", storage_.Create("new/created", CreatedContents()));
    Note("staged", Stage("deep/er/staged"));
    { const auto abandoned = storage_.Stage("aban/doned", 1000); }
    EXPECT_EQ(storage_.Create("old/kept", "other").code(), absl::StatusCode::kAlreadyExists);
    Note("deleted", storage_.Delete("old/deleted"));
    Note("last", storage_.Delete("gone/with/last"));
    Note("swept", storage_.Sweep());
  }

 private:
  absl::Status Stage(const std::string& name) {
    auto file = storage_.Stage(name, 2 * kStagedBytes);
    if (!file.ok()) return file.status();
    std::ofstream((*file)->path(), std::ios::binary | std::ios::in | std::ios::out) << StagedContents();
    return (*file)->Commit();
  }
  void Note(const std::string& step, const absl::Status& status) {
    ASSERT_TRUE(status.ok()) << step << ": " << status;
    std::ofstream(log_, std::ios::app) << step << "\n";
  }

  Storage& storage_;
  std::string log_;
};

TEST(LocalStorageCrashChild, DISABLED_Work) {
  const char* directory = std::getenv("HOLDFAST_TEST_DIRECTORY");
  int kind = 0;
  ASSERT_TRUE(directory != nullptr && absl::SimpleAtoi(std::getenv("HOLDFAST_TEST_FILE_SYSTEM"), &kind));
  const auto storage =
      OpenLocalStorage(absl::StrCat(directory, "/store"), {.file_system = static_cast<FileSystemKind>(kind)});
  ASSERT_TRUE(storage.ok()) << storage.status();
  Script(**storage, absl::StrCat(directory, "/log")).Run();
}

std::set<std::string> ReadLog(const std::string& path) {
  std::set<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.insert(line);
  return lines;
}

std::unique_ptr<Storage> OpenAgain(const std::string& path) {
  auto storage = OpenLocalStorage(path);
  EXPECT_TRUE(storage.ok()) << storage.status();
  return storage.ok() ? *std::move(storage) : nullptr;
}

// "absent", or "whole"; anything else is torn.
std::string StateOf(Storage& storage, const std::string& name, const std::string& contents) {
  const absl::StatusOr<std::string> got = ReadObject(storage, name, 1 << 30);
  if (absl::IsNotFound(got.status())) return "absent";
  if (!got.ok()) return got.status().ToString();
  return *got == contents ? "whole" : absl::StrCat("torn: ", got->size(), " bytes");
}

void Prepare(Storage& storage, const std::string& path) {
  ASSERT_TRUE(storage.Create("old/kept", "kept").ok());
  ASSERT_TRUE(storage.Create("old/deleted", "deleted").ok());
  ASSERT_TRUE(storage.Create("gone/with/last", "last").ok());
  std::ofstream(path + "/old/.kept.tmp-0123456789ab") << "of a writer that is gone";
}

void ExpectOldOrNew(Storage& storage, const std::set<std::string>& done) {
  const auto made = [&](const char* step, const std::string& state) {
    EXPECT_TRUE(state == "whole" || (state == "absent" && !done.contains(step))) << step << ": " << state;
  };
  const auto removed = [&](const char* step, const std::string& state) {
    EXPECT_TRUE(state == "absent" || (state == "whole" && !done.contains(step))) << step << ": " << state;
  };
  EXPECT_EQ(StateOf(storage, "old/kept", "kept"), "whole");
  EXPECT_EQ(StateOf(storage, "aban/doned", ""), "absent");
  made("created", StateOf(storage, "new/created", CreatedContents()));
  made("staged", StateOf(storage, "deep/er/staged", StagedContents()));
  removed("deleted", StateOf(storage, "old/deleted", "deleted"));
  removed("last", StateOf(storage, "gone/with/last", "last"));
}

// Objects and the directories on the way to them, and nothing else.
void ExpectOnlyObjects(Storage& storage, const std::string& path) {
  const absl::StatusOr<std::vector<StoredObject>> objects = storage.List("");
  ASSERT_TRUE(objects.ok()) << objects.status();
  std::set<std::string> expected;
  for (const StoredObject& object : *objects) {
    expected.insert(object.name);
    for (size_t i = 0; i < object.name.size(); ++i) {
      if (object.name[i] == '/') expected.insert(object.name.substr(0, i + 1));
    }
  }
  EXPECT_EQ(EverythingIn(path), std::vector<std::string>(expected.begin(), expected.end()));
}

// Whether the child was killed; it works to the end if `passage` is one too many.
bool CrashAt(const std::string& point, int passage, FileSystemKind file_system) {
  const TestDirectory directory;
  const std::string path = directory / "store";
  Prepare(*OpenAgain(path), path);
  const int status = RunTestAgain("LocalStorageCrashChild.DISABLED_Work",
                                  {{"HOLDFAST_CRASH_POINT", absl::StrCat(point, ":", passage)},
                                   {"HOLDFAST_TEST_DIRECTORY", directory.path()},
                                   {"HOLDFAST_TEST_FILE_SYSTEM", absl::StrCat(static_cast<int>(file_system))}});
  const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  EXPECT_TRUE(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << "wait status " << status;
  const std::set<std::string> done = ReadLog(directory / "log");
  EXPECT_EQ(done.contains("swept"), !killed);
  const std::unique_ptr<Storage> storage = OpenAgain(path);
  ExpectOldOrNew(*storage, done);
  const absl::Status swept = storage->Sweep();
  EXPECT_TRUE(swept.ok()) << swept;
  ExpectOnlyObjects(*storage, path);
  ExpectOldOrNew(*storage, done);
  return killed;
}

TEST(LocalStorageCrash, AnywhereLeavesOldOrNew) {
  std::set<std::string> reached;
  int crashes = 0;
  for (const FileSystemKind file_system : kFileSystems) {
    for (const std::string point : kLocalCrashPoints) {
      if (!IsTried(point, file_system)) continue;
      for (int passage = 1; passage <= 100; passage += kSlower) {
        SCOPED_TRACE(absl::StrCat(point, ":", passage, ", file system ", static_cast<int>(file_system)));
        if (!CrashAt(point, passage, file_system) || HasFailure()) break;
        reached.insert(point);
        ++crashes;
      }
      ASSERT_FALSE(HasFailure());
    }
  }
  EXPECT_EQ(reached, std::set<std::string>(std::begin(kLocalCrashPoints), std::end(kLocalCrashPoints)));
  RecordProperty("crashes", crashes);
  std::printf("%d crashes\n", crashes);
}

TEST(CrashPointChild, DISABLED_Passes) {
  for (int i = 0; i < 3; ++i) {
    CrashPoint("test.a");
    CrashPoint("test.b");
    std::ofstream(std::getenv("HOLDFAST_TEST_LOG"), std::ios::app) << i << "\n";
  }
}

// The passages of the loop above that were finished; "survived" after them.
std::string PassagesWith(const std::string& request) {
  const TestDirectory directory;
  const int status = RunTestAgain("CrashPointChild.DISABLED_Passes",
                                  {{"HOLDFAST_CRASH_POINT", request}, {"HOLDFAST_TEST_LOG", directory / "log"}});
  std::stringstream text;
  text << std::ifstream(directory / "log").rdbuf();
  return absl::StrReplaceAll(text.str(), {{"\n", ""}}) + (WIFEXITED(status) ? "survived" : "");
}

TEST(CrashPoint, KillsAtThePassageThatWasAskedFor) {
  EXPECT_EQ(PassagesWith("test.a"), "");
  EXPECT_EQ(PassagesWith("test.b:1"), "");
  EXPECT_EQ(PassagesWith("test.b:3"), "01");
  EXPECT_EQ(PassagesWith("test.b:4"), "012survived");
  EXPECT_EQ(PassagesWith("test"), "012survived");
  EXPECT_EQ(PassagesWith(""), "012survived");
}

TEST(LocalStorageCrash, TheListHasAllPoints) {
  std::set<std::string> found;
  const std::regex call("CrashPoint\\(\"(local\\.[^\"]*)\"\\)");
  for (const auto& entry : std::filesystem::directory_iterator(SourceDir() + "/framework/storage")) {
    if (entry.path().extension() != ".cc") continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const std::string source = text.str();
    for (std::sregex_iterator it(source.begin(), source.end(), call), end; it != end; ++it) found.insert((*it)[1]);
  }
  EXPECT_EQ(found, std::set<std::string>(std::begin(kLocalCrashPoints), std::end(kLocalCrashPoints)));
}

}  // namespace
}  // namespace holdfast
