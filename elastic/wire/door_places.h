#pragma once
// Who loses a place at a door that is full: the newest of the host with most of them, in the network with most of them.
// A machine may take any address of its IPv6 network of 64 bits, so hosts alone would not tell who is one; of a network
// in which strangers and members lie together, hosts do.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "framework/net/socket_address.h"

namespace holdfast {

/// Where a connection comes from. `network`: of IPv4 the host itself.
struct Origin {
  std::string network, host;
};

Origin OriginOf(const SocketAddress& peer);

/// Thread-safety: none.
class DoorPlaces {
 public:
  /// `id` grows from one to the next.
  void Add(const Origin& origin, uint64_t id);
  void Remove(const Origin& origin, uint64_t id);
  /// Whose place a newcomer is to have; nothing if that would be taken from those who have fewer, or as few.
  std::optional<uint64_t> LosesTo(const Origin& newcomer) const;

 private:
  struct Network {
    size_t places = 0;
    std::map<std::string, std::set<uint64_t>> hosts;
  };
  static const std::set<uint64_t>& Most(const Network& network);

  std::map<std::string, Network> networks_;
};

}  // namespace holdfast
