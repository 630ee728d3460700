#include "elastic/control/leaving_nodes.h"

namespace holdfast {

// Machines may come and go under ever new names. Of those that are away some may come back as if nothing had been.
void LeavingNodes::On(const event::NodeLeaving& e) {
  nodes_.insert_or_assign(e.node, Node());
  if (nodes_.size() <= kMaxAway) return;
  std::erase_if(nodes_, [](const auto& entry) { return entry.second.has_left && !entry.second.has_agent; });
}

void LeavingNodes::On(const event::NodeLeft& e) {
  if (const auto node = nodes_.find(e.node); node != nodes_.end()) node->second.has_left = true;
}

void LeavingNodes::On(const event::AgentJoined& e) {
  if (const auto node = nodes_.find(e.node); node != nodes_.end()) node->second.has_agent = true;
}

// None of its workers outlives it. One that was away when its node was let go may come back to be told so.
void LeavingNodes::On(const event::AgentLost& e) {
  const auto node = nodes_.find(e.node);
  if (node == nodes_.end()) return;
  node->second.has_agent = false;
  if (node->second.has_left) nodes_.erase(node);
}

}  // namespace holdfast
