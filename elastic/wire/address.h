#pragma once
// Where the coordinator listens.

#include <string>

#include "absl/status/statusor.h"
#include "framework/net/socket_address.h"

namespace holdfast {

inline constexpr int kDefaultPort = 29400;

/// An address of this machine to listen on, resolved.
struct ListenAddress {
  std::string host;  // numeric: "127.0.0.1", "::1", "0.0.0.0"
  int port = 0;      // 0 = any free one
  bool loopback = true;

  /// "127.0.0.1:29400", "[::1]:29400"
  std::string Text() const;
};

/// "host:port", "[v6]:port" or "host" (port 29400). A name with several addresses gives its IPv4 one.
absl::StatusOr<ListenAddress> ResolveListenAddress(const std::string& address);

/// Listens there; all of this machine's IPv4 addresses are all of IPv6 as well. Unavailable if another process
/// does: it may be free later.
absl::StatusOr<Listener> ListenAt(const ListenAddress& address);

/// This machine's address, numeric, on the way to `address` ("host:port"): where others that reach that may reach us.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& address);

/// Where others reach who listens at `address`: there, or, if that is all of this machine's addresses, at the one that
/// its default route begins at; without one, under its name.
std::string ReachableAddress(const ListenAddress& address);

/// `address` with a port: "node7" -> "node7:29400".
std::string WithDefaultPort(const std::string& address);

}  // namespace holdfast
