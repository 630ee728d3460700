// Proves that of several that wait for the lead of a run one gets it when the leader has gone or is silent, and that a
// run that has ended is led by nobody.

#include "elastic/launch/standby.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "elastic/lease/directory_lease.h"
#include "elastic/lease/store_lease.h"
#include "framework/base/host.h"
#include "framework/metrics/run_lock.h"
#include "framework/net/socket_address.h"
#include "tests/elastic/lease/memory_store.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/framework/net/test_ports.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;
// In tests of what becomes of a leader that beats, or does not. On a busy machine it may not beat in time: those tests
// begin again with a longer one.
constexpr milliseconds kLease{1500};
// In all others: nobody is so slow that it is over.
constexpr milliseconds kLongLease = std::chrono::minutes(10);

class StandbyTest : public testing::Test {
 protected:
  std::shared_ptr<Lead> Begin() { return Begin(lease_); }
  std::shared_ptr<Lead> Begin(milliseconds lease) {
    auto held = std::make_unique<DirectoryLease>(directory_);
    EXPECT_TRUE(held->Take({}, /*begins=*/true).ok());
    return std::make_shared<Lead>(std::move(held), lease);
  }
  /// `attempt` once with kLease, and until it is true with longer ones, each in a new directory.
  template <class Attempt>
  void TryWithLongerLeases(const Attempt& attempt) {
    constexpr milliseconds kLongest = std::chrono::seconds(20);
    for (lease_ = kLease; !attempt(); lease_ *= 4) {
      ASSERT_LT(lease_, kLongest) << "no leader beats in time";
      directory_ = RunDirectory(root_ / absl::StrCat("after_", lease_ / milliseconds(1)));
      std::filesystem::create_directory(directory_.root());
    }
  }
  static bool IsOfSilence(const Turn& turn) { return turn.from.find("has been silent") != std::string::npos; }
  /// Begins to wait, and returns when it says whom it waits for.
  std::future<absl::StatusOr<Turn>> Wait() {
    auto said = std::make_shared<std::promise<std::string>>();
    auto turn = std::async(std::launch::async, [this, said] {
      return WaitForTurn(std::make_unique<DirectoryLease>(directory_), Options(), stop_.get_token(),
                         [said, told = false](const std::string& text) mutable {
                           if (!std::exchange(told, true)) said->set_value(text);
                         });
    });
    const std::string text = said->get_future().get();
    EXPECT_EQ(text.find(absl::StrCat("standing by: process ", getpid(), " on ")), 0u) << text;
    return turn;
  }
  TurnOptions Options(bool has_led = false) const {
    return {.directory = directory_, .lease = lease_, .has_led = has_led, .may_lead = may_lead_};
  }
  absl::StatusOr<Turn> LookAround(bool has_led = false) {
    return WaitForTurn(std::make_unique<DirectoryLease>(directory_, has_led), Options(has_led), stop_.get_token(),
                       [](const std::string&) {});
  }
  const TemporaryDirectory root_;
  RunDirectory directory_{root_.path()};
  milliseconds lease_ = kLongLease;
  std::function<absl::Status()> may_lead_;
  std::stop_source stop_;
};

TEST_F(StandbyTest, WhoFindsNobodyLeadsAtOnce) {
  const auto turn = WaitForTurn(std::make_unique<DirectoryLease>(directory_), Options(), stop_.get_token(),
                                [](const std::string&) { FAIL(); });
  ASSERT_TRUE(turn.ok()) << turn.status();
  ASSERT_NE(turn->lead, nullptr);
  EXPECT_EQ(turn->from, "");
  EXPECT_TRUE(turn->lead->Check().ok());
}

TEST_F(StandbyTest, WhoWaitsLeadsWhenTheLeaderHasGone) {
  TryWithLongerLeases([this] {
    auto first = Begin();
    auto waiting = Wait();
    const bool waits = waiting.wait_for(2 * lease_) == std::future_status::timeout;
    first.reset();
    const absl::StatusOr<Turn> turn = waiting.get();
    EXPECT_TRUE(turn.ok() && turn->lead != nullptr) << turn.status();
    if (!turn.ok() || turn->lead == nullptr) return true;
    if (!waits || IsOfSilence(*turn)) return false;  // it did not beat in time
    EXPECT_EQ(turn->from, absl::StrCat("process ", getpid(), " on ", HostName(), " has ended"));
    EXPECT_TRUE(turn->lead->Check().ok());
    return true;
  });
}

// The lock is held, and was said something in, as by a process that is frozen.
TEST_F(StandbyTest, WhoWaitsLeadsWhenTheLeaderIsSilent) {
  lease_ = kLease;
  const auto frozen = RunLock::Take(directory_);
  ASSERT_TRUE(frozen.ok() && frozen->Say(LeaderWords{.beat = 1}.Line()).ok());
  auto waiting = Wait();
  const absl::StatusOr<Turn> turn = waiting.get();
  ASSERT_TRUE(turn.ok() && turn->lead != nullptr) << turn.status();
  EXPECT_EQ(turn->from, absl::StrCat("process ", getpid(), " on ", HostName(), " has been silent for 1500 ms"));
  EXPECT_TRUE(absl::IsFailedPrecondition(frozen->Check())) << frozen->Check();
  EXPECT_TRUE(turn->lead->Check().ok());
}

// Its port is another one's, say. Who is silent may only be frozen, and would end for one that ends as well.
TEST_F(StandbyTest, NobodyTakesARunThatItCouldNotLead) {
  lease_ = kLease;
  std::atomic<bool> is_in_use = true;
  std::atomic<int> asked = 0;
  may_lead_ = [&] {
    ++asked;
    return is_in_use ? absl::UnavailableError("the port is in use") : absl::OkStatus();
  };
  const auto frozen = RunLock::Take(directory_);
  ASSERT_TRUE(frozen.ok() && frozen->Say(LeaderWords{.beat = 1}.Line()).ok());
  auto waiting = Wait();
  while (asked < 3) std::this_thread::sleep_for(milliseconds(10));  // when it came, and twice when it was to lead
  EXPECT_TRUE(frozen->Check().ok()) << frozen->Check();
  is_in_use = false;
  const absl::StatusOr<Turn> turn = waiting.get();
  ASSERT_TRUE(turn.ok() && turn->lead != nullptr) << turn.status();
  EXPECT_TRUE(IsOfSilence(*turn)) << turn->from;
}

TEST_F(StandbyTest, WhoBeginsARunAndCannotLeadItSaysSo) {
  may_lead_ = [] { return absl::UnavailableError("the port is in use"); };
  EXPECT_TRUE(absl::IsUnavailable(LookAround().status()));
  EXPECT_TRUE(absl::IsNotFound(RunLock::Read(directory_).status())) << "the run has no owner";
}

// One that trains alone, say: it does not beat.
TEST_F(StandbyTest, NobodyTakesTheLockFromAProcessThatDoesNotBeat) {
  lease_ = kLease;
  auto alone = Begin(milliseconds(0));
  auto waiting = Wait();
  EXPECT_EQ(waiting.wait_for(3 * kLease), std::future_status::timeout);
  EXPECT_TRUE(alone->Check().ok()) << alone->Check();
  stop_.request_stop();
  const absl::StatusOr<Turn> turn = waiting.get();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->lead, nullptr);
  EXPECT_EQ(turn->reason, "");
}

TEST_F(StandbyTest, AllThatWaitEndWithTheRun) {
  auto leader = Begin();
  auto one = Wait(), other = Wait();
  leader->EndsWith(3, "something\nhas failed");
  leader.reset();
  for (auto* waiting : {&one, &other}) {
    const absl::StatusOr<Turn> turn = waiting->get();
    ASSERT_TRUE(turn.ok()) << turn.status();
    EXPECT_EQ(turn->lead, nullptr);
    EXPECT_EQ(turn->exit_code, 3);
    EXPECT_EQ(turn->reason, "something has failed");
  }
}

// A lock is read up to a thousand bytes: a longer text would be no end.
TEST_F(StandbyTest, ARunEndsWhateverTheReasonTakes) {
  auto leader = Begin();
  auto waiting = Wait();
  std::string reason = "x";
  for (int i = 0; i < 2000; ++i) reason += "\u00e9";
  leader->EndsWith(1, reason);
  leader.reset();
  const absl::StatusOr<Turn> turn = waiting.get();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->exit_code, 1);
  EXPECT_LE(turn->reason.size(), 500u);
  EXPECT_EQ(turn->reason.substr(turn->reason.size() - 5), "\u00e9...") << "cut between characters";
}

// Who comes when a run has been stopped is to lead it on.
TEST_F(StandbyTest, AnEndThatWasThereBeforeIsNoEndOfThisRun) {
  Begin()->EndsWith(143, "stopped");
  const auto turn = LookAround();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_NE(turn->lead, nullptr);
}

// Somebody has removed the directory: nobody is to begin another run there.
TEST_F(StandbyTest, NobodyLeadsARunWhoseLockIsRemoved) {
  const auto leader = Begin();
  auto waiting = Wait();
  std::filesystem::remove_all(directory_.root());
  EXPECT_TRUE(absl::IsFailedPrecondition(waiting.get().status()));
  std::filesystem::create_directories(directory_.root());
  const auto again = LookAround(/*has_led=*/true);
  EXPECT_TRUE(absl::IsFailedPrecondition(again.status()));
}

// As by mv, or by an automounter, and by something that has made the directory anew meanwhile. The leader pauses.
TEST_F(StandbyTest, WhoWaitsWaitsForADirectoryThatIsMissing) {
  directory_ = RunDirectory(root_ / "run");
  const std::string moved = root_ / "moved";
  auto leader = Begin();
  auto waiting = Wait();
  std::filesystem::rename(directory_.root(), moved);
  EXPECT_EQ(waiting.wait_for(milliseconds(700)), std::future_status::timeout);
  EXPECT_FALSE(std::filesystem::exists(directory_.root()));
  std::filesystem::create_directory(directory_.root());
  EXPECT_EQ(waiting.wait_for(milliseconds(700)), std::future_status::timeout);
  EXPECT_TRUE(absl::IsUnavailable(leader->Check())) << leader->Check();
  std::filesystem::remove(directory_.root());
  std::filesystem::rename(moved, directory_.root());
  EXPECT_TRUE(leader->Check().ok()) << leader->Check();
  leader.reset();
  const absl::StatusOr<Turn> turn = waiting.get();
  ASSERT_TRUE(turn.ok() && turn->lead != nullptr) << turn.status();
  EXPECT_TRUE(turn->lead->Check().ok());
}

// One that is started again finds nothing there, and makes nothing.
TEST_F(StandbyTest, WhoHasLedWaitsForADirectoryThatIsMissing) {
  directory_ = RunDirectory(root_ / "run");
  const std::string moved = root_ / "moved";
  Begin().reset();
  std::filesystem::rename(directory_.root(), moved);
  auto waiting = std::async(std::launch::async, [this] { return LookAround(/*has_led=*/true); });
  EXPECT_EQ(waiting.wait_for(milliseconds(700)), std::future_status::timeout);
  EXPECT_FALSE(std::filesystem::exists(directory_.root()));
  std::filesystem::rename(moved, directory_.root());
  const absl::StatusOr<Turn> turn = waiting.get();
  ASSERT_TRUE(turn.ok() && turn->lead != nullptr) << turn.status();
  EXPECT_NE(turn->from, "");
}

TEST_F(StandbyTest, OfSeveralThatWaitOneLeads) {
  TryWithLongerLeases([this] {
    stop_ = {};
    auto leader = Begin();
    std::vector<std::future<absl::StatusOr<Turn>>> waiting;
    for (int i = 0; i < 3; ++i) waiting.push_back(Wait());
    leader.reset();
    const auto is_ready = [](auto& turn) { return turn.wait_for(milliseconds(10)) == std::future_status::ready; };
    while (std::none_of(waiting.begin(), waiting.end(), is_ready)) {
    }
    std::this_thread::sleep_for(2 * lease_);
    const auto ready = std::count_if(waiting.begin(), waiting.end(), is_ready);
    stop_.request_stop();
    std::vector<absl::StatusOr<Turn>> turns;
    for (auto& turn : waiting) turns.push_back(turn.get());
    int leads = 0, silent = 0;
    for (const auto& turn : turns) {
      leads += turn->lead != nullptr && turn->lead->Check().ok() ? 1 : 0;
      silent += IsOfSilence(*turn) ? 1 : 0;
    }
    EXPECT_EQ(leads, 1);  // also where one that did not beat in time was replaced
    if (silent > 0) return false;
    EXPECT_EQ(ready, 1);
    return true;
  });
}

TEST_F(StandbyTest, TheLeaderSeesThatSomebodyStandsBy) {
  EXPECT_FALSE(SomebodyStandsBy(directory_));
  auto leader = Begin();
  auto waiting = Wait();
  // It has a second for it, and a busy machine may need more than one.
  bool seen = false;
  for (int i = 0; i < 30 && !seen; ++i) seen = SomebodyStandsBy(directory_);
  EXPECT_TRUE(seen);
  // Many that were killed, long ago, do not hide it.
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(48);
  std::vector<std::string> left;
  for (int i = 0; i < 300; ++i) {
    left.push_back(absl::StrCat(directory_.standbys(), "/killed.", i));
    std::ofstream(left.back()) << "000000000007\n";
    std::filesystem::last_write_time(left.back(), old);
  }
  seen = false;
  for (int i = 0; i < 30 && !seen; ++i) seen = SomebodyStandsBy(directory_);
  EXPECT_TRUE(seen);
  for (const std::string& file : left) std::filesystem::remove(file);
  // What says so is removed, as by one whose clock is a day ahead, or with the directory.
  std::error_code made_again_already;
  std::filesystem::remove_all(directory_.standbys(), made_again_already);
  seen = false;
  for (int i = 0; i < 100 && !seen; ++i) {
    std::this_thread::sleep_for(milliseconds(100));
    seen = SomebodyStandsBy(directory_);
  }
  EXPECT_TRUE(seen);
  stop_.request_stop();
  EXPECT_TRUE(waiting.get().ok());
  EXPECT_FALSE(SomebodyStandsBy(directory_));
  EXPECT_TRUE(std::filesystem::is_empty(directory_.standbys()));
  // Somebody who was killed leaves the file.
  std::ofstream(directory_.standbys() + "/host.1") << "000000000007\n";
  testing::internal::CaptureStderr();
  EXPECT_FALSE(SomebodyStandsBy(directory_));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("(host.1)"), std::string::npos);
}

// It was told to end with the leader, as by a scheduler, and said a moment longer that it is there.
TEST_F(StandbyTest, WhoEndsWithTheLeaderDoesNotStandBy) {
  std::filesystem::create_directory(directory_.standbys());
  const auto say = [this](int word) { std::ofstream(directory_.standbys() + "/host.1") << word << "\n"; };
  bool stands_by = true;
  // A busy machine may need more than one attempt until its last word comes in time.
  for (int i = 0; i < 30 && stands_by; ++i) {
    say(0);
    auto asked = std::async(std::launch::async, [this] { return SomebodyStandsBy(directory_); });
    for (int word = 1; word <= 5; ++word) {
      std::this_thread::sleep_for(milliseconds(50));
      say(word);
    }
    stands_by = asked.get();
  }
  EXPECT_FALSE(stands_by);
}

TEST_F(StandbyTest, WhoComesRemovesWhatThoseHaveLeftThatWereKilledLongAgo) {
  std::filesystem::create_directory(directory_.standbys());
  const std::string old = directory_.standbys() + "/killed.1", recent = directory_.standbys() + "/lives.1";
  for (const std::string& file : {old, recent}) std::ofstream(file) << "000000000007\n";
  std::filesystem::last_write_time(old, std::filesystem::file_time_type::clock::now() - std::chrono::hours(48));
  EXPECT_TRUE(LookAround().ok());
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(recent));
}

TEST_F(StandbyTest, WhoBeginsNoRunLeavesNothing) {
  directory_ = RunDirectory(root_ / "runs/of/mine");
  may_lead_ = [] { return absl::UnavailableError("the port is in use"); };
  EXPECT_FALSE(LookAround().ok());
  EXPECT_FALSE(std::filesystem::exists(root_ / "runs")) << "waiting makes no run directory";
  may_lead_ = nullptr;
  LeaveNothing(directory_, LookAround()->lead.get());
  EXPECT_FALSE(std::filesystem::exists(root_ / "runs"));

  std::filesystem::create_directories(directory_.root());
  LeaveNothing(directory_, LookAround()->lead.get());
  EXPECT_TRUE(std::filesystem::is_empty(directory_.root())) << "it was there before";

  const auto held = LookAround();
  ASSERT_TRUE(directory_.WriteConfig("").ok());
  LeaveNothing(directory_, held->lead.get());
  EXPECT_TRUE(held->lead->Check().ok()) << "a run has begun: " << held->lead->Check();
}

// It takes the run over, and would take a lock that is gone for a run that was removed.
TEST_F(StandbyTest, WhoBeginsNoRunLeavesTheLockToWhoWaits) {
  auto leader = Begin();
  auto waiting = Wait();
  LeaveNothing(directory_, leader.get());
  EXPECT_TRUE(leader->Check().ok()) << leader->Check();
  leader.reset();
  const absl::StatusOr<Turn> turn = waiting.get();
  EXPECT_TRUE(turn.ok() && turn->lead != nullptr) << turn.status();
}

TEST_F(StandbyTest, AlsoToWhoIsFrozenWhileItWaits) {
  const auto leader = Begin();
  std::filesystem::create_directory(directory_.standbys());
  std::ofstream(directory_.standbys() + "/host.1") << "000000000007\n";
  LeaveNothing(directory_, leader.get());
  EXPECT_TRUE(leader->Check().ok()) << leader->Check();
}

// With a lease in a store, which no kernel lets go of.
class StoreStandbyTest : public StandbyTest {
 protected:
  std::unique_ptr<StoreLease> Make() {
    return std::make_unique<StoreLease>(std::make_unique<MemoryStore>(place_), directory_, lease_);
  }
  std::shared_ptr<Lead> BeginInStore() {
    auto held = Make();
    EXPECT_TRUE(held->Take(*held->Look(), /*begins=*/true).ok());
    return std::make_shared<Lead>(std::move(held), lease_);
  }
  std::future<absl::StatusOr<Turn>> WaitInStore(bool has_led = false) {
    return std::async(std::launch::async, [this, has_led] {
      return WaitForTurn(Make(), Options(has_led), stop_.get_token(), [](const std::string&) {});
    });
  }
  /// As a process does that is killed: what it had said stays, and nobody listens at its port.
  void LeaveBehind(const std::string& address) {
    EXPECT_TRUE(RunLock::Take(directory_).ok());  // for this moment; what it has written stays
    const LeaseSight dead{.text = {absl::StrCat("process 1 on ", HostName(), "\nmark\n"), "beat 9\n"},
                          .address = address,
                          .lock_before = RunLock::Read(directory_)->owner};
    const std::lock_guard lock(place_->mutex);
    place_->entry = {LeaseText(dead), absl::StrCat("dead", ++place_->writes)};
  }
  std::shared_ptr<MemoryPlace> place_ = std::make_shared<MemoryPlace>();
};

TEST_F(StoreStandbyTest, WhoFindsNobodyBeginsAndWhoComesNextWaits) {
  TryWithLongerLeases([this] {
    stop_ = {};
    place_ = std::make_shared<MemoryPlace>();
    const auto first = WaitInStore().get();
    EXPECT_TRUE(first.ok() && first->lead != nullptr) << first.status();
    if (!first.ok() || first->lead == nullptr) return true;
    EXPECT_EQ(first->from, "");
    const absl::Status leads = first->lead->Check();
    EXPECT_TRUE(leads.ok() || absl::IsUnavailable(leads)) << leads;
    auto waiting = WaitInStore();
    const bool waits = waiting.wait_for(2 * lease_) == std::future_status::timeout;
    stop_.request_stop();
    const absl::StatusOr<Turn> turn = waiting.get();
    EXPECT_TRUE(turn.ok()) << turn.status();
    if (!leads.ok() || !waits || !turn.ok() || turn->lead != nullptr) return false;  // it did not beat in time
    EXPECT_EQ(turn->reason, "");
    return true;
  });
}

TEST_F(StoreStandbyTest, WhatIsLeftIsTakenOverAndAnEndIsAnEnd) {
  auto first = BeginInStore();
  auto waiting = WaitInStore(/*has_led=*/true);
  first.reset();
  absl::StatusOr<Turn> turn = waiting.get();
  ASSERT_TRUE(turn.ok() && turn->lead != nullptr) << turn.status();
  EXPECT_EQ(turn->from, absl::StrCat("process ", getpid(), " on ", HostName(), " has left it"));
  auto last = WaitInStore(/*has_led=*/true);
  turn->lead->EndsWith(3, "something has failed");
  turn->lead.reset();
  const absl::StatusOr<Turn> end = last.get();
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->exit_code, 3);
  EXPECT_EQ(end->reason, "something has failed");
}

TEST_F(StoreStandbyTest, AnEndIsSaidAgainWhenTheStoreIsThereAgain) {
  lease_ = std::chrono::seconds(30);  // it tries again every twentieth of it, twice as long
  auto leader = BeginInStore();
  auto waiting = WaitInStore(/*has_led=*/true);
  EXPECT_EQ(waiting.wait_for(milliseconds(300)), std::future_status::timeout);
  place_->is_gone = true;
  auto ends = std::async(std::launch::async, [&] { leader->EndsWith(3, "something has failed"); });
  EXPECT_EQ(ends.wait_for(milliseconds(300)), std::future_status::timeout) << "it tries again";
  place_->is_gone = false;
  ends.get();
  leader.reset();
  const absl::StatusOr<Turn> end = waiting.get();
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->exit_code, 3);
}

// Told apart by the port: one has ended, the other may be frozen, and what it led is not begun anew.
TEST_F(StoreStandbyTest, WhoIsDeadIsFollowedAndWhoMayBeFrozenIsReplaced) {
  lease_ = kLease;
  const auto listener = Listen(*ResolveHost("127.0.0.1"));
  ASSERT_TRUE(listener.ok()) << listener.status();
  const RefusingPort refuses;
  LeaveBehind(HostAndPort(listener->address));
  absl::StatusOr<Turn> replaced = WaitInStore().get();
  ASSERT_TRUE(replaced.ok() && replaced->lead != nullptr) << replaced.status();
  EXPECT_EQ(replaced->from, absl::StrCat("process 1 on ", HostName(), " has been silent for 1500 ms"));

  replaced->lead.reset();
  LeaveBehind(refuses.address());
  absl::StatusOr<Turn> followed = WaitInStore().get();
  ASSERT_TRUE(followed.ok() && followed->lead != nullptr) << followed.status();
  EXPECT_EQ(followed->from, "");
  followed->lead.reset();
  LeaveBehind(refuses.address());
  EXPECT_EQ(WaitInStore(/*has_led=*/true).get()->from, absl::StrCat("process 1 on ", HostName(), " has ended"));
}

TEST_F(StoreStandbyTest, AStoreThatIsAwayIsAnErrorAtFirstAndWaitedForLater) {
  lease_ = kLease;
  place_->is_gone = true;
  EXPECT_TRUE(absl::IsUnavailable(WaitInStore().get().status()));
  ASSERT_TRUE(RunLock::Take(directory_).ok());
  auto waiting = WaitInStore(/*has_led=*/true);
  EXPECT_EQ(waiting.wait_for(kLease), std::future_status::timeout);
  place_->is_gone = false;
  EXPECT_NE(waiting.get()->lead, nullptr);
}

}  // namespace
}  // namespace holdfast
