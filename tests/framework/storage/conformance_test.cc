// Proves that memory and local storage, the latter with each way to give a file its name, keep the promises of
// storage.h, by the suite that every storage passes.

#include "tests/framework/storage/conformance.h"

#include "framework/storage/local_storage.h"
#include "tests/framework/storage/fault_storage.h"
#include "tests/framework/storage/memory_storage.h"
#include "tests/framework/storage/test_directory.h"

namespace holdfast {
namespace {

StorageBed MakeLocalBed(const std::string& parent, FileSystemKind file_system) {
  auto directory = std::make_shared<TestDirectory>(parent);
  StorageBed bed;
  bed.open = [path = *directory / "new/parent/checkpoints", file_system] {
    auto storage = OpenLocalStorage(path, {.file_system = file_system});
    EXPECT_TRUE(storage.ok()) << storage.status();
    return storage.ok() ? *std::move(storage) : nullptr;
  };
  bed.keep_alive = directory;
  return bed;
}

// Reopened as far as memory can be: through another storage in front of it, which also shows that FaultStorage without
// a fault changes nothing.
class SharedMemory : public FaultStorage {
 public:
  explicit SharedMemory(std::shared_ptr<Storage> inner) : FaultStorage(*inner), inner_(std::move(inner)) {}

 private:
  std::shared_ptr<Storage> inner_;
};

StorageBed MakeMemoryBed() {
  auto directory = std::make_shared<TestDirectory>();
  std::shared_ptr<Storage> memory = MakeMemoryStorage(directory->path());
  return {.open = [memory] { return std::make_unique<SharedMemory>(memory); }, .keep_alive = directory};
}

INSTANTIATE_TEST_SUITE_P(Process, StorageConformance, testing::Values(StorageBedFactory{"Memory", MakeMemoryBed}),
                         StorageBedName);

StorageBed MakeDiskBed() { return MakeLocalBed(testing::TempDir(), FileSystemKind::kDetect); }
StorageBed MakeRenameBed() { return MakeLocalBed(FastTempDir(), FileSystemKind::kDetect); }
StorageBed MakeLinkBed() { return MakeLocalBed(FastTempDir(), FileSystemKind::kShared); }
StorageBed MakeClaimBed() { return MakeLocalBed(FastTempDir(), FileSystemKind::kPlain); }

INSTANTIATE_TEST_SUITE_P(Local, StorageConformance,
                         testing::Values(StorageBedFactory{"Disk", MakeDiskBed},
                                         StorageBedFactory{"Rename", MakeRenameBed},
                                         StorageBedFactory{"Link", MakeLinkBed},
                                         StorageBedFactory{"Claim", MakeClaimBed}),
                         StorageBedName);

}  // namespace
}  // namespace holdfast
