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

class LaunchTest : public testing::Test {
 protected:
  Stage stage_{500};

  Environment EnvironmentOf(const std::string& run) const {
    return {{"CONFIG", stage_.config()},
            {"RUN_DIR", run},
            {"HOLDFAST", HOLDFAST_BINARY},
            {"HOST", "127.0.0.1"},
            {"PORT", "0"},
            {"WORKERS_PER_NODE", "2"},
            {"HOLDFAST_TEST_SLOWDOWN_MS", "4"}};
  }

  void StopAndCompare(LoggedProcess& launcher, const std::string& run, int exit_code) const {
    ASSERT_TRUE(WaitUntil(run, 60, [](const RunView& v) { return v.world_size == 4 && v.committed_step > 5; }))
        << launcher.Log();
    launcher.Signal(SIGTERM);
    EXPECT_EQ(launcher.Wait(60).value_or(-1), exit_code) << launcher.Log();
    EXPECT_EQ(RunBinary({"compare", stage_.undisturbed(), run}, run + ".compare"), 0) << launcher.Log();
    EXPECT_TRUE(std::filesystem::exists(run + "/model/model.safetensors")) << launcher.Log();
    EXPECT_TRUE(ProcessesWith(run).empty()) << "processes are left";
  }
};

TEST_F(LaunchTest, Mpirun) {
  if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "mpirun is not installed";
  const std::string run = stage_.Path("mpirun");
  Environment environment = EnvironmentOf(run);
  environment.insert(environment.end(), {{"NODES", "2"},
                                         {"MAP", "slot:OVERSUBSCRIBE"},
                                         {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                         {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  LoggedProcess launcher({}, run + ".log", environment, kScripts + "mpirun.sh");
  StopAndCompare(launcher, run, 128 + SIGUSR1);
}

TEST_F(LaunchTest, Slurm) {
  const std::string run = stage_.Path("slurm"), srun = stage_.Path("bin/srun");
  std::filesystem::create_directory(stage_.Path("bin"));
  std::ofstream(srun) << kFakeSrun;
  chmod(srun.c_str(), 0755);
  Environment environment = EnvironmentOf(run);
  environment.insert(environment.end(), {{"SLURM_JOB_NUM_NODES", "2"},
                                         {"SLURM_JOB_NAME", "test"},
                                         {"SLURM_JOB_ID", "1"},
                                         {"NODE_SCRIPT", kScripts + "node.sh"},
                                         {"PATH", stage_.Path("bin") + ":" + std::getenv("PATH")}});
  LoggedProcess launcher({kScripts + "slurm.sbatch"}, run + ".log", environment, "/bin/bash");
  StopAndCompare(launcher, run, 128 + SIGTERM);
}

}  // namespace
}  // namespace holdfast::chaos
