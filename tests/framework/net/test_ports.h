#pragma once
// Ports that stay as a test needs them, whatever other processes of the machine do meanwhile.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <string>

namespace holdfast {

/// Binds a socket to an IPv4 address of this machine; port 0: any that is free. False if somebody has the port. As the
/// socket does not allow for it (SO_REUSEADDR), nobody else gets the port as long as it lives.
inline bool BindTo(int socket, in_addr_t host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(host);
  return bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

/// A port at which nobody listens, for who listens there later, or again. The kernel gives it to nobody: it is none of
/// those that it chooses from for who asks for any (ip_local_port_range).
inline int PortForLater() {
  int low = 32'768, high = 60'999;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low >> high;
  std::random_device random;
  constexpr int kFirst = 10'000, kLast = 65'535, kTries = 1000;
  for (int i = 0; i < kTries; ++i) {
    const int port = std::uniform_int_distribution(kFirst, kLast)(random);
    if (i < kTries / 2 && port >= low && port <= high) continue;  // all may be
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_free = BindTo(fd, INADDR_ANY, port);
    close(fd);
    if (is_free) return port;
  }
  return 0;
}

/// A port of 127.0.0.1 at which nobody listens nor can, as long as this lives: connections are refused.
class RefusingPort {
 public:
  RefusingPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    BindTo(fd_, INADDR_LOOPBACK, 0);
    sockaddr_in bound{};
    socklen_t size = sizeof bound;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&bound), &size);
    address_ = "127.0.0.1:" + std::to_string(ntohs(bound.sin_port));
  }
  ~RefusingPort() { close(fd_); }
  RefusingPort(const RefusingPort&) = delete;
  RefusingPort& operator=(const RefusingPort&) = delete;

  const std::string& address() const { return address_; }

 private:
  const int fd_;
  std::string address_;
};

/// Whether this machine's loopback has an address of IPv6.
inline bool HasIpv6Loopback() {
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool has = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return has;
}

}  // namespace holdfast
