// Proves which coordinator is tried next: the one that is noted first, then each of those given, in turn.

#include "elastic/wire/coordinator_addresses.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "elastic/wire/address.h"
#include "tests/elastic/wire/control_parts.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

using Addresses = std::vector<std::string>;

class CoordinatorAddressesTest : public ::testing::Test {
 protected:
  void Note(const std::string& text) { std::ofstream(file_) << text; }
  static Addresses Take(CoordinatorAddresses& addresses, int count) {
    Addresses taken;
    for (int i = 0; i < count; ++i) taken.push_back(addresses.Next());
    return taken;
  }
  const TemporaryDirectory root_;
  const std::string file_ = root_.path() + "/coordinator.address";
};

TEST_F(CoordinatorAddressesTest, ThoseGivenComeInTurn) {
  CoordinatorAddresses addresses("10.0.0.1:1, 10.0.0.2:2,,[fe80::1]:3 ");
  EXPECT_EQ(Take(addresses, 4), (Addresses{"10.0.0.1:1", "10.0.0.2:2", "[fe80::1]:3", "10.0.0.1:1"}));
  EXPECT_EQ(addresses.All(), (Addresses{"10.0.0.1:1", "10.0.0.2:2", "[fe80::1]:3"}));
  EXPECT_FALSE(addresses.HasMoved());
  EXPECT_EQ(CoordinatorAddresses("").Next(), "");
}

TEST_F(CoordinatorAddressesTest, TheOneThatIsNotedComesFirst) {
  CoordinatorAddresses addresses("10.0.0.1:1,10.0.0.2:2", file_);
  EXPECT_EQ(addresses.Next(), "10.0.0.1:1");
  Note("10.0.0.9:9\n");
  EXPECT_TRUE(addresses.HasMoved());
  EXPECT_EQ(addresses.All(), (Addresses{"10.0.0.9:9", "10.0.0.1:1", "10.0.0.2:2"}));
  EXPECT_EQ(Take(addresses, 4), (Addresses{"10.0.0.9:9", "10.0.0.1:1", "10.0.0.2:2", "10.0.0.9:9"}));
  EXPECT_FALSE(addresses.HasMoved());
  Note("10.0.0.2:2\n");  // one of those given
  EXPECT_TRUE(addresses.HasMoved());
  EXPECT_EQ(Take(addresses, 3), (Addresses{"10.0.0.2:2", "10.0.0.1:1", "10.0.0.2:2"}));
}

TEST_F(CoordinatorAddressesTest, NobodyLeavesOneThatIsNoLongerNoted) {
  Note("10.0.0.9:9\n");
  CoordinatorAddresses addresses("10.0.0.1:1", file_);
  EXPECT_EQ(addresses.Next(), "10.0.0.9:9");
  std::filesystem::remove(file_);
  EXPECT_FALSE(addresses.HasMoved());
  EXPECT_EQ(addresses.Next(), "10.0.0.1:1");
}

// A shared file system may show a new address some seconds late.
TEST_F(CoordinatorAddressesTest, NobodyLeavesOneThatIsNotedOnlyThen) {
  Note("10.0.0.9:9\n");
  CoordinatorAddresses addresses("10.0.0.1:1,10.0.0.2:2", file_);
  EXPECT_EQ(Take(addresses, 3), (Addresses{"10.0.0.9:9", "10.0.0.1:1", "10.0.0.2:2"}));
  Note("10.0.0.2:2\n");
  EXPECT_FALSE(addresses.HasMoved());
  Note("10.0.0.9:9\n");
  EXPECT_TRUE(addresses.HasMoved());
}

TEST_F(CoordinatorAddressesTest, WhatIsNoAddressIsPassedOver) {
  for (const std::string& text :
       Addresses{"", "\n", "10.0.0.9:9", "10.0.0.9:9\nmore\n", "no address\n", std::string(5000, 'x') + ":1\n"}) {
    Note(text);
    CoordinatorAddresses addresses("10.0.0.1:1", file_);
    EXPECT_EQ(Take(addresses, 2), (Addresses{"10.0.0.1:1", "10.0.0.1:1"})) << text.substr(0, 20);
    EXPECT_FALSE(addresses.HasMoved());
  }
}

// Of another machine, whose coordinator listens on its loopback: here another run's may listen there.
TEST_F(CoordinatorAddressesTest, ALoopbackAddressIsOfTheMachineThatNotedIt) {
  Note("127.0.0.1:9\n");
  CoordinatorAddresses far("10.0.0.1:1", file_);
  EXPECT_EQ(Take(far, 2), (Addresses{"10.0.0.1:1", "10.0.0.1:1"}));
  CoordinatorAddresses near("10.0.0.1:1,127.0.0.1:1", file_);
  EXPECT_EQ(near.Next(), "127.0.0.1:9");
  CoordinatorAddresses alone("", file_);
  EXPECT_EQ(alone.Next(), "127.0.0.1:9");
}

// One that is frozen or cut off does not say itself that another one leads.
TEST_F(CoordinatorAddressesTest, AClientLeavesOneThatIsNoLongerNoted) {
  testing::RecordingServer old_handler, new_handler;
  const auto old_leader = testing::StartServer(&old_handler), new_leader = testing::StartServer(&new_handler);
  Note(old_leader->address() + "\n");
  testing::RecordingClient peer;
  const auto client = testing::StartClient("127.0.0.1:1", &peer,
                                           {.address_file = file_, .look_interval = std::chrono::milliseconds(10)});
  ASSERT_TRUE(peer.Until([&] { return peer.connected == 1; }));
  client->Send(FinishedMessage{1});
  ASSERT_TRUE(old_handler.Until([&] { return old_handler.messages.size() == 1; }));
  Note(new_leader->address() + "\n");
  ASSERT_TRUE(peer.Until([&] { return peer.connected == 2; }));
  EXPECT_NE(peer.disconnects.at(0).find("another coordinator leads the run"), std::string::npos);
  client->Send(FinishedMessage{2});
  ASSERT_TRUE(new_handler.Until([&] { return new_handler.messages.size() == 1; }));
}

TEST(ReachableAddress, IsNotThatOfAllAddresses) {
  EXPECT_EQ(ReachableAddress({"10.0.0.1", 7, false}), "10.0.0.1:7");
  EXPECT_EQ(ReachableAddress({"::1", 7, true}), "[::1]:7");
  for (const std::string any : {"0.0.0.0", "::"}) {
    const std::string reached = ReachableAddress({any, 7, false});
    EXPECT_EQ(reached.find(any + ":"), std::string::npos) << reached;
    EXPECT_TRUE(reached.ends_with(":7")) << reached;
  }
}

}  // namespace
}  // namespace holdfast
