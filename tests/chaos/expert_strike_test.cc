// A worker is killed, or freezes, in an exchange of tokens that the test has chosen: on the way to the experts, from
// node to node, and back, forward and backward. The run has the bits of the one that nobody touched. Exchanges
// elsewhere in a step: ALossInAnyExchangeOfTokensLeavesNoTrace (tests/framework/train/world_test.cc), where ranks are
// threads.

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "tests/chaos/cluster.h"

namespace holdfast::chaos {
namespace {

// Each of two nodes has two workers, each worker a microbatch. A layer makes 10 exchanges forward: how many rows there
// are, in which round they come; numbers and weights of choices, rows of the own node, lists and rows from node to
// node, those rows in the node; results in the node, and from node to node. Backward they are 13: no two first ones,
// and two vectors of each row, both ways.
constexpr int kLayers = 3, kForward = 10, kBackward = 13, kStep = kLayers * (kForward + kBackward);
// Of the second layer, in the second step.
constexpr int kForwardBefore = kStep + kForward, kBackwardBefore = kStep + kLayers * kForward + kBackward;

struct Target {
  std::string name;
  int number;
  bool to_itself;  // whether rows that stay with the worker belong to the exchange
  int receivers;   // to how many workers, itself included, rows go
  int signal = SIGKILL;
};

class ExpertStrike : public StageTest, public testing::WithParamInterface<Target> {
 protected:
  static void SetUpTestSuite() { stage_ = std::make_unique<Stage>(kSettings); }
  inline static const std::vector<std::string> kSettings{"model.family=qwen2_moe",
                                                         "model.num_experts=5",
                                                         "model.experts_per_token=2",
                                                         "model.expert_intermediate_size=24",
                                                         "model.shared_expert_intermediate_size=16",
                                                         "batch.microbatches=4"};
};

TEST_P(ExpertStrike, TheBitsAreThoseOfTheUndisturbedRun) {
  const Target& target = GetParam();
  const std::string struck = Run() + ".struck", victim = "b/1";
  Cluster::Options options{.overrides = kSettings};
  options.overrides.insert(options.overrides.end(), {"parallel.experts=move", "elastic.rebalance=false",
                                                     "elastic.heartbeat_timeout_ms=15000"});  // only it is lost
  options.environment = {{"HOLDFAST_TEST_STRIKE", victim + " " + std::to_string(target.number) + " " +
                                                      std::to_string(target.signal) + " " + struck}};
  Cluster cluster(*stage_, Run(), options);
  ASSERT_TRUE(cluster.StartCoordinator());
  for (const char* node : {"a", "b"}) cluster.StartAgent(node, 2);
  ASSERT_TRUE(WaitForEvents(cluster.coordinator(), Run(), "worker_lost"));
  int pid = 0, rank = 0;
  std::ifstream file(struck);
  ASSERT_TRUE(file >> pid >> rank) << "it was lost for another reason";
  if (target.signal == SIGSTOP) kill(pid, SIGCONT);  // a stranger by now
  EXPECT_EQ(Events(Run(), "worker_lost")[0]["worker"], victim);
  EXPECT_TRUE(cluster.GoesOn(4));

  int receivers = 0;
  int64_t bytes = 0;
  for (int member = 0; file >> bytes; ++member) {
    receivers += bytes > 0 ? 1 : 0;
    if (member == rank) {
      EXPECT_EQ(bytes > 0, target.to_itself) << "another exchange than was meant";
    }
  }
  EXPECT_EQ(receivers, target.receivers) << "another exchange than was meant";
  cluster.StopAndCompare();
}

INSTANTIATE_TEST_SUITE_P(Exchanges, ExpertStrike,
                         testing::Values(Target{"ForwardDispatch", kForwardBefore + 5, true, 2},
                                         Target{"ForwardRelay", kForwardBefore + 7, false, 1},
                                         Target{"ForwardReturn", kForwardBefore + 10, false, 2},
                                         Target{"BackwardDispatch", kBackwardBefore + 4, true, 2},
                                         Target{"BackwardRelay", kBackwardBefore + 8, false, 1},
                                         Target{"BackwardReturn", kBackwardBefore + 12, false, 2},
                                         Target{"FrozenForwardRelay", kForwardBefore + 7, false, 1, SIGSTOP},
                                         Target{"FrozenBackwardReturn", kBackwardBefore + 12, false, 2, SIGSTOP}),
                         [](const auto& target) { return target.param.name; });

}  // namespace
}  // namespace holdfast::chaos
