// A coordinator and two machines with workers, each on a host of its own, whose links are cut and mended: the run goes
// on with whom it reaches, takes back who returns, and has the bits of the run that nobody touched. Hosts are network
// namespaces; skipped where those are not to be had.

#include "tests/chaos/network.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/chaos/cluster.h"

namespace holdfast::chaos {
namespace {

class NetworkTest : public StageTest {
 protected:
  static void SetUpTestSuite() {
    why_not_ = Network::WhyNot();
    if (why_not_.empty()) StageTest::SetUpTestSuite();
  }

  void SetUp() override {
    if (!why_not_.empty()) GTEST_SKIP() << why_not_;
    network_ = std::make_unique<Network>(std::vector<std::string>{"lead", "a", "b", "c"});
    cluster_ = std::make_unique<Cluster>(
        *stage_, Run(),
        Cluster::Options{.overrides = {"elastic.max_workers=5", "elastic.heartbeat_timeout_ms=8000"},
                         .listen = network_->Address("lead") + ":29400"});
    network_->GoTo("lead");
    ASSERT_TRUE(cluster_->StartCoordinator());
    for (const std::string node : {"a", "b"}) {
      network_->GoTo(node);
      cluster_->StartAgent(node, 2, network_->Address(node));
    }
    network_->GoTo("lead");
    ASSERT_TRUE(cluster_->GoesOn(4));
  }
  void TearDown() override {
    cluster_.reset();
    network_.reset();
    StageTest::TearDown();
  }

  static std::string why_not_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Cluster> cluster_;
};

std::string NetworkTest::why_not_;

TEST_F(NetworkTest, AMachineIsCutOffAndComesBack) {
  network_->CutLink("b");
  ASSERT_TRUE(cluster_->GoesOn(2));
  network_->MendLink("b");
  ASSERT_TRUE(cluster_->GoesOn(4));
  cluster_->StopAndCompare();
}

TEST_F(NetworkTest, AMachineIsHeardNoMoreButHears) {
  network_->CutOneWay("b", "lead");
  ASSERT_TRUE(cluster_->GoesOn(2));
  network_->MendOneWay("b", "lead");
  ASSERT_TRUE(cluster_->GoesOn(4));
  cluster_->StopAndCompare();
}

TEST_F(NetworkTest, MachinesReachTheCoordinatorButNotEachOther) {
  for (size_t cut = 1; cut <= 2; ++cut) {
    network_->CutOneWay("b", "a");
    ASSERT_TRUE(cluster_->GoesOn(2));
    ASSERT_EQ(Events(cluster_->run(), "link_cut").size(), cut);
    network_->MendOneWay("b", "a");
    ASSERT_TRUE(cluster_->GoesOn(4));
    ASSERT_EQ(Events(cluster_->run(), "link_back").size(), cut);
  }
  EXPECT_TRUE(Events(cluster_->run(), "worker_lost").empty());
  cluster_->StopAndCompare();
}

// The cut is there before the first packet: connecting hangs, and nothing is ever refused.
TEST_F(NetworkTest, ANewcomerThatDoesNotReachAMemberIsNotTakenIn) {
  network_->CutOneWay("c", "a");
  network_->GoTo("c");
  cluster_->StartAgent("c", 1, network_->Address("c"));
  network_->GoTo("lead");
  ASSERT_TRUE(WaitForEvents(cluster_->coordinator(), cluster_->run(), "link_cut"));
  EXPECT_EQ(Events(cluster_->run(), "link_cut")[0]["without"], "c/0");
  ASSERT_TRUE(cluster_->GoesOn(4));
  network_->MendOneWay("c", "a");
  ASSERT_TRUE(cluster_->GoesOn(5));
  EXPECT_TRUE(Events(cluster_->run(), "worker_lost").empty());
  cluster_->StopAndCompare();
}

TEST_F(NetworkTest, ASlowLinkIsNamed) {
  if (!network_->SlowDown("c")) GTEST_SKIP() << "this kernel cannot slow a link down";
  network_->SpeedUp("c");
  network_->GoTo("c");
  cluster_->StartAgent("c", 1, network_->Address("c"));
  network_->GoTo("lead");
  ASSERT_TRUE(cluster_->GoesOn(5));
  ASSERT_TRUE(WaitForStep(cluster_->coordinator(), cluster_->run(), CommittedSteps(cluster_->run()) + 20));
  // On a busy machine steps may be slow before, too, and others be named for it.
  const auto count = [&](const char* event) { return Events(cluster_->run(), event).size(); };
  const auto is_over = [&] { return count("step_slow_resolved") == count("step_slow"); };
  ASSERT_TRUE(WaitFor(cluster_->coordinator(), is_over));
  ASSERT_TRUE(network_->SlowDown("c"));
  ASSERT_TRUE(WaitFor(cluster_->coordinator(), [&] {
    const auto events = Events(cluster_->run(), "link_slow");
    return std::any_of(events.begin(), events.end(), [](const nlohmann::json& e) { return e["worker"] == "c/0"; });
  }));
  const size_t slow = count("step_slow");
  EXPECT_GE(slow, 1u);
  EXPECT_LE(slow, count("step_slow_resolved") + 1) << "it is said again before it is over";
  network_->SpeedUp("c");
  ASSERT_TRUE(WaitFor(cluster_->coordinator(), is_over));
  cluster_->StopAndCompare();
}

// Agents that are not told an address take the one on the way to the coordinator.
TEST_F(NetworkTest, AgentsKnowWhereTheyAreReached) {
  network_->GoTo("a");
  cluster_->StartAgent("c", 1, "");
  network_->GoTo("lead");
  ASSERT_TRUE(cluster_->GoesOn(5));
  cluster_->StopAndCompare();
}

TEST_F(NetworkTest, TheCoordinatorIsCutOffAndComesBack) {
  network_->CutLink("lead");
  ASSERT_TRUE(WaitForEvents(cluster_->coordinator(), cluster_->run(), "worker_lost", 4));
  network_->MendLink("lead");
  ASSERT_TRUE(cluster_->GoesOn(4));
  cluster_->StopAndCompare();
}

TEST_F(NetworkTest, AShortCutDoesNoHarm) {
  network_->CutLink("b");
  Sleep(400);
  network_->MendLink("b");
  ASSERT_TRUE(cluster_->GoesOn(4));
  cluster_->StopAndCompare();
}

}  // namespace
}  // namespace holdfast::chaos
