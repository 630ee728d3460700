#include "elastic/wire/address.h"

#include <sys/socket.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "framework/base/host.h"
#include "framework/base/status.h"
#include "framework/net/socket_address.h"

namespace holdfast {
namespace {

// True if a port stands at the end. More than one colon without brackets is an IPv6 address alone.
bool HasPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return false;
  const size_t bracket = address.rfind(']');
  return bracket == std::string::npos ? address.find(':') == colon : colon > bracket;
}

absl::StatusOr<SocketAddress> Resolve(const std::string& address) {
  ASSIGN_OR_RETURN(const auto host_and_port, SplitHostAndPort(WithDefaultPort(address)));
  return ResolveHost(host_and_port.first, host_and_port.second);
}

}  // namespace

std::string ListenAddress::Text() const { return HostAndPort(host, port); }

std::string WithDefaultPort(const std::string& address) {
  if (HasPort(address)) return address;
  const bool is_bare_v6 = address.find(':') != std::string::npos && address.find('[') == std::string::npos;
  return is_bare_v6 ? absl::StrCat("[", address, "]:", kDefaultPort) : absl::StrCat(address, ":", kDefaultPort);
}

absl::StatusOr<ListenAddress> ResolveListenAddress(const std::string& address) {
  ASSIGN_OR_RETURN(const auto host_and_port, SplitHostAndPort(WithDefaultPort(address)));
  ASSIGN_OR_RETURN(const SocketAddress resolved, ResolveHost(host_and_port.first));
  return ListenAddress{NumericHost(resolved), host_and_port.second, IsLoopback(resolved)};
}

// The kernel chooses it when a datagram socket is connected, which sends nothing.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& address) {
  ASSIGN_OR_RETURN(const SocketAddress there, Resolve(address));
  const FileDescriptor socket = OpenSocket(there.family(), SOCK_DGRAM, 0);
  if (!socket.ok()) return ErrnoToStatus(errno, "socket");
  if (connect(socket.get(), there.get(), there.size) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("no route to ", address));
  }
  ASSIGN_OR_RETURN(const SocketAddress local, LocalAddress(socket));
  return NumericHost(local);
}

std::string ReachableAddress(const ListenAddress& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  if (address.host != "0.0.0.0" && address.host != "::") return address.Text();
  // Addresses of documentation (RFC 5737, RFC 3849), to which nothing is sent.
  const auto host = LocalAddressTowards(is_v6 ? "2001:db8::1" : "192.0.2.1");
  return HostAndPort(host.ok() ? *host : HostName(), address.port);
}

namespace {

/// AlreadyExists if the port is in use.
absl::StatusOr<Listener> TryToListenAt(const ListenAddress& address) {
  if (address.host == "0.0.0.0") {
    absl::StatusOr<Listener> both = TryToListenAt({"::", address.port, address.loopback});
    if (both.ok() || absl::IsAlreadyExists(both.status())) return both;  // else this machine has no IPv6
  }
  ASSIGN_OR_RETURN(const SocketAddress resolved, ResolveHost(address.host, address.port));
  return Listen(resolved);
}

}  // namespace

absl::StatusOr<Listener> ListenAt(const ListenAddress& address) {
  absl::StatusOr<Listener> listener = TryToListenAt(address);
  if (!absl::IsAlreadyExists(listener.status())) return listener;
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address.Text(), ": the port is in use; is another coordinator running?"));
}

}  // namespace holdfast
