// A coordinator and two machines with workers, each on a host of its own, whose links are cut and mended: the run goes
// on with whom it reaches, takes back who returns, and has the bits of the run that nobody touched. Hosts are network
// namespaces; skipped where those are not to be had.

#include "tests/chaos/network.h"

#include <gtest/gtest.h>

#include "tests/chaos/cluster.h"

namespace holdfast::chaos {
namespace {

constexpr int kLongerThanHeartbeats = 4000;  // the stage's heartbeat_timeout_ms is 3000

class NetworkTest : public StageTest {
 protected:
  static void SetUpTestSuite() {
    why_not_ = Network::WhyNot();
    if (why_not_.empty()) StageTest::SetUpTestSuite();
  }

  void SetUp() override {
    if (!why_not_.empty()) GTEST_SKIP() << why_not_;
    network_ = std::make_unique<Network>(std::vector<std::string>{"lead", "a", "b"});
    cluster_ =
        std::make_unique<Cluster>(*stage_, Run(), Cluster::Options{.listen = network_->Address("lead") + ":29400"});
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
  network_->CutOneWay("b", "a");
  Sleep(kLongerThanHeartbeats);
  network_->MendOneWay("b", "a");
  ASSERT_TRUE(cluster_->GoesOn(4));
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
