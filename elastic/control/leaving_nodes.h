#pragma once
// The nodes that were told to leave, whose losses are none, as whoever watches events sees them.
//
// Thread-safety: none.

#include <cstddef>
#include <map>
#include <string>

#include "elastic/control/run_event.h"
#include "framework/base/limits.h"

namespace holdfast {

class LeavingNodes {
 public:
  static constexpr size_t kMaxAway = 2 * kMaxAgents;  // the coordinator forgets them, too

  bool Has(const std::string& node) const { return nodes_.contains(node); }
  size_t size() const { return nodes_.size(); }

  void On(const event::NodeLeaving& e);
  void On(const event::NodeReturned& e) { nodes_.erase(e.node); }
  void On(const event::NodeLeft& e);
  void On(const event::AgentJoined& e);
  void On(const event::AgentLost& e);

 private:
  struct Node {
    bool has_left = false, has_agent = true;
  };

  std::map<std::string, Node> nodes_;
};

}  // namespace holdfast
