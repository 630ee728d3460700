#include "framework/net/socket_address.h"

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int kMaxPort = 65535;

const addrinfo& Preferred(const addrinfo& first) {
  for (const addrinfo* entry = &first; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET) return *entry;
  }
  return first;
}

/// `error` is getaddrinfo's, which says EAI_AGAIN where no server of names answers.
absl::Status NoAddress(const std::string& host, int error, int system_error) {
  const std::string what = absl::StrCat("no address found for host '", host, "'");
  if (error == EAI_SYSTEM) return ErrnoToStatus(system_error, what);
  const std::string message = absl::StrCat(what, ": ", gai_strerror(error));
  const bool may_pass = error == EAI_AGAIN || error == EAI_MEMORY;
  return may_pass ? absl::UnavailableError(message) : absl::InvalidArgumentError(message);
}

void SetPort(SocketAddress& address, int port) {
  const uint16_t network = htons(static_cast<uint16_t>(port));
  if (address.family() == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = network;
  } else {
    reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port = network;
  }
}

}  // namespace

absl::StatusOr<SocketAddress> ResolveHost(const std::string& host, int port, HostNames names) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  if (names == HostNames::kNumericOnly) hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0 || found == nullptr) return NoAddress(host, error, errno);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  const addrinfo& chosen = Preferred(*found);
  SocketAddress address;
  address.size = chosen.ai_addrlen;
  std::copy_n(reinterpret_cast<const char*>(chosen.ai_addr), address.size, reinterpret_cast<char*>(&address.storage));
  SetPort(address, port);
  return address;
}

absl::StatusOr<std::pair<std::string, int>> SplitHostAndPort(const std::string& address) {
  const auto malformed = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("address '", address, "' is not HOST:PORT or [IPV6]:PORT, with a port of up to ", kMaxPort));
  };
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return malformed();
  std::string host = address.substr(0, colon);
  int port = 0;
  if (!absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 || port > kMaxPort) return malformed();
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host.empty() || host.find('[') != std::string::npos) return malformed();
  return std::pair(std::move(host), port);
}

std::string NumericHost(const SocketAddress& address) {
  std::array<char, NI_MAXHOST> numeric{};
  const int error =
      getnameinfo(address.get(), address.size, numeric.data(), numeric.size(), nullptr, 0, NI_NUMERICHOST);
  HOLDFAST_CHECK(error == 0);  // only a family that ResolveHost does not give has no text
  return numeric.data();
}

int PortOf(const SocketAddress& address) {
  return address.family() == AF_INET ? ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port)
                                     : ntohs(reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
}

std::string HostAndPort(const SocketAddress& address) { return HostAndPort(NumericHost(address), PortOf(address)); }

std::string HostAndPort(const std::string& host, int port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return is_v6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

bool IsLoopback(const SocketAddress& address) {
  if (address.family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  return address.family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) != 0;
}

bool IsLoopbackHost(const std::string& host) {
  const auto address = ResolveHost(host);
  return address.ok() && IsLoopback(*address);
}

void TakeInterface(const SocketAddress& here, SocketAddress* address) {
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address->storage);
  const bool lacks_it =
      address->family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) && v6->sin6_scope_id == 0;
  if (!lacks_it || here.family() != AF_INET6) return;
  v6->sin6_scope_id = reinterpret_cast<const sockaddr_in6*>(&here.storage)->sin6_scope_id;
}

FileDescriptor OpenSocket(int family, int type, int flags) {
  return FileDescriptor(socket(family, type | flags | SOCK_CLOEXEC, 0));
}

absl::StatusOr<SocketAddress> LocalAddress(const FileDescriptor& socket) {
  SocketAddress address;
  address.size = sizeof(address.storage);
  if (getsockname(socket.get(), address.get(), &address.size) != 0) return ErrnoToStatus(errno, "getsockname");
  return address;
}

absl::StatusOr<Listener> Listen(const SocketAddress& address, int backlog) {
  Listener listener{OpenSocket(address.family(), SOCK_STREAM, SOCK_NONBLOCK), {}};
  const int fd = listener.socket.get();
  if (fd < 0) return ErrnoToStatus(errno, "socket");
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // a port whose last connections are in TIME_WAIT is free
  if (address.family() == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(fd, address.get(), address.size) != 0 || listen(fd, backlog) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("cannot listen at '", NumericHost(address), "'"));
  }
  ASSIGN_OR_RETURN(listener.address, LocalAddress(listener.socket));
  return listener;
}

}  // namespace holdfast
