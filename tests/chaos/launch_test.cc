// The scripts of tools/launch start, stop and save a run: mpirun.sh of two machines, both this one, node.sh of one.
// (Those for Slurm: slurm_test.cc.)

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "tests/chaos/chaos_run.h"
#include "tests/paths.h"

namespace holdfast::chaos {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

const std::string kScripts = SourceDir() + "/tools/launch/";

class LaunchTest : public StageTest {
 protected:
  static Environment CommonEnvironment() {
    return {{"CONFIG", stage_->config()},
            {"RUN_DIR", Run()},
            {"HOLDFAST", TestedBinary()},
            {"HOST", "127.0.0.1"},
            {"PORT", "0"},
            {"WORKERS_PER_NODE", "2"},
            {"HOLDFAST_TEST_SLOWDOWN_MS", "4"}};
  }

  static Environment MpirunEnvironment() {
    Environment environment = CommonEnvironment();
    environment.insert(environment.end(), {{"NODES", "2"},
                                           {"MAP", "slot:OVERSUBSCRIBE"},
                                           {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                           {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
    return environment;
  }

  static void StopAndCompare(LoggedProcess& launcher, int workers, const std::function<void()>& stop, int exit_code) {
    ASSERT_TRUE(
        WaitUntil(launcher, Run(), [&](const RunView& v) { return v.world_size == workers && v.committed_step > 5; }));
    stop();
    EXPECT_EQ(launcher.ExitCode(), exit_code);
    EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
    EXPECT_TRUE(std::filesystem::exists(Run() + "/model/model.safetensors"));
    EXPECT_TRUE(ProcessesWith(Run()).empty()) << "processes are left";
  }
};

TEST_F(LaunchTest, Mpirun) {
  if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "mpirun is not installed";
  LoggedProcess launcher({}, Run() + ".log", MpirunEnvironment(), kScripts + "mpirun.sh");
  StopAndCompare(
      launcher, 4, [&] { launcher.Signal(SIGTERM); }, 128 + SIGUSR1);
}

// Ctrl-C reaches whatever belongs to the terminal's foreground.
TEST_F(LaunchTest, MpirunAtATerminal) {
  if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "mpirun is not installed";
  LoggedProcess launcher({kScripts + "mpirun.sh"}, Run() + ".log", MpirunEnvironment(), "/usr/bin/setsid");
  StopAndCompare(
      launcher, 4, [&] { kill(-launcher.pid(), SIGINT); }, 128 + SIGUSR1);
}

// bash has what it starts with & ignore SIGINT.
TEST_F(LaunchTest, ANodeThatIsInterruptedSavesTheRun) {
  Environment environment = CommonEnvironment();
  environment.emplace_back("NODES", "1");
  LoggedProcess launcher({}, Run() + ".log", environment, kScripts + "node.sh");
  StopAndCompare(
      launcher, 2, [&] { launcher.Signal(SIGINT); }, 128 + SIGTERM);
}

}  // namespace
}  // namespace holdfast::chaos
