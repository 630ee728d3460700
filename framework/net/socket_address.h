#pragma once
// Addresses of TCP: names to addresses, addresses to text, sockets that listen.
//
//   ASSIGN_OR_RETURN(const SocketAddress address, ResolveHost("node7"));
//   ASSIGN_OR_RETURN(Listener listener, Listen(address));
//   HostAndPort(listener.address);   // "10.0.0.7:41234"

#include <sys/socket.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/file_descriptor.h"

namespace holdfast {

/// IPv4 or IPv6, with a port.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

enum class HostNames { kResolve, kNumericOnly };

/// Of a name or a numeric address; a name with several addresses gives its first IPv4 one, if it has any.
/// InvalidArgument if there is none, Unavailable if that cannot be told now, as where no server of names answers.
absl::StatusOr<SocketAddress> ResolveHost(const std::string& host, int port = 0, HostNames names = HostNames::kResolve);

/// "host:port" or "[v6]:port" -> host and port; InvalidArgument if it is neither.
absl::StatusOr<std::pair<std::string, int>> SplitHostAndPort(const std::string& address);

/// "10.0.0.3", "fe80::1".
std::string NumericHost(const SocketAddress& address);
/// "10.0.0.3:41234", "[fe80::1]:41234".
std::string HostAndPort(const SocketAddress& address);
std::string HostAndPort(const std::string& host, int port);

int PortOf(const SocketAddress& address);

/// Whether no other machine can reach it.
bool IsLoopback(const SocketAddress& address);
/// The same of a name or a numeric address; false if there is no such host.
bool IsLoopbackHost(const std::string& host);

/// Gives an address that is only one of a network interface's (fe80::/10) and does not say of which the interface of
/// `here`: each machine has numbers of its own for them.
void TakeInterface(const SocketAddress& here, SocketAddress* address);

/// A socket of this family, closed in child processes; not ok, with errno set, if there is none to be had.
/// `flags`: SOCK_NONBLOCK or 0.
FileDescriptor OpenSocket(int family, int type, int flags);

/// This end of a socket that is bound or connected.
absl::StatusOr<SocketAddress> LocalAddress(const FileDescriptor& socket);

struct Listener {
  FileDescriptor socket;  // non-blocking
  SocketAddress address;  // with the port that the kernel chose
};

/// Listens there; port 0 = any free one; at "::" for IPv4, too. AlreadyExists if the port is in use. `backlog`:
/// connections that may wait; the kernel's own limit (net.core.somaxconn) may be lower.
absl::StatusOr<Listener> Listen(const SocketAddress& address, int backlog = SOMAXCONN);

}  // namespace holdfast
