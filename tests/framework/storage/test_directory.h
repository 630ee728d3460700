#pragma once
// A fresh directory that is removed with its handle.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace holdfast {

/// Of a file system in memory, if there is one: syncing costs nothing there, however busy the disk is.
inline std::string FastTempDir() { return access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : testing::TempDir(); }

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
