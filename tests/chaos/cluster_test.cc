// Runs made of separate processes, a coordinator and agents with workers, of which each is killed, stopped and started
// again: the metrics must have the bits of the run that nobody touched, every step once, no generation twice.
// HOLDFAST_CHAOS_KEEP=1 leaves the files.

#include "tests/chaos/cluster.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>

namespace holdfast::chaos {
namespace {

std::set<int> Pids(const std::vector<WorkerView>& workers) {
  std::set<int> pids;
  for (const WorkerView& worker : workers) pids.insert(worker.pid);
  return pids;
}

class ClusterTest : public StageTest {
 protected:
  /// Two machines with two workers each, training.
  static void Start(Cluster& cluster) {
    ASSERT_TRUE(cluster.StartCoordinator());
    cluster.StartAgent("a", 2);
    cluster.StartAgent("b", 2);
    ASSERT_TRUE(cluster.GoesOn(4));
  }

  std::mt19937 random_{20240611};
  int Between(int low, int high) { return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1)); }
};

TEST_F(ClusterTest, WorkersOutliveTheirCoordinator) {
  Cluster cluster(*stage_, Run(), {.overrides = {kLongHeartbeats}});
  ASSERT_NO_FATAL_FAILURE(Start(cluster));
  const std::set<int> pids = Pids(cluster.Members());
  for (int kill = 0; kill < 4; ++kill) {
    Cluster::Kill(cluster.coordinator());
    if (kill > 0) Sleep(Between(0, 400));
    ASSERT_TRUE(cluster.StartCoordinator());
    if (kill == 2) continue;  // killed again while workers come back
    ASSERT_TRUE(cluster.GoesOn(4)) << "kill " << kill;
    Sleep(Between(0, 150));
  }
  EXPECT_EQ(Pids(cluster.Members()), pids) << "workers were started anew";
  cluster.StopAndCompare();
}

// The coordinator is killed, started again, and stopped before its workers are back: their steps must not be lost.
TEST_F(ClusterTest, AStopRightAfterARestartIsSaved) {
  Cluster cluster(*stage_, Run(), {.overrides = {kLongHeartbeats}});  // so long they have to come back
  ASSERT_NO_FATAL_FAILURE(Start(cluster));
  Cluster::Kill(cluster.coordinator());
  ASSERT_TRUE(cluster.StartCoordinator());
  cluster.StopAndCompare();
  EXPECT_TRUE(std::filesystem::exists(cluster.run() + "/model/model.safetensors"));
}

// The generations of the run that is overwritten are known to its workers, who are still there.
TEST_F(ClusterTest, ARunIsOverwrittenUnderItsWorkers) {
  Cluster cluster(*stage_, Run(), {.overrides = {kLongHeartbeats}});
  ASSERT_NO_FATAL_FAILURE(Start(cluster));
  const std::set<int> pids = Pids(cluster.Members());
  Cluster::Kill(cluster.coordinator());
  ASSERT_TRUE(cluster.StartCoordinator({"--overwrite"}));
  ASSERT_TRUE(cluster.GoesOn(4));
  EXPECT_EQ(Pids(cluster.Members()), pids) << "workers were started anew";
  cluster.StopAndCompare();
}

TEST_F(ClusterTest, AnAgentIsKilledWithItsWorkers) {
  Cluster cluster(*stage_, Run());
  ASSERT_NO_FATAL_FAILURE(Start(cluster));
  for (const std::string node : {"a", "b", "a"}) {
    Cluster::Kill(cluster.agent(node));
    ASSERT_TRUE(cluster.GoesOn(2)) << node;
    cluster.StartAgent(node, 2);
    ASSERT_TRUE(cluster.GoesOn(4)) << node;
  }
  cluster.StopAndCompare();
}

TEST_F(ClusterTest, CoordinatorAndWorkerAreKilledAtOnce) {
  Cluster cluster(*stage_, Run());
  ASSERT_NO_FATAL_FAILURE(Start(cluster));
  for (int i = 0; i < 3; ++i) {
    const std::vector<WorkerView> members = cluster.Members();
    const int victim = members.at(random_() % members.size()).pid;
    cluster.coordinator().Signal(SIGKILL);
    kill(victim, SIGKILL);
    cluster.coordinator().ExitCode();
    Sleep(Between(0, 300));
    ASSERT_TRUE(cluster.StartCoordinator());
    ASSERT_TRUE(cluster.GoesOn(4)) << "round " << i;
  }
  cluster.StopAndCompare();
}

TEST_F(ClusterTest, AStoppedRunIsSaved) {
  Cluster cluster(*stage_, Run());
  ASSERT_NO_FATAL_FAILURE(Start(cluster));
  cluster.StopAndCompare();
  EXPECT_TRUE(std::filesystem::exists(cluster.run() + "/model/model.safetensors"));
  EXPECT_EQ(Events(cluster.run(), "run_stopped").size(), 1u);
}

// One of two agents is told to leave, and leaves, with no step done again.
void LetGo(Cluster& cluster, const std::string& node) {
  cluster.agent(node).Signal(SIGTERM);
  EXPECT_EQ(cluster.agent(node).ExitCode(), 143);
  ASSERT_TRUE(cluster.GoesOn(2));
  EXPECT_EQ(Events(cluster.run(), "node_left").size(), 1u);
  EXPECT_EQ(Events(cluster.run(), "worker_lost").size(), 0u) << "a step had to be done again";
}

TEST_F(ClusterTest, AnAgentThatIsStoppedLeaves) {
  Cluster cluster(*stage_, Run(), {.overrides = {kLongHeartbeats}});
  ASSERT_NO_FATAL_FAILURE(Start(cluster));
  ASSERT_NO_FATAL_FAILURE(LetGo(cluster, "a"));
  cluster.StartAgent("c", 2);
  ASSERT_TRUE(cluster.GoesOn(4));
  cluster.StopAndCompare();
}

TEST_F(ClusterTest, AnAgentThatAloneHoldsStateGivesItAwayAndLeaves) {
  Cluster cluster(*stage_, Run(), {.overrides = {kLongHeartbeats, "parallel.mirrors=0"}});
  ASSERT_NO_FATAL_FAILURE(Start(cluster));
  ASSERT_NO_FATAL_FAILURE(LetGo(cluster, "a"));
  cluster.StopAndCompare();
}

TEST_F(ClusterTest, EverybodyIsStoppedAtOnce) {  // as by a scheduler
  Cluster cluster(*stage_, Run());
  ASSERT_NO_FATAL_FAILURE(Start(cluster));
  cluster.agent("a").Signal(SIGTERM);
  cluster.agent("b").Signal(SIGTERM);
  Sleep(Between(0, 200));
  cluster.StopAndCompare();
  EXPECT_TRUE(std::filesystem::exists(cluster.run() + "/model/model.safetensors"));
}

// As when a scheduler starts everything at once: there is no token yet.
TEST_F(ClusterTest, AgentsMayBeStartedBeforeTheCoordinator) {
  Cluster cluster(*stage_, Run(), {.workers = 2, .listen = "127.0.0.1:1"});  // where nobody listens
  cluster.StartAgent("a", 2);
  ASSERT_TRUE(WaitFor(cluster.agent("a"), [&] {
    return cluster.agent("a").Log().find("waiting for the coordinator to make") != std::string::npos;
  }));
  cluster.ListensAt(Cluster::FreeAddress());  // and the agent finds it in the run directory
  ASSERT_TRUE(cluster.StartCoordinator());
  ASSERT_TRUE(cluster.GoesOn(2));
  cluster.StopAndCompare();
}

TEST_F(ClusterTest, AgentsDoNotWaitForACoordinatorForEver) {
  Cluster cluster(*stage_, Run(), {.overrides = {"elastic.coordinator_timeout_ms=15000"}});
  ASSERT_NO_FATAL_FAILURE(Start(cluster));
  cluster.coordinator().Signal(SIGKILL);
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(cluster.agent(name).ExitCode(), 75);
    EXPECT_NE(cluster.agent(name).Log().find("coordinator_timeout_ms"), std::string::npos);
  }
  EXPECT_TRUE(ProcessesWith(cluster.run()).empty());
}

TEST_F(ClusterTest, AnAgentWithAnotherConfigIsRefused) {
  Cluster cluster(*stage_, Run(), {.overrides = {kLongHeartbeats}});
  ASSERT_NO_FATAL_FAILURE(Start(cluster));
  const int64_t generation = cluster.Look().generation;
  cluster.StartAgent("c", 1, "127.0.0.1", {"optimizer.lr=0.123"});
  EXPECT_EQ(cluster.agent("c").ExitCode(), 2);
  EXPECT_NE(cluster.agent("c").Log().find("another configuration than this run (optimizer.lr)"), std::string::npos);
  ASSERT_TRUE(cluster.GoesOn(4));
  EXPECT_EQ(cluster.Look().generation, generation) << "the run was disturbed";
  cluster.coordinator().Signal(SIGTERM);
  EXPECT_EQ(cluster.coordinator().ExitCode(), 143);
  EXPECT_EQ(cluster.agent("a").ExitCode(), 143);
  EXPECT_EQ(cluster.agent("b").ExitCode(), 143);
  cluster.Compare();
}

TEST_F(ClusterTest, EverythingIsKilled) {
  // Checkpoints, of which none is due yet. The run begins anew once all workers are there, and fails if they are not in
  // lost_state_timeout_ms.
  Cluster cluster(*stage_, Run(),
                  {.overrides = {"checkpoint.every_seconds=86400", "elastic.lost_state_timeout_ms=300000"}});
  ASSERT_NO_FATAL_FAILURE(Start(cluster));
  for (LoggedProcess* process : {&cluster.coordinator(), &cluster.agent("a"), &cluster.agent("b")}) {
    Cluster::Kill(*process);
  }
  EXPECT_TRUE(WaitFor([&] { return ProcessesWith(cluster.run()).empty(); })) << "workers outlive their agent";
  // The same commands again: there was no checkpoint yet, so the run begins anew, and says so.
  ASSERT_TRUE(cluster.StartCoordinator());
  cluster.StartAgent("a", 2);
  cluster.StartAgent("b", 2);
  ASSERT_TRUE(cluster.GoesOn(4));
  EXPECT_NE(cluster.coordinator().Log().find("to step 0: all workers are new"), std::string::npos);
  cluster.StopAndCompare();
}

// The place of the checkpoints is not mounted on one of two machines when everything is started again.
TEST_F(ClusterTest, AHostThatLacksTheCheckpointsCostsNone) {
  Cluster cluster(
      *stage_, Run(),
      {.workers = 2, .overrides = {"checkpoint.every_steps=5", "elastic.lost_state_timeout_ms=1500", kLongHeartbeats}});
  ASSERT_TRUE(cluster.StartCoordinator());
  cluster.StartAgent("a", 1);
  cluster.StartAgent("b", 1);
  ASSERT_TRUE(WaitForStep(cluster.coordinator(), cluster.run(), 30));
  ASSERT_TRUE(WaitForEvents(cluster.coordinator(), cluster.run(), "checkpoint"));
  for (LoggedProcess* process : {&cluster.coordinator(), &cluster.agent("a"), &cluster.agent("b")}) {
    Cluster::Kill(*process);
  }
  ASSERT_TRUE(WaitFor([&] { return ProcessesWith(cluster.run()).empty(); }));
  ASSERT_TRUE(cluster.StartCoordinator());
  const std::string empty = cluster.run() + ".empty";
  cluster.StartAgent("b", 1, "127.0.0.1", {"checkpoint.directory=" + empty});
  cluster.StartAgent("a", 1);
  ASSERT_TRUE(cluster.GoesOn(2)) << "it gets its state from the other";
  EXPECT_TRUE(Events(cluster.run(), "checkpoint_rejected").empty());
  EXPECT_EQ(Events(cluster.run(), "rewind").size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(empty)) << "it was made";
  for (LoggedProcess* process : {&cluster.agent("b"), &cluster.agent("a"), &cluster.coordinator()}) {
    Cluster::Kill(*process);
  }
  cluster.Compare();
}

// Two processors of different kinds, as far as kernels can tell.
TEST_F(ClusterTest, WorkersOfDifferentInstructionSetsHaveEqualBitsInPortableArithmetic) {
  const Stage stage({"train.arithmetic=portable"});
  Cluster cluster(stage, stage.Path("mixed"), {.overrides = {"train.arithmetic=portable"}});
  ASSERT_TRUE(cluster.StartCoordinator());
  setenv("HOLDFAST_INSTRUCTION_SET", "AVX2", 1);
  cluster.StartAgent("a", 2);
  unsetenv("HOLDFAST_INSTRUCTION_SET");
  cluster.StartAgent("b", 2);
  ASSERT_TRUE(cluster.GoesOn(4));
  cluster.StopAndCompare();
}

TEST_F(ClusterTest, AnyNumberOfWorkersOnUnevenMachines) {
  const std::vector<std::vector<int>> machines{{1}, {1, 1}, {2, 1}, {3, 1}, {1, 3, 1}, {4, 1, 1}, {2, 4, 1}};
  for (const std::vector<int>& workers : machines) {
    int total = 0;
    for (const int count : workers) total += count;
    SCOPED_TRACE(std::to_string(total) + " workers");
    Cluster cluster(*stage_, Run() + std::to_string(total), {.workers = total, .slowdown_milliseconds = 0});
    ASSERT_TRUE(cluster.StartCoordinator());
    for (size_t i = 0; i < workers.size(); ++i) cluster.StartAgent("node" + std::to_string(i), workers[i]);
    ASSERT_TRUE(cluster.GoesOn(total));
    cluster.StopAndCompare();
  }
}

}  // namespace
}  // namespace holdfast::chaos
