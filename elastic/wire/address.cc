#include "elastic/wire/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

constexpr int kMaxPort = 65535;

absl::Status Malformed(const std::string& address) {
  return absl::InvalidArgumentError(absl::StrCat("address '", address, "' is not HOST:PORT or [IPV6]:PORT"));
}

// True if a port stands at the end. More than one colon without brackets is an IPv6 address alone.
bool HasPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return false;
  const size_t bracket = address.rfind(']');
  return bracket == std::string::npos ? address.find(':') == colon : colon > bracket;
}

absl::StatusOr<std::pair<std::string, int>> Split(const std::string& address) {
  const std::string full = WithDefaultPort(address);
  const size_t colon = full.rfind(':');
  std::string host = full.substr(0, colon);
  int port = 0;
  if (!absl::SimpleAtoi(full.substr(colon + 1), &port) || port < 0 || port > kMaxPort) return Malformed(address);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host.empty() || host.find('[') != std::string::npos) return Malformed(address);
  return std::pair(std::move(host), port);
}

absl::StatusOr<AddressList> Resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0 || found == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("no address found for host '", host, "': ", gai_strerror(error)));
  }
  return AddressList(found, &freeaddrinfo);
}

const addrinfo* Preferred(const addrinfo* list) {
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET) return entry;
  }
  return list;
}

bool IsLoopback(const addrinfo& entry) {
  if (entry.ai_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(entry.ai_addr);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
  }
  if (entry.ai_family != AF_INET6) return false;
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(entry.ai_addr);
  return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) != 0;
}

absl::StatusOr<std::string> Numeric(const sockaddr* address, socklen_t size) {
  char numeric[NI_MAXHOST];
  const int error = getnameinfo(address, size, numeric, sizeof numeric, nullptr, 0, NI_NUMERICHOST);
  if (error != 0) return absl::InvalidArgumentError(gai_strerror(error));
  return std::string(numeric);
}

void SetPort(sockaddr* address, int port) {
  const uint16_t network = htons(static_cast<uint16_t>(port));
  if (address->sa_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = network;
  } else {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = network;
  }
}

}  // namespace

std::string ListenAddress::Text() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return is_v6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

std::string WithDefaultPort(const std::string& address) {
  if (HasPort(address)) return address;
  const bool is_bare_v6 = address.find(':') != std::string::npos && address.find('[') == std::string::npos;
  return is_bare_v6 ? absl::StrCat("[", address, "]:", kDefaultPort) : absl::StrCat(address, ":", kDefaultPort);
}

absl::StatusOr<ListenAddress> ResolveListenAddress(const std::string& address) {
  HF_ASSIGN_OR_RETURN(const auto host_and_port, Split(address));
  HF_ASSIGN_OR_RETURN(const AddressList list, Resolve(host_and_port.first));
  const addrinfo* entry = Preferred(list.get());
  HF_ASSIGN_OR_RETURN(std::string numeric, Numeric(entry->ai_addr, entry->ai_addrlen));
  return ListenAddress{std::move(numeric), host_and_port.second, IsLoopback(*entry)};
}

// The kernel chooses it when a datagram socket is connected, which sends nothing.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& address) {
  HF_ASSIGN_OR_RETURN(const auto host_and_port, Split(address));
  HF_ASSIGN_OR_RETURN(const AddressList list, Resolve(host_and_port.first));
  const addrinfo* entry = Preferred(list.get());
  SetPort(entry->ai_addr, host_and_port.second);
  const int fd = socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return ErrnoToStatus(errno, "socket");
  sockaddr_storage local{};
  socklen_t size = sizeof local;
  const bool chosen = connect(fd, entry->ai_addr, entry->ai_addrlen) == 0 &&
                      getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) == 0;
  const int error = errno;
  close(fd);
  if (!chosen) return ErrnoToStatus(error, absl::StrCat("no way to ", address));
  return Numeric(reinterpret_cast<const sockaddr*>(&local), size);
}

bool IsLoopbackHost(const std::string& host) {
  const auto list = Resolve(host);
  return list.ok() && IsLoopback(*Preferred(list->get()));
}

absl::Status CheckBindable(const ListenAddress& address) {
  HF_ASSIGN_OR_RETURN(const AddressList list, Resolve(address.host));
  const int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return ErrnoToStatus(errno, "socket");
  // As the server does: a port whose last connections are in TIME_WAIT is free.
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  SetPort(list->ai_addr, address.port);
  const int error = bind(fd, list->ai_addr, list->ai_addrlen) == 0 ? 0 : errno;
  close(fd);
  const std::string what = absl::StrCat("cannot listen on ", address.Text());
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(absl::StrCat(what, ": the port is in use; is another coordinator running?"));
  }
  return error == 0 ? absl::OkStatus() : ErrnoToStatus(error, what);
}

}  // namespace holdfast
