// Real processes are killed, frozen and cut, by a seed; every metrics line of the run must have the bits of the run
// that nobody touched, every step once. One seed again: HOLDFAST_CHAOS_SEED=7 ctest -R Chaos (or the test program
// itself); HOLDFAST_CHAOS_KEEP=1 leaves the files.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>

#include "tests/chaos/chaos_run.h"

namespace holdfast::chaos {
namespace {

constexpr int kFaultsPerSeed = 7;

class Chaos : public StageTest, public testing::WithParamInterface<unsigned> {
 protected:
  /// A run with these settings, which are the stage's, is hurt by a seed.
  static void Hurt(unsigned seed, const std::vector<std::string>& settings = {});
};

struct Faults {
  std::mt19937& random;
  LoggedProcess& process;
  std::string run;
  int mirrors;
  std::map<std::string, size_t> killed = {};  // how often, by worker

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

  size_t Losses(const std::string& worker) const {
    const auto events = Events(run, "worker_lost");
    return static_cast<size_t>(
        std::count_if(events.begin(), events.end(), [&](const nlohmann::json& e) { return e["worker"] == worker; }));
  }
  void Kill(const WorkerView& worker) {
    kill(worker.pid, SIGKILL);
    ++killed[worker.id];
  }
  /// Stops one, kills another if there is one, and waits until the stopped one is taken for dead.
  void Freeze(const WorkerView& worker, const WorkerView* other = nullptr) {
    const size_t before = Losses(worker.id);
    kill(worker.pid, SIGSTOP);
    if (other != nullptr) Kill(*other);
    EXPECT_TRUE(WaitFor(process, [&] { return Losses(worker.id) > before; })) << worker.id << " is not missed";
  }

  /// Does one thing to the run; returns what, and how many faults it was.
  std::pair<std::string, int> Strike() {
    const std::vector<WorkerView> members = Members();
    if (members.size() < 2) return {"nothing", 0};  // on a busy machine others may be lost, too
    switch (random() % (mirrors >= 2 ? 7 : 3)) {
      case 0:
        Kill(members[0]);
        return {"kill " + members[0].id, 1};
      case 1:  // wakes up as a stranger
        Freeze(members[0]);
        kill(members[0].pid, SIGCONT);
        return {"freeze " + members[0].id, 1};
      case 2:  // frozen too shortly to be noticed
        kill(members[0].pid, SIGSTOP);
        Sleep(Between(50, 600));
        kill(members[0].pid, SIGCONT);
        return {"stutter " + members[0].id, 1};
      case 3:
        Kill(members[0]);
        Kill(members[1]);
        return {"kill " + members[0].id + " and " + members[1].id, 2};
      case 4:  // during the recovery from the first
        Kill(members[0]);
        Sleep(Between(0, 150));
        Kill(members[1]);
        return {"kill " + members[0].id + ", then " + members[1].id, 2};
      case 5: {  // the next step has begun, its mirrors may be missing
        const size_t recovered = Events(run, "recovered").size(), missing = Events(run, "mirrors_missing").size();
        Kill(members[0]);
        EXPECT_TRUE(WaitFor(process, [&] {
          return Events(run, "mirrors_missing").size() > missing || Events(run, "recovered").size() > recovered;
        }));
        Kill(members[1]);
        return {"kill " + members[0].id + ", and " + members[1].id + " while mirrors are filled", 2};
      }
      default:
        Freeze(members[0], &members[1]);
        kill(members[0].pid, SIGKILL);
        return {"freeze " + members[0].id + ", kill " + members[1].id, 2};
    }
  }
};

void Chaos::Hurt(unsigned seed, const std::vector<std::string>& settings) {
  std::mt19937 random(seed);
  const int workers = 3 + static_cast<int>(random() % 3);
  const int mirrors = 1 + static_cast<int>(seed % 2);
  const char* shardings[] = {"full_shard", "full_shard", "shard_grad_op", "no_shard"};
  const std::string sharding = shardings[random() % 4];
  const int replicas = sharding == "full_shard" && random() % 3 == 0 ? 2 : 1;
  std::vector<std::string> train{"train",     stage_->config(),
                                 "--workers", std::to_string(workers),
                                 "--run-dir", Run(),
                                 "--set",     "parallel.sharding=" + sharding,
                                 "--set",     "parallel.replicas=" + std::to_string(replicas),
                                 "--set",     "parallel.mirrors=" + std::to_string(mirrors)};
  for (const std::string& setting : settings) train.insert(train.end(), {"--set", setting});
  LoggedProcess process(train, Run() + ".log", {{"HOLDFAST_TEST_SLOWDOWN_MS", "4"}});
  ASSERT_TRUE(GoesOn(process, Run(), workers));
  Faults faults{random, process, Run(), mirrors};
  for (int done = 0; done < kFaultsPerSeed;) {
    const auto [what, count] = faults.Strike();
    std::printf("seed %u: %s\n", seed, what.c_str());
    done += count;
    ASSERT_TRUE(GoesOn(process, Run(), workers)) << what;
    Sleep(faults.Between(0, 300));
  }
  process.Signal(SIGTERM);
  EXPECT_EQ(process.ExitCode(), 143);
  for (const auto& [worker, times] : faults.killed) EXPECT_GE(faults.Losses(worker), times) << worker;
  EXPECT_TRUE(stage_->HasUndisturbedBits(Run()));
  EXPECT_TRUE(ProcessesWith(Run()).empty()) << "processes are left";
}

// By seed 4 with encrypted connections, beside an undisturbed run without.
TEST_P(Chaos, TheBitsAreThoseOfTheUndisturbedRun) {
  Hurt(GetParam(), GetParam() == 4 ? std::vector<std::string>{"parallel.encrypt=true"} : std::vector<std::string>{});
}

// Whose updates are made by owners and shipped, so that a step has more that can be cut off.
class MuonChaos : public Chaos {
 protected:
  static void SetUpTestSuite() { stage_ = std::make_unique<Stage>(kSettings); }
  inline static const std::vector<std::string> kSettings{"optimizer.name=muon", "optimizer.ema_decay=0.9"};
};

TEST_P(MuonChaos, TheBitsAreThoseOfTheUndisturbedRun) { Hurt(GetParam(), kSettings); }

std::vector<unsigned> Seeds() {
  if (const char* seed = std::getenv("HOLDFAST_CHAOS_SEED")) return {static_cast<unsigned>(std::atoi(seed))};
  return {1, 2, 3, 4, 5, 6, 7, 8};
}

class MixtureChaos : public Chaos {
 protected:
  static void SetUpTestSuite() { stage_ = std::make_unique<Stage>(kSettings); }

  inline static const std::vector<std::string> kSettings{"model.family=qwen2_moe",
                                                         "model.num_experts=5",
                                                         "model.experts_per_token=2",
                                                         "model.expert_intermediate_size=24",
                                                         "model.shared_expert_intermediate_size=16",
                                                         "model.router_bias=true",
                                                         "model.router_bias_rate=0.01"};
};

// By seed 3 of one group of 4 workers, where two microbatches take turns, 6 of two groups of 5, both with tokens that
// travel to the experts; by 5 with experts that are gathered.
TEST_P(MixtureChaos, TheBitsAreThoseOfTheUndisturbedRun) {
  std::vector<std::string> settings = kSettings;
  settings.emplace_back(GetParam() == 5 ? "parallel.experts=gather" : "parallel.experts=move");
  if (GetParam() == 3) settings.emplace_back("parallel.overlap_microbatches=true");
  Hurt(GetParam(), settings);
}

INSTANTIATE_TEST_SUITE_P(Seeds, MixtureChaos, testing::Values(3u, 5u, 6u),
                         [](const auto& tested) { return "Seed" + std::to_string(tested.param); });

INSTANTIATE_TEST_SUITE_P(Seeds, MuonChaos, testing::Values(3u, 4u),
                         [](const auto& seed) { return "Seed" + std::to_string(seed.param); });

INSTANTIATE_TEST_SUITE_P(Seeds, Chaos, testing::ValuesIn(Seeds()),
                         [](const auto& seed) { return "Seed" + std::to_string(seed.param); });

}  // namespace
}  // namespace holdfast::chaos
