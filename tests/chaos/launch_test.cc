// The scripts of tools/launch start, stop and save a run of two machines, both this one: by a real mpirun, and by an
// srun that is a few lines of shell.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/chaos/chaos_run.h"

namespace holdfast::chaos {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

const std::string kScripts = std::string(HOLDFAST_SOURCE_DIR) + "/tools/launch/";

// Runs the command once per machine; a signal goes to all, the exit code is that of the first.
constexpr const char* kFakeSrun = R"(#!/usr/bin/env bash
while [[ $1 == --* ]]; do shift; done
for ((i = 0; i < NODES; ++i)); do SLURM_PROCID=$i "$@" & pids[i]=$!; done
trap 'kill -TERM "${pids[@]}"' TERM
wait "${pids[0]}"
wait "${pids[0]}"
status=$?
wait
exit "$status"
)";

class LaunchTest : public StageTest {
 protected:
  static Environment CommonEnvironment() {
    return {{"CONFIG", stage_->config()},
            {"RUN_DIR", Run()},
            {"HOLDFAST", HOLDFAST_BINARY},
            {"HOST", "127.0.0.1"},
            {"PORT", "0"},
            {"WORKERS_PER_NODE", "2"},
            {"HOLDFAST_TEST_SLOWDOWN_MS", "4"}};
  }

  static void StopAndCompare(LoggedProcess& launcher, int exit_code) {
    ASSERT_TRUE(WaitUntil(launcher, Run(), [](const RunView& v) { return v.world_size == 4 && v.committed_step > 5; }));
    launcher.Signal(SIGTERM);
    EXPECT_EQ(launcher.ExitCode(), exit_code);
    EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
    EXPECT_TRUE(std::filesystem::exists(Run() + "/model/model.safetensors"));
    EXPECT_TRUE(ProcessesWith(Run()).empty()) << "processes are left";
  }
};

TEST_F(LaunchTest, Mpirun) {
  if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "mpirun is not installed";
  Environment environment = CommonEnvironment();
  environment.insert(environment.end(), {{"NODES", "2"},
                                         {"MAP", "slot:OVERSUBSCRIBE"},
                                         {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                         {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  LoggedProcess launcher({}, Run() + ".log", environment, kScripts + "mpirun.sh");
  StopAndCompare(launcher, 128 + SIGUSR1);
}

TEST_F(LaunchTest, Slurm) {
  const std::string srun = stage_->Path("bin/srun");
  std::filesystem::create_directory(stage_->Path("bin"));
  std::ofstream(srun) << kFakeSrun;
  chmod(srun.c_str(), 0755);
  Environment environment = CommonEnvironment();
  environment.insert(environment.end(), {{"SLURM_JOB_NUM_NODES", "2"},
                                         {"SLURM_JOB_NAME", "test"},
                                         {"SLURM_JOB_ID", "1"},
                                         {"NODE_SCRIPT", kScripts + "node.sh"},
                                         {"PATH", stage_->Path("bin") + ":" + std::getenv("PATH")}});
  LoggedProcess launcher({kScripts + "slurm.sbatch"}, Run() + ".log", environment, "/bin/bash");
  StopAndCompare(launcher, 128 + SIGTERM);
}

}  // namespace
}  // namespace holdfast::chaos
