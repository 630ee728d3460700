#pragma once
// The least storage that a shard writer can be tested with: files in a directory, and hooks where faults come in.
// What a storage promises is tested elsewhere; here nothing is synced.

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/storage/storage.h"

namespace holdfast {

/// A new directory under the system's one for temporary files; gone with its contents at the end.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "holdfast-shard-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class DirectoryStorage final : public Storage {
 public:
  explicit DirectoryStorage(std::string directory) : directory_(std::move(directory)) {}

  /// Where files are made, if not beside their place: "/dev/full" is a disk that is full.
  std::string staging_path;
  /// Called with the path of a staged file before it gets its name.
  std::function<absl::Status(const std::string& path)> before_commit = [](const std::string&) {
    return absl::OkStatus();
  };
  std::function<absl::Status(const std::string& name)> before_create = [](const std::string&) {
    return absl::OkStatus();
  };
  std::atomic<uint64_t> reserved_bytes = 0;  // by the last Stage
  uint64_t free_bytes = std::numeric_limits<uint64_t>::max();

  std::string PathOf(const std::string& name) const { return directory_ + "/" + name; }

  std::string Describe() const override { return directory_; }
  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix) override {
    std::map<std::string, uint64_t> objects;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_)) {
      const std::string name = std::filesystem::relative(entry.path(), directory_).string();
      const bool listed = entry.is_regular_file() && absl::string_view(name).substr(0, prefix.size()) == prefix;
      if (listed) objects[name] = entry.file_size();
    }
    std::vector<StoredObject> list;
    for (const auto& [name, size] : objects) list.push_back({name, size});
    return list;
  }
  absl::StatusOr<uint64_t> Size(const std::string& name) override {
    std::error_code error;
    const uint64_t size = std::filesystem::file_size(PathOf(name), error);
    if (error) return absl::NotFoundError(name);
    return size;
  }
  absl::Status ReadAt(const std::string& name, uint64_t offset, absl::Span<std::byte> out) override {
    std::ifstream file(PathOf(name), std::ios::binary);
    if (!file) return absl::NotFoundError(name);
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
    return file ? absl::OkStatus() : absl::DataLossError(name);
  }
  absl::Status Create(const std::string& name, absl::string_view contents) override {
    if (absl::Status status = before_create(name); !status.ok()) return status;
    if (std::filesystem::exists(PathOf(name))) return absl::AlreadyExistsError(name);
    std::filesystem::create_directories(std::filesystem::path(PathOf(name)).parent_path());
    std::ofstream(PathOf(name), std::ios::binary) << contents;
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<StagedFile>> Stage(const std::string& name, uint64_t bytes) override {
    reserved_bytes = bytes;
    if (bytes > free_bytes) return absl::ResourceExhaustedError(name + ": no space left");
    std::filesystem::create_directories(std::filesystem::path(PathOf(name)).parent_path());
    return std::make_unique<Staged>(*this, name, staging_path);
  }
  absl::Status Delete(const std::string& name) override {
    std::filesystem::remove(PathOf(name));
    return absl::OkStatus();
  }
  absl::Status Sweep() override { return absl::OkStatus(); }

 private:
  class Staged final : public StagedFile {
   public:
    Staged(DirectoryStorage& storage, std::string name, const std::string& path)
        : storage_(storage), name_(std::move(name)), path_(path.empty() ? storage.PathOf(name_) + ".tmp" : path) {
      if (path.empty()) std::ofstream(path_, std::ios::binary);
    }
    ~Staged() override {
      if (path_ != storage_.staging_path) std::filesystem::remove(path_);
    }
    const std::string& path() const override { return path_; }
    absl::Status Commit() override {
      if (absl::Status status = storage_.before_commit(path_); !status.ok()) return status;
      if (std::filesystem::exists(storage_.PathOf(name_))) return absl::AlreadyExistsError(name_);
      std::filesystem::rename(path_, storage_.PathOf(name_));
      return absl::OkStatus();
    }

   private:
    DirectoryStorage& storage_;
    std::string name_, path_;
  };

  std::string directory_;
};

}  // namespace holdfast
