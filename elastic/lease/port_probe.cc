#include "elastic/lease/port_probe.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "framework/net/socket_address.h"

namespace holdfast {

bool IsRefused(const std::string& address, std::chrono::milliseconds timeout) {
  const auto parts = SplitHostAndPort(address);
  if (!parts.ok()) return false;
  const auto there = ResolveHost(parts->first, parts->second);
  if (!there.ok()) return false;
  const FileDescriptor socket = OpenSocket(there->family(), SOCK_STREAM, SOCK_NONBLOCK);
  if (!socket.ok()) return false;
  if (connect(socket.get(), there->get(), there->size) == 0) return false;
  if (errno != EINPROGRESS) return errno == ECONNREFUSED;
  pollfd wait{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  if (poll(&wait, 1, static_cast<int>(timeout.count())) <= 0) return false;
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == ECONNREFUSED;
}

}  // namespace holdfast
