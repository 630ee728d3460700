// What every lease promises, whatever it lies in: the lock of a run directory, a store in memory, a real etcd, an S3
// server. One at a time has it, those that come too late are refused, and whoever has lost it is told.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "elastic/lease/directory_lease.h"
#include "elastic/lease/etcd_store.h"
#include "elastic/lease/s3_lease_store.h"
#include "elastic/lease/store_lease.h"
#include "tests/elastic/lease/etcd_server.h"
#include "tests/elastic/lease/memory_store.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/framework/s3/moto_server.h"

namespace holdfast {
namespace {

constexpr std::chrono::minutes kLong{10};  // no machine is so slow that such a lease is over

/// Makes one that may lead, each time for the same run.
using Maker = std::function<std::unique_ptr<Lease>(const RunDirectory&)>;

/// One for the whole program.
EtcdServer* SharedEtcd() {
  static const std::unique_ptr<EtcdServer> server = EtcdServer::Start();
  return server.get();
}

Maker MakerOfStores(const std::function<std::unique_ptr<LeaseStore>()>& make) {
  return [make](const RunDirectory& directory) { return std::make_unique<StoreLease>(make(), directory, kLong); };
}

class LeaseConformance : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string kind = GetParam();
    if (kind == "Directory") {
      make_ = [](const RunDirectory& directory) { return std::make_unique<DirectoryLease>(directory); };
    } else if (kind == "Memory") {
      make_ = MakerOfStores([place = std::make_shared<MemoryPlace>()] { return std::make_unique<MemoryStore>(place); });
    } else if (kind == "Etcd") {
      if (SharedEtcd() == nullptr) GTEST_SKIP() << "etcd is not installed: run tools/setup.sh --with-test";
      static int count = 0;
      make_ = MakerOfStores([key = absl::StrCat("/run", ++count)] {
        return std::make_unique<EtcdStore>(
            EtcdOptions{.endpoints = {"http://" + SharedEtcd()->address()}, .key = key, .timeout = kLong});
      });
    } else {
      HOLDFAST_MOTO_OR_SKIP(moto);
      S3Options options = moto->NewBucket();
      options.prefix = "runs/a";
      options.retry_for = std::chrono::milliseconds(0);
      make_ = MakerOfStores([options] { return *S3LeaseStore::Open(options, /*check=*/true); });
    }
  }

  std::unique_ptr<Lease> Make() { return make_(directory_); }
  std::unique_ptr<Lease> Held() {
    std::unique_ptr<Lease> lease = Make();
    EXPECT_TRUE(lease->Take(*lease->Look(), /*begins=*/true).ok());
    EXPECT_TRUE(lease->Say({.beat = 1}).ok());
    return lease;
  }
  LeaseSight Sight() { return *Make()->Look(); }

  Maker make_;
  const TemporaryDirectory root_;
  const RunDirectory directory_{root_ / "run"};
};

/// A lease that does not lie in the run's directory.
class StoredLease : public LeaseConformance {};

TEST_P(LeaseConformance, NobodyHasItUntilOneTakesIt) {
  EXPECT_EQ(Sight().text.owner, "");
  const auto lease = Held();
  EXPECT_TRUE(lease->Check().ok()) << lease->Check();
  const LeaseSight sight = Sight();
  EXPECT_EQ(sight.text.Name().find(absl::StrCat("process ", getpid(), " on ")), 0u) << sight.text.owner;
  ASSERT_TRUE(LeaderWords::Read(sight.text.words).has_value()) << sight.text.words;
  EXPECT_EQ(LeaderWords::Read(sight.text.words)->beat, 1u);
}

// Seen by another that starts at the same time: RunLock::Take has made the file and has not put its own in place yet.
TEST(DirectoryLeaseTest, WhatSomebodyIsAboutToTakeIsLeftToIt) {
  const TemporaryDirectory root;
  const RunDirectory directory(root / "run");
  std::filesystem::create_directory(directory.root());
  FileDescriptor empty = OpenFile(directory.lock(), O_RDWR | O_CREAT, 0644);
  ASSERT_EQ(flock(empty.get(), LOCK_EX | LOCK_NB), 0);
  DirectoryLease other(directory);
  const LeaseSight sight = *other.Look();
  EXPECT_TRUE(absl::IsAborted(other.Take(sight, /*begins=*/true)));
  EXPECT_EQ(RunLock::Read(directory)->owner, "");
  empty = FileDescriptor();  // it has ended before it had the lock
  EXPECT_TRUE(other.Take(*other.Look(), /*begins=*/true).ok());
}

TEST_P(LeaseConformance, WhatTakingItHasMadeIsGoneWhenThatIsUndone) {
  auto lease = Held();
  lease->UndoTake();
  EXPECT_FALSE(std::filesystem::exists(directory_.root()));
  lease.reset();
  lease = Held();
  EXPECT_TRUE(lease->Check().ok()) << lease->Check();
}

TEST_P(LeaseConformance, WhoComesTooLateIsRefused) {
  const auto one = Make(), other = Make();
  const LeaseSight nobody = *one->Look();
  ASSERT_TRUE(one->Take(nobody, /*begins=*/true).ok());
  EXPECT_TRUE(absl::IsAborted(other->Take(nobody, /*begins=*/true)));
  EXPECT_TRUE(one->Check().ok());
}

TEST_P(LeaseConformance, WhatIsSaidIsSeen) {
  const auto lease = Held();
  const LeaseSight before = Sight();
  ASSERT_TRUE(lease->Say({.beat = 7}).ok());
  const LeaseSight beat = Sight();
  EXPECT_TRUE(beat.text != before.text || beat.version != before.version);
  EXPECT_EQ(beat.text.owner, before.text.owner);
  EXPECT_EQ(LeaderWords::Read(beat.text.words)->beat, 7u);
  ASSERT_TRUE(lease->Say({.exit_code = 3, .reason = "a disk\nis \"full\""}).ok());
  EXPECT_EQ(LeaderWords::Read(Sight().text.words)->exit_code, 3);
  EXPECT_EQ(LeaderWords::Read(Sight().text.words)->reason, "a disk is \"full\"");
}

TEST_P(LeaseConformance, ASilentOwnerLosesItAndIsToldSo) {
  const auto next = Make();
  auto silent = Held();
  ASSERT_TRUE(next->Take(*next->Look(), /*begins=*/false).ok());
  EXPECT_TRUE(next->Say({.beat = 1}).ok());
  EXPECT_TRUE(next->Check().ok()) << next->Check();
  EXPECT_TRUE(absl::IsFailedPrecondition(silent->Check())) << silent->Check();
  silent->Say({.beat = 8}).IgnoreError();
  silent->Say({.beat = 9}).IgnoreError();
  EXPECT_EQ(LeaderWords::Read(Sight().text.words)->beat, 1u) << "it speaks in the place of the one that has it";
  EXPECT_TRUE(absl::IsFailedPrecondition(silent->Check())) << silent->Check();
  silent.reset();
  EXPECT_EQ(LeaderWords::Read(Sight().text.words)->beat, 1u) << "it leaves what is not its own";
  EXPECT_TRUE(next->Check().ok()) << next->Check();
}

TEST_P(LeaseConformance, AnOwnerThatSpeaksMeanwhileKeepsIt) {
  const auto owner = Held(), next = Make();
  const LeaseSight seen = *next->Look();
  ASSERT_TRUE(owner->Say({.beat = 8}).ok());
  EXPECT_TRUE(absl::IsAborted(next->Take(seen, /*begins=*/false)));
  EXPECT_TRUE(owner->Check().ok()) << owner->Check();
}

TEST_P(LeaseConformance, WhoGoesLeavesIt) {
  Held().reset();
  LeaseWatch watch(kLong, "somebody else", /*has_led=*/true);
  EXPECT_EQ(watch.Decide(std::chrono::seconds(0), Sight()).step, LeaseDecision::Step::kTake);
  const auto next = Make();
  EXPECT_TRUE(next->Take(*next->Look(), /*begins=*/false).ok());
  EXPECT_TRUE(next->Check().ok()) << next->Check();
}

TEST_P(LeaseConformance, OfManyThatTakeItOneHasIt) {
  constexpr int kMany = 6;
  const auto silent = Held();
  std::vector<std::unique_ptr<Lease>> leases;
  std::vector<LeaseSight> seen;
  for (int i = 0; i < kMany; ++i) {
    leases.push_back(Make());
    seen.push_back(*leases.back()->Look());
  }
  std::vector<absl::Status> taken(kMany);
  std::vector<std::thread> threads;
  for (int i = 0; i < kMany; ++i) threads.emplace_back([&, i] { taken[i] = leases[i]->Take(seen[i], false); });
  for (std::thread& thread : threads) thread.join();
  int have_it = 0;
  for (int i = 0; i < kMany; ++i) {
    EXPECT_TRUE(taken[i].ok() || absl::IsAborted(taken[i])) << taken[i];
    have_it += taken[i].ok() && leases[i]->Check().ok() ? 1 : 0;
  }
  EXPECT_EQ(have_it, 1);
}

// As by mv, or by an automounter. What is made in its place would be in the way when it comes back.
TEST_P(LeaseConformance, AMissingDirectoryIsWaitedFor) {
  auto owner = Held();
  const auto next = Make();
  ASSERT_TRUE(next->Look().ok());
  owner.reset();
  std::filesystem::rename(directory_.root(), root_ / "moved");
  const auto sight = next->Look();
  const absl::Status status = sight.ok() ? next->Take(*sight, /*begins=*/false) : sight.status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("cannot open the run directory"), absl::string_view::npos) << status;
  EXPECT_FALSE(std::filesystem::exists(directory_.root()));
  std::filesystem::rename(root_ / "moved", directory_.root());
  const absl::Status taken = next->Take(*next->Look(), /*begins=*/false);
  EXPECT_TRUE(taken.ok()) << taken;
  EXPECT_TRUE(next->Check().ok()) << next->Check();
}

// What is written under a lease lies in one directory, which a lease elsewhere does not see.
TEST_P(StoredLease, ARunIsNotTakenOverInAnotherDirectory) {
  const auto owner = Held();
  const RunDirectory empty(root_ / "elsewhere"), of_another_run(root_ / "another");
  ASSERT_TRUE(RunLock::Take(of_another_run).ok());  // and has ended
  for (const RunDirectory& directory : {empty, of_another_run}) {
    const auto next = make_(directory);
    const absl::Status taken = next->Take(*next->Look(), /*begins=*/false);
    EXPECT_TRUE(absl::IsFailedPrecondition(taken)) << taken;
    EXPECT_NE(taken.message().find("need the same one"), absl::string_view::npos) << taken;
  }
  EXPECT_TRUE(owner->Check().ok()) << owner->Check();
}

// Somebody runs the run without a lease: nobody who has the lease takes the directory from it.
TEST_P(StoredLease, TheLockOfTheDirectoryIsRespected) {
  const auto lock = RunLock::Take(directory_);
  const auto lease = Make();
  EXPECT_TRUE(absl::IsAborted(lease->Take(*lease->Look(), /*begins=*/true)));
  EXPECT_TRUE(lock->Check().ok()) << lock->Check();
  EXPECT_TRUE(LeaderWords::Read(Sight().text.words)->has_left);
}

TEST_P(StoredLease, WhoLosesTheLockOfTheDirectoryIsToldSo) {
  const auto lease = Held();
  const auto other = RunLock::TakeFrom(directory_, *RunLock::Read(directory_));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(lease->Check())) << lease->Check();
}

TEST_P(StoredLease, ItSaysWhereItsOwnerListens) {
  const auto lease = Held();
  EXPECT_EQ(Sight().address, "");
  lease->ListensAt("10.0.0.1:29400");
  ASSERT_TRUE(lease->Say({.beat = 2}).ok());
  EXPECT_EQ(Sight().address, "10.0.0.1:29400");
}

constexpr auto kKindName = [](const testing::TestParamInfo<const char*>& kind) { return std::string(kind.param); };
INSTANTIATE_TEST_SUITE_P(All, LeaseConformance, testing::Values("Directory", "Memory", "Etcd", "S3"), kKindName);
INSTANTIATE_TEST_SUITE_P(All, StoredLease, testing::Values("Memory", "Etcd", "S3"), kKindName);

}  // namespace
}  // namespace holdfast
