#include "elastic/control/roster.h"

#include <utility>

#include "framework/base/limits.h"

namespace holdfast {

const Roster::Node& Roster::FindNode(const std::string& node) const {
  static const Node nobody;
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? nobody : found->second;
}

void Roster::Change(const std::string& node, const std::function<void(Node&)>& change) {
  const auto changed = nodes_.try_emplace(node).first;
  staying_ -= changed->second.Stays() ? 1 : 0;
  change(changed->second);
  staying_ += changed->second.Stays() ? 1 : 0;
  if (changed->second.IsDeserted() && !changed->second.leaves) nodes_.erase(changed);
}

JoinedWorker& Roster::Add(JoinedWorker worker) {
  const std::string name = worker.member.id.name;
  JoinedWorker& added = workers_[name] = std::move(worker);
  by_connection_[added.connection] = &added;  // nodes of a map stay where they are
  Change(added.member.node, [&](Node& node) {
    node.workers.insert(name);
    node.kept_out += added.kept_out ? 1 : 0;
  });
  return added;
}

void Roster::Remove(const std::string& name) {
  const auto it = workers_.find(name);
  if (it == workers_.end()) return;
  by_connection_.erase(it->second.connection);
  if (it->second.cut_since.has_value()) cut_.erase({*it->second.cut_since, name});
  Change(it->second.member.node, [&](Node& node) {
    node.workers.erase(name);
    node.cut.erase(name);
    node.kept_out -= it->second.kept_out ? 1 : 0;
  });
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

void Roster::Cut(JoinedWorker* worker, Instant now, const std::string& cause) {
  const std::string& name = worker->member.id.name;
  if (worker->cut_since.has_value()) cut_.erase({*worker->cut_since, name});
  worker->cut_since = now;
  worker->cut_cause = cause;
  cut_.emplace(now, name);
  Change(worker->member.node, [&](Node& node) { node.cut.insert(name); });
}

void Roster::Forgive(Instant gap) {
  cut_.clear();
  for (auto& [name, worker] : workers_) {
    worker.last_message += gap;
    worker.progressed += gap;
    if (worker.cut_since.has_value()) cut_.emplace(*worker.cut_since += gap, name);
  }
}

void Roster::AddAgent(uint64_t connection, const AgentHelloMessage& agent) {
  RemoveAgent(connection);
  agents_[connection] = agent;
  Change(agent.node, [&](Node& node) {
    node.agents.insert(connection);
    node.started = static_cast<size_t>(agent.num_workers);
  });
}

void Roster::RemoveAgent(uint64_t connection) {
  const auto agent = agents_.find(connection);
  if (agent == agents_.end()) return;
  Change(agent->second.node, [&](Node& node) {
    node.agents.erase(connection);
    if (node.agents.empty()) node.started = 0;
  });
  agents_.erase(agent);
}

const AgentHelloMessage* Roster::AgentOf(const std::string& node) const {
  const std::set<uint64_t>& agents = AgentsOf(node);
  return agents.empty() ? nullptr : &agents_.at(*agents.begin());
}

void Roster::SetLeaves(const std::string& node, bool leaves) {
  Change(node, [&](Node& changed) { changed.leaves = leaves; });
}

bool Roster::full() const { return workers_.size() >= kMaxWorkers; }
bool Roster::agents_full() const { return agents_.size() >= kMaxAgents; }

}  // namespace holdfast
