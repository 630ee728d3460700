#pragma once
// What every Storage promises, as one suite. A storage passes it when all hold for a fresh bed and for storages opened
// on the same bed side by side. Include it from one source file of a test program, and there:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, StorageConformance, testing::Values(StorageBedFactory{"Memory", MakeMemoryBed}),
//                            StorageBedName);

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "framework/storage/storage.h"
#include "tests/framework/storage/pattern_bytes.h"

namespace holdfast {

/// A fresh, empty place for objects.
struct StorageBed {
  std::function<std::unique_ptr<Storage>()> open;  // any number of times: storages that see the same objects
  std::shared_ptr<void> keep_alive;                // a server, a directory: outlives all that was opened
};

struct StorageBedFactory {
  std::string label;
  std::function<StorageBed()> make;
};

inline std::string StorageBedName(const testing::TestParamInfo<StorageBedFactory>& info) { return info.param.label; }

inline void WriteStaged(const StagedFile& file, const std::string& contents) {
  std::ofstream out(file.path(), std::ios::binary | std::ios::trunc);
  out.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  out.close();
  ASSERT_TRUE(out.good()) << file.path();
}

inline absl::Status ReadRange(Storage& storage, const std::string& name, uint64_t offset, std::string* out) {
  return storage.ReadAt(name, offset, absl::MakeSpan(reinterpret_cast<std::byte*>(out->data()), out->size()));
}

class StorageConformance : public testing::TestWithParam<StorageBedFactory> {
 protected:
  void SetUp() override {
    bed_ = GetParam().make();
    if (IsSkipped()) return;  // where `make` finds that it lacks something
    storage_ = bed_.open();
    ASSERT_NE(storage_, nullptr);
  }
  void TearDown() override { storage_.reset(); }

  // Stages, writes and commits.
  static absl::Status Put(Storage& storage, const std::string& name, const std::string& contents) {
    absl::StatusOr<std::unique_ptr<StagedFile>> file = storage.Stage(name, contents.size());
    if (!file.ok()) return file.status();
    WriteStaged(**file, contents);
    return (*file)->Commit();
  }

  std::vector<StoredObject> ListAll(absl::string_view prefix = "") {
    absl::StatusOr<std::vector<StoredObject>> objects = storage_->List(prefix);
    EXPECT_TRUE(objects.ok()) << objects.status();
    return objects.ok() ? *objects : std::vector<StoredObject>{};
  }

  void ExpectContents(Storage& storage, const std::string& name, const std::string& contents) {
    const absl::StatusOr<std::string> got = ReadObject(storage, name, contents.size());
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(*got == contents) << name << " has other bytes than were written";
    const absl::StatusOr<uint64_t> size = storage.Size(name);
    ASSERT_TRUE(size.ok()) << size.status();
    EXPECT_EQ(*size, contents.size());
  }

  StorageBed bed_;
  std::unique_ptr<Storage> storage_;
};

TEST_P(StorageConformance, StartsEmptyAndSaysWhereItIs) {
  EXPECT_FALSE(storage_->Describe().empty());
  EXPECT_TRUE(ListAll().empty());
  EXPECT_TRUE(storage_->Sweep().ok());
}

TEST_P(StorageConformance, RefusesBadNames) {
  const std::vector<std::string> bad = {"",
                                        ".",
                                        "..",
                                        "/a",
                                        "a/",
                                        "a//b",
                                        "../a",
                                        "a/../b",
                                        "a/./b",
                                        "a b",
                                        "a\\b",
                                        ".hidden",
                                        "a/.b",
                                        "a\nb",
                                        "a?b",
                                        "a%2e",
                                        "\xc3\xa9",
                                        std::string("a\0b", 3),
                                        "a/..",
                                        std::string(201, 'a'),
                                        "d/" + std::string(201, 'a')};
  for (const std::string& name : bad) {
    SCOPED_TRACE(name);
    std::string out(1, '\0');
    EXPECT_EQ(storage_->Create(name, "x").code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(storage_->Stage(name, 1).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(storage_->Size(name).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReadRange(*storage_, name, 0, &out).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(storage_->Delete(name).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(ListAll().empty());
}

TEST_P(StorageConformance, TakesTheWholeAlphabetAndLongNames) {
  const std::vector<std::string> good = {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-",
                                         "-",
                                         "_",
                                         "a.tmp-0123456789ab",
                                         std::string(200, 'n'),
                                         std::string(200, 'd') + "/" + std::string(200, 'n'),
                                         "d1/d2/d3/d4/leaf"};
  for (const std::string& name : good) ASSERT_TRUE(storage_->Create(name, name).ok()) << name;
  for (const std::string& name : good) ExpectContents(*storage_, name, name);
  EXPECT_EQ(ListAll().size(), good.size());
}

TEST_P(StorageConformance, CreatesAndReadsBack) {
  const std::string contents = PatternBytes(100'000, 1);
  ASSERT_TRUE(storage_->Create("step-1/manifest.json", contents).ok());
  ExpectContents(*storage_, "step-1/manifest.json", contents);
}

TEST_P(StorageConformance, HoldsObjectsWithoutBytes) {
  ASSERT_TRUE(storage_->Create("none", "").ok());
  ASSERT_TRUE(Put(*storage_, "staged-none", "").ok());
  ExpectContents(*storage_, "none", "");
  ExpectContents(*storage_, "staged-none", "");
  std::string out;
  EXPECT_TRUE(ReadRange(*storage_, "none", 0, &out).ok());
  out.resize(1);
  EXPECT_EQ(ReadRange(*storage_, "none", 0, &out).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ListAll(), (std::vector<StoredObject>{{"none", 0}, {"staged-none", 0}}));
}

TEST_P(StorageConformance, NamesWhatIsMissing) {
  std::string out(1, '\0');
  ASSERT_TRUE(storage_->Create("here/a", "x").ok());
  for (const std::string name : {"missing", "here/missing", "here", "nowhere/a", "her", "here/a/b"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(storage_->Size(name).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(ReadRange(*storage_, name, 0, &out).code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(ReadObject(*storage_, name, 10).status().code(), absl::StatusCode::kNotFound);
    EXPECT_TRUE(storage_->Delete(name).ok());
  }
  const std::string message(storage_->Size("nowhere/a").status().message());
  EXPECT_NE(message.find("nowhere/a"), std::string::npos) << message;
  ExpectContents(*storage_, "here/a", "x");
}

TEST_P(StorageConformance, ReadObjectHasALimit) {
  ASSERT_TRUE(storage_->Create("ten", "0123456789").ok());
  EXPECT_EQ(ReadObject(*storage_, "ten", 9).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ReadObject(*storage_, "ten", 10).ok());
}

TEST_P(StorageConformance, CreateNeverReplaces) {
  ASSERT_TRUE(storage_->Create("a/b", "first").ok());
  EXPECT_EQ(storage_->Create("a/b", "second").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Put(*storage_, "a/b", "third, and longer").code(), absl::StatusCode::kAlreadyExists);
  ExpectContents(*storage_, "a/b", "first");
  EXPECT_EQ(ListAll().size(), 1u);
}

TEST_P(StorageConformance, StagingNeverReplaces) {
  absl::StatusOr<std::unique_ptr<StagedFile>> late = storage_->Stage("a/b", 4);  // before the name is taken
  ASSERT_TRUE(late.ok()) << late.status();
  ASSERT_TRUE(Put(*storage_, "a/b", "first").ok());
  WriteStaged(**late, "late");
  EXPECT_EQ((*late)->Commit().code(), absl::StatusCode::kAlreadyExists);
  late->reset();
  EXPECT_EQ(storage_->Create("a/b", "second").code(), absl::StatusCode::kAlreadyExists);
  ExpectContents(*storage_, "a/b", "first");
  EXPECT_EQ(ListAll().size(), 1u);
}

TEST_P(StorageConformance, AStagedFileIsNoObjectBeforeCommit) {
  absl::StatusOr<std::unique_ptr<StagedFile>> file = storage_->Stage("d/file", 1'000'000);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(std::ifstream((*file)->path(), std::ios::binary | std::ios::ate).tellg(), 0) << "not an empty file";
  WriteStaged(**file, "contents");
  EXPECT_TRUE(ListAll().empty());
  EXPECT_EQ(storage_->Size("d/file").status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE((*file)->Reserve(1'000'000).ok());
  const absl::Status committed = (*file)->Commit();
  ASSERT_TRUE(committed.ok()) << committed;
  ExpectContents(*storage_, "d/file", "contents");  // not as long as what was reserved
  EXPECT_FALSE((*file)->Commit().ok()) << "a second commit";
  file->reset();
  ExpectContents(*storage_, "d/file", "contents");
}

TEST_P(StorageConformance, WhatIsAbandonedLeavesNothing) {
  std::string path;
  {
    absl::StatusOr<std::unique_ptr<StagedFile>> file = storage_->Stage("d/file", 10);
    ASSERT_TRUE(file.ok()) << file.status();
    WriteStaged(**file, "contents");
    path = (*file)->path();
  }
  EXPECT_FALSE(std::ifstream(path).good()) << path;
  EXPECT_TRUE(ListAll().empty());
  ASSERT_TRUE(storage_->Sweep().ok());
  ASSERT_TRUE(storage_->Create("d/file", "later").ok());
  ExpectContents(*storage_, "d/file", "later");
}

TEST_P(StorageConformance, SweepSparesWhatIsBeingMade) {
  absl::StatusOr<std::unique_ptr<StagedFile>> file = storage_->Stage("d/file", 10);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(storage_->Create("other", "x").ok());
  ASSERT_TRUE(bed_.open()->Sweep().ok());
  ASSERT_TRUE(storage_->Sweep().ok());
  WriteStaged(**file, "contents");
  ASSERT_TRUE(bed_.open()->Sweep().ok());
  ASSERT_TRUE((*file)->Commit().ok());
  ExpectContents(*storage_, "d/file", "contents");
  ExpectContents(*storage_, "other", "x");
}

TEST_P(StorageConformance, TwoStagedFilesOfOneName) {
  absl::StatusOr<std::unique_ptr<StagedFile>> a = storage_->Stage("same", 10), b = storage_->Stage("same", 10);
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_NE((*a)->path(), (*b)->path());
  WriteStaged(**a, "from a");
  WriteStaged(**b, "from b");
  EXPECT_TRUE((*b)->Commit().ok());
  EXPECT_EQ((*a)->Commit().code(), absl::StatusCode::kAlreadyExists);
  ExpectContents(*storage_, "same", "from b");
}

TEST_P(StorageConformance, ListsByPrefixInOrder) {
  for (const std::string name : {"step-10/b", "step-10/a", "step-1/a", "other/deep/er", "z", "step-2/a"}) {
    ASSERT_TRUE(storage_->Create(name, name).ok());
  }
  EXPECT_EQ(
      ListAll(),
      (std::vector<StoredObject>{
          {"other/deep/er", 13}, {"step-1/a", 8}, {"step-10/a", 9}, {"step-10/b", 9}, {"step-2/a", 8}, {"z", 1}}));
  EXPECT_EQ(ListAll("step-1/"), (std::vector<StoredObject>{{"step-1/a", 8}}));
  EXPECT_EQ(ListAll("step-1"), (std::vector<StoredObject>{{"step-1/a", 8}, {"step-10/a", 9}, {"step-10/b", 9}}));
  EXPECT_EQ(ListAll("step-10/b"), (std::vector<StoredObject>{{"step-10/b", 9}}));
  EXPECT_EQ(ListAll("other/deep/e"), (std::vector<StoredObject>{{"other/deep/er", 13}}));
  EXPECT_EQ(ListAll("other/deep/er"), (std::vector<StoredObject>{{"other/deep/er", 13}}));
  for (const absl::string_view prefix : {"other/deep/er/", "none", "../", "/", "step-10//", "z/"}) {
    EXPECT_TRUE(ListAll(prefix).empty()) << prefix;
  }
}

TEST_P(StorageConformance, OrdersNamesAsBytesNotAsPaths) {
  for (const std::string name : {"a-b", "a/b", "a.b", "a0"}) ASSERT_TRUE(storage_->Create(name, "").ok());
  EXPECT_EQ(ListAll(), (std::vector<StoredObject>{{"a-b", 0}, {"a.b", 0}, {"a/b", 0}, {"a0", 0}}));
}

TEST_P(StorageConformance, ListsMany) {
  const int count = 60;
  std::vector<StoredObject> expected;
  for (int i = 0; i < count; ++i) {
    expected.push_back({"m/" + std::to_string(100 + i), static_cast<uint64_t>(i % 7)});
    ASSERT_TRUE(storage_->Create(expected.back().name, std::string(expected.back().size, 'x')).ok());
  }
  EXPECT_EQ(ListAll("m/"), expected);
}

TEST_P(StorageConformance, ReadsRanges) {
  const std::string contents = PatternBytes(70'000, 2);
  ASSERT_TRUE(storage_->Create("ranges", contents).ok());
  for (const auto& [offset, size] : std::vector<std::pair<size_t, size_t>>{
           {0, 1}, {0, 70'000}, {69'999, 1}, {4095, 2}, {12'345, 50'000}, {70'000, 0}, {5, 0}}) {
    std::string out(size, 'x');
    const absl::Status status = ReadRange(*storage_, "ranges", offset, &out);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(out == contents.substr(offset, size)) << offset << " " << size;
  }
}

TEST_P(StorageConformance, ReadsIntoSeveralPlaces) {
  const std::string contents = PatternBytes(70'000, 3);
  ASSERT_TRUE(storage_->Create("places", contents).ok());
  for (const std::vector<size_t>& sizes : std::vector<std::vector<size_t>>{
           {}, {0}, {70'000}, {1, 0, 4095, 2}, {30'000, 40'000}, std::vector<size_t>(2500, 7)}) {
    std::vector<std::string> out;
    for (const size_t size : sizes) out.emplace_back(size, 'x');
    std::vector<absl::Span<std::byte>> places;
    for (std::string& place : out) places.emplace_back(reinterpret_cast<std::byte*>(place.data()), place.size());
    const size_t offset = sizes.size() > 2 ? 5 : 0;
    const absl::Status status = storage_->ReadInto("places", offset, places);
    ASSERT_TRUE(status.ok()) << status;
    std::string joined;
    for (const std::string& place : out) joined += place;
    EXPECT_TRUE(joined == contents.substr(offset, joined.size())) << sizes.size();
  }
  std::string large(70'000, 'x'), one(1, 'x');
  const std::vector<absl::Span<std::byte>> beyond{{reinterpret_cast<std::byte*>(large.data()), large.size()},
                                                  {reinterpret_cast<std::byte*>(one.data()), 1}};
  EXPECT_EQ(storage_->ReadInto("places", 0, beyond).code(), absl::StatusCode::kDataLoss);
}

TEST_P(StorageConformance, ReadingBeyondTheEndIsDataLoss) {
  ASSERT_TRUE(storage_->Create("short", "0123456789").ok());
  for (const auto& [offset, size] : std::vector<std::pair<uint64_t, size_t>>{
           {0, 11}, {9, 2}, {10, 1}, {11, 1}, {1ull << 40, 4}, {~0ull, 1}, {~0ull - 3, 16}}) {
    std::string out(size, 'x');
    EXPECT_EQ(ReadRange(*storage_, "short", offset, &out).code(), absl::StatusCode::kDataLoss) << offset;
  }
}

TEST_P(StorageConformance, StagesLargeObjects) {
  const std::string contents = PatternBytes((37u << 20) + 11, 3);  // several parts of a multipart upload, one odd
  absl::Status status = Put(*storage_, "step-3/shard-0.h5", contents);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(ListAll(), (std::vector<StoredObject>{{"step-3/shard-0.h5", contents.size()}}));
  ExpectContents(*storage_, "step-3/shard-0.h5", contents);
  for (const uint64_t offset : {uint64_t{0}, uint64_t{16} << 20, uint64_t{37} << 20}) {
    std::string out(11, '\0');
    status = ReadRange(*storage_, "step-3/shard-0.h5", offset, &out);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(out, contents.substr(offset, out.size()));
  }
}

TEST_P(StorageConformance, StagedFilesMayBeOtherThanTheirEstimate) {
  for (const uint64_t estimate : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 20}) {
    const std::string name = "estimate-" + std::to_string(estimate);
    absl::StatusOr<std::unique_ptr<StagedFile>> file = storage_->Stage(name, estimate);
    ASSERT_TRUE(file.ok()) << file.status();
    WriteStaged(**file, PatternBytes(5000, estimate));
    ASSERT_TRUE((*file)->Commit().ok());
    ExpectContents(*storage_, name, PatternBytes(5000, estimate));
  }
}

TEST_P(StorageConformance, Deletes) {
  ASSERT_TRUE(storage_->Create("d/e/a", "1").ok());
  ASSERT_TRUE(storage_->Create("d/e/b", "2").ok());
  EXPECT_TRUE(storage_->Delete("d/e/a").ok());
  EXPECT_EQ(storage_->Size("d/e/a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ListAll(), (std::vector<StoredObject>{{"d/e/b", 1}}));
  EXPECT_TRUE(storage_->Delete("d/e/a").ok()) << "a second time";
  EXPECT_TRUE(storage_->Delete("d/e").ok()) << "not an object";
  ExpectContents(*storage_, "d/e/b", "2");
  EXPECT_TRUE(storage_->Delete("d/e/b").ok());
  EXPECT_TRUE(ListAll().empty());
  EXPECT_TRUE(storage_->Create("d", "a file where a directory was").ok());
  ExpectContents(*storage_, "d", "a file where a directory was");
}

TEST_P(StorageConformance, ADeletedNameCanBeUsedAgain) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(storage_->Create("again/a", std::to_string(i)).ok());
    ExpectContents(*storage_, "again/a", std::to_string(i));
    ASSERT_TRUE(storage_->Delete("again/a").ok());
  }
}

TEST_P(StorageConformance, StoragesOpenedOnTheSameContentsSeeTheSame) {
  const std::string contents = PatternBytes(3000, 4);
  ASSERT_TRUE(storage_->Create("a/b", contents).ok());
  ASSERT_TRUE(Put(*storage_, "a/c", "staged").ok());
  std::unique_ptr<Storage> second = bed_.open();
  ExpectContents(*second, "a/b", contents);
  EXPECT_EQ(second->Create("a/b", "x").code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(second->Create("a/d", "by the second").ok());
  ASSERT_TRUE(second->Delete("a/c").ok());
  second.reset();
  EXPECT_EQ(ListAll(), (std::vector<StoredObject>{{"a/b", 3000}, {"a/d", 13}}));
  ExpectContents(*storage_, "a/d", "by the second");
  storage_ = bed_.open();
  EXPECT_EQ(ListAll(), (std::vector<StoredObject>{{"a/b", 3000}, {"a/d", 13}}));
}

// Half of the threads create, half stage; each through a storage of its own.
TEST_P(StorageConformance, OfManyCreatorsExactlyOneWins) {
  constexpr int kThreads = 8, kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    const std::string name = "race/" + std::to_string(round);
    std::atomic<int> ready{0}, won{0}, lost{0}, winner{-1};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        const std::unique_ptr<Storage> storage = bed_.open();
        const std::string contents = PatternBytes(2000, static_cast<uint64_t>(i));
        for (++ready; ready < kThreads;) std::this_thread::yield();
        const absl::Status status = i % 2 ? storage->Create(name, contents) : Put(*storage, name, contents);
        if (status.ok()) {
          ++won;
          winner = i;
        } else if (status.code() == absl::StatusCode::kAlreadyExists) {
          ++lost;
        } else {
          ADD_FAILURE() << status;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(won, 1);
    ASSERT_EQ(lost, kThreads - 1);
    ExpectContents(*storage_, name, PatternBytes(2000, static_cast<uint64_t>(winner)));
  }
}

TEST_P(StorageConformance, ManyThreadsAtOnce) {
  constexpr int kThreads = 8, kObjects = 6;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < kObjects; ++j) {
        const std::string name = "shared/" + std::to_string(i) + "-" + std::to_string(j);
        const std::string contents = PatternBytes(500 * j, static_cast<uint64_t>(i * kObjects + j));
        const absl::Status status = j % 2 ? storage_->Create(name, contents) : Put(*storage_, name, contents);
        EXPECT_TRUE(status.ok()) << status;
        ExpectContents(*storage_, name, contents);
        EXPECT_TRUE(storage_->List("shared/").ok());
        if (j % 3 == 2) {
          const absl::Status deleted = storage_->Delete(name);
          EXPECT_TRUE(deleted.ok()) << deleted;
        }
      }
      const absl::Status swept = storage_->Sweep();
      EXPECT_TRUE(swept.ok()) << swept;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ListAll("shared/").size(), kThreads * (kObjects - kObjects / 3));
}

// A directory that becomes empty disappears, also while others put something into it.
TEST_P(StorageConformance, CreatorsAndDeletersInOneDirectory) {
  constexpr int kThreads = 4, kRounds = 8;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const std::string name = "deep/er/" + std::to_string(i);
      for (int round = 0; round < kRounds; ++round) {
        const absl::Status created = round % 2 ? storage_->Create(name, name) : Put(*storage_, name, name);
        EXPECT_TRUE(created.ok()) << created;
        ExpectContents(*storage_, name, name);
        const absl::Status deleted = storage_->Delete(name);
        EXPECT_TRUE(deleted.ok()) << deleted;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(ListAll().empty());
}

}  // namespace holdfast
