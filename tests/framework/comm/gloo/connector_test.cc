// Members of a world are connected through one listening socket each: the address a member tells has one size in every
// world; each pair is connected once per mesh, dialled evenly; strangers, silent ones and members of other worlds
// neither get in nor are in the way, and are logged rarely; who is missing is blamed. Ranks are threads.

#include "framework/comm/gloo/connector.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "framework/comm/gloo/handshake.h"
#include "framework/net/socket_address.h"

namespace holdfast::connector_test {
namespace {

using Meshes = std::vector<std::vector<int>>;
using Connections = std::vector<std::vector<Connection>>;

Deadline In(int64_t milliseconds) { return std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds); }
Deadline Later() { return In(120'000); }

class World {
 public:
  explicit World(int size, bool encrypt = false) {
    for (int rank = 0; rank < size; ++rank) {
      connectors_.push_back(*Connector::Listen("127.0.0.1", encrypt));
      members_.push_back({.generation = 3, .key = connectors_.back().key(), .listener = connectors_.back().address()});
    }
  }
  void StopListening() { connectors_.clear(); }
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

size_t Write(Connection& to, const void* bytes, size_t size) {
  if (!to.tls.has_value()) return static_cast<size_t>(write(to.socket.get(), bytes, size));
  const iovec piece{const_cast<void*>(bytes), size};
  return to.tls->Write({&piece, 1}).value_or(0);
}

size_t Read(Connection& from, void* bytes, size_t size) {
  pollfd awaited{from.socket.get(), POLLIN, 0};
  if (!from.tls.has_value())
    return poll(&awaited, 1, 60'000) == 1 ? static_cast<size_t>(read(from.socket.get(), bytes, size)) : 0;
  while (true) {
    const auto got = from.tls->Read(bytes, size);
    if (!got.ok() || *got > 0 || poll(&awaited, 1, 60'000) != 1) return got.value_or(0);
  }
}

// Every member writes (mesh, rank) to every other one and finds the right one at the other end.
void ExpectConnected(std::vector<Connections>& world, const Meshes& meshes) {
  for (size_t mesh = 0; mesh < meshes.size(); ++mesh) {
    const std::vector<int>& ranks = meshes[mesh];
    for (const bool writing : {true, false}) {
      for (size_t i = 0; i < ranks.size(); ++i) {
        std::vector<Connection>& connections = world[static_cast<size_t>(ranks[i])][mesh];
        ASSERT_EQ(connections.size(), ranks.size());
        for (size_t j = 0; j < ranks.size(); ++j) {
          ASSERT_EQ(connections[j].socket.ok(), i != j);
          if (i == j) continue;
          const int mine[2] = {static_cast<int>(mesh), ranks[i]}, theirs[2] = {static_cast<int>(mesh), ranks[j]};
          int got[2] = {};
          if (writing) {
            ASSERT_EQ(Write(connections[j], mine, sizeof(mine)), sizeof(mine));
          } else {
            ASSERT_EQ(Read(connections[j], got, sizeof(got)), sizeof(got));
            EXPECT_EQ(got[0], theirs[0]);
            EXPECT_EQ(got[1], theirs[1]);
          }
        }
      }
    }
  }
}

TEST(ConnectorTest, ConnectsEveryPairOncePerMesh) {
  for (const bool encrypt : {false, true}) {
    for (const int size : {2, 3, 8, 33}) {
      World world(size, encrypt);
      const Meshes meshes = {AllRanks(size), {size - 1, 0}, AllRanks(size)};
      std::vector<Connections> connections = world.ConnectAll(meshes);
      ExpectConnected(connections, meshes);
    }
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

/// None if nobody listens there any more.
FileDescriptor DialIfListening(const MemberAddress& member) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* to = reinterpret_cast<const sockaddr*>(&member.listener.storage);
  return connect(socket.get(), to, member.listener.size) == 0 ? std::move(socket) : FileDescriptor();
}

FileDescriptor DialAs(const MemberAddress& member) {
  FileDescriptor socket = DialIfListening(member);
  EXPECT_TRUE(socket.ok());
  return socket;
}

std::string Receive(const FileDescriptor& socket, size_t size) {
  std::string bytes(size, '\0');
  const ssize_t got = recv(socket.get(), bytes.data(), size, MSG_WAITALL);
  bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return bytes;
}

void SendBytes(const FileDescriptor& socket, const std::string& bytes) {
  send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

enum class Stranger { kSilent, kNonsense, kHello, kAnyProof, kProofOfAnotherGeneration, kFlood };

// What is left of the connection when the world is connected is its end.
void Intrude(Stranger kind, const FileDescriptor& socket, const std::vector<MemberAddress>& members,
             uint32_t listener) {
  if (!socket.ok()) return;
  std::vector<MemberAddress> others = members;
  for (MemberAddress& other : others) other.generation -= 1;
  Handshake handshake = Handshake::Dial(KeyOf(others), 0, (listener + 2) % 3, listener);
  if (kind == Stranger::kNonsense)
    SendBytes(socket, "GET / HTTP/1.1\r\nHost: a-member-of-the-world\r\n\r\n" + std::string(99, 'x'));
  if (kind == Stranger::kFlood) SendBytes(socket, std::string(size_t{1} << 20, 'x'));
  if (kind >= Stranger::kHello && kind != Stranger::kFlood) SendBytes(socket, handshake.First());
  if (kind == Stranger::kAnyProof || kind == Stranger::kProofOfAnotherGeneration) {
    const std::string challenge = Receive(socket, handshake.awaited());
    if (challenge.size() < handshake.awaited()) return;  // dropped for another one
    const std::string proof = *handshake.Take(challenge);
    SendBytes(socket, kind == Stranger::kAnyProof ? std::string(proof.size(), 'p') : proof);
    EXPECT_EQ(Receive(socket, 1), "") << "a stranger got something after its proof";
  }
  Receive(socket, 100);
}

// More of every kind than are waited for, before and while the members connect.
TEST(ConnectorTest, StrangersAreNotInTheWay) {
  ::testing::internal::CaptureStderr();
  World world(3);
  std::vector<std::thread> strangers;
  for (uint32_t i = 0; i < 120; ++i) {
    FileDescriptor early = i % 2 == 0 ? DialAs(world.members()[i % 3]) : FileDescriptor();
    strangers.emplace_back([&world, i, early = std::move(early)] {
      const std::vector<MemberAddress>& members = world.members();
      const FileDescriptor late = early.ok() ? FileDescriptor() : DialIfListening(members[i % 3]);
      Intrude(static_cast<Stranger>(i / 2 % 6), early.ok() ? early : late, members, i % 3);
    });
  }
  const Meshes meshes = {AllRanks(3)};
  std::vector<Connections> connections = world.ConnectAll(meshes);
  ExpectConnected(connections, meshes);
  world.StopListening();
  connections.clear();  // also if one of them is a stranger's
  for (std::thread& stranger : strangers) stranger.join();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_LE(std::count(log.begin(), log.end(), '\n'), 3) << "more than a line for a member: " << log;
}

// A member that loses its place to one of them comes again.
class CrowdedConnectorTest : public testing::TestWithParam<bool> {};

TEST_P(CrowdedConnectorTest, MoreStrangersThanPlaces) {
  World world(2, GetParam());
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 700; ++i) {
    strangers.push_back(DialAs(world.members()[static_cast<size_t>(i % 2)]));
    if (i % 4 == 0) continue;
    SendBytes(strangers.back(), Handshake::Dial(WorldKey(), 0, static_cast<uint32_t>(1 - i % 2), 0).First());
  }
  const Meshes meshes = {AllRanks(2)};
  std::vector<Connections> connections = world.ConnectAll(meshes);
  ExpectConnected(connections, meshes);
}

INSTANTIATE_TEST_SUITE_P(Encrypted, CrowdedConnectorTest, testing::Bool());

// Where the world encrypts, a proof alone is not enough: whoever goes on in plain is refused, and nothing fails.
TEST(ConnectorTest, WhoDoesNotEncryptIsRefused) {
  World world(2, true);
  std::stop_source stop;
  ::testing::internal::CaptureStderr();
  auto waiting = std::async(std::launch::async,
                            [&] { return world.Connect(1, {AllRanks(2)}, Later(), stop.get_token()).status(); });
  {
    const FileDescriptor socket = DialAs(world.members()[1]);
    Handshake handshake = Handshake::Dial(KeyOf(world.members()), 0, 0, 1);
    SendBytes(socket, handshake.First());
    SendBytes(socket, *handshake.Take(Receive(socket, handshake.awaited())));
    EXPECT_EQ(*handshake.Take(Receive(socket, handshake.awaited())), "");
    EXPECT_TRUE(handshake.done());
    SendBytes(socket, std::string(200, 'x'));
    const std::string answer = Receive(socket, 1000);
    EXPECT_LE(answer.size(), 16u) << "more than an alert";
  }
  stop.request_stop();
  EXPECT_TRUE(absl::IsAborted(waiting.get()));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), testing::HasSubstr("rank 1 refused 1 connections"));
}

TEST(ConnectorTest, WhoIsRefusedIsLoggedOnceWithItsAddress) {
  World world(2);
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> strangers;
  std::string addresses;
  for (int i = 0; i < 5; ++i) {
    FileDescriptor socket = DialAs(world.members()[1]);
    addresses += HostAndPort(*LocalAddress(socket)) + " ";
    strangers.emplace_back([socket = std::move(socket)] {
      SendBytes(socket, std::string(Handshake::kMaxMessageBytes + 32, 'x'));
      EXPECT_EQ(Receive(socket, 33).size(), 32u) << "a nonce, and the end";
    });
  }
  std::stop_source stop;
  auto waiting = std::async(std::launch::async,
                            [&] { return world.Connect(1, {AllRanks(2)}, Later(), stop.get_token()).status(); });
  for (std::thread& stranger : strangers) stranger.join();
  stop.request_stop();
  EXPECT_TRUE(absl::IsAborted(waiting.get()));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_THAT(log, testing::HasSubstr("rank 1 refused 5 connections of no member of generation 3, the last from "));
  const std::string last = log.substr(log.rfind(' ') + 1);
  EXPECT_THAT(addresses, testing::HasSubstr(last.substr(0, last.find('\n')) + " "));
}

TEST(ConnectorTest, WhoIsMissingIsBlamed) {
  const Meshes meshes = {AllRanks(4)};
  const std::vector<int> missing = {0, 3};
  // In less time than ranks 1 and 2 need to connect, they are missing too: once more, with more time.
  for (int64_t limit_ms = 300;; limit_ms *= 2) {
    World world(4);
    const auto connect = [&](int rank) { return world.Connect(rank, meshes, In(limit_ms)).status(); };
    auto one = std::async(std::launch::async, connect, 1), two = std::async(std::launch::async, connect, 2);
    const absl::Status first = one.get(), second = two.get();
    EXPECT_TRUE(absl::IsDeadlineExceeded(first)) << first;
    EXPECT_TRUE(absl::IsDeadlineExceeded(second)) << second;
    if (limit_ms < 60'000 && (BlamedRanks(first) != missing || BlamedRanks(second) != missing)) continue;
    EXPECT_EQ(BlamedRanks(first), missing) << first;
    EXPECT_EQ(BlamedRanks(second), missing) << second;
    return;
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

// Somebody else listens at the port of a member that is gone: without our key, or sending our proof back.
TEST(ConnectorTest, AStrangerThatListensIsNotTakenForAMember) {
  for (const bool reflects : {false, true}) {
    World world(2);
    const Listener stranger = *Listen(*ResolveHost("127.0.0.1"));
    fcntl(stranger.socket.get(), F_SETFL, 0);  // blocking
    world.members()[1].listener = stranger.address;
    std::thread answering([&] {
      const FileDescriptor socket(accept4(stranger.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      Receive(socket, Handshake::kMaxMessageBytes);
      SendBytes(socket, std::string(32, 'n'));
      const std::string proof = Receive(socket, 32);
      EXPECT_EQ(proof.size(), 32u);
      SendBytes(socket, reflects ? proof : std::string(32, 'p'));
      EXPECT_EQ(Receive(socket, 1), "") << "payload for a stranger";
    });
    const absl::Status status = world.Connect(0, {AllRanks(2)}, Later()).status();
    answering.join();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(status.ToString(), testing::HasSubstr("a process that is not of this world listens there"));
    EXPECT_EQ(BlamedRanks(status), std::vector<int>{1});
  }
}

// A peer that is let go before it has proven itself may have been dropped among strangers; not for ever.
TEST(ConnectorTest, AStrangerThatHangsUpIsDialledAgainAndThenBlamed) {
  World world(2);
  const Listener stranger = *Listen(*ResolveHost("127.0.0.1"));
  fcntl(stranger.socket.get(), F_SETFL, 0);
  world.members()[1].listener = stranger.address;
  std::atomic<bool> ended = false;
  int dialled = 0;
  std::thread hanging_up([&] {
    while (!ended) {
      const FileDescriptor socket(accept4(stranger.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!ended) ++dialled;
    }
  });
  const absl::Status status = world.Connect(0, {AllRanks(2)}, Later()).status();
  ended = true;
  const FileDescriptor last = DialAs(world.members()[1]);
  hanging_up.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(BlamedRanks(status), std::vector<int>{1});
  EXPECT_GT(dialled, 1);
  EXPECT_LE(dialled, 101);
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
