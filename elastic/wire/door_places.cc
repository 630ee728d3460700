#include "elastic/wire/door_places.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace holdfast {

Origin OriginOf(const SocketAddress& peer) {
  const std::string host = NumericHost(peer);
  if (peer.family() != AF_INET6) return {host, host};
  SocketAddress network = peer;
  sockaddr_in6 v6;
  std::memcpy(&v6, &peer.storage, sizeof(v6));
  std::memset(&v6.sin6_addr.s6_addr[8], 0, 8);
  std::memcpy(&network.storage, &v6, sizeof(v6));
  return {NumericHost(network), host};
}

void DoorPlaces::Add(const Origin& origin, uint64_t id) {
  Network& network = networks_[origin.network];
  ++network.places;
  network.hosts[origin.host].insert(id);
}

void DoorPlaces::Remove(const Origin& origin, uint64_t id) {
  const auto network = networks_.find(origin.network);
  const auto host = network->second.hosts.find(origin.host);
  host->second.erase(id);
  if (host->second.empty()) network->second.hosts.erase(host);
  if (--network->second.places == 0) networks_.erase(network);
}

const std::set<uint64_t>& DoorPlaces::Most(const Network& network) {
  return std::max_element(network.hosts.begin(), network.hosts.end(),
                          [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); })
      ->second;
}

std::optional<uint64_t> DoorPlaces::LosesTo(const Origin& newcomer) const {
  const auto largest = std::max_element(networks_.begin(), networks_.end(),
                                        [](const auto& a, const auto& b) { return a.second.places < b.second.places; });
  if (largest == networks_.end()) return std::nullopt;
  const auto own = networks_.find(newcomer.network);
  if ((own == networks_.end() ? 0 : own->second.places) + 1 < largest->second.places) {
    return *Most(largest->second).rbegin();
  }
  if (own == networks_.end()) return std::nullopt;
  const auto mine = own->second.hosts.find(newcomer.host);
  const std::set<uint64_t>& most = Most(own->second);
  if ((mine == own->second.hosts.end() ? 0 : mine->second.size()) + 1 >= most.size()) return std::nullopt;
  return *most.rbegin();
}

}  // namespace holdfast
