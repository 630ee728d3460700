#include "elastic/control/roster.h"

#include <algorithm>
#include <utility>

#include "framework/base/limits.h"

namespace holdfast {

JoinedWorker& Roster::Add(JoinedWorker worker) {
  const std::string name = worker.member.id.name;
  JoinedWorker& added = workers_[name] = std::move(worker);
  by_connection_[added.connection] = &added;  // nodes of a map stay where they are
  return added;
}

void Roster::Remove(const std::string& name) {
  const auto it = workers_.find(name);
  if (it == workers_.end()) return;
  by_connection_.erase(it->second.connection);
  workers_.erase(it);
}

JoinedWorker* Roster::Find(const std::string& name) {
  const auto it = workers_.find(name);
  return it == workers_.end() ? nullptr : &it->second;
}

JoinedWorker* Roster::FindByConnection(uint64_t connection) {
  const auto it = by_connection_.find(connection);
  return it == by_connection_.end() ? nullptr : it->second;
}

const AgentHelloMessage* Roster::AgentOf(const std::string& node) const {
  const auto found =
      std::find_if(agents_.begin(), agents_.end(), [&](const auto& agent) { return agent.second.node == node; });
  return found == agents_.end() ? nullptr : &found->second;
}

bool Roster::full() const { return workers_.size() >= kMaxWorkers; }
bool Roster::agents_full() const { return agents_.size() >= kMaxAgents; }

}  // namespace holdfast
