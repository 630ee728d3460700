// What a user of several workers on one machine is promised, besides surviving (chaos_test.cc): equal bits for every
// number of workers and every strategy, slow workers named and relieved, stops that save, state that is lost said so.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/chaos/chaos_run.h"

namespace holdfast::chaos {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

const std::string kSteps = "train.steps=60";
const std::pair<std::string, std::string> kSlow{"HOLDFAST_TEST_SLOWDOWN_MS", "5"};

class Elastic : public StageTest {
 protected:
  std::string Run() const { return StageTest::Run() + std::to_string(runs_); }
  std::unique_ptr<LoggedProcess> Train(int workers, const std::vector<std::string>& settings,
                                       const std::vector<std::pair<std::string, std::string>>& environment = {}) {
    ++runs_;
    std::vector<std::string> arguments{"train", stage_->config(), "--workers", std::to_string(workers), "--run-dir",
                                       Run()};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return std::make_unique<LoggedProcess>(arguments, Run() + ".log", environment);
  }
  /// The process of the worker with this rank, in the world of all.
  int PidOf(LoggedProcess& process, int rank, int workers) const {
    int pid = -1;
    WaitUntil(process, Run(), [&](const RunView& view) {
      const auto worker =
          std::find_if(view.workers.begin(), view.workers.end(), [&](const WorkerView& w) { return w.rank == rank; });
      if (view.world_size != workers || worker == view.workers.end()) return false;
      pid = worker->pid;
      return true;
    });
    return pid;
  }

  int runs_ = 0;
};

// More of them in tests/framework/train/world_test.cc.
TEST_F(Elastic, AnyNumberOfWorkersAndStrategyHasTheSameBits) {
  const std::vector<std::pair<int, std::vector<std::string>>> cases{
      {2, {"parallel.sharding=full_shard", "train.threads=2"}},
      {3, {"parallel.sharding=no_shard", "parallel.mirrors=0"}},
      {5, {"parallel.sharding=full_shard", "parallel.replicas=2"}},
      {8, {"parallel.sharding=shard_grad_op", "parallel.mirrors=2"}},
  };
  for (const auto& [workers, settings] : cases) {
    std::vector<std::string> all = settings;
    all.insert(all.end(), {kSteps, kLongHeartbeats});
    const auto process = Train(workers, all);
    ASSERT_EQ(process->ExitCode(), 0);
    const auto steps = Lines(Run() + "/metrics.jsonl");
    EXPECT_TRUE(std::any_of(steps.begin(), steps.end(), [&](const auto& step) {
      return step["world_size"] == workers;
    })) << workers;
    EXPECT_TRUE(stage_->HasUndisturbedBits(Run())) << workers << " workers, " << settings[0];
    EXPECT_TRUE(fs::exists(Run() + "/model/model.safetensors"));
  }
}

TEST_F(Elastic, ASigtermSavesTheModelOfTheLastCommittedStep) {
  const auto process = Train(3, {}, {kSlow});
  ASSERT_TRUE(WaitForStep(*process, Run(), 11));
  process->Signal(SIGTERM);
  EXPECT_EQ(process->ExitCode(), 143);
  EXPECT_TRUE(fs::exists(Run() + "/model/model.safetensors"));
  EXPECT_EQ(Events(Run(), "run_stopped").size(), 1u);
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
  EXPECT_TRUE(ProcessesWith(Run()).empty());
}

// It is for the process that started the worker to say what is to end.
TEST_F(Elastic, ASigtermToAWorkerIsPassedOver) {
  const auto process = Train(2, {kLongHeartbeats}, {kSlow});
  ASSERT_TRUE(WaitForStep(*process, Run(), 4));
  const int worker = PidOf(*process, 0, 2);
  ASSERT_GT(worker, 0);
  kill(worker, SIGTERM);
  ASSERT_TRUE(WaitForStep(*process, Run(), CommittedSteps(Run()) + 10));
  EXPECT_EQ(PidOf(*process, 0, 2), worker);
  process->Signal(SIGTERM);
  EXPECT_EQ(process->ExitCode(), 143);
  EXPECT_TRUE(Events(Run(), "worker_lost").empty());
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
}

// Nothing survives of a shard that had no mirror: the run says so, names who held it, and fails cleanly.
TEST_F(Elastic, LostStateIsSaid) {
  const auto process =
      Train(3, {"parallel.mirrors=0", "elastic.lost_state_timeout_ms=1000", "checkpoint.every=never", kLongHeartbeats},
            {kSlow});
  ASSERT_TRUE(WaitForStep(*process, Run(), 4));
  const int worker = PidOf(*process, 1, 3);
  ASSERT_GT(worker, 0);
  kill(worker, SIGKILL);
  EXPECT_EQ(process->ExitCode(), 1);
  EXPECT_THAT(process->Log(), HasSubstr("error: "));
  EXPECT_THAT(process->Log(), HasSubstr("mirrors"));
  EXPECT_EQ(Events(Run(), "state_lost").size(), 1u);
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
  EXPECT_TRUE(ProcessesWith(Run()).empty());
}

// Killed as hard as can be, nothing is left that hinders the next start.
TEST_F(Elastic, AfterKillingEverythingTheNextStartWorks) {
  const auto process = Train(3, {}, {kSlow});
  ASSERT_TRUE(WaitForStep(*process, Run(), 4));
  process->Signal(SIGKILL);
  EXPECT_EQ(process->ExitCode(), 137);
  EXPECT_TRUE(WaitFor([&] { return ProcessesWith(Run()).empty(); })) << "workers outlived their agent";
  LoggedProcess again({"train", stage_->config(), "--workers", "2", "--run-dir", Run(), "--overwrite", "--set", kSteps},
                      Run() + ".2.log");
  EXPECT_EQ(again.ExitCode(), 0);
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
}

// Nobody listens where alerts are sent: that is noted, the secret is not, and the run does not care.
TEST_F(Elastic, AlertsThatCannotBeDeliveredAreNoted) {
  const std::string webhook = stage_->Path("webhook");
  std::ofstream(webhook) << "https://127.0.0.1:9/services/VERYSECRET\n";
  chmod(webhook.c_str(), 0600);
  const auto process = Train(2, {"train.steps=20", "alerts.slack_webhook_file=" + webhook});
  ASSERT_EQ(process->ExitCode(), 0);
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
  EXPECT_FALSE(Events(Run(), "alert_failed").empty());
  for (const nlohmann::json& event : Events(Run(), "alert_failed")) {
    EXPECT_THAT(event.dump(), testing::Not(HasSubstr("VERYSECRET")));
  }
  EXPECT_THAT(process->Log(), testing::Not(HasSubstr("VERYSECRET")));
}

// One of three workers sleeps in every microbatch, for long even beside what the others take on a busy machine.
TEST_F(Elastic, ASlowWorkerIsNamedAndRelieved) {
  for (const bool rebalance : {false, true}) {
    const auto process = Train(3, {std::string("elastic.rebalance=") + (rebalance ? "true" : "false")},
                               {{"HOLDFAST_TEST_SLOWDOWN_MS", "60"}, {"HOLDFAST_TEST_SLOW_WORKER", "local/1"}});
    size_t rank = 0;
    // On a busy machine others may be slow for a while, too, and are named as well.
    const auto named = [&] {
      const auto events = Events(Run(), "straggler");
      return std::any_of(events.begin(), events.end(), [&](const nlohmann::json& event) {
        rank = event["rank"];
        return event["worker"] == "local/1" && event["factor"].get<double>() > 1.5;
      });
    };
    ASSERT_TRUE(WaitFor(*process, named));
    if (rebalance) {
      const auto relieved = [&] {  // of six microbatches it gets fewer than two
        const auto events = Events(Run(), "rebalanced");
        return std::any_of(events.begin(), events.end(), [&](const nlohmann::json& event) {
          return event["microbatches"].get<std::string>()[2 * rank] < '2';
        });
      };
      EXPECT_TRUE(WaitFor(*process, relieved));
      EXPECT_TRUE(WaitForStep(*process, Run(), CommittedSteps(Run()) + 20));
    }
    process->Signal(SIGTERM);
    EXPECT_EQ(process->ExitCode(), 143);
    EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
  }
}

// Memory of one of four workers goes bad, in a chunk that it mirrors or in one that it sums: the other two holders
// outvote it before anybody uses its copy, it is named, and gets what it is to hold anew.
TEST_F(Elastic, ABitThatFlipsIsNamedAndItsCopyReplaced) {
  for (const char* where : {"mirror@7", "owner@7"}) {
    const auto process = Train(4, {"parallel.mirrors=2", "log.digest_every_steps=1", kLongHeartbeats},
                               {kSlow, {"HOLDFAST_TEST_FLIP_BIT", where}, {"HOLDFAST_TEST_FLIP_WORKER", "local/2"}});
    ASSERT_TRUE(WaitForEvents(*process, Run(), "copies_differ")) << where;
    ASSERT_TRUE(WaitUntil(*process, Run(), [](const RunView& view) {
      return view.world_size == 4 && view.committed_step >= 12 && view.state == "training";
    })) << where;
    process->Signal(SIGTERM);
    EXPECT_EQ(process->ExitCode(), 143);
    const auto differ = Events(Run(), "copies_differ");
    ASSERT_EQ(differ.size(), 1u) << where << ": the copy was not replaced";
    EXPECT_EQ(differ[0]["step"], 8);
    EXPECT_EQ(differ[0]["majority"], 1);
    EXPECT_THAT(differ[0]["workers"].get<std::string>(), testing::StartsWith("local/2 on "));
    ASSERT_EQ(Events(Run(), "worker_lost").size(), 1u);
    EXPECT_EQ(Events(Run(), "worker_lost")[0]["worker"], "local/2");
    EXPECT_TRUE(Events(Run(), "rewind").empty());
    EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
  }
}

// All workers compute with the weights of one whose memory goes bad, until copies are compared: what was committed by
// then is done again, from a checkpoint from before, or from the beginning where none has been written.
TEST_F(Elastic, StepsThatWereComputedWithWrongWeightsAreDoneAgain) {
  const std::vector<std::string> settings{"parallel.mirrors=2", "log.digest_every_steps=10",
                                          "checkpoint.every_steps=1000", kLongHeartbeats};
  for (const bool has_checkpoint : {true, false}) {
    int64_t saved = 0;
    if (has_checkpoint) {
      const auto before = Train(4, settings, {kSlow});
      ASSERT_TRUE(WaitForStep(*before, Run(), 5));
      before->Signal(SIGTERM);
      ASSERT_EQ(before->ExitCode(), 143);
      saved = CommittedSteps(Run());
      --runs_;
    }
    const auto process = Train(4, settings,
                               {kSlow,
                                {"HOLDFAST_TEST_FLIP_BIT", "weights@" + std::to_string(saved + 2)},
                                {"HOLDFAST_TEST_FLIP_WORKER", "local/2"}});
    ASSERT_TRUE(WaitForEvents(*process, Run(), "rewind"));
    ASSERT_TRUE(WaitForStep(*process, Run(), saved + 15));
    process->Signal(SIGTERM);
    EXPECT_EQ(process->ExitCode(), 143);
    const auto differ = Events(Run(), "copies_differ");
    ASSERT_EQ(differ.size(), 1u);
    EXPECT_EQ(differ[0]["majority"], 1);
    EXPECT_EQ(differ[0]["computed_with"], 1);
    EXPECT_THAT(differ[0]["workers"].get<std::string>(), testing::StartsWith("local/2 on "));
    ASSERT_EQ(Events(Run(), "rewind").size(), 1u);
    EXPECT_EQ(Events(Run(), "rewind")[0]["step"], saved);
    EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
  }
}

// As they are started from a shell: with 1,024, or here with fewer, of which a few hundred peers take all.
TEST_F(Elastic, WorkersRaiseTheirLimitOnOpenFiles) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto process = Train(2, {}, {kSlow});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit worker{};
  ASSERT_EQ(prlimit(PidOf(*process, 1, 2), RLIMIT_NOFILE, nullptr, &worker), 0);
  EXPECT_EQ(worker.rlim_cur, before.rlim_max);
  process->Signal(SIGTERM);
  EXPECT_EQ(process->ExitCode(), 143);
}

// A worker of four may open no file and no socket more, so it can enter no other world. When another is killed it is
// named, the run continues with those that can, and it comes back as a process of its own.
TEST_F(Elastic, AWorkerWithoutFileDescriptorsIsReplaced) {
  const auto process = Train(4, {"parallel.mirrors=2", kLongHeartbeats}, {kSlow});
  const int starved = PidOf(*process, 2, 4), killed = PidOf(*process, 1, 4);
  ASSERT_TRUE(WaitForStep(*process, Run(), 5));
  const rlimit none{.rlim_cur = 3, .rlim_max = 3};
  ASSERT_EQ(prlimit(starved, RLIMIT_NOFILE, &none, nullptr), 0);
  ASSERT_EQ(kill(killed, SIGKILL), 0);
  ASSERT_TRUE(WaitUntil(*process, Run(), [&](const RunView& view) {
    return view.world_size == 4 && std::none_of(view.workers.begin(), view.workers.end(), [&](const WorkerView& w) {
             return w.pid == starved || w.pid == killed;
           });
  }));
  ASSERT_TRUE(WaitForStep(*process, Run(), CommittedSteps(Run()) + 10));
  process->Signal(SIGTERM);
  EXPECT_EQ(process->ExitCode(), 143);
  const auto lost = Events(Run(), "worker_lost");
  EXPECT_TRUE(std::any_of(lost.begin(), lost.end(), [](const nlohmann::json& event) {
    return event["worker"] == "local/2" && event.dump().find("Too many open files") != std::string::npos;
  }));
  EXPECT_TRUE(Events(Run(), "rewind").empty());
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
}

// Of two, the other is killed: nobody else has the state, so it stays, and the run continues when it can open files
// again.
TEST_F(Elastic, AWorkerWithoutFileDescriptorsThatAloneHasTheStateIsWaitedFor) {
  const auto process = Train(2, {"parallel.mirrors=1", kLongHeartbeats}, {kSlow});
  const int starved = PidOf(*process, 1, 2), killed = PidOf(*process, 0, 2);
  ASSERT_TRUE(WaitForStep(*process, Run(), 5));
  rlimit before{};
  ASSERT_EQ(prlimit(starved, RLIMIT_NOFILE, nullptr, &before), 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(prlimit(starved, RLIMIT_NOFILE, &none, nullptr), 0);
  ASSERT_EQ(kill(killed, SIGKILL), 0);
  ASSERT_TRUE(WaitForEvents(*process, Run(), "step_failed", 5));
  ASSERT_EQ(prlimit(starved, RLIMIT_NOFILE, &before, nullptr), 0);
  ASSERT_TRUE(WaitForStep(*process, Run(), CommittedSteps(Run()) + 10));
  process->Signal(SIGTERM);
  EXPECT_EQ(process->ExitCode(), 143);
  EXPECT_TRUE(Events(Run(), "rewind").empty());
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
}

}  // namespace
}  // namespace holdfast::chaos
