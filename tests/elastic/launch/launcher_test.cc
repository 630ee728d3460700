// Every launcher runs a run to its end, with real workers: the bits are those of the run in one process, also if a
// worker process is killed on the way; a stop is passed on; what cannot work is refused before the run directory is
// touched, and workers that can never start end the run.

#include "elastic/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elastic/coordinator/run_id.h"
#include "elastic/launch/in_process_launcher.h"
#include "elastic/launch/local_launcher.h"
#include "elastic/launch/server_launcher.h"
#include "elastic/wire/control_client.h"
#include "elastic/wire/token.h"
#include "framework/metrics/compare.h"
#include "framework/metrics/run_lock.h"
#include "framework/net/socket_address.h"
#include "framework/storage/atomic_file.h"
#include "tests/models/runtime/tiny_run.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::chrono::minutes kDeadline{5};  // no measure of speed: a busy machine is far from needing it

/// Processes whose command line has `text` in it, without this one.
std::vector<int> ProcessesWith(const std::string& text) {
  std::vector<int> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || pid == getpid()) continue;
    std::ifstream file(entry.path() / "cmdline");
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    if (line.find(text) != std::string::npos) found.push_back(pid);
  }
  return found;
}

bool WaitFor(const std::function<bool()>& condition) {
  for (const auto end = std::chrono::steady_clock::now() + kDeadline; std::chrono::steady_clock::now() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

class LauncherTest : public TinyRun {
 protected:
  static absl::StatusOr<CoordinatorShell::Outcome> RunWith(Launcher& launcher, const Config& config,
                                                           const RunDirectory& directory, const StopSignal& stop) {
    auto run = PrepareRun(config, directory, launcher.outline().layout, {.workers_are_new = true});
    if (!run.ok()) return run.status();
    return launcher.Run(*run, stop);
  }

  absl::StatusOr<CoordinatorShell::Outcome> RunHere(const Config& config, const RunDirectory& directory) {
    auto launcher = InProcessLauncher::Open(config, directory);
    if (!launcher.ok()) return launcher.status();
    return RunWith(**launcher, config, directory, *stop_);
  }

  static void ExpectEqualBits(const RunDirectory& a, const RunDirectory& b) {
    const auto compared = CompareRuns(a.ReadMetrics().value(), b.ReadMetrics().value());
    ASSERT_TRUE(compared.ok()) << compared.status();
    EXPECT_FALSE(compared->difference.has_value()) << Describe(*compared);
    EXPECT_EQ(compared->steps_a, compared->steps_b);
    EXPECT_GT(compared->digests_compared, 0);
  }

  std::optional<StopSignal> stop_{std::in_place};  // before any other thread
};

TEST_F(LauncherTest, InThisProcess) {
  const Config config = ConfigOf();
  const RunDirectory directory(root_ / "run");
  const auto launcher = InProcessLauncher::Open(config, directory);
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  EXPECT_EQ((*launcher)->outline().data.tokens, 4000);
  EXPECT_EQ((*launcher)->outline().data.samples, 3999 / 16);
  EXPECT_FALSE(fs::exists(directory.root())) << "opening a launcher makes nothing";
  const auto outcome = RunWith(**launcher, config, directory, *stop_);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->exit_code, 0) << outcome->reason;
  EXPECT_EQ(outcome->steps, 12);
  EXPECT_EQ(directory.ReadMetrics()->size(), 12u);
  EXPECT_TRUE(fs::exists(directory.model() + "/model.safetensors"));
}

TEST_F(LauncherTest, InThisProcessTheAddressOfOneThatWasKilledGoes) {
  const Config config = ConfigOf();
  const RunDirectory directory(root_ / "run");
  const auto launcher = InProcessLauncher::Open(config, directory);
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  const auto run = PrepareRun(config, directory, (*launcher)->outline().layout, {.workers_are_new = true});
  ASSERT_TRUE(run.ok()) << run.status();
  std::ofstream(directory.coordinator_address()) << "127.0.0.1:1\n";
  ASSERT_TRUE((*launcher)->Run(*run, *stop_).ok());
  EXPECT_FALSE(fs::exists(directory.coordinator_address()));
}

TEST_F(LauncherTest, LocalProcessesOfWhichOneIsKilledHaveTheBitsOfOneProcess) {
  const RunDirectory here(root_ / "here");
  ASSERT_TRUE(RunHere(ConfigOf(), here).ok());
  const Config config = ConfigOf({"elastic.workers=2", "elastic.heartbeat_timeout_ms=15000"});
  // On a busy machine a run may be over before one of its workers is killed: another one, with slower steps.
  bool is_killed = false;
  for (int slowdown_ms = 50; !is_killed; slowdown_ms *= 4) {
    ASSERT_LT(slowdown_ms, 10'000) << "that a worker was killed stands in no run's events";
    const RunDirectory local(root_ / absl::StrCat("local_", slowdown_ms));
    const auto launcher = LocalLauncher::Open(config, local, TestedBinary());
    ASSERT_TRUE(launcher.ok()) << launcher.status();

    setenv("HOLDFAST_TEST_SLOWDOWN_MS", absl::StrCat(slowdown_ms).c_str(), 1);
    std::atomic<bool> ended = false;  // maybe with an error, before its first step
    std::thread killer([&] {
      const bool stepped = WaitFor([&] {
        const auto steps = local.ReadMetrics();
        return ended || (steps.ok() && !steps->empty());
      });
      const std::vector<int> workers = ProcessesWith(local.root());
      if (stepped && !workers.empty()) kill(workers.back(), SIGKILL);
    });
    const auto outcome = RunWith(**launcher, config, local, *stop_);
    ended = true;
    killer.join();
    unsetenv("HOLDFAST_TEST_SLOWDOWN_MS");
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->exit_code, 0) << outcome->reason;
    EXPECT_EQ(outcome->steps, 12);
    ExpectEqualBits(here, local);
    std::ifstream file(local.events());
    const std::string events{std::istreambuf_iterator<char>(file), {}};
    is_killed = events.find("worker_exited") != std::string::npos;
    EXPECT_TRUE(ProcessesWith(local.root()).empty());
  }
}

// They are lost while the run goes on, not before it begins. One after the other: the last one is not to go back to a
// checkpoint meanwhile.
TEST_F(LauncherTest, ARunWhoseWorkersAreAllLostForGoodEnds) {
  const RunDirectory directory(root_ / "run");
  const Config config = ConfigOf({"elastic.workers=2", "elastic.max_restarts=0", "elastic.lost_state_timeout_ms=600000",
                                  "checkpoint.every_steps=1", "train.steps=100000"});
  const auto launcher = LocalLauncher::Open(config, directory, TestedBinary());
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  const auto events = [&] {
    std::ifstream file(directory.events());
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  std::atomic<bool> ended = false;
  std::thread killer([&] {
    EXPECT_TRUE(WaitFor([&] { return ended || events().find("\"event\":\"checkpoint\"") != std::string::npos; }));
    for (const int pid : ProcessesWith(directory.root())) kill(pid, SIGKILL);
  });
  const auto outcome = RunWith(**launcher, config, directory, *stop_);
  ended = true;
  killer.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->exit_code, 1) << outcome->reason;
  EXPECT_EQ(outcome->reason, "all workers have failed");
  EXPECT_THAT(events(), testing::Not(HasSubstr("\"event\":\"rewind"))) << "for whom?";
}

// They were started again and again, for ever.
TEST_F(LauncherTest, WorkersThatHaveNoPlaceForTheirLogsAreNotStarted) {
  const Config config = ConfigOf({"elastic.workers=2"});
  const RunDirectory directory(root_ / "run");
  const auto launcher = LocalLauncher::Open(config, directory, TestedBinary());
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  const auto run = PrepareRun(config, directory, (*launcher)->outline().layout, {.workers_are_new = true});
  ASSERT_TRUE(run.ok()) << run.status();
  std::ofstream(directory.logs()) << "a file";
  const auto outcome = (*launcher)->Run(*run, *stop_);
  EXPECT_TRUE(absl::IsInvalidArgument(outcome.status())) << outcome.status();
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("/logs: not a directory"));
}

// It becomes a worker when the agent tells it to end, which is after the end of the run; as one that has begun to join
// it knows the run and is not ended by the agent's SIGUSR2. The agent gives it ten seconds, all of which a busy machine
// may take to start it: again.
TEST_F(LauncherTest, AWorkerThatWasStillStartingHearsOfTheEnd) {
  const std::string script = root_ / "slow", ready = root_ / "ready";
  const std::string text = absl::StrCat(
      "#!/bin/sh\n[ \"$HOLDFAST_RUN_ID\" != input ] || read -r HOLDFAST_RUN_ID\nexport HOLDFAST_RUN_ID\ntrap '' USR2\n",
      "trap 'exec \"", TestedBinary(), "\" \"$@\"' TERM\n: > '", ready, "'\nwhile :; do sleep 0.01; done\n");
  ASSERT_TRUE(WriteFileAtomically(script, text).ok());
  fs::permissions(script, fs::perms::owner_all);
  const Config config = ConfigOf({"elastic.workers=1"});
  std::string said;
  for (int attempt = 0; said.find("stopped by SIGTERM") == std::string::npos; ++attempt) {
    ASSERT_LT(attempt, 10) << said;
    fs::remove(ready);
    stop_.reset();
    stop_.emplace();
    const RunDirectory directory(root_ / absl::StrCat("run_", attempt));
    const auto launcher = LocalLauncher::Open(config, directory, script);
    ASSERT_TRUE(launcher.ok()) << launcher.status();
    std::thread stopper([&] {
      EXPECT_TRUE(WaitFor([&] { return fs::exists(ready); }));
      kill(getpid(), SIGTERM);
    });
    const auto outcome = RunWith(**launcher, config, directory, *stop_);
    stopper.join();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->exit_code, 128 + SIGTERM) << outcome->reason;
    std::ifstream log(directory.logs() + "/local-0.log");
    said = std::string{std::istreambuf_iterator<char>(log), {}};
  }
}

// They were asked to save, and nobody answered them for ten seconds.
TEST_F(LauncherTest, WorkersOfARunThatWasTakenAreNotAskedForAnything) {
  const std::string script = root_ / "worker", asked = root_ / "asked";
  ASSERT_TRUE(
      WriteFileAtomically(script, absl::StrCat("#!/bin/sh\ntrap ': > \"", asked, "\"' TERM\nexec 3<&0\n\"",
                                               TestedBinary(), "\" \"$@\" <&3 &\nwhile :; do sleep 0.01; done\n"))
          .ok());
  fs::permissions(script, fs::perms::owner_all);
  const Config config = ConfigOf({"elastic.workers=1", "train.steps=1000000"});
  const RunDirectory directory(root_ / "run");
  const auto launcher = LocalLauncher::Open(config, directory, script);
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  std::thread remover([&] {
    EXPECT_TRUE(WaitFor([&] {
      std::error_code error;
      return fs::file_size(directory.metrics(), error) > 0 && !error;
    }));
    fs::remove(directory.lock());
  });
  const auto outcome = RunWith(**launcher, config, directory, *stop_);
  remover.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->goes_on) << outcome->reason;
  EXPECT_FALSE(fs::exists(asked));
}

TEST_F(LauncherTest, AServerSaysWhereItListensAndAStopEndsIt) {
  const Config config = ConfigOf({"elastic.workers=2", "parallel.transport=nccl", "train.device=cuda"});
  const RunDirectory directory(root_ / "run");
  std::string heard, leader;
  const auto on_listening = [&](const std::string& address) {
    heard = address;
    const auto status = FetchStatus(
        {.address = address, .token = ReadTokenFile(directory.token()).value_or(""), .connect_timeout = kDeadline});
    EXPECT_TRUE(status.ok()) << status.status();
    if (status.ok()) leader = status->leader;
    kill(getpid(), SIGTERM);
  };
  // Of a run on GPUs, which this machine need not have.
  const auto launcher =
      ServerLauncher::Open(config, directory, {.listen = "127.0.0.1:0", .on_listening = on_listening});
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  const auto outcome = RunWith(**launcher, config, directory, *stop_);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(heard, HasSubstr("127.0.0.1:"));
  EXPECT_NE(leader, "");
  EXPECT_EQ(leader, RunLock::Read(directory)->owner) << "by which `holdfast status` knows whose answer it is";
  EXPECT_EQ(outcome->exit_code, 128 + SIGTERM) << outcome->reason;
  EXPECT_FALSE(fs::exists(directory.coordinator_address())) << "nobody listens there any more";
}

TEST_F(LauncherTest, WhatSomebodyRemovesIsWrittenAnew) {
  const Config config = ConfigOf();
  const RunDirectory directory(root_ / "run");
  const auto on_listening = [&](const std::string&) {
    const absl::StatusOr<uint64_t> number = ReadRunId(directory);
    EXPECT_TRUE(number.ok()) << number.status();
    const std::string token = ReadTokenFile(directory.token()).value_or("none");
    for (const std::string& file : {directory.coordinator_address(), directory.run_id(), directory.token()}) {
      EXPECT_TRUE(fs::remove(file));
      EXPECT_TRUE(WaitFor([&] { return fs::exists(file); })) << file;
    }
    EXPECT_EQ(ReadRunId(directory).value_or(0), *number) << "those that are left would be refused";
    EXPECT_EQ(ReadTokenFile(directory.token()).value_or("another"), token) << "as well, and nobody else may read it";
    kill(getpid(), SIGTERM);
  };
  const auto launcher =
      ServerLauncher::Open(config, directory, {.listen = "127.0.0.1:0", .on_listening = on_listening});
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  ASSERT_TRUE(RunWith(**launcher, config, directory, *stop_).ok());
  EXPECT_FALSE(fs::exists(directory.coordinator_address())) << "nobody listens there any more";
}

// It was frozen before it listened. Agents would look for the run at its address, and then find none.
TEST_F(LauncherTest, WhoHasLostTheRunNotesNoAddress) {
  const Config config = ConfigOf();
  const RunDirectory directory(root_ / "run");
  const auto launcher = ServerLauncher::Open(config, directory, {.listen = "127.0.0.1:0"});
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  const auto run = PrepareRun(config, directory, (*launcher)->outline().layout, {.workers_are_new = true});
  ASSERT_TRUE(run.ok()) << run.status();
  const auto other = RunLock::TakeFrom(directory, RunLock::Read(directory).value());
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_TRUE(WriteFileAtomically(directory.coordinator_address(), "other:1\n").ok());
  const auto outcome = (*launcher)->Run(*run, *stop_);
  EXPECT_TRUE(absl::IsAborted(outcome.status())) << outcome.status();
  std::ifstream file(directory.coordinator_address());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "other:1\n");
}

TEST_F(LauncherTest, WhatCannotWorkIsRefusedBeforeTheRunDirectoryIsTouched) {
  const RunDirectory directory(root_ / "run");
  for (const auto& [override, says] : std::vector<std::pair<std::string, std::string>>{
           {"data.train=[" + (root_ / "nowhere.bin") + "]", "nowhere.bin"},
           {"data.validation=[" + (root_ / "nowhere.bin") + "]", "nowhere.bin"},
           {"batch.sequence_length=5000", "a sample needs 5000"},
           {"data.tokenizer=" + (root_ / "nowhere.json"), "nowhere.json"},
           {"train.init_from=" + (root_ / "nowhere"), "nowhere"}}) {
    Config config = ConfigOf();
    // Past the config's own checks, which see none of this.
    if (override.find("sequence_length") != std::string::npos) {
      config.batch.sequence_length = config.model.max_sequence_length = 5000;
    } else if (override.find("init_from") != std::string::npos) {
      config.train.init_from = root_ / "nowhere";
    } else {
      config = ConfigOf({override});
    }
    const auto here = InProcessLauncher::Open(config, directory);
    const auto local = LocalLauncher::Open(config, directory, TestedBinary());
    const auto server = ServerLauncher::Open(config, directory, {.listen = "127.0.0.1:0"});
    for (const absl::Status& status : {here.status(), local.status(), server.status()}) {
      EXPECT_FALSE(status.ok()) << override;
      EXPECT_THAT(std::string(status.message()), HasSubstr(says)) << override;
    }
    EXPECT_FALSE(fs::exists(directory.root())) << override;
  }
}

TEST_F(LauncherTest, APlaceForCheckpointsThatIsNoneIsRefused) {
  ASSERT_TRUE(WriteFileAtomically(root_ / "file", "not a directory").ok());
  const Config config = ConfigOf({"checkpoint.directory=" + (root_ / "file"), "checkpoint.every_steps=2"});
  const auto outcome = RunHere(config, RunDirectory(root_ / "run"));
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr(root_ / "file"));
}

// Tokens are the workers' to read: a process that starts them does not look. That also shows that workers which can
// never work are not started again and again, and that the run ends without them.
TEST_F(LauncherTest, ATokenBeyondTheVocabularyIsFoundByTheWorkersAndEndsTheRun) {
  WriteTokens("train.bin", kVocabulary);
  const Config config = ConfigOf({"elastic.workers=2"});
  const RunDirectory directory(root_ / "run");
  EXPECT_TRUE(absl::IsOutOfRange(InProcessLauncher::Open(config, directory).status()));
  const auto launcher = LocalLauncher::Open(config, directory, TestedBinary());
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  EXPECT_EQ((*launcher)->outline().data.tokens, 4000);
  const auto outcome = RunWith(**launcher, config, directory, *stop_);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->exit_code, 1);
  EXPECT_EQ(outcome->reason, "all workers have failed");
  std::ifstream log(directory.logs() + "/local-0.log");
  EXPECT_THAT((std::string{std::istreambuf_iterator<char>(log), {}}), HasSubstr("token 256 at position 3999"));
}

TEST_F(LauncherTest, WorkersThatCannotBeStartedEndTheRun) {
  const Config config = ConfigOf({"elastic.workers=2", "elastic.max_restarts=0"});
  const RunDirectory directory(root_ / "run");
  const auto launcher = LocalLauncher::Open(config, directory, "/bin/false");
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  const auto outcome = RunWith(**launcher, config, directory, *stop_);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->exit_code, 1);
  EXPECT_EQ(outcome->reason, "all workers have failed");
}

// Before there is anything of a run, or nothing any more of an older one.
TEST_F(LauncherTest, AServerThatCannotListenIsRefusedAtOnce) {
  const RunDirectory directory(root_ / "run");
  const auto taken = Listen(*ResolveHost("127.0.0.1"));
  ASSERT_TRUE(taken.ok()) << taken.status();
  const std::string listen = HostAndPort(taken->address);
  const auto refusal = [&](const ServerLauncher::Options& options) {
    return ServerLauncher::Open(ConfigOf(), directory, options).status().ToString();
  };
  EXPECT_THAT(refusal({.listen = listen}),
              HasSubstr("UNAVAILABLE: cannot listen on " + listen + ": the port is in use"));
  EXPECT_THAT(refusal({.listen = "127.0.0.1:0", .token_file = "none"}), HasSubstr("NOT_FOUND"));
  EXPECT_FALSE(directory.HoldsRun());
}

}  // namespace
}  // namespace holdfast
