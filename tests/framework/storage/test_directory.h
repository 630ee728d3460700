#pragma once
// A fresh directory that is removed with its handle.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace holdfast {

/// Of a file system in memory, if there is one: syncing costs nothing there, however busy the disk is. That of a
/// container may have 64 MiB, too few for the tests that a machine of many processors runs at once.
inline std::string FastTempDir() {
  constexpr uint64_t kEnough = uint64_t{1} << 30;
  struct statvfs room {};
  const bool has_room = statvfs("/dev/shm", &room) == 0 && uint64_t{room.f_bavail} * room.f_frsize >= kEnough;
  return has_room && access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : testing::TempDir();
}

class TestDirectory {
 public:
  explicit TestDirectory(const std::string& parent = FastTempDir()) : path_(parent + "/storage-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "no directory " << path_;
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Everything below `directory`, hidden or not, sorted; directories end in "/".
inline std::vector<std::string> EverythingIn(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const bool is_directory = entry.is_directory() && !entry.is_symlink();
    names.push_back(entry.path().lexically_relative(directory).string() + (is_directory ? "/" : ""));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace holdfast
