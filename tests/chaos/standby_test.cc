// Runs with several coordinators, of which one leads and is killed, frozen or stopped again and again: another one
// leads the run on, with the same workers, and the metrics have the bits of the run that nobody touched.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "tests/chaos/cluster.h"
#include "tests/elastic/lease/etcd_server.h"

namespace holdfast::chaos {
namespace {

class StandbyTest : public StageTest {
 protected:
  /// Of every command; empty: the lock of the run directory decides.
  virtual std::vector<std::string> Lease() { return {}; }
  // Workers are to outlive every change of coordinators, and leaders are to beat in time, however slow the machine.
  static constexpr int kLeaseMs = 6000;
  const std::vector<std::string> overrides_{"elastic.heartbeat_timeout_ms=15000",
                                            "elastic.coordinator_lease_ms=" + std::to_string(kLeaseMs)};
  Cluster cluster_{*stage_, Run(), {.overrides = overrides_}};
  std::map<std::string, std::unique_ptr<LoggedProcess>> coordinators_;

  void StartCoordinator(const std::string& name, const std::string& listen = "127.0.0.1:0",
                        const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"coordinator", stage_->config(), "--run-dir",        Run(), "--listen", listen,
                                       "--standby",   "--set",          "elastic.workers=4"};
    for (const std::string& value : overrides_) arguments.insert(arguments.end(), {"--set", value});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const std::vector<std::string> lease = Lease();
    arguments.insert(arguments.end(), lease.begin(), lease.end());
    coordinators_[name] = std::make_unique<LoggedProcess>(arguments, Run() + ".coordinator_" + name + ".log");
  }
  LoggedProcess& coordinator(const std::string& name) { return *coordinators_.at(name); }

  /// Who leads, by its name; empty if nobody that lives does.
  std::string Leader() {
    std::ifstream lock(Run() + "/.lock");
    std::string word;
    int pid = 0;
    lock >> word >> pid;
    for (auto& [name, process] : coordinators_) {
      if (process->pid() == pid && process->Running()) return name;
    }
    return "";
  }
  bool LeaderIs(const std::string& name) {
    return WaitFor(coordinator(name), [&] { return Leader() == name && Look(Run()).reachable; });
  }
  /// Beyond what there is now.
  bool GoesOn(int64_t steps = 3) {
    const int64_t start = CommittedSteps(Run());
    return WaitFor([&] { return CommittedSteps(Run()) >= start + steps; });
  }
  bool StandsBy(const std::string& name, const std::string& leader) {
    const std::string line = "standing by: process " + std::to_string(coordinator(leader).pid());
    return WaitFor(coordinator(name), [&] {  // now, and not before it led last
      const std::string log = coordinator(name).Log();
      const size_t waits = log.rfind(line), led = log.rfind("this coordinator leads the run on");
      return waits != std::string::npos && (led == std::string::npos || led < waits);
    });
  }
  /// "a" leads, "b" stands by, on two machines two workers each train.
  void Start() {
    StartCoordinator("a");
    ASSERT_TRUE(LeaderIs("a"));
    StartCoordinator("b");
    ASSERT_TRUE(StandsBy("b", "a"));
    StartAgents();
  }
  /// At the default address nobody listens: they are to look into the run directory.
  void StartAgents(const std::string& coordinator = "127.0.0.1:1", const std::string& directory = Run()) {
    for (const std::string node : {"m", "n"}) {
      std::vector<std::string> arguments{"agent",        stage_->config(),
                                         "--run-dir",    directory,
                                         "--node",       node,
                                         "--workers",    "2",
                                         "--host",       "127.0.0.1",
                                         "--token-file", Run() + "/coordinator.token",
                                         "--set",        "elastic.workers=4"};
      arguments.insert(arguments.end(), {"--set", "checkpoint.directory=" + Run() + "/checkpoints"});
      const std::vector<std::string> lease = Lease();
      arguments.insert(arguments.end(), lease.begin(), lease.end());
      if (lease.empty()) arguments.insert(arguments.end(), {"--coordinator", coordinator});
      for (const std::string& value : overrides_) arguments.insert(arguments.end(), {"--set", value});
      agents_[node] = std::make_unique<LoggedProcess>(
          arguments, Run() + ".agent_" + node + ".log",
          std::vector<std::pair<std::string, std::string>>{{"HOLDFAST_TEST_SLOWDOWN_MS", "4"}});
    }
    ASSERT_TRUE(WaitFor([&] { return Look(Run()).world_size == 4; }));
    ASSERT_TRUE(GoesOn());
    pids_ = Pids();
  }
  std::set<int> Pids() {
    std::set<int> pids;
    EXPECT_TRUE(WaitFor([&] {
      pids.clear();
      for (const WorkerView& worker : Look(Run()).workers) pids.insert(worker.pid);
      return pids.size() == 4;
    }));
    return pids;
  }
  void KillLeaders(int times) {
    for (int kill = 0; kill < times; ++kill) {
      const std::string leader = Leader(), next = leader == "a" ? "b" : "a";
      Cluster::Kill(coordinator(leader));
      ASSERT_TRUE(LeaderIs(next)) << "kill " << kill;
      ASSERT_TRUE(GoesOn());
      StartCoordinator(leader);
      ASSERT_TRUE(StandsBy(leader, next));
    }
  }
  void FreezeLeaders(int times) {
    for (int freeze = 0; freeze < times; ++freeze) {
      const std::string leader = Leader(), next = leader == "a" ? "b" : "a";
      coordinator(leader).Signal(SIGSTOP);
      ASSERT_TRUE(LeaderIs(next)) << "freeze " << freeze;
      ASSERT_TRUE(GoesOn());
      coordinator(leader).Signal(SIGCONT);
      ASSERT_TRUE(StandsBy(leader, next));
    }
  }
  void ExpectSameWorkers() { EXPECT_EQ(Pids(), pids_) << "workers were started anew"; }
  void ExpectEnd(int exit_code) {
    for (auto& [node, agent] : agents_) EXPECT_EQ(agent->ExitCode(), exit_code) << "agent " << node;
    for (auto& [name, process] : coordinators_) EXPECT_EQ(process->ExitCode(), exit_code) << "coordinator " << name;
    EXPECT_TRUE(ProcessesWith(Run()).empty()) << "processes are left";
    cluster_.Compare();
  }

  std::map<std::string, std::unique_ptr<LoggedProcess>> agents_;
  std::set<int> pids_;
};

TEST_F(StandbyTest, LeadersAreKilledAgainAndAgain) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(KillLeaders(4));
  ExpectSameWorkers();
  EXPECT_TRUE(Events(Run(), "worker_lost").empty());
  EXPECT_EQ(Events(Run(), "coordinator_changed").size(), 4u);
  coordinator(Leader()).Signal(SIGINT);
  ExpectEnd(130);
}

// The kernel still holds its lock, and its connections. When it goes on it finds that it is not the leader.
TEST_F(StandbyTest, ALeaderThatIsFrozenStandsByWhenItGoesOn) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(FreezeLeaders(2));
  ASSERT_TRUE(GoesOn());
  ExpectSameWorkers();
  coordinator(Leader()).Signal(SIGINT);
  ExpectEnd(130);
}

// As when its machine is drained.
TEST_F(StandbyTest, ALeaderThatIsStoppedLeavesTheRunToAnother) {
  ASSERT_NO_FATAL_FAILURE(Start());
  coordinator("a").Signal(SIGTERM);
  EXPECT_EQ(coordinator("a").ExitCode(), 143);
  ASSERT_TRUE(LeaderIs("b"));
  ASSERT_TRUE(GoesOn());
  ExpectSameWorkers();
  EXPECT_TRUE(Events(Run(), "stop_requested").empty());
  coordinator("b").Signal(SIGTERM);  // nobody stands by
  ExpectEnd(143);
  EXPECT_EQ(Events(Run(), "run_stopped").size(), 1u);
}

TEST_F(StandbyTest, EverybodyIsStoppedAtOnce) {  // as by a scheduler
  ASSERT_NO_FATAL_FAILURE(Start());
  for (auto& [node, agent] : agents_) agent->Signal(SIGTERM);
  // The leader last: should this process be held up between the two, it would leave the run to who then ends.
  for (const std::string name : {"b", "a"}) coordinator(name).Signal(SIGTERM);
  ExpectEnd(143);
  EXPECT_EQ(Events(Run(), "run_stopped").size(), 1u);
}

TEST_F(StandbyTest, WhoStandsByEndsWithTheRun) {
  ASSERT_NO_FATAL_FAILURE(Start());
  StartCoordinator("c");
  ASSERT_TRUE(StandsBy("c", "a"));
  coordinator("a").Signal(SIGINT);
  ExpectEnd(130);
  for (const std::string name : {"b", "c"}) {
    EXPECT_NE(coordinator(name).Log().find("stopped by SIGINT (Ctrl-C)"), std::string::npos) << coordinator(name).Log();
  }
}

// Agents and workers are told where coordinators may be, and have no directory in common with them to look into.
TEST_F(StandbyTest, WorkersTryAllAddressesTheyAreGiven) {
  StartCoordinator("a");
  ASSERT_TRUE(LeaderIs("a"));
  std::string address;
  std::getline(std::ifstream(Run() + "/coordinator.address") >> std::ws, address);
  const std::string other = Cluster::FreeAddress();
  StartCoordinator("b", other);
  ASSERT_TRUE(StandsBy("b", "a"));
  ASSERT_NO_FATAL_FAILURE(StartAgents(address + "," + other, Run() + ".agents"));
  ExpectSameWorkers();
  Cluster::Kill(coordinator("a"));
  ASSERT_TRUE(LeaderIs("b"));
  ASSERT_TRUE(GoesOn());
  ExpectSameWorkers();
  coordinators_.erase("a");
  coordinator("b").Signal(SIGINT);
  ExpectEnd(130);
}

// How the run was to begin is not said to who takes it over.
TEST_F(StandbyTest, WhoTakesARunOverDoesNotBeginItAnew) {
  StartCoordinator("a", "127.0.0.1:0", {"--overwrite"});
  ASSERT_TRUE(LeaderIs("a"));
  StartCoordinator("b", "127.0.0.1:0", {"--overwrite", "--new-workers"});
  ASSERT_TRUE(StandsBy("b", "a"));
  ASSERT_NO_FATAL_FAILURE(StartAgents());
  const int64_t steps = CommittedSteps(Run());
  Cluster::Kill(coordinator("a"));
  ASSERT_TRUE(LeaderIs("b"));
  ASSERT_TRUE(GoesOn());
  EXPECT_GT(CommittedSteps(Run()), steps);
  ExpectSameWorkers();
  EXPECT_TRUE(Events(Run(), "rewind").empty());
  coordinators_.erase("a");
  coordinator("b").Signal(SIGINT);
  ExpectEnd(130);
}

// Its workers would all be refused by a coordinator with another config.
TEST_F(StandbyTest, WhoTakesARunOverLeadsItWithTheConfigThatItHas) {
  StartCoordinator("a");
  ASSERT_TRUE(LeaderIs("a"));
  StartCoordinator("b", "127.0.0.1:0", {"--set", "optimizer.lr=0.123"});
  ASSERT_TRUE(StandsBy("b", "a"));
  ASSERT_NO_FATAL_FAILURE(StartAgents());
  const auto rate = [] {
    std::ifstream config(Run() + "/config.yaml");
    std::string line;
    while (std::getline(config, line) && line.find(" lr: ") == std::string::npos) {
    }
    return line;
  };
  const std::string before = rate();
  EXPECT_NE(before, "");
  Cluster::Kill(coordinator("a"));
  ASSERT_TRUE(LeaderIs("b"));
  ASSERT_TRUE(GoesOn());
  EXPECT_EQ(rate(), before);
  EXPECT_NE(coordinator("b").Log().find("and is 0.123): it leads the run on with the run's own"), std::string::npos)
      << coordinator("b").Log();
  ExpectSameWorkers();
  coordinators_.erase("a");
  coordinator("b").Signal(SIGINT);
  ExpectEnd(130);
}

// Nor is it when it could not be led at the first attempt.
TEST_F(StandbyTest, WhoTakesARunOverAtTheSecondAttemptDoesNotBeginItAnewEither) {
  StartCoordinator("a");
  ASSERT_TRUE(LeaderIs("a"));
  StartCoordinator("b", "127.0.0.1:0", {"--overwrite", "--new-workers"});
  ASSERT_TRUE(StandsBy("b", "a"));
  ASSERT_NO_FATAL_FAILURE(StartAgents());
  rlimit limit{};
  ASSERT_EQ(prlimit(coordinator("b").pid(), RLIMIT_FSIZE, nullptr, &limit), 0);
  rlimit full = limit;
  full.rlim_cur = 3000;  // its log and the lock fit; the metrics, which are copied first, do not
  ASSERT_TRUE(WaitFor([] { return std::filesystem::file_size(Run() + "/metrics.jsonl") > 3000; }));
  ASSERT_EQ(prlimit(coordinator("b").pid(), RLIMIT_FSIZE, &full, nullptr), 0);
  Cluster::Kill(coordinator("a"));
  ASSERT_TRUE(WaitFor(coordinator("b"), [&] {
    return coordinator("b").Log().find("cannot lead the run, trying again") != std::string::npos;
  }));
  ASSERT_EQ(prlimit(coordinator("b").pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
  ASSERT_TRUE(LeaderIs("b"));
  ASSERT_TRUE(GoesOn());
  EXPECT_EQ(Events(Run(), "coordinator_changed").size(), 1u);
  ExpectSameWorkers();
  coordinators_.erase("a");
  coordinator("b").Signal(SIGINT);
  ExpectEnd(130);
}

// With the lease in a real etcd, where agents and workers find who leads as well.
class EtcdStandbyTest : public StandbyTest {
 protected:
  void SetUp() override {
    if (etcd_ == nullptr) GTEST_SKIP() << "etcd is not installed: run tools/setup.sh --with-test";
  }
  std::vector<std::string> Lease() override { return {"--lease", "etcd://" + etcd_->address() + "/runs/a"}; }

  const std::unique_ptr<EtcdServer> etcd_ = EtcdServer::Start();
};

TEST_F(EtcdStandbyTest, LeadersAreKilledAndFrozenAgainAndAgain) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(KillLeaders(3));
  ASSERT_NO_FATAL_FAILURE(FreezeLeaders(2));
  ExpectSameWorkers();
  EXPECT_TRUE(Events(Run(), "worker_lost").empty());
  EXPECT_EQ(Events(Run(), "coordinator_changed").size(), 5u);
  const std::string leader = Leader();
  coordinator(leader).Signal(SIGTERM);  // leaves the run to the other one
  EXPECT_EQ(coordinator(leader).ExitCode(), 143);
  coordinators_.erase(leader);
  ASSERT_TRUE(WaitFor([&] { return !Leader().empty() && Look(Run()).reachable; }));
  ASSERT_TRUE(GoesOn());
  coordinator(Leader()).Signal(SIGINT);
  ExpectEnd(130);
}

// Without etcd nobody can say who leads: the run pauses when the lease is over, and nobody takes it.
TEST_F(EtcdStandbyTest, WithoutItsStoreTheRunPausesAndGoesOnWithIt) {
  ASSERT_NO_FATAL_FAILURE(Start());
  for (int outage = 0; outage < 2; ++outage) {
    const std::string leader = Leader();
    const size_t pauses = Events(Run(), "paused").size();
    etcd_->Kill();
    ASSERT_TRUE(WaitFor([&] { return Events(Run(), "paused").size() == pauses + 1; }));
    const int64_t steps = CommittedSteps(Run());
    Sleep(kLeaseMs);
    EXPECT_EQ(CommittedSteps(Run()), steps) << "it steps, though another one might lead";
    EXPECT_EQ(Leader(), leader);
    etcd_->StartAgain();
    ASSERT_TRUE(GoesOn());
  }
  ExpectSameWorkers();
  coordinator(Leader()).Signal(SIGINT);
  ExpectEnd(130);
}

TEST_F(EtcdStandbyTest, AStoreThatIsFrozenWhileTheLeaderIsKilled) {
  ASSERT_NO_FATAL_FAILURE(Start());
  etcd_->Signal(SIGSTOP);
  Cluster::Kill(coordinator("a"));
  Sleep(kLeaseMs);
  EXPECT_EQ(Leader(), "") << "nobody could ask the store";
  etcd_->Signal(SIGCONT);
  ASSERT_TRUE(LeaderIs("b"));
  ASSERT_TRUE(GoesOn());
  ExpectSameWorkers();
  coordinators_.erase("a");
  coordinator("b").Signal(SIGINT);
  ExpectEnd(130);
}

TEST_F(EtcdStandbyTest, AStoreThatIsNotThereIsToBeTriedAgain) {
  etcd_->Kill();
  StartCoordinator("a");
  EXPECT_EQ(coordinator("a").ExitCode(), 75);
  EXPECT_NE(coordinator("a").Log().find("error: etcd://" + etcd_->address()), std::string::npos)
      << coordinator("a").Log();
}

}  // namespace
}  // namespace holdfast::chaos
