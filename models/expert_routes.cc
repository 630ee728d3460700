#include "models/expert_routes.h"

#include <algorithm>
#include <cstddef>

namespace holdfast {

ExpertRoutes::ExpertRoutes(absl::Span<const int> nodes, absl::Span<const int> homes)
    : nodes_(nodes.begin(), nodes.end()), homes_(nodes.size()) {
  members_.resize(static_cast<size_t>(*std::max_element(nodes.begin(), nodes.end())) + 1);
  for (size_t member = 0; member < nodes.size(); ++member) {
    std::vector<int>& of_node = members_[static_cast<size_t>(nodes[member])];
    place_.push_back(static_cast<int>(of_node.size()));
    of_node.push_back(static_cast<int>(member));
  }
  // A node's own homes first, then those of the node before it, and so on round the ring.
  for (int node = 0; node < num_nodes(); ++node) {
    std::vector<int>& turns = turns_.emplace_back(nodes.size(), -1);
    for (int distance = 0; distance < num_nodes(); ++distance) {
      const int from = (node + num_nodes() - distance) % num_nodes();
      for (const int home : homes) {
        if (NodeOf(home) != from) continue;
        std::vector<int>& of_relay = homes_[static_cast<size_t>(RelayOf(home, node))];
        turns[static_cast<size_t>(home)] = static_cast<int>(of_relay.size());
        of_relay.push_back(home);
      }
    }
  }
  for (size_t member = 0; member < nodes.size(); ++member) {
    const std::vector<int>& of_member = homes_[member];
    num_turns_ = std::max(num_turns_, static_cast<int>(of_member.size()));
    crosses_.resize(static_cast<size_t>(num_turns_));
    for (size_t turn = 0; turn < of_member.size(); ++turn) {
      if (of_member[turn] != static_cast<int>(member)) crosses_[turn] = true;
    }
  }
}

int ExpertRoutes::RelayOf(int home, int node) const {
  if (NodeOf(home) == node) return home;
  const absl::Span<const int> members = Members(node);
  return members[static_cast<size_t>(place_[static_cast<size_t>(home)]) % members.size()];
}

int ExpertRoutes::HomeOf(int member, int turn) const {
  const std::vector<int>& homes = homes_[static_cast<size_t>(member)];
  return turn < static_cast<int>(homes.size()) ? homes[static_cast<size_t>(turn)] : -1;
}

}  // namespace holdfast
