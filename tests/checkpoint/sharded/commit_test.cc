// Who may write checkpoints; what a commit checks before a checkpoint exists; and that a process killed anywhere in a
// claim, a commit or a deletion leaves the old set of checkpoints or the new one.

#include "checkpoint/sharded/commit.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/catalog.h"
#include "checkpoint/sharded/checkpoint_reader.h"
#include "checkpoint/sharded/commit_crash_points.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/shard_writer.h"
#include "checkpoint/sharded/stored_files.h"
#include "framework/base/status.h"
#include "framework/storage/local_storage.h"
#include "tests/checkpoint/sharded/flat_checkpoint.h"
#include "tests/framework/storage/fault_storage.h"
#include "tests/framework/storage/memory_storage.h"
#include "tests/framework/storage/test_directory.h"
#include "tests/framework/tensor/copy_of.h"

namespace holdfast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two shards by the real writer, without a manifest.
absl::StatusOr<Manifest> WriteShards(Storage& storage, const CheckpointName& name) {
  const ParameterLayout layout = LayoutOf(TwoTensors());
  Manifest manifest{.name = name,
                    .config = "run: {}\n",
                    .world_size = 2,
                    .sharding = "full_shard",
                    .validation_loss = {},
                    .tensors = TwoTensors(),
                    .shards = {},
                    .model = {}};
  const auto chunks = static_cast<int>(layout.chunks().size());
  for (int s = 0; s < 2; ++s) {
    std::vector<int> mine;
    for (int c = s * chunks / 2; c < (s + 1) * chunks / 2; ++c) mine.push_back(c);
    ASSIGN_OR_RETURN(auto writer, ShardWriter::Create(storage, {.checkpoint = name, .shard = s, .num_shards = 2},
                                                      ThreePlanes(layout), mine));
    for (const int c : mine) {
      const Chunk& chunk = layout.chunks()[static_cast<size_t>(c)];
      const std::vector<std::byte> bytes =
          TestBytes(TwoTensors(), {.tensor = chunk.parameter, .first_row = chunk.first_row, .rows = chunk.num_rows});
      RETURN_IF_ERROR(writer->Add({.chunk = c, .bytes = CopyOf(bytes), .digest = DigestBytes(bytes)}));
    }
    ASSIGN_OR_RETURN(const ShardReport report, writer->Commit());
    manifest.shards.push_back(report.shard);
  }
  return manifest;
}

class FenceTest : public testing::Test {
 protected:
  FenceTest() : storage_(MakeMemoryStorage(directory_.path())) {}

  Catalog Scan() {
    const auto catalog = ScanCheckpoints(*storage_);
    EXPECT_TRUE(catalog.ok()) << catalog.status();
    return catalog.ok() ? *catalog : Catalog{};
  }
  std::unique_ptr<Fence> Claim(const std::string& owner) {
    auto fence = Fence::Claim(*storage_, owner);
    EXPECT_TRUE(fence.ok()) << fence.status();
    return fence.ok() ? std::move(*fence) : nullptr;
  }

  TestDirectory directory_;
  std::unique_ptr<Storage> storage_;
};

TEST_F(FenceTest, TheLastOneOwns) {
  const auto first = Claim("first");
  EXPECT_EQ(first->epoch(), 1u);
  EXPECT_TRUE(first->Check().ok());
  const auto second = Claim("host \"two\"\n, process 2");
  EXPECT_EQ(second->epoch(), 2u);
  EXPECT_TRUE(second->Check().ok());
  const absl::Status refused = first->Check();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("belongs to host \"two\"\n, process 2 now"));
  EXPECT_THAT(*storage_->List("fence-"), testing::SizeIs(1));  // the old one is gone
}

TEST_F(FenceTest, OddObjectsDoNotMatter) {
  for (const char* name :
       {"fence-.json", "fence-00000000099.json", "fence-99.json", "fence-0000000099.txt", "fence-x000000099.json"}) {
    ASSERT_TRUE(storage_->Create(name, "x").ok());
  }
  const auto fence = Claim("me");
  EXPECT_EQ(fence->epoch(), 1u);
  EXPECT_TRUE(fence->Check().ok());
  ASSERT_TRUE(storage_->Create("fence-0000000007.json", "not JSON").ok());
  EXPECT_THAT(std::string(fence->Check().message()), HasSubstr("belongs to somebody now (epoch 7"));
  ASSERT_TRUE(storage_->Create("fence-9999999999.json", "{}").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Fence::Claim(*storage_, "me").status()));
}

TEST_F(FenceTest, AClaimThatWasRemovedIsMadeAnew) {
  Branch branch;
  branch.GoBack({.generation = 7, .step = 20});
  const auto fence = Fence::Claim(*storage_, "me", {.generation = 0, .branch = branch});
  ASSERT_TRUE(fence.ok()) << fence.status();
  ASSERT_TRUE(storage_->Delete("fence-0000000001.json").ok());  // by a person, say
  for (int again = 0; again < 2; ++again) {
    EXPECT_TRUE((*fence)->Check().ok()) << (*fence)->Check();
    EXPECT_EQ((*fence)->epoch(), 2u);
    EXPECT_EQ(*ReadBranch(*storage_), branch);
    EXPECT_THAT(*storage_->List("fence-"), testing::SizeIs(1));
  }
  Claim("another");
  EXPECT_TRUE(absl::IsFailedPrecondition((*fence)->Check()));
}

// As where the directory was moved away, claimed anew, removed and put back.
TEST_F(FenceTest, EarlierClaimsThatAreBackAreNotOfAnother) {
  for (const bool of_another : {false, true}) {
    SCOPED_TRACE(of_another);
    storage_ = MakeMemoryStorage(directory_.path());
    const auto fence = Claim("me");
    const auto first = ReadObject(*storage_, "fence-0000000001.json", 1 << 20);
    ASSERT_TRUE(first.ok()) << first.status();
    for (const int epoch : {1, 2}) {
      ASSERT_TRUE(storage_->Delete(absl::StrCat("fence-000000000", epoch, ".json")).ok());
      ASSERT_TRUE(fence->Check().ok()) << fence->Check();
    }
    ASSERT_EQ(fence->epoch(), 3u);
    ASSERT_TRUE(storage_->Delete("fence-0000000003.json").ok());
    ASSERT_TRUE(storage_->Create("fence-0000000001.json", *first).ok());
    if (of_another) {
      ASSERT_TRUE(storage_->Create("fence-0000000002.json", R"({"owner": "another"})").ok());
    }
    const absl::Status checked = fence->Check();
    EXPECT_EQ(checked.ok(), !of_another) << checked;
    EXPECT_EQ(fence->lost(), of_another);
    if (of_another) continue;
    EXPECT_EQ(fence->epoch(), 4u);
    EXPECT_THAT(*storage_->List("fence-"), testing::SizeIs(1));
  }
}

TEST_F(FenceTest, AClaimThatWasRemovedIsMadeAnewOnlyByWhoStillLeads) {
  bool leads = true;
  const auto may_claim = [&] { return leads ? absl::OkStatus() : absl::AbortedError("another one leads"); };
  const auto fence = Fence::Claim(*storage_, "me", {}, ThisProcess(), may_claim);
  ASSERT_TRUE(fence.ok()) << fence.status();
  ASSERT_TRUE(storage_->Delete("fence-0000000001.json").ok());
  leads = false;
  EXPECT_TRUE(absl::IsAborted((*fence)->Check()));
  Branch branch;
  branch.GoBack({.generation = 7, .step = 20});
  EXPECT_TRUE(absl::IsAborted((*fence)->GoBack(branch)));
  EXPECT_THAT(*storage_->List("fence-"), IsEmpty());
}

TEST_F(FenceTest, TheAnswerToAClaimThatIsMadeAnewMayBeLost) {
  FaultStorage faulty(*storage_);
  const auto fence = Fence::Claim(faulty, "me");
  ASSERT_TRUE(fence.ok()) << fence.status();
  ASSERT_TRUE(storage_->Delete("fence-0000000001.json").ok());
  faulty.Inject({.operation = StorageOperation::kCreate, .fault = StorageFault::kLostAnswer, .count = 1});
  EXPECT_TRUE(absl::IsUnavailable((*fence)->Check()));
  EXPECT_FALSE((*fence)->lost());
  EXPECT_TRUE((*fence)->Check().ok()) << (*fence)->Check();
  EXPECT_EQ((*fence)->epoch(), 2u);
}

TEST_F(FenceTest, AClaimOfAnotherWithOurNumberIsNotOurs) {
  const auto fence = Claim("me");
  ASSERT_TRUE(storage_->Delete("fence-0000000001.json").ok());  // by a person, say
  const auto other = Claim("me");                               // in the same words
  ASSERT_EQ(other->epoch(), fence->epoch());
  EXPECT_TRUE(other->Check().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(fence->Check()));
}

TEST_F(FenceTest, ManyAtOnceHaveOneOwner) {
  std::vector<std::unique_ptr<Fence>> fences(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < fences.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        auto fence = Fence::Claim(*storage_, absl::StrCat(i));
        if (fence.ok()) fences[i] = std::move(*fence);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<uint64_t> epochs;
  int owners = 0;
  for (const auto& fence : fences) {
    if (fence == nullptr) continue;
    EXPECT_TRUE(epochs.insert(fence->epoch()).second) << "two claims with one epoch";
    owners += fence->Check().ok();
  }
  EXPECT_EQ(owners, 1);
}

// While we are about to create our first claim, somebody takes that number and somebody else the next, which removes
// it: our creation succeeds although a higher claim is there.
class RacingStorage final : public FaultStorage {
 public:
  explicit RacingStorage(Storage& storage) : FaultStorage(storage), storage_(storage) {}
  absl::Status Create(const std::string& name, absl::string_view contents) override {
    if (std::exchange(first_, false)) {
      RETURN_IF_ERROR(Fence::Claim(storage_, "second").status());
      RETURN_IF_ERROR(Fence::Claim(storage_, "third").status());
    }
    return storage_.Create(name, contents);
  }

 private:
  Storage& storage_;
  bool first_ = true;
};

TEST_F(FenceTest, ANumberThatIsFreeAgainIsNotTaken) {
  RacingStorage racing(*storage_);
  const auto fence = Fence::Claim(racing, "first");
  ASSERT_TRUE(fence.ok()) << fence.status();
  EXPECT_EQ((*fence)->epoch(), 3u);
  EXPECT_TRUE((*fence)->Check().ok());
  EXPECT_THAT(*storage_->List("fence-"), testing::SizeIs(1));
}

/// Before a chosen call, counted from 0, other processes claim one after the other: each removes the claim before its
/// own, so that all of their numbers but the last are free again.
class TakenOverStorage final : public FaultStorage {
 public:
  TakenOverStorage(Storage& storage, int claims) : FaultStorage(storage), storage_(storage), claims_(claims) {}
  void TakeOverBefore(int64_t call) { call_ = call; }  // counted from now on
  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix) override {
    Count();
    return storage_.List(prefix);
  }
  absl::Status ReadAt(const std::string& name, uint64_t offset, absl::Span<std::byte> out) override {
    Count();
    return storage_.ReadAt(name, offset, out);
  }
  absl::Status Create(const std::string& name, absl::string_view contents) override {
    Count();
    return storage_.Create(name, contents);
  }
  absl::Status Delete(const std::string& name) override {
    Count();
    return storage_.Delete(name);
  }
  Fence* owner() const { return owner_.get(); }  // the last of the others; null: none has claimed yet

 private:
  void Count() {
    if (call_-- != 0) return;
    for (int i = 0; i < claims_; ++i) {
      auto claimed = Fence::Claim(storage_, "another");
      ASSERT_TRUE(claimed.ok()) << claimed.status();
      owner_ = *std::move(claimed);
    }
  }

  Storage& storage_;
  int64_t call_ = -1;
  const int claims_;
  std::unique_ptr<Fence> owner_;
};

// As a coordinator that is frozen before any of the calls that make a claim, and replaced meanwhile.
TEST_F(FenceTest, WhoIsReplacedWhileItClaimsTakesNothingFromItsSuccessor) {
  for (const int claims : {1, 2, 3}) {
    for (int64_t call = 0;; ++call) {
      SCOPED_TRACE(absl::StrCat(claims, " claims before call ", call));
      storage_ = MakeMemoryStorage(directory_.path());
      Claim("before");
      TakenOverStorage storage(*storage_, claims);
      storage.TakeOverBefore(call);
      const auto may_claim = [&storage] {
        return storage.owner() == nullptr ? absl::OkStatus() : absl::AbortedError("another one leads");
      };
      const auto fence = Fence::Claim(storage, "frozen", {}, ThisProcess(), may_claim);
      if (storage.owner() == nullptr) {
        EXPECT_TRUE(fence.ok()) << fence.status();
        ASSERT_GT(call, 4) << "a list, a claim, a list, a look and a deletion are calls";
        break;
      }
      const absl::Status owns = storage.owner()->Check();
      EXPECT_TRUE(owns.ok()) << owns;
      EXPECT_THAT(*storage_->List("fence-"), testing::SizeIs(1));
      if (fence.ok()) {
        EXPECT_TRUE(absl::IsFailedPrecondition((*fence)->Check()));
      } else {
        EXPECT_TRUE(absl::IsAborted(fence.status())) << fence.status();
      }
    }
  }
}

// The same where a person has removed the claim, so that the successor may have a lower number, or has put back an
// earlier one.
TEST_F(FenceTest, WhoIsReplacedWhileItClaimsAnewTakesNothingFromItsSuccessor) {
  for (const int claims : {1, 2, 3, -1, -2, -3}) {
    for (int64_t call = 0;; ++call) {
      const bool put_back = claims < 0;
      SCOPED_TRACE(absl::StrCat(claims, " claims before call ", call));
      storage_ = MakeMemoryStorage(directory_.path());
      TakenOverStorage storage(*storage_, std::abs(claims));
      const auto fence = Fence::Claim(storage, "frozen");
      ASSERT_TRUE(fence.ok()) << fence.status();
      const auto first = ReadObject(*storage_, "fence-0000000001.json", 1 << 20);
      ASSERT_TRUE(first.ok()) << first.status();
      ASSERT_TRUE(storage_->Delete("fence-0000000001.json").ok());
      if (put_back) {
        ASSERT_TRUE((*fence)->Check().ok());
        ASSERT_TRUE(storage_->Delete("fence-0000000002.json").ok());
        ASSERT_TRUE(storage_->Create("fence-0000000001.json", *first).ok());
      }
      storage.TakeOverBefore(call);
      const absl::Status checked = (*fence)->Check();
      if (storage.owner() == nullptr) {
        EXPECT_TRUE(checked.ok()) << checked;
        ASSERT_GT(call, 3) << "a list, a claim, a list and a deletion are calls";
        break;
      }
      const absl::Status owns = storage.owner()->Check();
      EXPECT_TRUE(owns.ok()) << owns;
      EXPECT_THAT(*storage_->List("fence-"), testing::SizeIs(1));
      EXPECT_TRUE(absl::IsFailedPrecondition(checked.ok() ? (*fence)->Check() : checked)) << checked;
      EXPECT_TRUE((*fence)->lost());
    }
  }
}

TEST_F(FenceTest, KeepsWhatEveryRunHasGoneBackBehind) {
  const auto first = Fence::Claim(*storage_, "first", {.generation = 0, .branch = {}});
  ASSERT_TRUE(first.ok());
  Branch branch;
  branch.GoBack({.generation = 7, .step = 20});
  ASSERT_TRUE((*first)->GoBack(branch).ok());
  EXPECT_EQ((*first)->epoch(), 2u);
  EXPECT_TRUE((*first)->Check().ok());
  EXPECT_THAT(*storage_->List("fence-"), testing::SizeIs(1));
  EXPECT_TRUE((*first)->GoBack(branch).ok());
  EXPECT_EQ((*first)->epoch(), 2u) << "it is there already";
  Branch of_second;
  of_second.GoBack({.generation = 9, .step = 30});
  const auto second = Fence::Claim(*storage_, "second", {.generation = 9, .branch = of_second});
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*second)->branch().barriers(), (std::vector<Barrier>{{7, 20}, {9, 30}}));
  EXPECT_EQ(*ReadBranch(*storage_), (*second)->branch());
  Branch late;
  late.GoBack({.generation = 9, .step = 1});
  EXPECT_FALSE((*first)->lost());
  EXPECT_TRUE(absl::IsFailedPrecondition((*first)->GoBack(late))) << "it belongs to the second";
  EXPECT_TRUE((*first)->lost());
  EXPECT_EQ(*ReadBranch(*storage_), (*second)->branch());
}

// As if nothing had been given up, a checkpoint that was could be the newest, and the next claim would say so for ever.
TEST_F(FenceTest, BarriersThatCannotBeReadAreNotNone) {
  ASSERT_TRUE(storage_->Create("fence-0000000001.json", "{}").ok());
  EXPECT_EQ(*ReadBranch(*storage_), Branch()) << "a claim from before there were any";
  for (const char* claim :
       {"", "not JSON", "[]", R"({"barriers": {"generation": 7, "step": 20}})", R"({"barriers": [7]})",
        R"({"barriers": [{"generation": 7}]})", R"({"barriers": [{"generation": 7, "step": -20}]})",
        R"({"barriers": [{"generation": 7, "step": 9223372036854775808}]})"}) {
    SCOPED_TRACE(claim);
    ASSERT_TRUE(storage_->Create("fence-0000000007.json", claim).ok());
    EXPECT_TRUE(absl::IsDataLoss(ReadBranch(*storage_).status()));
    EXPECT_TRUE(absl::IsDataLoss(ScanCheckpoints(*storage_).status()));
    const absl::Status claimed = Fence::Claim(*storage_, "me").status();
    EXPECT_TRUE(absl::IsDataLoss(claimed)) << claimed;
    EXPECT_THAT(std::string(claimed.message()), HasSubstr("highest number is damaged"));
    EXPECT_TRUE(storage_->Size("fence-0000000007.json").ok()) << "it is for a person to say that it does not count";
    ASSERT_TRUE(storage_->Delete("fence-0000000007.json").ok());
  }
  EXPECT_EQ(Claim("me")->epoch(), 2u);
}

TEST_F(FenceTest, AClaimOfBarriersWhoseAnswerWasLostIsOurs) {
  FaultStorage faulty(*storage_);
  const auto fence = Fence::Claim(faulty, "me");
  ASSERT_TRUE(fence.ok());
  faulty.Inject({.operation = StorageOperation::kCreate, .fault = StorageFault::kLostAnswer, .count = 1});
  Branch branch;
  branch.GoBack({.generation = 7, .step = 20});
  EXPECT_FALSE((*fence)->GoBack(branch).ok());
  EXPECT_TRUE((*fence)->GoBack(branch).ok());
  EXPECT_TRUE((*fence)->Check().ok());
}

TEST_F(FenceTest, AfterALostAnswerTheRunMayGoBackFurther) {
  FaultStorage faulty(*storage_);
  const auto fence = Fence::Claim(faulty, "me");
  ASSERT_TRUE(fence.ok());
  faulty.Inject({.operation = StorageOperation::kCreate, .fault = StorageFault::kLostAnswer, .count = 1});
  Branch branch;
  branch.GoBack({.generation = 7, .step = 20});
  EXPECT_FALSE((*fence)->GoBack(branch).ok());
  branch.GoBack({.generation = 8, .step = 10});
  const absl::Status back = (*fence)->GoBack(branch);
  EXPECT_TRUE(back.ok()) << back;
  EXPECT_FALSE((*fence)->lost());
  EXPECT_EQ(*ReadBranch(*storage_), branch);
  EXPECT_TRUE((*fence)->Check().ok());
  EXPECT_THAT(*storage_->List("fence-"), testing::SizeIs(1));
}

TEST_F(FenceTest, LowerClaimsTakeNothingFromAnOwnerWhoseClaimIsThere) {
  FaultStorage faulty(*storage_);
  Claim("before");
  const auto fence = Fence::Claim(faulty, "me");
  ASSERT_TRUE(fence.ok());
  // As of somebody who ends before it has taken it back.
  ASSERT_TRUE(storage_->Create("fence-0000000001.json", R"({"owner": "frozen", "barriers": []})").ok());
  faulty.Inject({.operation = StorageOperation::kDelete, .fault = StorageFault::kIoError, .count = 1});
  Branch branch;
  branch.GoBack({.generation = 7, .step = 20});
  EXPECT_TRUE(absl::IsUnavailable((*fence)->GoBack(branch))) << "it cannot delete the claim before";
  branch.GoBack({.generation = 8, .step = 10});
  const absl::Status back = (*fence)->GoBack(branch);
  EXPECT_TRUE(back.ok()) << back;
  EXPECT_FALSE((*fence)->lost());
  EXPECT_EQ((*fence)->epoch(), 4u);
  EXPECT_EQ(*ReadBranch(*storage_), branch);
}

TEST_F(FenceTest, GenerationsOfALaterClaimAreAboveThoseOfItsOwnRun) {
  const auto fence = Fence::Claim(*storage_, "me", {.generation = 5 * kGenerationsPerEpoch + 3, .branch = {}});
  ASSERT_TRUE(fence.ok());
  EXPECT_EQ((*fence)->epoch(), 6u);
}

class CommitTest : public FenceTest {
 protected:
  const CheckpointName name_{.step = 40, .generation = 2};
};

TEST_F(CommitTest, MakesACheckpoint) {
  const auto fence = Claim("me");
  auto manifest = WriteShards(*storage_, name_);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  manifest->validation_loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(Scan().valid.empty());
  const auto committed = CommitCheckpoint(*storage_, *fence, *manifest);
  ASSERT_TRUE(committed.ok()) << committed.status();
  const Catalog catalog = Scan();
  ASSERT_EQ(catalog.valid.size(), 1u);
  EXPECT_TRUE(catalog.valid[0].manifest == *committed);
  EXPECT_NE(committed->state_digest, 0u);
  EXPECT_FALSE(committed->validation_loss.has_value());
  const auto reader = CheckpointReader::Open(*storage_, name_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_THAT(*(*reader)->Verify({}), IsEmpty());
  // The definition, once more: XXH3 of the chunks' digests in the layout's order.
  std::vector<uint64_t> digests;
  for (const WantedRows& rows : GridOf(LayoutOf(TwoTensors())))
    digests.push_back(DigestBytes(TestBytes(TwoTensors(), rows)));
  EXPECT_EQ(committed->state_digest,
            DigestBytes({reinterpret_cast<const std::byte*>(digests.data()), digests.size() * 8}));

  // Once more, as after a lost answer: the same; but another checkpoint cannot take the name.
  manifest->validation_loss.reset();
  const auto again = CommitCheckpoint(*storage_, *fence, *manifest);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == *committed);
  manifest->samples = 99;
  EXPECT_TRUE(absl::IsAlreadyExists(CommitCheckpoint(*storage_, *fence, *manifest).status()));
}

TEST_F(CommitTest, WhoWasReplacedCommitsNothing) {
  const auto fence = Claim("me");
  const auto manifest = WriteShards(*storage_, name_);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const auto other = Claim("other");
  EXPECT_TRUE(absl::IsFailedPrecondition(CommitCheckpoint(*storage_, *fence, *manifest).status()));
  EXPECT_TRUE(Scan().valid.empty());
}

TEST_F(CommitTest, DamageIsFoundBeforeTheManifest) {
  const auto fence = Claim("me");
  const auto manifest = WriteShards(*storage_, name_);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const auto refusal = [&](const Manifest& changed) {
    const absl::Status status = CommitCheckpoint(*storage_, *fence, changed).status();
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(Scan().valid.empty());
    return std::string(status.message());
  };
  Manifest changed = *manifest;
  changed.state_digest = 1;
  EXPECT_THAT(refusal(changed), HasSubstr("expected is 0000000000000001"));
  changed = *manifest;
  changed.shards.pop_back();
  EXPECT_THAT(refusal(changed), HasSubstr("stored nowhere"));
  changed = *manifest;
  ++changed.shards[0].data.size;
  EXPECT_THAT(refusal(changed), HasSubstr("bytes instead of"));
  changed = *manifest;
  changed.shards[0].index.digest[3] ^= 1;
  EXPECT_THAT(refusal(changed), HasSubstr("index"));
  changed = *manifest;
  changed.tensors.pop_back();
  EXPECT_THAT(refusal(changed), HasSubstr("no tensor 1"));
  changed = *manifest;
  changed.tensors[0].shape = {301, 256};
  EXPECT_THAT(refusal(changed), HasSubstr("a: rows 300 to 300"));
  changed = *manifest;
  changed.world_size = 0;
  EXPECT_THAT(refusal(changed), HasSubstr("world_size"));
  changed = *manifest;
  changed.shards.clear();
  refusal(changed);
  EXPECT_TRUE(CommitCheckpoint(*storage_, *fence, *manifest).ok());  // what failed before is no hindrance
}

// While the model file is written, somebody else claims: only the second look at the fence can see that.
class ReplacingStorage final : public FaultStorage {
 public:
  explicit ReplacingStorage(Storage& storage) : FaultStorage(storage), storage_(storage) {}
  absl::StatusOr<std::unique_ptr<StagedFile>> Stage(const std::string& name, uint64_t bytes) override {
    RETURN_IF_ERROR(Fence::Claim(storage_, "other").status());
    return storage_.Stage(name, bytes);
  }

 private:
  Storage& storage_;
};

TEST_F(CommitTest, WhoIsReplacedMeanwhileWritesNoManifest) {
  const auto manifest = WriteShards(*storage_, name_);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ReplacingStorage replacing(*storage_);
  auto fence = Fence::Claim(replacing, "me");
  ASSERT_TRUE(fence.ok());
  const absl::Status status = CommitCheckpoint(replacing, **fence, *manifest).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(Scan().valid.empty());
}

// Whichever call fails, and however: there is no checkpoint, and trying again makes it.
TEST_F(CommitTest, CanBeTriedAgainAfterAnyFault) {
  for (const StorageOperation operation :
       {StorageOperation::kList, StorageOperation::kSize, StorageOperation::kReadAt, StorageOperation::kStage,
        StorageOperation::kCommit, StorageOperation::kCreate}) {
    for (const StorageFault fault : {StorageFault::kNoSpace, StorageFault::kUnavailable, StorageFault::kLostAnswer}) {
      for (int64_t skip = 0;; ++skip) {
        SCOPED_TRACE(absl::StrCat(static_cast<int>(operation), " ", static_cast<int>(fault), " ", skip));
        storage_ = MakeMemoryStorage(directory_.path());
        const auto manifest = WriteShards(*storage_, name_);
        ASSERT_TRUE(manifest.ok()) << manifest.status();
        FaultStorage faulty(*storage_);
        const auto fence = Fence::Claim(faulty, "me");
        ASSERT_TRUE(fence.ok()) << fence.status();
        faulty.Inject({.operation = operation, .fault = fault, .skip = skip, .count = 1});
        const auto first = CommitCheckpoint(faulty, **fence, *manifest);
        const bool manifest_made = operation == StorageOperation::kCreate && fault == StorageFault::kLostAnswer;
        EXPECT_EQ(Scan().valid.empty(), !first.ok() && !manifest_made);
        if (first.ok()) {
          ASSERT_GT(skip, 0) << "no such call";
          break;
        }
        const auto again = CommitCheckpoint(faulty, **fence, *manifest);
        ASSERT_TRUE(again.ok()) << again.status();
        const auto reader = CheckpointReader::Open(*storage_, name_);
        ASSERT_TRUE(reader.ok()) << reader.status();
        EXPECT_THAT(*(*reader)->Verify({}), IsEmpty());
      }
    }
  }
}

TEST_F(CommitTest, LinksInPlaceOfFilesAreNotFollowed) {
  const auto local = OpenLocalStorage(directory_ / "store");
  ASSERT_TRUE(local.ok()) << local.status();
  FlatCheckpoint checkpoint = FlatCheckpoint::Make(name_, TwoTensors(), GridOf(LayoutOf(TwoTensors())), {.shards = 2});
  ASSERT_TRUE(checkpoint.Store(**local).ok());
  const std::string path = directory_ / absl::StrCat("store/", name_.ToString(), "/");
  const auto open = CheckpointReader::Open(**local, name_);
  ASSERT_TRUE(open.ok()) << open.status();
  for (const std::string file : {"shard-0-of-2.h5", "shard-1-of-2.index", "manifest.json"}) {
    std::filesystem::rename(path + file, directory_ / "elsewhere");
    std::filesystem::create_symlink(directory_ / "elsewhere", path + file);
    EXPECT_FALSE(CheckpointReader::Open(**local, name_).ok()) << file;
    const auto catalog = ScanCheckpoints(**local);
    ASSERT_TRUE(catalog.ok()) << catalog.status();
    EXPECT_TRUE(catalog->valid.empty()) << file;
    if (file != kManifestName) {
      EXPECT_THAT((*open)->Verify({})->front(), HasSubstr(file));
    }
    std::filesystem::remove(path + file);
    std::filesystem::rename(directory_ / "elsewhere", path + file);
  }
  ASSERT_TRUE(CheckpointReader::Open(**local, name_).ok());
  std::filesystem::rename(directory_ / absl::StrCat("store/", name_.ToString()), directory_ / "elsewhere");
  std::filesystem::create_directory_symlink(directory_ / "elsewhere",
                                            directory_ / absl::StrCat("store/", name_.ToString()));
  EXPECT_FALSE(CheckpointReader::Open(**local, name_).ok());
}

// What the child of the crash tests does in HOLDFAST_TEST_DIRECTORY: step 1 is there; it commits step 2 and deletes 1.
TEST(CommitCrashChild, DISABLED_Work) {
  const auto storage = OpenLocalStorage(std::getenv("HOLDFAST_TEST_DIRECTORY"));
  ASSERT_TRUE(storage.ok()) << storage.status();
  const auto fence = Fence::Claim(**storage, "child");
  ASSERT_TRUE(fence.ok()) << fence.status();
  const auto manifest = WriteShards(**storage, {2, 2});
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ASSERT_TRUE(CommitCheckpoint(**storage, **fence, *manifest).ok());
  ASSERT_TRUE(DeleteCheckpoint(**storage, "step-0000000001-g1", [&] { return (*fence)->Check(); }).ok());
}

int RunCrashChild(const std::string& directory, const std::string& point) {
  const pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    setenv("HOLDFAST_TEST_DIRECTORY", directory.c_str(), 1);
    setenv("HOLDFAST_CRASH_POINT", point.c_str(), 1);
    execl("/proc/self/exe", "commit_test", "--gtest_filter=CommitCrashChild.DISABLED_Work",
          "--gtest_also_run_disabled_tests", nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(CommitCrash, AnywhereLeavesTheOldOrTheNew) {
  for (const std::string point : kCommitCrashPoints) {
    for (int passage = 1;; ++passage) {
      SCOPED_TRACE(absl::StrCat(point, ":", passage));
      const TestDirectory directory;
      const auto storage = OpenLocalStorage(directory / "store");
      ASSERT_TRUE(storage.ok()) << storage.status();
      FlatCheckpoint old = FlatCheckpoint::Make({1, 1}, TwoTensors(), GridOf(LayoutOf(TwoTensors())), {.shards = 2});
      ASSERT_TRUE(old.Store(**storage).ok());
      const int status = RunCrashChild(directory / "store", absl::StrCat(point, ":", passage));
      const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      ASSERT_TRUE(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << status;
      const auto catalog = ScanCheckpoints(**storage);
      ASSERT_TRUE(catalog.ok()) << catalog.status();
      ASSERT_FALSE(catalog->valid.empty());
      const bool committed = catalog->valid[0].manifest.name.step == 2;
      const bool deleted = catalog->valid.size() == 1 && committed;
      for (const CatalogEntry& entry : catalog->valid) {
        const auto reader = CheckpointReader::Open(**storage, entry.manifest.name);
        ASSERT_TRUE(reader.ok()) << reader.status();
        EXPECT_THAT(*(*reader)->Verify({}), IsEmpty());
      }
      for (const RejectedCheckpoint& rejected : catalog->rejected) EXPECT_TRUE(rejected.unfinished) << rejected.reason;
      const bool after_commit = point == kCrashManifestAfter || point.starts_with("delete") || !killed;
      EXPECT_EQ(committed, after_commit);
      EXPECT_EQ(deleted, point == kCrashDeleteAfter || point == kCrashDeleteFile || !killed);
      // Whoever comes next claims, and clears away what is unfinished.
      const auto next = Fence::Claim(**storage, "next");
      ASSERT_TRUE(next.ok()) << next.status();
      for (const RejectedCheckpoint& rejected : catalog->rejected) {
        EXPECT_TRUE(DeleteCheckpoint(**storage, rejected.name, [&] { return (*next)->Check(); }).ok());
      }
      EXPECT_TRUE(ScanCheckpoints(**storage)->rejected.empty());
      if (!killed) break;
    }
  }
}

// Tensors of one checkpoint may have different planes: what is written of each comes back, whatever else there is.
TEST(Planes, OfEachTensorComeBack) {
  const std::unique_ptr<Storage> storage = MakeMemoryStorage(testing::TempDir());
  const std::vector<StoredTensor> shapes = {{"a", {600, 256}}, {"b", {17}}, {"c", {3, 5}}};
  const ParameterLayout layout = LayoutOf(shapes);
  const StateLayout planes(
      layout, {{{"weight"}, {"momentum"}, {"ema"}}, {{"weight"}}, {{"weight"}, {"x"}, {"y"}, {"momentum"}, {"ema"}}});
  const auto bytes_of = [&](int c) {
    const Chunk& chunk = layout.chunks()[static_cast<size_t>(c)];
    std::vector<float> values(planes.ChunkBytes(chunk) / sizeof(float));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97) + 1000.0f * static_cast<float>(c);
    std::vector<std::byte> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  };
  for (const Compression compression : {Compression::kNone, Compression::kZstd}) {
    Manifest manifest;
    manifest.name = {.step = 1, .generation = compression == Compression::kNone ? 1u : 2u};
    manifest.world_size = 2;
    manifest.tensors = StoredTensorsOf(planes);
    EXPECT_EQ(PlaneNames(manifest.tensors), (std::vector<std::string>{"weight", "momentum", "ema", "x", "y"}));
    std::vector<int> all;
    for (int s = 0; s < 2; ++s) {
      std::vector<int> mine;
      for (int c = s; c < static_cast<int>(layout.chunks().size()); c += 2) mine.push_back(c);
      all.insert(all.end(), mine.begin(), mine.end());
      const auto writer = ShardWriter::Create(
          *storage,
          {.checkpoint = manifest.name, .shard = s, .num_shards = 2, .compression = compression, .threads = 2}, planes,
          mine);
      ASSERT_TRUE(writer.ok()) << writer.status();
      for (const int c : mine) {
        const std::vector<std::byte> bytes = bytes_of(c);
        const absl::Status added = (*writer)->Add({.chunk = c, .bytes = CopyOf(bytes), .digest = DigestBytes(bytes)});
        ASSERT_TRUE(added.ok()) << added;
      }
      const auto report = (*writer)->Commit();
      ASSERT_TRUE(report.ok()) << report.status();
      manifest.shards.push_back(report->shard);
    }
    const auto fence = Fence::Claim(*storage, "planes");
    ASSERT_TRUE(fence.ok()) << fence.status();
    const auto committed = CommitCheckpoint(*storage, **fence, manifest);
    ASSERT_TRUE(committed.ok()) << committed.status();
    const auto reader = CheckpointReader::Open(*storage, manifest.name);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_TRUE((*reader)->CheckState(planes).ok());
    EXPECT_THAT(*(*reader)->Verify({}), testing::IsEmpty());
    std::mutex mutex;
    size_t seen = 0;
    const absl::Status read =
        (*reader)->ReadChunks(layout, all, {.threads = 2}, [&](int c, absl::Span<const std::byte> bytes) {
          const std::lock_guard lock(mutex);
          ++seen;
          EXPECT_TRUE(bytes == absl::MakeConstSpan(bytes_of(c))) << "chunk " << c;
          return absl::OkStatus();
        });
    EXPECT_TRUE(read.ok()) << read;
    EXPECT_EQ(seen, all.size());
    std::vector<float> row(5);
    ASSERT_TRUE((*reader)->ReadRows(2, 4, 1, absl::MakeSpan(row)).ok());
    const int last = static_cast<int>(layout.chunks().size()) - 1;
    for (size_t i = 0; i < row.size(); ++i) {
      EXPECT_EQ(row[i], static_cast<float>((4 * 15 + 5 + i) % 97) + 1000.0f * static_cast<float>(last));
    }
  }
}

}  // namespace
}  // namespace holdfast
