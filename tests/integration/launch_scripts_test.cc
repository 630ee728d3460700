// Proves what the scripts of tools/launch tell the programs that they start, which stand-ins say here, and how the
// scripts end. (With the programs themselves: tests/chaos/launch_test.cc.)

#include <signal.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/net/test_ports.h"
#include "tests/integration/command.h"
#include "tests/paths.h"

namespace holdfast::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchScripts : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(::testing::TempDir()) / ("launch_scripts_" + std::to_string(getpid()));
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_ / "run");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Program(const std::string& name, const std::string& script) {
    const std::filesystem::path path = directory_ / name;
    WriteAll(path, "#!/bin/bash\n" + script);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  }
  /// A variable with which a script stands still for three seconds before `command`, as on a busy machine.
  std::string StandsStillBefore(const std::string& command) {
    const std::filesystem::path path = directory_ / "still.sh";
    WriteAll(path, "still() { [[ $BASH_COMMAND != '" + command + "' ]] || sleep 3; }\nset -T\ntrap still DEBUG\n");
    return "BASH_ENV=" + path.string();
  }
  /// `variables`: NAME=VALUE.
  Command Start(const std::string& script, const std::vector<std::string>& variables,
                const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"--default-signal=INT", "CONFIG=config.yaml", "PORT=29400",
                                       "RUN_DIR=" + (directory_ / "run").string()};
    arguments.insert(arguments.end(), variables.begin(), variables.end());
    arguments.push_back(SourceDir() + "/tools/launch/" + script);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Command(arguments, "/usr/bin/env");
  }

  /// Its agents are killed at once; its coordinator ends with 0 when somebody has looked three times for whom it works,
  /// and then always found `state`, `nodes` and `workers`, as JSON has them.
  std::string HoldfastWhoseAgentsAreKilled(const std::string& state, const std::string& nodes,
                                           const std::string& workers) {
    return Program("holdfast", R"(cd "$RUN_DIR"
case $1 in
  coordinator)
    echo $$ >coordinator.pid
    echo 127.0.0.1:29400 >coordinator.address
    for i in {1..3000}; do [[ $(wc -l <looks) -lt 3 ]] || exit 0; sleep 0.1; done ;;
  agent) kill -KILL $$ ;;
  status)
    [[ "$2 $3" == "$RUN_DIR --json" ]] || exit 2
    echo look >>looks
    printf '{\n  "state": )" + state +
                                   R"(,\n  "nodes": )" + nodes + R"(,\n  "workers": )" + workers + R"(\n}\n' ;;
esac
)");
  }
  std::string InRun(const std::string& name) const { return (directory_ / "run" / name).string(); }

  std::filesystem::path directory_;
};

// Two within a second are one. The script stands still for longer before it says what a second one does, as on a busy
// machine.
TEST_F(LaunchScripts, ASecondCtrlCAtMpirunEndsItAtOnce) {
  Program("mpirun",
          "trap '' USR1\ntrap 'exit 0' TERM\nprintf 'it has begun\\n'\nfor i in {1..3000}; do sleep 0.1; done\n");
  Command script = Start("mpirun.sh", {"PATH=" + directory_.string() + ":/usr/bin:/bin", "HOLDFAST=true", "NODES=2",
                                       "BASH_FUNC_echo%%=() { sleep 3; builtin echo \"$@\"; }"});
  ASSERT_TRUE(script.WaitForOutput("it has begun"));
  script.Signal(SIGINT);
  ASSERT_TRUE(script.WaitForOutput("a second Ctrl-C ends all at once"));
  script.Signal(SIGINT);
  EXPECT_EQ(script.Wait().exit_code, 128 + SIGINT);
}

// It stands still as soon as it passes signals on, before it starts mpirun.
TEST_F(LaunchScripts, MpirunThatIsStoppedBeforeItStartsAnythingEndsAsOneThatWasStopped) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Command script = Start(
        "mpirun.sh", {"HOLDFAST=true", "NODES=2",
                      "BASH_FUNC_trap%%=() { builtin trap \"$@\"; [[ $2 != USR1 ]] || { echo it has begun; while sleep "
                      "0.1; do :; done; }; }"});
    ASSERT_TRUE(script.WaitForOutput("it has begun"));
    script.Signal(signal);
    const CommandResult result = script.Wait();
    EXPECT_EQ(result.exit_code, 128 + signal);
    EXPECT_EQ(result.output, "it has begun\n");
  }
}

TEST_F(LaunchScripts, ANodeThatIsStoppedAsItStartsItsCoordinatorLeavesNone) {
  const std::string holdfast = Program("holdfast",
                                       "trap 'echo it was told; exit 0' TERM\necho it has begun\n"
                                       "for i in {1..3000}; do sleep 0.1; done\n");
  Command script =
      Start("node.sh", {"HOLDFAST=" + holdfast, "NODES=1", "HOST=127.0.0.1", StandsStillBefore("coordinator=$!")});
  ASSERT_TRUE(script.WaitForOutput("it has begun"));
  script.Signal(SIGTERM);
  EXPECT_THAT(script.Wait().output, HasSubstr("it was told"));
}

// The scheduler is to know, and nothing is to be left of a run that does nothing.
TEST_F(LaunchScripts, ANodeWhoseAgentWasKilledEndsWithItsCoordinatorIfNobodyWorksForThat) {
  WriteAll(InRun("looks"), "");
  Command script =
      Start("node.sh", {"HOLDFAST=" + HoldfastWhoseAgentsAreKilled(R"("recovering")", "[]", "[]"), "NODES=1",
                        "HOST=127.0.0.1", "DESERTED_SECONDS=0", "EXIT_CODE_FILE=" + InRun("exit_code")});
  const CommandResult result = script.Wait();
  EXPECT_EQ(result.exit_code, 75) << result.output;
  EXPECT_THAT(result.output, HasSubstr("the agent here has ended with 137, and nobody works for the run"));
  EXPECT_EQ(ReadAll(InRun("exit_code")), "75\n");
  EXPECT_EQ(kill(std::stoi(ReadAll(InRun("coordinator.pid"))), 0), -1) << "the coordinator is left";
}

TEST_F(LaunchScripts, ANodeWhoseAgentWasKilledLeadsTheRunForOthersAndToItsEnd) {
  const std::vector<std::array<std::string, 3>> found{{R"("recovering")", R"(["node-1"])", "[]"},
                                                      {R"("training")", "[]", R"([{"rank": 0}])"},
                                                      {R"("ended")", "[]", "[]"}};
  for (const auto& [state, nodes, workers] : found) {
    SCOPED_TRACE(state);
    WriteAll(InRun("looks"), "");
    Command script = Start("node.sh", {"HOLDFAST=" + HoldfastWhoseAgentsAreKilled(state, nodes, workers), "NODES=2",
                                       "HOST=127.0.0.1", "DESERTED_SECONDS=0"});
    const CommandResult result = script.Wait();
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, Not(HasSubstr("nobody works")));
    std::filesystem::remove(InRun("coordinator.address"));
  }
}

TEST_F(LaunchScripts, MpirunEndsWithAFailureWhenAllAgentsAreKilled) {
  WriteAll(InRun("looks"), "");
  Program("mpirun",
          "for rank in 0 1; do OMPI_COMM_WORLD_RANK=$rank '" + SourceDir() + "/tools/launch/node.sh' & done\nwait\n");
  Command script = Start(
      "mpirun.sh", {"PATH=" + directory_.string() + ":/usr/bin:/bin", "NODES=2", "HOST=127.0.0.1",
                    "HOLDFAST=" + HoldfastWhoseAgentsAreKilled(R"("recovering")", "[]", "[]"), "DESERTED_SECONDS=0"});
  const CommandResult result = script.Wait();
  EXPECT_EQ(result.exit_code, 75) << result.output;
}

TEST_F(LaunchScripts, ASlurmJobThatIsSignalledAsItStartsPassesThatOn) {
  Program("srun", "echo it has begun\nfor i in {1..3000}; do [[ ! -e $RUN_DIR/told ]] || exit 0; sleep 0.1; done\n");
  Program("scontrol", "echo JobState=RUNNING\n");
  Program("scancel", "echo \"scancel $*\"\ntouch \"$RUN_DIR/told\"\n");
  Command script = Start("slurm_job.sh",
                         {"PATH=" + directory_.string() + ":/usr/bin:/bin", "HOLDFAST=true", "WORKERS_PER_NODE=1",
                          "SLURM_JOB_ID=7", "SLURM_JOB_NUM_NODES=1", "MAX_RETRIES=0", StandsStillBefore("srun=$!")},
                         {"batch"});
  ASSERT_TRUE(script.WaitForOutput("it has begun"));
  script.Signal(SIGUSR1);
  EXPECT_THAT(script.Wait().output, HasSubstr("scancel --signal=USR1 7\n"));
}

TEST_F(LaunchScripts, ANodeHasAnAddressOfItsOwn) {
  const std::string holdfast = "HOLDFAST=" + Program("holdfast", "echo \"$*\"\nexit 1\n");
  const std::string of_conda = Start("node.sh", {holdfast, "NODES=2", "HOST=x86_64-conda-linux-gnu"}).Wait().output;
  EXPECT_THAT(of_conda, AllOf(HasSubstr("warning: HOST=x86_64-conda-linux-gnu is no address of this machine"),
                              HasSubstr("coordinator config.yaml"), Not(HasSubstr("--listen x86_64"))));
  const std::string right = Start("node.sh", {holdfast, "NODES=2", "HOST=127.0.0.1"}).Wait().output;
  EXPECT_THAT(right, AllOf(HasSubstr("--listen 127.0.0.1:29400"), Not(HasSubstr("warning"))));
  if (!HasIpv6Loopback()) return;
  const std::string of_v6 = Start("node.sh", {holdfast, "NODES=2", "HOST=::1"}).Wait().output;
  EXPECT_THAT(of_v6, AllOf(HasSubstr("--listen [::1]:29400"), Not(HasSubstr("warning"))));
}

}  // namespace
}  // namespace holdfast::integration
