#pragma once
// What survives a simulated coordinator: its run directory, in files of a real directory, and the storage of its
// checkpoints. The code that takes the lock, the record and the fence is the real one.

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "elastic/coordinator/run_recorder.h"
#include "tests/elastic/control/sim_clock.h"
#include "tests/framework/storage/fault_storage.h"
#include "tests/framework/storage/memory_storage.h"

namespace holdfast::sim {

class Disk {
 public:
  Disk() : root_(MakeRoot()), run(root_ + "/run"), memory_(MakeMemoryStorage(root_ + "/scratch")), storage(*memory_) {
    std::filesystem::create_directories(run.root());
    config.log.every_steps = 0;  // nothing is said on the console
  }
  ~Disk() { std::filesystem::remove_all(root_); }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  /// The lock is given to whoever asks next, although somebody has it: it is a lock of the file that was there before.
  void LetLockLapse() {
    std::filesystem::copy(run.lock(), run.lock() + ".copy");
    std::filesystem::rename(run.lock() + ".copy", run.lock());
  }

  /// A process dies, or its host, while it writes a line to the file: a part of it is there.
  static void Tear(Clock& clock, const std::string& path, const std::string& line) {
    std::ofstream file(path, std::ios::binary | std::ios::app);
    file << line.substr(0, static_cast<size_t>(clock.Between(1, std::ssize(line))));  // at most all but its end
  }

 private:
  static std::string MakeRoot() {
    std::error_code error;
    const bool in_memory = std::filesystem::is_directory("/dev/shm", error);
    std::string root =
        absl::StrCat(in_memory ? "/dev/shm" : std::filesystem::temp_directory_path().string(), "/holdfast-sim-XXXXXX");
    if (mkdtemp(root.data()) == nullptr) abort();
    return root;
  }
  std::string root_;

 public:
  const RunDirectory run;

 private:
  std::unique_ptr<Storage> memory_;

 public:
  FaultStorage storage;  // of checkpoints
  Config config;
};

}  // namespace holdfast::sim
