// Members of a world are connected through one listening socket each: the address a member tells has one size in every
// world; each pair is connected once per mesh, dialled evenly; strangers, silent ones and members of other worlds
// neither get in nor are in the way; who is missing is blamed. Ranks are threads.

#include "framework/comm/gloo/connector.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <numeric>
#include <random>
#include <set>
#include <thread>

namespace holdfast::connector_test {
namespace {

using Meshes = std::vector<std::vector<int>>;
using Connections = std::vector<std::vector<FileDescriptor>>;

Deadline In(int64_t milliseconds) { return std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds); }
Deadline Later() { return In(120'000); }

class World {
 public:
  explicit World(int size) {
    for (int rank = 0; rank < size; ++rank) {
      connectors_.push_back(*Connector::Listen("127.0.0.1"));
      members_.push_back({.generation = 3, .key = connectors_.back().key(), .listener = connectors_.back().address()});
    }
  }
  int size() const { return static_cast<int>(members_.size()); }
  std::vector<MemberAddress>& members() { return members_; }
  absl::StatusOr<Connections> Connect(int rank, const Meshes& meshes, Deadline deadline, std::stop_token stop = {}) {
    return connectors_[static_cast<size_t>(rank)].Connect(rank, members_, meshes, stop, deadline);
  }
  std::vector<Connections> ConnectAll(const Meshes& meshes) {
    std::vector<std::future<absl::StatusOr<Connections>>> ranks;
    for (int rank = 0; rank < size(); ++rank) {
      ranks.push_back(std::async(std::launch::async, [&, rank] { return Connect(rank, meshes, Later()); }));
    }
    std::vector<Connections> all;
    for (auto& rank : ranks) {
      auto connections = rank.get();
      EXPECT_TRUE(connections.ok()) << connections.status();
      all.push_back(connections.ok() ? *std::move(connections) : Connections(meshes.size()));
    }
    return all;
  }

 private:
  std::vector<Connector> connectors_;
  std::vector<MemberAddress> members_;
};

std::vector<int> AllRanks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Every member writes (mesh, rank) to every other one and finds the right one at the other end.
void ExpectConnected(std::vector<Connections>& world, const Meshes& meshes) {
  for (size_t mesh = 0; mesh < meshes.size(); ++mesh) {
    const std::vector<int>& ranks = meshes[mesh];
    for (const bool writing : {true, false}) {
      for (size_t i = 0; i < ranks.size(); ++i) {
        std::vector<FileDescriptor>& sockets = world[static_cast<size_t>(ranks[i])][mesh];
        ASSERT_EQ(sockets.size(), ranks.size());
        for (size_t j = 0; j < ranks.size(); ++j) {
          ASSERT_EQ(sockets[j].ok(), i != j);
          if (i == j) continue;
          const int mine[2] = {static_cast<int>(mesh), ranks[i]}, theirs[2] = {static_cast<int>(mesh), ranks[j]};
          int got[2] = {};
          if (writing) {
            ASSERT_EQ(write(sockets[j].get(), mine, sizeof(mine)), static_cast<ssize_t>(sizeof(mine)));
          } else {
            ASSERT_EQ(read(sockets[j].get(), got, sizeof(got)), static_cast<ssize_t>(sizeof(got)));
            EXPECT_EQ(got[0], theirs[0]);
            EXPECT_EQ(got[1], theirs[1]);
          }
        }
      }
    }
  }
}

TEST(ConnectorTest, ConnectsEveryPairOncePerMesh) {
  for (const int size : {2, 3, 8, 33}) {
    World world(size);
    const Meshes meshes = {AllRanks(size), {size - 1, 0}, AllRanks(size)};
    std::vector<Connections> connections = world.ConnectAll(meshes);
    ExpectConnected(connections, meshes);
  }
}

TEST(ConnectorTest, OfTwoOneDialsAndEverybodyAsManyAsTheOthers) {
  for (const int size : {2, 3, 4, 7, 64, 101}) {
    for (int rank = 0; rank < size; ++rank) {
      int dialled = 0;
      for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) continue;
        EXPECT_NE(Dials(rank, peer, size), Dials(peer, rank, size));
        dialled += Dials(rank, peer, size) ? 1 : 0;
      }
      EXPECT_GE(dialled, (size - 1) / 2);
      EXPECT_LE(dialled, size / 2);
    }
  }
}

TEST(ConnectorTest, AnAddressIsReadAsItWasTold) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    const auto connector = Connector::Listen(host);
    if (!connector.ok()) continue;  // a machine without IPv6
    const MemberAddress member{.generation = 7, .key = connector->key(), .groups = 5, .listener = connector->address()};
    const std::string bytes = EncodeMemberAddress(member);
    EXPECT_LE(bytes.size(), 38u);
    const auto read = DecodeMemberAddress(bytes);
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(EncodeMemberAddress(*read), bytes);
    EXPECT_EQ(read->listener.size, member.listener.size);
    for (size_t size = 0; size < bytes.size(); ++size) {
      if (size == 26) continue;  // which is an address of IPv4
      EXPECT_FALSE(DecodeMemberAddress(bytes.substr(0, size)).ok()) << size;
    }
  }
}

FileDescriptor DialAs(const MemberAddress& member) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&member.listener.storage), member.listener.size),
            0);
  return socket;
}

// Some say nothing, some nonsense, some the hello of a member with a key or a generation that is not this world's.
TEST(ConnectorTest, StrangersAreNotInTheWay) {
  World world(3);
  std::mt19937 random(1);
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 400; ++i) {
    const MemberAddress& member = world.members()[static_cast<size_t>(i % 3)];
    strangers.push_back(DialAs(member));
    struct {
      uint64_t key, generation;
      uint32_t mesh, rank;
    } hello{member.key, member.generation, 0, static_cast<uint32_t>((i + 2) % 3)};
    if (i % 4 == 0) continue;
    if (i % 4 == 1) hello.key ^= uint64_t{1} << (i % 64);
    if (i % 4 == 2) hello.generation -= 1;
    if (i % 4 == 3) hello.mesh = 9, hello.rank = static_cast<uint32_t>(random());
    EXPECT_GT(write(strangers.back().get(), &hello, i % 5 == 0 ? 7 : sizeof(hello)), 0);
  }
  const Meshes meshes = {AllRanks(3)};
  std::vector<Connections> connections = world.ConnectAll(meshes);
  ExpectConnected(connections, meshes);
}

TEST(ConnectorTest, WhoIsMissingIsBlamed) {
  const Meshes meshes = {AllRanks(4)};
  World world(4);
  auto one = std::async(std::launch::async, [&] { return world.Connect(1, meshes, In(300)).status(); });
  auto two = std::async(std::launch::async, [&] { return world.Connect(2, meshes, In(300)).status(); });
  for (const absl::Status& status : {one.get(), two.get()}) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_EQ(BlamedRanks(status), (std::vector<int>{0, 3}));
  }
}

TEST(ConnectorTest, NobodyListensThere) {
  World world(2);
  {
    const Connector gone = *Connector::Listen("127.0.0.1");
    world.members()[1].listener = gone.address();
  }
  const absl::Status status = world.Connect(0, {AllRanks(2)}, Later()).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(BlamedRanks(status), std::vector<int>{1});
}

// Somebody else listens at the port of a member that is gone: it does not know our key.
TEST(ConnectorTest, AStrangerThatListensIsNotTakenForAMember) {
  World world(2);
  const Connector stranger = *Connector::Listen("127.0.0.1");
  std::vector<MemberAddress> others = world.members();
  others[1].key = world.members()[1].key;
  world.members()[1].listener = stranger.address();
  auto answer = std::async(std::launch::async, [&] {
    std::vector<MemberAddress> members = others;
    members[0].key ^= 1;
    return stranger.Connect(1, members, {AllRanks(2)}, {}, Later()).ok();
  });
  const absl::Status status = world.Connect(0, {AllRanks(2)}, Later()).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.ToString(), testing::HasSubstr("a process that is not of this world listens there"));
  EXPECT_TRUE(answer.get());
}

TEST(ConnectorTest, AStopEndsTheWait) {
  World world(2);
  std::stop_source stop;
  auto waiting = std::async(std::launch::async,
                            [&] { return world.Connect(1, {AllRanks(2)}, Later(), stop.get_token()).status(); });
  stop.request_stop();
  const absl::Status status = waiting.get();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_TRUE(BlamedRanks(status).empty());
}

}  // namespace
}  // namespace holdfast::connector_test
