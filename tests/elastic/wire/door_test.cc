// Connections of which no call has been let in have little time, may send little and share a number of places, of which
// one host of strangers takes none away from others; whoever was let in is left alone. The server is a list of sockets.

#include "elastic/wire/door.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <deque>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/elastic/wire/control_parts.h"
#include "tests/framework/net/test_ports.h"

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::kTestTimeout;

/// A connection to `to` from an address of this machine.
FileDescriptor Dial(const SocketAddress& to, const std::string& from = "127.0.0.1") {
  FileDescriptor socket = OpenSocket(to.family(), SOCK_STREAM, 0);
  const SocketAddress here = *ResolveHost(from);
  EXPECT_EQ(bind(socket.get(), here.get(), here.size), 0);
  EXPECT_EQ(connect(socket.get(), to.get(), to.size), 0);
  const timeval limit{kTestTimeout.count(), 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return socket;
}

/// Waits until the connection has ended.
bool IsCut(const FileDescriptor& socket) {
  char byte;
  const ssize_t got = recv(socket.get(), &byte, 1, 0);
  return got == 0 || (got < 0 && errno != EAGAIN);
}

bool IsOpen(const FileDescriptor& socket) {
  char byte;
  return recv(socket.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

class DoorTest : public ::testing::Test, public testing::Waiter {
 protected:
  void Begin(const DoorOptions& options, const std::string& host = "127.0.0.1") {
    Listener listener = *Listen(*ResolveHost(host));
    address_ = *ResolveHost("127.0.0.1", PortOf(listener.address));
    door_ = *Door::Make(std::move(listener), options, [this](FileDescriptor connection) {
      Do([&] { connections_.push_back(std::move(connection)); });
    });
    door_->Open();
  }
  /// Dials, and waits until the connection was handed over.
  FileDescriptor Enter(const std::string& from = "127.0.0.1") {
    const size_t before = connections_.size();
    FileDescriptor socket = Dial(address_, from);
    EXPECT_TRUE(Until([&] { return connections_.size() > before; }));
    return socket;
  }
  /// `attempt`, until it is true: in less time than it takes to be let in, members are cut as well.
  template <class Attempt>
  void TryWithMorePatience(const Attempt& attempt) {
    for (std::chrono::milliseconds patience = 300ms; !attempt(DoorOptions{.patience = patience}); patience *= 2) {
      ASSERT_LT(patience, kTestTimeout / 4) << "whoever is let in is cut, too";
      door_.reset();
      connections_.clear();
    }
  }
  static std::string PeerName(const FileDescriptor& socket) { return "ipv4:" + HostAndPort(*LocalAddress(socket)); }

  SocketAddress address_;
  std::deque<FileDescriptor> connections_;
  std::unique_ptr<Door> door_;
};

TEST_F(DoorTest, WhoIsNotLetInInTimeIsCut) {
  TryWithMorePatience([this](const DoorOptions& options) {
    Begin(options);
    ::testing::internal::CaptureStderr();
    const FileDescriptor member = Enter();
    door_->LetIn(PeerName(member));
    const FileDescriptor stranger = Enter(), other = Enter();
    EXPECT_TRUE(IsCut(stranger));
    EXPECT_TRUE(IsCut(other));
    const std::string log = ::testing::internal::GetCapturedStderr();
    if (!IsOpen(member)) return false;
    EXPECT_THAT(log, HasSubstr("cut " + HostAndPort(*LocalAddress(stranger)) + ": no call of it was let in, in time"));
    return true;
  });
}

// The server may read what comes, or not.
TEST_F(DoorTest, WhoSendsTooMuchBeforeItIsLetInIsCut) {
  Begin({.patience = 1h, .max_bytes = 10'000});
  const FileDescriptor member = Enter(), stranger = Enter(), modest = Enter();
  door_->LetIn(PeerName(member));
  const std::string piece(10'000, 'x');
  for (const FileDescriptor* socket : {&member, &modest, &stranger}) {
    EXPECT_EQ(send(socket->get(), piece.data(), piece.size(), MSG_NOSIGNAL), static_cast<ssize_t>(piece.size()));
  }
  send(member.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
  send(stranger.get(), piece.data(), 1, MSG_NOSIGNAL);
  EXPECT_TRUE(IsCut(stranger));
  EXPECT_TRUE(IsOpen(member));
  EXPECT_TRUE(IsOpen(modest));
}

TEST_F(DoorTest, OneHostOfStrangersTakesNoPlaceFromOthers) {
  Begin({.patience = 1h, .max_strangers = 4});
  const FileDescriptor a = Enter("127.0.0.2"), b = Enter("127.0.0.2"), c = Enter("127.0.0.2"), d = Enter("127.0.0.2");
  EXPECT_TRUE(IsCut(Dial(address_, "127.0.0.2"))) << "no place for a fifth one";
  EXPECT_EQ(connections_.size(), 4u);
  const FileDescriptor other = Enter("127.0.0.3");
  EXPECT_TRUE(IsCut(d)) << "the newest of the host that has most";
  const FileDescriptor another = Enter("127.0.0.3");
  EXPECT_TRUE(IsCut(c));
  for (const FileDescriptor* socket : {&a, &b, &other, &another}) EXPECT_TRUE(IsOpen(*socket));
  door_->LetIn(PeerName(a));
  const FileDescriptor next = Enter("127.0.0.2");
  EXPECT_TRUE(IsOpen(a)) << "its place is free, and it stays";
}

TEST_F(DoorTest, AConnectionThatTheServerEndsGivesItsPlaceBack) {
  Begin({.patience = 1h, .max_strangers = 1});
  FileDescriptor stranger = Enter();
  for (int i = 0; i < 3; ++i) {
    const size_t before = connections_.size();
    shutdown(connections_.back().get(), SHUT_RDWR);  // as gRPC does before it closes
    connections_.back() = FileDescriptor();
    EXPECT_TRUE(IsCut(stranger));
    const auto has_entered = [&] { return connections_.size() > before; };
    for (stranger = Dial(address_); !Until(has_entered, 10ms);) {
      if (!IsOpen(stranger)) stranger = Dial(address_);  // the door learns on its own thread that there is room
    }
  }
}

TEST_F(DoorTest, NamesOfPeersAreThoseOfGrpc) {
  if (!HasIpv6Loopback()) GTEST_SKIP() << "needs IPv6";
  TryWithMorePatience([this](const DoorOptions& options) {
    Begin(options, "::");
    const FileDescriptor mapped = Enter();  // IPv4 at a socket for both
    door_->LetIn(PeerName(mapped));
    const SocketAddress v6 = *ResolveHost("::1", PortOf(address_));
    const FileDescriptor plain = Dial(v6, "::1"), encoded = Dial(v6, "::1"), stranger = Dial(v6, "::1");
    EXPECT_TRUE(Until([&] { return connections_.size() == 4; }));
    door_->LetIn("ipv6:" + HostAndPort(*LocalAddress(plain)));
    door_->LetIn("ipv6:%5B::1%5D:" + std::to_string(PortOf(*LocalAddress(encoded))));
    door_->LetIn("ipv4:127.0.0.1:1");
    door_->LetIn("unix:/nowhere");
    EXPECT_TRUE(IsCut(stranger));
    return IsOpen(mapped) && IsOpen(plain) && IsOpen(encoded);
  });
}

TEST_F(DoorTest, NobodyComesInAfterItIsClosed) {
  Begin({.patience = 1h});
  const FileDescriptor stranger = Enter();
  door_->Close();
  EXPECT_TRUE(IsOpen(stranger)) << "those that are in are the server's";
  const FileDescriptor late = Dial(address_);
  door_->LetIn(PeerName(late));
  door_.reset();
  EXPECT_TRUE(IsCut(late));
  EXPECT_EQ(connections_.size(), 1u);
}

}  // namespace
}  // namespace holdfast
