// Files of a file system and objects of every storage of this room keep the promises of random_access_file.h; what
// happens to an open file is an error with its name and the place, never the end of the process.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "framework/storage/atomic_file.h"
#include "framework/storage/file_access.h"
#include "framework/storage/local_storage.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/framework/storage/fault_storage.h"
#include "tests/framework/storage/memory_storage.h"
#include "tests/framework/storage/random_access_conformance.h"

namespace holdfast {
namespace {

RandomAccessBed MakePlainFile() {
  auto directory = std::make_shared<TemporaryDirectory>();
  const std::string path = *directory / "a file with spaces.bin";
  return {.put = [path](const std::string& contents) { ASSERT_TRUE(WriteFileAtomically(path, contents).ok()); },
          .open = [path] { return OpenLocalFile(path); },
          .keep_alive = directory};
}

RandomAccessBed MakeLinkedFile() {
  RandomAccessBed bed = MakePlainFile();
  const auto directory = std::static_pointer_cast<TemporaryDirectory>(bed.keep_alive);
  const std::string link = *directory / "link";
  std::filesystem::create_symlink("a file with spaces.bin", link);
  bed.open = [link] { return OpenLocalFile(link); };
  return bed;
}

RandomAccessBed MakeObject(std::shared_ptr<Storage> storage, std::shared_ptr<void> keep_alive) {
  return {.put =
              [storage](const std::string& contents) {
                ASSERT_TRUE(storage->Delete("a/file").ok());
                ASSERT_TRUE(storage->Create("a/file", contents).ok());
              },
          .open = [storage]() -> absl::StatusOr<std::shared_ptr<const RandomAccessFile>> {
            return storage->Open("a/file");
          },
          .keep_alive = std::move(keep_alive)};
}

RandomAccessBed MakeLocalObject() {
  auto directory = std::make_shared<TemporaryDirectory>();
  return MakeObject(*OpenLocalStorage(*directory / "store"), directory);
}

RandomAccessBed MakeMemoryObject() {
  auto directory = std::make_shared<TemporaryDirectory>();
  return MakeObject(MakeMemoryStorage(directory->path()), directory);
}

struct FaultBed {
  TemporaryDirectory directory;
  std::unique_ptr<Storage> memory = MakeMemoryStorage(directory.path());
};
RandomAccessBed MakeFaultObject() {
  auto parts = std::make_shared<FaultBed>();
  return MakeObject(std::make_shared<FaultStorage>(*parts->memory), parts);
}

INSTANTIATE_TEST_SUITE_P(Storage, RandomAccessConformance,
                         testing::Values(RandomAccessBedFactory{"File", MakePlainFile},
                                         RandomAccessBedFactory{"Link", MakeLinkedFile},
                                         RandomAccessBedFactory{"Local", MakeLocalObject},
                                         RandomAccessBedFactory{"Memory", MakeMemoryObject},
                                         RandomAccessBedFactory{"Faults", MakeFaultObject}),
                         RandomAccessBedName);

TEST(LocalFile, OneThatIsCutShortWhileItIsOpenIsDataLoss) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "f") << std::string(100'000, 'x');
  const auto file = *OpenLocalFile(directory / "f");
  std::filesystem::resize_file(directory / "f", 50'000);
  std::string out(10'000, '\0');
  const auto place = absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), out.size());
  EXPECT_TRUE(file->ReadAt(40'000, place).ok());
  for (const uint64_t offset : {45'000, 60'000}) {
    const absl::Status status = file->ReadAt(offset, place);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), directory / "f")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), std::to_string(std::max<uint64_t>(offset, 50'000)))) << status;
  }
}

TEST(LocalFile, OneThatIsRemovedIsStillRead) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "f") << "0123456789";
  const auto file = *OpenLocalFile(directory / "f");
  std::filesystem::remove(directory / "f");
  EXPECT_EQ(*ReadWhole(*file, 10), "0123456789");
}

TEST(LocalFile, RefusesWhatIsNoRegularFile) {
  const TemporaryDirectory directory;
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(OpenLocalFile(directory / "pipe").status()));  // and does not wait for a writer
  EXPECT_TRUE(absl::IsInvalidArgument(OpenLocalFile(directory.path()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(OpenLocalFile("/dev/zero").status()));
}

TEST(CreateObject, IsThereWholeAfterCommitAndNeverReplacesOne) {
  const TemporaryDirectory directory;
  const std::unique_ptr<Storage> storage = MakeMemoryStorage(directory.path());
  {
    const auto file = *CreateObject(*storage, "a/b");
    ASSERT_TRUE(file->Append("?????").ok());
    ASSERT_TRUE(file->Append("56789").ok());
    ASSERT_TRUE(file->Overwrite(0, "01234").ok());
    EXPECT_FALSE(storage->Size("a/b").ok());
    ASSERT_TRUE(file->Commit().ok());
  }
  EXPECT_EQ(*ReadObject(*storage, "a/b", 10), "0123456789");
  EXPECT_TRUE(absl::IsAlreadyExists(CreateObject(*storage, "a/b").status()));
  { ASSERT_TRUE((*CreateObject(*storage, "a/c"))->Append("lost").ok()); }
  EXPECT_TRUE(absl::IsNotFound(storage->Size("a/c").status()));
  EXPECT_TRUE(directory.List().empty()) << "nothing staged is left";
}

}  // namespace
}  // namespace holdfast
