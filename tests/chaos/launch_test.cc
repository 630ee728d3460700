// mpirun.sh of tools/launch starts, stops and saves a run of two machines, both this one. (Those for Slurm:
// slurm_test.cc.)

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/chaos/chaos_run.h"

namespace holdfast::chaos {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

const std::string kScripts = std::string(HOLDFAST_SOURCE_DIR) + "/tools/launch/";

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

}  // namespace
}  // namespace holdfast::chaos
