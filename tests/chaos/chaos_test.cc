// Real processes are killed, frozen and cut, by a seed; every metrics line of the run must have the bits of the run
// that nobody touched, every step once. One seed again: HOLDFAST_CHAOS_SEED=7 ctest -R Chaos (or the test program
// itself); HOLDFAST_CHAOS_KEEP=1 leaves the files.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/chaos/chaos_run.h"

namespace holdfast::chaos {
namespace {

constexpr int kChaosSteps = 1500;
constexpr int kFaultsPerSeed = 7;
constexpr double kRecoverySeconds = 45;  // a busy machine; the bench measures how long it takes

class Chaos : public testing::TestWithParam<unsigned> {
 protected:
  static void SetUpTestSuite() { stage_ = std::make_unique<Stage>(kChaosSteps); }
  static void TearDownTestSuite() { stage_.reset(); }

  /// The run goes on, with all workers in it, some steps past where it was.
  testing::AssertionResult Recovers(const std::string& run, int workers) {
    const RunView before = Look(run);
    const bool ok = WaitUntil(run, kRecoverySeconds, [&](const RunView& now) {
      return now.reachable && now.world_size == workers && now.committed_step >= before.committed_step + 3 &&
             now.state == "training";
    });
    if (ok) return testing::AssertionSuccess();
    const RunView now = Look(run);
    return testing::AssertionFailure() << "no recovery: state '" << now.state << "', world of " << now.world_size
                                       << ", step " << now.committed_step << " (was " << before.committed_step << ")";
  }

  /// Stops the run, and compares it with the one that nobody touched.
  void FinishAndCompare(LoggedProcess& run_process, const std::string& run) {
    run_process.Signal(SIGTERM);
    const std::optional<int> exit_code = run_process.Wait(60);
    EXPECT_EQ(exit_code.value_or(-1), 143) << run_process.Log();
    const std::string log = run + ".compare";
    EXPECT_EQ(RunBinary({"compare", stage_->undisturbed(), run}, log), 0) << run_process.Log();
    EXPECT_TRUE(ProcessesWith(run).empty()) << "processes are left";
  }

  static std::unique_ptr<Stage> stage_;
};

std::unique_ptr<Stage> Chaos::stage_;

struct Faults {
  std::mt19937& random;
  std::string run;
  int mirrors;

  std::vector<WorkerView> Members() const {
    std::vector<WorkerView> members;
    for (const WorkerView& w : Look(run).workers) {
      if (w.rank >= 0) members.push_back(w);
    }
    std::shuffle(members.begin(), members.end(), random);
    return members;
  }
  int Between(int low, int high) const {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  }

  /// Does one thing to the run; returns what, and how many faults it was.
  std::pair<std::string, int> Strike() const {
    const std::vector<WorkerView> members = Members();
    if (members.empty()) return {"nothing", 0};
    switch (random() % (mirrors >= 2 ? 6 : 3)) {
      case 0:
        kill(members[0].pid, SIGKILL);
        return {"kill " + members[0].id, 1};
      case 1: {  // frozen for longer than the heartbeat may take; wakes up as a stranger
        kill(members[0].pid, SIGSTOP);
        Sleep(Between(1800, 3000));
        kill(members[0].pid, SIGCONT);
        return {"freeze " + members[0].id, 1};
      }
      case 2:  // frozen too shortly to be noticed
        kill(members[0].pid, SIGSTOP);
        Sleep(Between(50, 600));
        kill(members[0].pid, SIGCONT);
        return {"stutter " + members[0].id, 1};
      case 3:
        kill(members[0].pid, SIGKILL);
        kill(members[1].pid, SIGKILL);
        return {"kill " + members[0].id + " and " + members[1].id, 2};
      case 4:  // during the recovery from the first
        kill(members[0].pid, SIGKILL);
        Sleep(Between(0, 150));
        kill(members[1].pid, SIGKILL);
        return {"kill " + members[0].id + ", then " + members[1].id, 2};
      default:
        kill(members[0].pid, SIGSTOP);
        kill(members[1].pid, SIGKILL);
        Sleep(Between(1800, 2500));
        kill(members[0].pid, SIGKILL);
        return {"freeze " + members[0].id + ", kill " + members[1].id, 2};
    }
  }
};

TEST_P(Chaos, TheBitsAreThoseOfTheUndisturbedRun) {
  const unsigned seed = GetParam();
  std::mt19937 random(seed);
  const int workers = 3 + static_cast<int>(random() % 3);
  const int mirrors = 1 + static_cast<int>(seed % 2);
  const char* shardings[] = {"full_shard", "full_shard", "shard_grad_op", "no_shard"};
  const std::string sharding = shardings[random() % 4];
  const int replicas = sharding == "full_shard" && random() % 3 == 0 ? 2 : 1;
  const std::string run = stage_->Path("seed" + std::to_string(seed));
  LoggedProcess process({"train", stage_->config(), "--workers", std::to_string(workers), "--run-dir", run, "--set",
                         "parallel.sharding=" + sharding, "--set", "parallel.replicas=" + std::to_string(replicas),
                         "--set", "parallel.mirrors=" + std::to_string(mirrors)},
                        run + ".log", {{"HOLDFAST_TEST_SLOWDOWN_MS", "4"}});
  ASSERT_TRUE(WaitUntil(run, 60, [&](const RunView& v) { return v.world_size == workers && v.committed_step > 0; }))
      << process.Log();
  const Faults faults{random, run, mirrors};
  for (int done = 0; done < kFaultsPerSeed && process.Running();) {
    const auto [what, count] = faults.Strike();
    std::printf("seed %u: %s\n", seed, what.c_str());
    done += count;
    ASSERT_TRUE(Recovers(run, workers)) << what << "\n" << process.Log();
    Sleep(faults.Between(0, 300));
  }
  FinishAndCompare(process, run);
}

std::vector<unsigned> Seeds() {
  if (const char* seed = std::getenv("HOLDFAST_CHAOS_SEED")) return {static_cast<unsigned>(std::atoi(seed))};
  return {1, 2, 3, 4, 5, 6, 7, 8};
}

INSTANTIATE_TEST_SUITE_P(Seeds, Chaos, testing::ValuesIn(Seeds()),
                         [](const auto& seed) { return "Seed" + std::to_string(seed.param); });

}  // namespace
}  // namespace holdfast::chaos
