// Which checkpoints a scan offers, which it rejects and why, and what retention deletes.

#include "checkpoint/sharded/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "checkpoint/sharded/checkpoint_reader.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/fence.h"
#include "checkpoint/sharded/stored_files.h"
#include "tests/checkpoint/sharded/flat_checkpoint.h"
#include "tests/framework/storage/fault_storage.h"
#include "tests/framework/storage/memory_storage.h"
#include "tests/framework/storage/test_directory.h"

namespace holdfast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

absl::Status IsOurs() { return absl::OkStatus(); }

class CatalogTest : public testing::Test {
 protected:
  CatalogTest() : storage_(MakeMemoryStorage(directory_.path())) {}

  void Make(const CheckpointName& name) {
    FlatCheckpoint checkpoint = FlatCheckpoint::Make(name, TwoTensors(), GridOf(LayoutOf(TwoTensors())), {.shards = 2});
    const absl::Status status = checkpoint.Store(*storage_);
    ASSERT_TRUE(status.ok()) << status;
  }
  Catalog Scan() {
    const auto catalog = ScanCheckpoints(*storage_);
    EXPECT_TRUE(catalog.ok()) << catalog.status();
    return catalog.ok() ? *catalog : Catalog{};
  }
  static std::vector<std::string> NamesOf(const Catalog& catalog) {
    std::vector<std::string> names;
    for (const CatalogEntry& entry : catalog.valid) names.push_back(entry.manifest.name.ToString());
    return names;
  }

  TestDirectory directory_;
  std::unique_ptr<Storage> storage_;
};

TEST_F(CatalogTest, NewestFirst) {
  EXPECT_TRUE(Scan().valid.empty());
  for (const CheckpointName name :
       {CheckpointName{5, 2}, CheckpointName{20, 2}, CheckpointName{5, 10}, CheckpointName{7, 1}}) {
    ASSERT_NO_FATAL_FAILURE(Make(name));
  }
  ASSERT_TRUE(storage_->Create("fence-0000000001.json", "{}").ok());
  ASSERT_TRUE(storage_->Create("step-7/manifest.json", "not a checkpoint's name").ok());
  ASSERT_TRUE(storage_->Create("notes.txt", "of a person").ok());
  const Catalog catalog = Scan();
  EXPECT_THAT(NamesOf(catalog),
              ElementsAre("step-0000000020-g2", "step-0000000007-g1", "step-0000000005-g10", "step-0000000005-g2"));
  EXPECT_TRUE(catalog.rejected.empty());
  uint64_t bytes = 0;
  const auto objects = storage_->List("step-0000000020-g2/");
  for (const StoredObject& object : *objects) bytes += object.size;
  EXPECT_EQ(catalog.valid[0].bytes, bytes);
}

TEST_F(CatalogTest, WhatTheRunHasGoneBackBehindCannotBeUsed) {
  for (const CheckpointName name : {CheckpointName{20, 1}, CheckpointName{50, 1}, CheckpointName{35, 2}}) {
    ASSERT_NO_FATAL_FAILURE(Make(name));
  }
  Branch branch;
  branch.GoBack({.generation = 1, .step = 20});
  ASSERT_TRUE(Fence::Claim(*storage_, "me", {.generation = 1, .branch = branch}).ok());
  const Catalog catalog = Scan();
  EXPECT_THAT(NamesOf(catalog), ElementsAre("step-0000000035-g2", "step-0000000020-g1"));
  ASSERT_EQ(catalog.rejected.size(), 1u);
  EXPECT_EQ(catalog.rejected[0].name, "step-0000000050-g1");
  EXPECT_TRUE(catalog.rejected[0].given_up);
}

TEST_F(CatalogTest, RejectionsHaveReasons) {
  for (int64_t step = 1; step <= 7; ++step) ASSERT_NO_FATAL_FAILURE(Make({step, 1}));
  const auto object = [](int step, const char* file) { return ObjectName({step, 1}, file); };
  ASSERT_TRUE(storage_->Delete(object(7, kManifestName)).ok());
  ASSERT_TRUE(storage_->Delete(object(6, "shard-1-of-2.h5")).ok());
  ReplaceObject(*storage_, object(5, "shard-0-of-2.index"), "short");
  ReplaceObject(*storage_, object(4, kManifestName), "{}");
  ReplaceObject(*storage_, object(3, kManifestName), ObjectText(*storage_, object(2, kManifestName)));
  ASSERT_TRUE(storage_->Delete(object(2, kModelName)).ok());  // nothing is loaded from it
  const Catalog catalog = Scan();
  EXPECT_THAT(NamesOf(catalog), ElementsAre("step-0000000002-g1", "step-0000000001-g1"));
  ASSERT_EQ(catalog.rejected.size(), 5u);
  EXPECT_EQ(catalog.rejected[0].name, "step-0000000007-g1");
  EXPECT_TRUE(catalog.rejected[0].unfinished);
  EXPECT_THAT(catalog.rejected[0].reason, HasSubstr("not finished"));
  EXPECT_EQ(catalog.rejected[1].reason, "shard-1-of-2.h5 is missing");
  EXPECT_THAT(catalog.rejected[2].reason, HasSubstr("shard-0-of-2.index has 5 bytes instead of"));
  EXPECT_THAT(catalog.rejected[3].reason, HasSubstr("manifest.json: the manifest ends too early"));
  EXPECT_THAT(catalog.rejected[4].reason, HasSubstr("that of step-0000000002-g1"));
  for (size_t i = 1; i < 5; ++i) EXPECT_FALSE(catalog.rejected[i].unfinished);
}

TEST_F(CatalogTest, AnyByteOfTheNewestManifestAndTheOlderOneIsUsed) {
  ASSERT_NO_FATAL_FAILURE(Make({1, 1}));
  ASSERT_NO_FATAL_FAILURE(Make({2, 1}));
  const std::string name = ObjectName({2, 1}, kManifestName);
  const std::string good = ObjectText(*storage_, name);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    ReplaceObject(*storage_, name, bad);
    const Catalog catalog = Scan();
    ASSERT_THAT(NamesOf(catalog), ElementsAre("step-0000000001-g1")) << i;
    ASSERT_EQ(catalog.rejected.size(), 1u);
    ASSERT_EQ(catalog.rejected[0].name, "step-0000000002-g1");
    ASSERT_THAT(catalog.rejected[0].reason, HasSubstr("digest does not match"));
  }
}

TEST_F(CatalogTest, ManifestsThatCannotBeReadNowAreNoReasonToUseAnOlderOne) {
  ASSERT_NO_FATAL_FAILURE(Make({1, 1}));
  ASSERT_NO_FATAL_FAILURE(Make({2, 1}));
  for (const StorageOperation operation : {StorageOperation::kSize, StorageOperation::kReadAt}) {
    for (const auto& [fault, code] : {std::pair(StorageFault::kIoError, absl::StatusCode::kUnavailable),
                                      std::pair(StorageFault::kNoPermission, absl::StatusCode::kPermissionDenied),
                                      std::pair(StorageFault::kNoSpace, absl::StatusCode::kResourceExhausted)}) {
      FaultStorage failing(*storage_);
      failing.Inject({.operation = operation, .fault = fault, .name = ObjectName({2, 1}, kManifestName)});
      const auto catalog = ScanCheckpoints(failing);
      EXPECT_EQ(catalog.status().code(), code);
      EXPECT_THAT(std::string(catalog.status().message()), HasSubstr("step-0000000002-g1"));
      EXPECT_EQ(CheckpointReader::Open(failing, {2, 1}).status().code(), code);
    }
  }
}

TEST_F(CatalogTest, AManifestOfALaterVersionIsNoReasonEither) {
  ASSERT_NO_FATAL_FAILURE(Make({1, 1}));
  ASSERT_NO_FATAL_FAILURE(Make({2, 1}));
  const std::string name = ObjectName({2, 1}, kManifestName);
  std::string body = ObjectText(*storage_, name);
  body.resize(body.rfind(",\n  \"digest\""));
  body = absl::StrReplaceAll(body, {{"\"version\": 4", "\"version\": 5"}});
  ReplaceObject(*storage_, name, absl::StrCat(body, ",\n  \"digest\": \"", DigestFile(body), "\"\n}\n"));
  const auto catalog = ScanCheckpoints(*storage_);
  EXPECT_TRUE(absl::IsUnimplemented(catalog.status())) << catalog.status();
  EXPECT_THAT(std::string(catalog.status().message()), HasSubstr("step-0000000002-g1: version: 5 is unknown"));
  EXPECT_TRUE(absl::IsUnimplemented(CheckpointReader::Open(*storage_, {2, 1}).status()));
}

// A listing that still shows a checkpoint which is then deleted.
class DeletingStorage final : public FaultStorage {
 public:
  explicit DeletingStorage(Storage& storage) : FaultStorage(storage) {}
  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix) override {
    auto objects = FaultStorage::List(prefix);
    if (prefix.empty()) {
      EXPECT_TRUE(DeleteCheckpoint(*this, "step-0000000002-g1", IsOurs).ok());
    }
    return objects;
  }
};

TEST_F(CatalogTest, WhatIsDeletedMeanwhileIsNeitherValidNorRejected) {
  ASSERT_NO_FATAL_FAILURE(Make({1, 1}));
  ASSERT_NO_FATAL_FAILURE(Make({2, 1}));
  DeletingStorage deleting(*storage_);
  const auto catalog = ScanCheckpoints(deleting);
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  EXPECT_THAT(NamesOf(*catalog), ElementsAre("step-0000000001-g1"));
  EXPECT_TRUE(catalog->rejected.empty());
}

/// Says of manifests that they are not there, and lists them.
class ForgetfulStorage final : public FaultStorage {
 public:
  using FaultStorage::FaultStorage;
  absl::Status ReadAt(const std::string& name, uint64_t, absl::Span<std::byte>) override {
    return absl::NotFoundError(name);
  }
  absl::StatusOr<uint64_t> Size(const std::string& name) override { return absl::NotFoundError(name); }
};

TEST_F(CatalogTest, WhatIsListedAndNotFoundIsNoDeletedCheckpoint) {
  ASSERT_NO_FATAL_FAILURE(Make({1, 1}));
  ForgetfulStorage forgetful(*storage_);
  const auto catalog = ScanCheckpoints(forgetful);
  EXPECT_TRUE(absl::IsUnavailable(catalog.status())) << catalog.status();
}

TEST_F(CatalogTest, AManifestThatIsKnownIsNotReadAgain) {
  for (const int64_t step : {1, 2}) ASSERT_NO_FATAL_FAILURE(Make({step, 1}));
  FaultStorage storage(*storage_);
  KnownManifests known;
  const auto reads_of_a_scan = [&](const std::vector<std::string>& valid) {
    const int64_t before = storage.CallsOf(StorageOperation::kReadAt);
    const auto catalog = ScanCheckpoints(storage, &known);
    EXPECT_TRUE(catalog.ok()) << catalog.status();
    EXPECT_EQ(NamesOf(*catalog), valid);
    return storage.CallsOf(StorageOperation::kReadAt) - before;
  };
  const std::string one = "step-0000000001-g1", two = "step-0000000002-g1";
  EXPECT_EQ(reads_of_a_scan({two, one}), 2);
  EXPECT_EQ(reads_of_a_scan({two, one}), 0);
  ASSERT_TRUE(DeleteCheckpoint(*storage_, one, IsOurs).ok());
  EXPECT_EQ(reads_of_a_scan({two}), 0);
  EXPECT_EQ(known.size(), 1u) << "no more than there are";
  ASSERT_NO_FATAL_FAILURE(Make({1, 1}));
  EXPECT_EQ(reads_of_a_scan({two, one}), 1) << "it is another one";
  known.begin()->second.bytes += 1;
  EXPECT_EQ(reads_of_a_scan({two, one}), 1) << "it is not the one that was read";
}

TEST_F(CatalogTest, DeletionTakesThatOneOnly) {
  for (int64_t step : {1, 10, 11}) ASSERT_NO_FATAL_FAILURE(Make({step, 1}));
  ASSERT_NO_FATAL_FAILURE(Make({1, 11}));
  ASSERT_TRUE(DeleteCheckpoint(*storage_, "step-0000000001-g1", IsOurs).ok());
  EXPECT_THAT(NamesOf(Scan()), ElementsAre("step-0000000011-g1", "step-0000000010-g1", "step-0000000001-g11"));
  EXPECT_THAT(*storage_->List("step-0000000001-g1/"), IsEmpty());
  EXPECT_TRUE(DeleteCheckpoint(*storage_, "step-0000000001-g1", IsOurs).ok());
  for (const char* name : {"", "..", "step-0000000010", "step-0000000010-g1/", "../step-0000000010-g1", "step-10-g1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(DeleteCheckpoint(*storage_, name, IsOurs))) << name;
  }
  EXPECT_EQ(Scan().valid.size(), 3u);
}

// One that deletes is frozen before the manifest goes, and another has claimed the storage when it runs again.
TEST_F(CatalogTest, WhatANewOwnerKeepsIsPutBack) {
  ASSERT_NO_FATAL_FAILURE(Make({1, 1}));
  const std::string name = "step-0000000001-g1", manifest = ObjectName({1, 1}, kManifestName);
  const auto objects = storage_->List(name);
  const auto text = ReadObject(*storage_, manifest, kMaxManifestBytes);
  const auto is_lost = [&] {
    EXPECT_TRUE(Scan().valid.empty()) << "asked too early";
    return absl::FailedPreconditionError("it belongs to another");
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(DeleteCheckpoint(*storage_, name, is_lost)));
  EXPECT_EQ(storage_->List(name)->size(), objects->size()) << "nothing else may have gone";
  EXPECT_EQ(ReadObject(*storage_, manifest, kMaxManifestBytes).value_or("none"), *text);
}

TEST_F(CatalogTest, WhatANewOwnerDeletesAsWellIsNotPutBack) {
  ASSERT_NO_FATAL_FAILURE(Make({1, 1}));
  const std::string name = "step-0000000001-g1";
  const auto is_lost = [&] {
    EXPECT_TRUE(DeleteCheckpoint(*storage_, name, IsOurs).ok());
    return absl::FailedPreconditionError("it belongs to another");
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(DeleteCheckpoint(*storage_, name, is_lost)));
  EXPECT_THAT(*storage_->List(name), IsEmpty()) << "a manifest without its files";
}

CatalogEntry Entry(int64_t step, uint64_t generation, std::optional<double> loss = {}) {
  CatalogEntry entry;
  entry.manifest.name = {step, generation};
  entry.manifest.validation_loss = loss;
  return entry;
}

TEST(RetentionTest, Examples) {
  std::vector<CatalogEntry> valid;
  for (int64_t step = 10; step >= 1; --step) valid.push_back(Entry(step, 1, std::abs(static_cast<double>(step) - 4.1)));
  const auto kept = [&](const Retention& retention, const std::vector<CheckpointName>& pinned) {
    std::set<int64_t> steps{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    for (const CheckpointName& name : ChooseDeletions(valid, retention, pinned)) EXPECT_EQ(steps.erase(name.step), 1u);
    return steps;
  };
  EXPECT_THAT(kept({.keep_last = 2}, {}), ElementsAre(9, 10));
  EXPECT_THAT(kept({.keep_last = 0}, {}), ElementsAre(10));
  EXPECT_THAT(kept({.keep_last = -5}, {}), ElementsAre(10));
  EXPECT_THAT(kept({.keep_last = 100}, {}), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(kept({.keep_last = 1, .keep_every_steps = 3}, {}), ElementsAre(3, 6, 9, 10));
  EXPECT_THAT(kept({.keep_last = 1, .keep_best = 2}, {}), ElementsAre(4, 5, 10));
  EXPECT_THAT(kept({.keep_last = 1, .keep_every_steps = 4, .keep_best = 1}, {{2, 1}}), ElementsAre(2, 4, 8, 10));
  EXPECT_TRUE(ChooseDeletions({}, {}, {{2, 1}}).empty());
}

TEST(RetentionTest, OfOneLossTheOldestIsTheOneThatWasValidated) {
  // Step 2 has the best loss; 3 and 4, which were not validated, were given it by an earlier version.
  const std::vector<CatalogEntry> valid = {Entry(9, 1, 3.0), Entry(8, 1, 2.5), Entry(6, 1),
                                           Entry(4, 1, 2.0), Entry(3, 1, 2.0), Entry(2, 1, 2.0)};
  EXPECT_THAT(ChooseDeletions(valid, {.keep_last = 1, .keep_best = 1}, {}),
              ElementsAre(CheckpointName{3, 1}, CheckpointName{4, 1}, CheckpointName{6, 1}, CheckpointName{8, 1}));
  EXPECT_THAT(ChooseDeletions(valid, {.keep_last = 1, .keep_best = 2}, {}),
              ElementsAre(CheckpointName{3, 1}, CheckpointName{4, 1}, CheckpointName{6, 1}));
}

TEST(RetentionTest, OneCheckpointPerStepCounts) {
  const std::vector<CatalogEntry> valid = {Entry(8, 5, 1.0), Entry(8, 2, 0.5), Entry(6, 5), Entry(6, 1), Entry(4, 1)};
  EXPECT_THAT(ChooseDeletions(valid, {.keep_last = 2}, {}),
              ElementsAre(CheckpointName{4, 1}, CheckpointName{6, 1}, CheckpointName{8, 2}));
}

TEST(RetentionTest, Properties) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    std::set<CheckpointName> names;
    for (size_t n = random() % 20; n > 0; --n) names.insert({static_cast<int64_t>(random() % 30), 1 + random() % 3});
    std::vector<CatalogEntry> valid;
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
      valid.push_back(Entry(name->step, name->generation));
      if (random() % 2 == 0) valid.back().manifest.validation_loss = static_cast<double>(random() % 5);
    }
    const Retention retention{.keep_last = static_cast<int64_t>(random() % 5),
                              .keep_every_steps = static_cast<int64_t>(random() % 6),
                              .keep_best = static_cast<int64_t>(random() % 4)};
    std::vector<CheckpointName> pinned;
    for (const CheckpointName& name : names) {
      if (random() % 8 == 0) pinned.push_back(name);
    }
    const auto deletions = ChooseDeletions(valid, retention, pinned);
    ASSERT_TRUE(std::is_sorted(deletions.begin(), deletions.end()));
    const std::set<CheckpointName> deleted(deletions.begin(), deletions.end());
    ASSERT_EQ(deleted.size(), deletions.size());
    int64_t newer_steps = 0;
    for (size_t i = 0; i < valid.size(); ++i) {
      const CheckpointName name = valid[i].manifest.name;
      const bool shadowed = i > 0 && valid[i - 1].manifest.name.step == name.step;
      const bool is_pinned = std::find(pinned.begin(), pinned.end(), name) != pinned.end();
      std::set<double> better;
      bool is_oldest = true;
      for (size_t j = 0; j < valid.size(); ++j) {
        const Manifest& other = valid[j].manifest;
        if (j > 0 && valid[j - 1].manifest.name.step == other.name.step) continue;
        if (!other.validation_loss || !valid[i].manifest.validation_loss) continue;
        if (*other.validation_loss < *valid[i].manifest.validation_loss) better.insert(*other.validation_loss);
        is_oldest = is_oldest && (j <= i || *other.validation_loss != *valid[i].manifest.validation_loss);
      }
      const bool kept =
          !shadowed && (newer_steps < std::max<int64_t>(1, retention.keep_last) ||
                        (retention.keep_every_steps > 0 && name.step % retention.keep_every_steps == 0) ||
                        (valid[i].manifest.validation_loss && is_oldest && std::ssize(better) < retention.keep_best));
      ASSERT_EQ(deleted.contains(name), !kept && !is_pinned) << name.ToString();
      newer_steps += !shadowed;
    }
    ASSERT_TRUE(valid.empty() || !deleted.contains(valid[0].manifest.name));
  }
}

}  // namespace
}  // namespace holdfast
