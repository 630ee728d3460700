// Proves that of several that wait for the lead of a run one gets it when the leader has gone or is silent, and that a
// run that has ended is led by nobody.

#include "elastic/launch/standby.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/host.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLease{1500};  // long against what a busy machine does to a thread

class StandbyTest : public testing::Test {
 protected:
  std::shared_ptr<Lead> Begin(milliseconds lease = kLease) {
    auto lock = RunLock::Take(directory_);
    EXPECT_TRUE(lock.ok()) << lock.status();
    return std::make_shared<Lead>(*std::move(lock), lease);
  }
  /// Begins to wait, and returns when it says whom it waits for.
  std::future<absl::StatusOr<Turn>> Wait() {
    auto said = std::make_shared<std::promise<std::string>>();
    auto turn = std::async(std::launch::async, [this, said] {
      return WaitForTurn(directory_, kLease, /*has_led=*/false, stop_.get_token(),
                         [said, told = false](const std::string& text) mutable {
                           if (!std::exchange(told, true)) said->set_value(text);
                         });
    });
    const std::string text = said->get_future().get();
    EXPECT_EQ(text.find(absl::StrCat("standing by: process ", getpid(), " on ")), 0u) << text;
    return turn;
  }
  const TemporaryDirectory root_;
  const RunDirectory directory_{root_.path()};
  std::stop_source stop_;
};

TEST_F(StandbyTest, WhoFindsNobodyLeadsAtOnce) {
  const auto turn =
      WaitForTurn(directory_, kLease, /*has_led=*/false, stop_.get_token(), [](const std::string&) { FAIL(); });
  ASSERT_TRUE(turn.ok()) << turn.status();
  ASSERT_NE(turn->lead, nullptr);
  EXPECT_EQ(turn->from, "");
  EXPECT_TRUE(turn->lead->Check().ok());
}

TEST_F(StandbyTest, WhoWaitsLeadsWhenTheLeaderHasGone) {
  auto first = Begin();
  auto waiting = Wait();
  EXPECT_EQ(waiting.wait_for(2 * kLease), std::future_status::timeout) << "it beats";
  first.reset();
  const absl::StatusOr<Turn> turn = waiting.get();
  ASSERT_TRUE(turn.ok() && turn->lead != nullptr) << turn.status();
  EXPECT_EQ(turn->from, absl::StrCat("process ", getpid(), " on ", HostName(), " has ended"));
  EXPECT_TRUE(turn->lead->Check().ok());
}

// The lock is held, and was said something in, as by a process that is frozen.
TEST_F(StandbyTest, WhoWaitsLeadsWhenTheLeaderIsSilent) {
  const auto frozen = RunLock::Take(directory_);
  ASSERT_TRUE(frozen.ok() && frozen->Say(LeaderWords{.beat = 1}.Line()).ok());
  auto waiting = Wait();
  const absl::StatusOr<Turn> turn = waiting.get();
  ASSERT_TRUE(turn.ok() && turn->lead != nullptr) << turn.status();
  EXPECT_EQ(turn->from, absl::StrCat("process ", getpid(), " on ", HostName(), " has been silent for 1500 ms"));
  EXPECT_TRUE(absl::IsFailedPrecondition(frozen->Check())) << frozen->Check();
  EXPECT_TRUE(turn->lead->Check().ok());
}

// One that trains alone, say: it does not beat.
TEST_F(StandbyTest, NobodyTakesTheLockFromAProcessThatDoesNotBeat) {
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

// Who comes when a run has been stopped is to lead it on.
TEST_F(StandbyTest, AnEndThatWasThereBeforeIsNoEndOfThisRun) {
  Begin()->EndsWith(143, "stopped");
  const auto turn = WaitForTurn(directory_, kLease, /*has_led=*/false, stop_.get_token(), [](const std::string&) {});
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_NE(turn->lead, nullptr);
}

// Somebody has removed the directory: nobody is to begin another run there.
TEST_F(StandbyTest, NobodyLeadsARunWhoseLockIsRemoved) {
  const auto leader = Begin();
  auto waiting = Wait();
  std::filesystem::remove_all(directory_.root());
  EXPECT_TRUE(absl::IsFailedPrecondition(waiting.get().status()));
  std::filesystem::remove_all(directory_.root());
  const auto again = WaitForTurn(directory_, kLease, /*has_led=*/true, stop_.get_token(), [](const std::string&) {});
  EXPECT_TRUE(absl::IsFailedPrecondition(again.status()));
}

TEST_F(StandbyTest, OfSeveralThatWaitOneLeads) {
  auto leader = Begin();
  std::vector<std::future<absl::StatusOr<Turn>>> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(Wait());
  leader.reset();
  const auto is_ready = [](auto& turn) { return turn.wait_for(milliseconds(10)) == std::future_status::ready; };
  while (std::none_of(waiting.begin(), waiting.end(), is_ready)) {
  }
  std::this_thread::sleep_for(2 * kLease);
  EXPECT_EQ(std::count_if(waiting.begin(), waiting.end(), is_ready), 1);
  stop_.request_stop();
  int leads = 0;
  std::vector<absl::StatusOr<Turn>> turns;
  for (auto& turn : waiting) turns.push_back(turn.get());
  for (const auto& turn : turns) leads += turn->lead != nullptr && turn->lead->Check().ok() ? 1 : 0;
  EXPECT_EQ(leads, 1);
}

TEST_F(StandbyTest, TheLeaderSeesThatSomebodyStandsBy) {
  EXPECT_FALSE(SomebodyStandsBy(directory_));
  auto leader = Begin();
  auto waiting = Wait();
  // It has a second for it, and a busy machine may need more than one.
  for (int i = 0; i < 30 && !SomebodyStandsBy(directory_); ++i) {
  }
  EXPECT_TRUE(SomebodyStandsBy(directory_));
  stop_.request_stop();
  EXPECT_TRUE(waiting.get().ok());
  EXPECT_FALSE(SomebodyStandsBy(directory_));
  EXPECT_TRUE(std::filesystem::is_empty(directory_.standbys()));
  // Somebody who was killed leaves the file.
  std::ofstream(directory_.standbys() + "/host.1") << "000000000007\n";
  EXPECT_FALSE(SomebodyStandsBy(directory_));
}

}  // namespace
}  // namespace holdfast
