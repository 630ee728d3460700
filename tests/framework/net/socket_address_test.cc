// Names become addresses and addresses text, in both families; a socket listens where it is told to, or says why not.

#include "framework/net/socket_address.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

#include "absl/strings/match.h"

namespace holdfast {
namespace {

TEST(SocketAddress, TextOfBothFamilies) {
  EXPECT_EQ(HostAndPort(*ResolveHost("10.0.0.3", 41234)), "10.0.0.3:41234");
  EXPECT_EQ(HostAndPort(*ResolveHost("fe80::1", 7)), "[fe80::1]:7");
  EXPECT_EQ(NumericHost(*ResolveHost("::1")), "::1");
  EXPECT_EQ(HostAndPort("::1", 29400), "[::1]:29400");
}

TEST(SocketAddress, ANameGivesAnAddressUnlessOnlyNumbersAreWanted) {
  const auto resolved = ResolveHost("localhost");
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_TRUE(IsLoopback(*resolved));
  EXPECT_TRUE(absl::IsInvalidArgument(ResolveHost("localhost", 0, HostNames::kNumericOnly).status()));
  const absl::Status unknown = ResolveHost("no host has this name").status();
  EXPECT_TRUE(absl::IsInvalidArgument(unknown));
  EXPECT_TRUE(absl::StrContains(unknown.message(), "'no host has this name'")) << unknown;
}

TEST(SocketAddress, Loopback) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1"}) EXPECT_TRUE(IsLoopback(*ResolveHost(host))) << host;
  for (const char* host : {"10.0.0.1", "0.0.0.0", "::", "fe80::1"})
    EXPECT_FALSE(IsLoopback(*ResolveHost(host))) << host;
  EXPECT_TRUE(IsLoopbackHost("localhost"));
  EXPECT_FALSE(IsLoopbackHost("no host has this name"));
}

TEST(SocketAddress, ALinkLocalAddressIsReachedByThisMachinesInterface) {
  const auto interface_of = [](const SocketAddress& address) {
    return reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_scope_id;
  };
  const SocketAddress here = *ResolveHost("fe80::1%lo");
  ASSERT_NE(interface_of(here), 0u);
  SocketAddress there = *ResolveHost("fe80::2%lo");
  reinterpret_cast<sockaddr_in6*>(&there.storage)->sin6_scope_id = 0;  // as another machine tells it
  TakeInterface(*ResolveHost("127.0.0.1"), &there);
  EXPECT_EQ(interface_of(there), 0u);
  TakeInterface(here, &there);
  EXPECT_EQ(interface_of(there), interface_of(here));
  SocketAddress global = *ResolveHost("2001:db8::1");
  TakeInterface(here, &global);
  EXPECT_EQ(interface_of(global), 0u);
}

TEST(SocketAddress, SplitsHostAndPort) {
  EXPECT_EQ(*SplitHostAndPort("node7:29400"), std::pair(std::string("node7"), 29400));
  EXPECT_EQ(*SplitHostAndPort("[fe80::1]:0"), std::pair(std::string("fe80::1"), 0));
  for (const char* bad : {"", "node7", ":1", "node7:", "node7:x", "node7:-1", "node7:65536", "[fe80::1:1", "[]:1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(SplitHostAndPort(bad).status())) << bad;
  }
}

TEST(Listen, TakesAFreePortAndRefusesOneThatIsTaken) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    const auto listener = Listen(*ResolveHost(host));
    if (!listener.ok() && host[0] == ':') continue;  // a machine without IPv6
    ASSERT_TRUE(listener.ok()) << listener.status();
    const auto [name, port] = *SplitHostAndPort(HostAndPort(listener->address));
    EXPECT_EQ(name, host);
    EXPECT_NE(port, 0);
    const FileDescriptor socket = OpenSocket(listener->address.family(), SOCK_STREAM, 0);
    EXPECT_EQ(connect(socket.get(), listener->address.get(), listener->address.size), 0);
    const absl::Status taken = Listen(listener->address).status();
    EXPECT_FALSE(taken.ok());
    EXPECT_TRUE(absl::StrContains(taken.message(), host)) << taken;
  }
}

}  // namespace
}  // namespace holdfast
