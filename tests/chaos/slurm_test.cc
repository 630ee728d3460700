// The scripts for Slurm under a real one, whose nodes are namespaces of this machine (SlurmCluster): a job that is
// submitted once goes on through its time limit, preemption, requeues and lost nodes, and has the bits of the run that
// nobody touched. Skipped where Slurm is not installed or namespaces are not to be had.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/chaos/chaos_run.h"
#include "tests/chaos/slurm_cluster.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/paths.h"

namespace holdfast::chaos {
namespace {

const std::string kSlurmScripts = SourceDir() + "/tools/launch";

class SlurmTest : public StageTest {
 protected:
  static void SetUpTestSuite() {
    why_not_ = SlurmCluster::WhyNot();
    if (why_not_.empty()) StageTest::SetUpTestSuite();
  }
  void SetUp() override {
    if (!why_not_.empty()) GTEST_SKIP() << why_not_;
    Before("export HOLDFAST_TEST_SLOWDOWN_MS=4");
  }
  void TearDown() override {
    slurm_.reset();
    StageTest::TearDown();
  }

  void StartSlurm(int nodes) { slurm_ = std::make_unique<SlurmCluster>(Run() + ".slurm", nodes); }

  /// What each process of the run does, as shell, before it becomes the binary.
  static void Before(const std::string& script) {
    std::ofstream(stage_->Path("next")) << "#!/bin/bash\n" << script << "\nexec " << TestedBinary() << " \"$@\"\n";
    chmod(stage_->Path("next").c_str(), 0755);
    std::filesystem::rename(stage_->Path("next"), stage_->Path("holdfast"));
  }

  /// Submits the job of the run, with options of sbatch; its number.
  std::string Submit(const std::string& options, const std::string& set = "", const std::string& environment = "") {
    return Sbatch(environment + " CONFIG=" + stage_->config() + " RUN_DIR=" + Run() +
                  " HOLDFAST=" + stage_->Path("holdfast") + " LAUNCH=" + kSlurmScripts + " sbatch --parsable " +
                  options + " --cpus-per-task=1 --job-name=" + Name() + " --output=" + Run() + ".job.log " +
                  kSlurmScripts + "/slurm.sbatch " + set);
  }
  std::string Join() {
    return Sbatch("LAUNCH=" + kSlurmScripts + " sbatch --parsable --cpus-per-task=1 --output=" + Run() + ".join.log " +
                  kSlurmScripts + "/slurm_join.sbatch " + Run());
  }
  std::string Sbatch(const std::string& command) {
    const std::string job = slurm_->Output(command);
    EXPECT_TRUE(!job.empty() && std::all_of(job.begin(), job.end() - 1, [](char c) { return c >= '0' && c <= '9'; }))
        << job;
    return job.substr(0, job.find('\n'));
  }

  /// Training with so many workers, some steps past where it was.
  static testing::AssertionResult Trains(int workers) {
    const int64_t start = CommittedSteps(Run());
    const bool trains = WaitFor([&] { return Look(Run()).world_size == workers; }) &&
                        WaitFor([&] { return CommittedSteps(Run()) >= start + 3; });
    return trains ? testing::AssertionSuccess()
                  : testing::AssertionFailure() << "no steps of " << workers << " workers";
  }
  /// The `life`th coordinator of the run leads it: each takes a million generations. Slurm counts a restart when it
  /// begins to end the job, which trains on meanwhile.
  static bool Lives(int64_t life) {
    return WaitFor([&] { return Look(Run()).generation / 1'000'000 == life; });
  }
  /// The job is not there any more, in this state, and nothing of it is left.
  void ExpectEnd(const std::string& job, const std::string& state, const std::string& exit_code) {
    EXPECT_TRUE(slurm_->Await(job, "JobState", state)) << slurm_->Job(job, "JobState");
    EXPECT_EQ(slurm_->Job(job, "ExitCode"), exit_code);
    EXPECT_TRUE(WaitFor([&] { return ProcessesWith(Run() + " ").empty(); })) << "processes are left";
  }
  /// Stops the run for good, and looks at what was done. It was never set back: each stop had saved its last step.
  void StopAndCompare(const std::string& job) {
    slurm_->Output("scancel --signal=TERM " + job);
    ExpectEnd(job, "CANCELLED", "143:0");
    EXPECT_TRUE(Events(Run(), "rewind").empty());
    EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
  }

  static std::string why_not_;
  std::unique_ptr<SlurmCluster> slurm_;
};

std::string SlurmTest::why_not_;

// Slurm looks at time limits twice a minute, so a life of the job gets half a minute to a whole one; at this speed the
// run would take more than that.
TEST_F(SlurmTest, AJobGoesOnThroughItsTimeLimitUntilItIsDone) {
  StartSlurm(2);
  Before("export HOLDFAST_TEST_SLOWDOWN_MS=200");
  const std::string job = Submit("--nodes=2 --time=2 --signal=USR1@60", "--set train.steps=150");
  ASSERT_TRUE(Trains(2));
  ASSERT_TRUE(WaitFor([&] { return slurm_->Job(job, "Restarts") >= "1"; }));
  Before("");
  ExpectEnd(job, "COMPLETED", "0:0");
  EXPECT_EQ(CommittedSteps(Run()), 150);
  EXPECT_GE(Events(Run(), "run_stopped").size(), 1u);
  EXPECT_TRUE(Events(Run(), "rewind").empty());
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
}

TEST_F(SlurmTest, PreemptionAndARequeue) {
  StartSlurm(2);
  const std::string job = Submit("--nodes=2");
  ASSERT_TRUE(Trains(2));
  const std::string urgent = Sbatch("sbatch --parsable --partition=high --nodes=1 --output=/dev/null --wrap true");
  ASSERT_TRUE(slurm_->Await(job, "Restarts", "1"));
  ASSERT_TRUE(Lives(2));
  ASSERT_TRUE(Trains(2));
  EXPECT_EQ(slurm_->Job(urgent, "JobState"), "COMPLETED");
  slurm_->Output("scontrol requeue " + job);
  ASSERT_TRUE(slurm_->Await(job, "Restarts", "2"));
  ASSERT_TRUE(Lives(3));
  ASSERT_TRUE(Trains(2));
  StopAndCompare(job);
}

// By a job that joins, and by an agent that is started by hand.
TEST_F(SlurmTest, ALostNodeIsReplaced) {
  StartSlurm(4);
  const std::string job = Submit("--nodes=3", "--set elastic.max_workers=4");
  ASSERT_TRUE(Trains(3));
  slurm_->Lose("n3");
  ASSERT_TRUE(Trains(2));
  const std::string join = Join();
  ASSERT_TRUE(Trains(3));
  std::string address;
  std::getline(std::ifstream(Run() + "/coordinator.address") >> std::ws, address);
  LoggedProcess agent({"agent", stage_->config(), "--run-dir", Run(), "--coordinator", address, "--token-file",
                       Run() + "/coordinator.token", "--node", "lead"},
                      Run() + ".agent.log");
  ASSERT_TRUE(Trains(4));
  slurm_->Output("scancel " + join);
  ASSERT_TRUE(Trains(3));
  EXPECT_TRUE(slurm_->Await(join, "JobState", "CANCELLED"));
  agent.Signal(SIGTERM);
  EXPECT_EQ(agent.ExitCode(), 143);
  ASSERT_TRUE(Trains(2));
  EXPECT_EQ(slurm_->Job(job, "Restarts"), "0");
  StopAndCompare(job);
}

// With it the batch script and the coordinator that leads are lost. Nobody but the other nodes can have the job
// requeued, which asks for as many nodes as at first.
TEST_F(SlurmTest, TheFirstNodeIsLost) {
  StartSlurm(3);
  const std::string job = Submit("--nodes=2");
  ASSERT_TRUE(Trains(2));
  ASSERT_EQ(slurm_->Job(job, "BatchHost"), "n1");
  slurm_->Lose("n1");
  ASSERT_TRUE(Trains(1));
  slurm_->Output("scancel --signal=USR1 " + job);
  ASSERT_TRUE(slurm_->Await(job, "Restarts", "1"));
  ASSERT_TRUE(Trains(2));
  EXPECT_EQ(slurm_->Job(job, "NodeList"), "n[2-3]");
  StopAndCompare(job);
}

// The only one of the job. Its node starts another one, which the agents and workers that are there follow.
TEST_F(SlurmTest, ACoordinatorThatIsKilledIsStartedAgain) {
  StartSlurm(1);
  const std::string job = Submit("--nodes=1");
  ASSERT_TRUE(Trains(1));
  const std::vector<int> coordinators = ProcessesWith(" coordinator " + stage_->config() + " --run-dir " + Run() + " ");
  ASSERT_EQ(coordinators.size(), 1u);
  kill(coordinators[0], SIGKILL);
  ASSERT_TRUE(Trains(1));
  EXPECT_EQ(slurm_->Job(job, "Restarts"), "0");
  StopAndCompare(job);
}

// The others would wait for a coordinator, or for the node, much longer than this test does.
TEST_F(SlurmTest, AWrongConfigEndsTheJobAtOnce) {
  StartSlurm(3);
  const std::string wait = "START_SECONDS=1000000";
  ExpectEnd(Submit("--nodes=3", "--set train.stepz=1", wait), "FAILED", "2:0");
  Before("[[ $(hostname) != n3 ]] || set -- \"$1\" /no/config \"${@:3}\"");
  const std::string job = Submit("--nodes=3", "--set elastic.join_timeout_ms=3000000", wait);
  ExpectEnd(job, "FAILED", "2:0");
  EXPECT_EQ(slurm_->Job(job, "Restarts"), "0");
  EXPECT_EQ(CommittedSteps(Run()), 0);
}

TEST_F(SlurmTest, FailuresThatMayPassAreTriedAgainSoManyTimes) {
  StartSlurm(2);
  Before("[[ $1 != coordinator ]] || exit 75");
  const std::string job = Submit("--nodes=2", "", "MAX_RETRIES=1");
  ExpectEnd(job, "FAILED", "75:0");
  EXPECT_EQ(slurm_->Job(job, "Restarts"), "1");
}

// Steps that are made again after a rewind are not new, whatever their lines look like.
TEST(SlurmJob, OnlyAStepThatWasNeverMadeIsNew) {
  const TemporaryDirectory run;
  const auto may_retry = [&](const std::string& metrics) {
    std::ofstream(run.path() + "/metrics.jsonl") << metrics;
    const std::string command = "MAX_RETRIES=2 RUN_DIR=" + run.path() + " retries=" + run.path() +
                                "/retries bash -euc 'source <(sed -n \"/^may_retry() {/,/^}/p\" \"$0\"); may_retry' " +
                                kSlurmScripts + "/slurm_job.sh";
    return std::system(command.c_str()) == 0;
  };
  EXPECT_TRUE(may_retry(""));
  EXPECT_TRUE(may_retry("{\"step\":49,\"loss\":1}\n{\"step\":50,\"loss\":1}\n"));
  EXPECT_TRUE(may_retry("{\"step\":50,\"loss\":1.25}\n"));
  EXPECT_FALSE(may_retry("{\"step\":49,\"loss\":1.125}\n"));
  EXPECT_TRUE(may_retry("{\"step\":50,\"loss\":1}\n{\"step\":51,\"loss\":1}\n"));
}

TEST_F(SlurmTest, WaysToCancel) {
  StartSlurm(2);
  size_t stops = 0;
  for (const std::string how : {"", "--signal=TERM", "--signal=INT", "--batch --signal=TERM", "--signal=USR1",
                                "--batch --signal=USR1", "--full --signal=USR1"}) {
    const std::string job = Submit("--nodes=2");
    ASSERT_TRUE(Trains(2));
    slurm_->Output("scancel " + how + " " + job);
    const bool restarts = how.find("USR1") != std::string::npos;
    ASSERT_TRUE(restarts ? slurm_->Await(job, "Restarts", "1") : slurm_->Await(job, "JobState", "CANCELLED")) << how;
    EXPECT_EQ(Events(Run(), "run_stopped").size(), stops + 1) << how;
    if (restarts) {  // it waits, or has begun to train on
      slurm_->Output("scancel " + job);
      ASSERT_TRUE(slurm_->Await(job, "JobState", "CANCELLED")) << how;
    }
    stops = Events(Run(), "run_stopped").size();
  }
  EXPECT_TRUE(Events(Run(), "rewind").empty());
  // Its srun kills the tasks at once. The job is not requeued, as nobody wants it any more.
  const std::string job = Submit("--nodes=2");
  ASSERT_TRUE(Trains(2));
  slurm_->Output("scancel --full --signal=TERM " + job);
  ExpectEnd(job, "CANCELLED", "143:0");
  EXPECT_EQ(slurm_->Job(job, "Restarts"), "0");
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
}

}  // namespace
}  // namespace holdfast::chaos
