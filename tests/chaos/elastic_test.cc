// What a user of several workers on one machine is promised, besides surviving (chaos_test.cc): equal bits for every
// number of workers and every strategy, slow workers named and relieved, stops that save, state that is lost said so.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/chaos/chaos_run.h"

namespace holdfast::chaos {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class Elastic : public testing::Test {
 protected:
  static void SetUpTestSuite() { stage_ = std::make_unique<Stage>(120); }
  static void TearDownTestSuite() { stage_.reset(); }

  std::string Run() const {
    return stage_->Path(testing::UnitTest::GetInstance()->current_test_info()->name() + std::to_string(runs_));
  }
  std::unique_ptr<LoggedProcess> Train(int workers, std::vector<std::string> settings,
                                       std::vector<std::pair<std::string, std::string>> environment = {}) {
    ++runs_;
    std::vector<std::string> arguments{"train", stage_->config(), "--workers", std::to_string(workers), "--run-dir",
                                       Run()};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return std::make_unique<LoggedProcess>(arguments, Run() + ".log", environment);
  }
  bool EqualBits() const { return RunBinary({"compare", stage_->undisturbed(), Run()}, Run() + ".compare") == 0; }

  static std::unique_ptr<Stage> stage_;
  int runs_ = 0;
};

std::unique_ptr<Stage> Elastic::stage_;

TEST_F(Elastic, EveryNumberOfWorkersAndStrategyHasTheSameBits) {
  const std::vector<std::pair<int, std::vector<std::string>>> cases{
      {1, {"parallel.sharding=full_shard"}},
      {2, {"parallel.sharding=full_shard", "train.threads=2"}},
      {3, {"parallel.sharding=no_shard"}},
      {5, {"parallel.sharding=full_shard", "parallel.replicas=2"}},
      {4, {"parallel.sharding=shard_grad_op", "parallel.replicas=2", "parallel.mirrors=2"}},
      {7, {"parallel.sharding=full_shard", "parallel.mirrors=0"}},
      {8, {"parallel.sharding=shard_grad_op"}},
  };
  for (const auto& [workers, settings] : cases) {
    std::vector<std::string> all = settings;
    all.insert(all.end(), {"elastic.heartbeat_timeout_ms=10000"});
    const auto process = Train(workers, all);
    ASSERT_EQ(process->Wait(120).value_or(-1), 0) << process->Log();
    EXPECT_TRUE(EqualBits()) << workers << " workers, " << settings[0];
    EXPECT_TRUE(fs::exists(Run() + "/model/model.safetensors"));
  }
}

TEST_F(Elastic, ASigtermSavesTheModelOfTheLastCommittedStep) {
  const auto process = Train(3, {}, {{"HOLDFAST_TEST_SLOWDOWN_MS", "5"}});
  ASSERT_TRUE(WaitUntil(Run(), 60, [](const RunView& v) { return v.committed_step > 10; })) << process->Log();
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(30).value_or(-1), 143) << process->Log();
  EXPECT_TRUE(fs::exists(Run() + "/model/model.safetensors"));
  EXPECT_EQ(Events(Run(), "run_stopped").size(), 1u);
  EXPECT_TRUE(EqualBits());
  EXPECT_TRUE(ProcessesWith(Run()).empty());
}

TEST_F(Elastic, ASigtermToAWorkerStopsTheRun) {
  const auto process = Train(2, {}, {{"HOLDFAST_TEST_SLOWDOWN_MS", "5"}});
  ASSERT_TRUE(WaitUntil(Run(), 60, [](const RunView& v) { return v.committed_step > 3; })) << process->Log();
  kill(Look(Run()).workers[0].pid, SIGTERM);
  EXPECT_EQ(process->Wait(30).value_or(-1), 143) << process->Log();
  EXPECT_TRUE(EqualBits());
}

// Nothing survives of a shard that had no mirror: the run says so, names who held it, and fails cleanly.
TEST_F(Elastic, LostStateIsSaid) {
  const auto process =
      Train(3, {"parallel.mirrors=0", "elastic.lost_state_timeout_ms=1000"}, {{"HOLDFAST_TEST_SLOWDOWN_MS", "5"}});
  ASSERT_TRUE(WaitUntil(Run(), 60, [](const RunView& v) { return v.committed_step > 3; })) << process->Log();
  kill(Look(Run()).workers[1].pid, SIGKILL);
  EXPECT_EQ(process->Wait(60).value_or(-1), 1) << process->Log();
  EXPECT_THAT(process->Log(), HasSubstr("error: "));
  EXPECT_THAT(process->Log(), HasSubstr("mirrors"));
  EXPECT_EQ(Events(Run(), "state_lost").size(), 1u);
  EXPECT_TRUE(EqualBits());
  EXPECT_TRUE(ProcessesWith(Run()).empty());
}

// Killed as hard as can be, nothing is left that hinders the next start.
TEST_F(Elastic, AfterKillingEverythingTheNextStartWorks) {
  auto process = Train(3, {}, {{"HOLDFAST_TEST_SLOWDOWN_MS", "5"}});
  ASSERT_TRUE(WaitUntil(Run(), 60, [](const RunView& v) { return v.committed_step > 3; })) << process->Log();
  process->Signal(SIGKILL);
  process->Wait(10);
  for (int i = 0; i < 200 && !ProcessesWith(Run()).empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(ProcessesWith(Run()).empty()) << "workers outlived their agent";
  LoggedProcess again({"train", stage_->config(), "--workers", "2", "--run-dir", Run(), "--overwrite"}, Run() + ".2");
  EXPECT_EQ(again.Wait(60).value_or(-1), 0) << again.Log();
  EXPECT_TRUE(EqualBits());
}

// Nobody listens where alerts are sent: that is noted, the secret is not, and the run does not care.
TEST_F(Elastic, AlertsThatCannotBeDeliveredAreNoted) {
  const std::string webhook = stage_->Path("webhook");
  std::ofstream(webhook) << "https://127.0.0.1:9/services/VERYSECRET\n";
  chmod(webhook.c_str(), 0600);
  const auto process = Train(2, {"alerts.slack_webhook_file=" + webhook});
  ASSERT_EQ(process->Wait(60).value_or(-1), 0) << process->Log();
  EXPECT_TRUE(EqualBits());
  EXPECT_FALSE(Events(Run(), "alert_failed").empty());
  for (const nlohmann::json& event : Events(Run(), "alert_failed")) {
    EXPECT_THAT(event.dump(), testing::Not(HasSubstr("VERYSECRET")));
  }
  EXPECT_THAT(process->Log(), testing::Not(HasSubstr("VERYSECRET")));
}

// One of three workers sleeps in every microbatch.
TEST_F(Elastic, ASlowWorkerIsNamedAndRelieved) {
  for (const bool rebalance : {false, true}) {
    const auto process =
        Train(3, {"train.steps=100000", std::string("elastic.rebalance=") + (rebalance ? "true" : "false")},
              {{"HOLDFAST_TEST_SLOWDOWN_MS", "5"}, {"HOLDFAST_TEST_SLOW_WORKER", "local/1"}});
    // On a busy machine others may be slow for a while, too, and are named as well.
    const auto named = [&](const RunView&) {
      const auto events = Events(Run(), "straggler");
      return std::any_of(events.begin(), events.end(), [](const nlohmann::json& event) {
        return event["worker"] == "local/1" && event["factor"].get<double>() > 1.5;
      });
    };
    ASSERT_TRUE(WaitUntil(Run(), 60, named)) << process->Log();
    if (rebalance) {
      const auto relieved = [&](const RunView&) {  // of six microbatches rank 1 gets fewer than two
        const auto events = Events(Run(), "rebalanced");
        return std::any_of(events.begin(), events.end(), [](const nlohmann::json& event) {
          const auto microbatches = event["microbatches"].get<std::string>();
          return microbatches.substr(2, 1) < "2";
        });
      };
      EXPECT_TRUE(WaitUntil(Run(), 60, relieved)) << process->Log();
      const RunView view = Look(Run());
      EXPECT_TRUE(WaitUntil(Run(), 30, [&](const RunView& v) { return v.committed_step > view.committed_step + 50; }));
    }
    process->Signal(SIGTERM);
    EXPECT_EQ(process->Wait(30).value_or(-1), 143) << process->Log();
  }
}

}  // namespace
}  // namespace holdfast::chaos
