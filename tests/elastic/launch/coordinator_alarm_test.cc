// Of several agents that miss their coordinator one tells of it, and one that it is over, whichever that is; where a
// coordinator leads, or has led the run to its end, nobody does.

#include "elastic/launch/coordinator_alarm.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "elastic/lease/lease_watch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/elastic/alerts/http_server.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace std::chrono_literals;

class CoordinatorAlarmTest : public ::testing::Test {
 protected:
  CoordinatorAlarmTest() {
    config_.run.name = "tiny";
    config_.alerts.coordinator_absent_ms = 1000;
  }
  std::unique_ptr<CoordinatorAlarm> Alarm() {
    return std::make_unique<CoordinatorAlarm>(
        config_, directory_, [this] { return RunLock::Read(directory_); },
        AlertOptions{.pagerduty_key = "key",
                     .pagerduty_url = server_.url("/"),
                     .allow_plain_http = true,
                     .timeout = 120s,
                     .retry_for = 120s,
                     .drain_timeout = 120s});
  }
  /// What two agents have told, in all.
  std::vector<std::string> Told() {
    first_.reset();
    second_.reset();
    return server_.requests();
  }

  const TemporaryDirectory root_;
  const RunDirectory directory_{root_.path()};
  Config config_;
  HttpServer server_{{202}};
  std::unique_ptr<CoordinatorAlarm> first_ = Alarm(), second_ = Alarm();
};

TEST_F(CoordinatorAlarmTest, IsOneForAllAgentsAndIsOverOnce) {
  for (const auto alone : {0ms, 999ms, 1000ms, 61'000ms}) {
    first_->Look(alone);
    second_->Look(alone);
  }
  ASSERT_TRUE(server_.WaitForRequests(1));
  second_->Look(0ms);
  first_->Look(0ms);
  const auto told = Told();
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_THAT(told[0], AllOf(HasSubstr("\"trigger\""), HasSubstr("no coordinator has answered for 1 s"),
                             HasSubstr("/coordinator\""), HasSubstr("--run-dir")));
  EXPECT_THAT(told[1], HasSubstr("\"resolve\""));
  const auto key_of = [](const std::string& body) { return body.substr(body.find("dedup_key"), 40); };
  EXPECT_EQ(key_of(told[0]), key_of(told[1]));
}

TEST_F(CoordinatorAlarmTest, ComesAgainWithTheNextAbsence) {
  for (int i = 0; i < 2; ++i) {
    first_->Look(1000ms);
    first_->Look(0ms);
  }
  EXPECT_THAT(Told(), SizeIs(4));
}

TEST_F(CoordinatorAlarmTest, IsNoneWhereACoordinatorLeadsThatThisHostDoesNotReach) {
  config_.elastic.coordinator_lease_ms = 3600'000;
  const auto lock = RunLock::Take(directory_);
  ASSERT_TRUE(lock.ok()) << lock.status();
  for (uint64_t beat = 1; beat < 4; ++beat) {
    ASSERT_TRUE(lock->Say(LeaderWords{.beat = beat}.Line()).ok());
    first_->Look(5000ms);
  }
  EXPECT_FALSE(std::filesystem::exists(directory_.coordinator_absence()));
  config_.elastic.coordinator_lease_ms = 1;
  std::this_thread::sleep_for(2ms);
  first_->Look(5000ms);
  EXPECT_THAT(Told(), SizeIs(1)) << "it is frozen, say";
}

TEST_F(CoordinatorAlarmTest, IsNoneForARunThatHasEnded) {
  config_.elastic.coordinator_lease_ms = 0;
  const auto lock = RunLock::Take(directory_);
  ASSERT_TRUE(lock->Say(LeaderWords{.exit_code = 0, .reason = "done"}.Line()).ok());
  first_->Look(5000ms);
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(CoordinatorAlarmTest, OfAnEarlierLifeOfTheRunIsOverWhenACoordinatorAnswers) {
  std::ofstream(directory_.coordinator_absence()) << "";
  first_->Look(1ms);
  second_->Look(5000ms);
  first_->Look(0ms);
  EXPECT_THAT(Told(), ::testing::ElementsAre(HasSubstr("\"resolve\"")));
}

}  // namespace
}  // namespace holdfast
