#include "elastic/control/roster.h"

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
  if (it->second.cut_since.has_value()) {
    cut_.erase({*it->second.cut_since, name});
    const auto of_node = cut_of_.find(it->second.member.node);
    of_node->second.erase(name);
    if (of_node->second.empty()) cut_of_.erase(of_node);
  }
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
  if (worker->cut_since.has_value()) cut_.erase({*worker->cut_since, worker->member.id.name});
  worker->cut_since = now;
  worker->cut_cause = cause;
  cut_.emplace(now, worker->member.id.name);
  cut_of_[worker->member.node].insert(worker->member.id.name);
}

std::set<std::string> Roster::CutOf(const std::string& node) const {
  const auto found = cut_of_.find(node);
  return found == cut_of_.end() ? std::set<std::string>() : found->second;
}

void Roster::AddAgent(uint64_t connection, const AgentHelloMessage& agent) {
  RemoveAgent(connection);
  agents_[connection] = agent;
  agents_of_[agent.node].insert(connection);
}

void Roster::RemoveAgent(uint64_t connection) {
  const auto agent = agents_.find(connection);
  if (agent == agents_.end()) return;
  const auto of_node = agents_of_.find(agent->second.node);
  of_node->second.erase(connection);
  if (of_node->second.empty()) agents_of_.erase(of_node);
  agents_.erase(agent);
}

const AgentHelloMessage* Roster::AgentOf(const std::string& node) const {
  const auto found = agents_of_.find(node);
  return found == agents_of_.end() ? nullptr : &agents_.at(*found->second.begin());
}

bool Roster::full() const { return workers_.size() >= kMaxWorkers; }
bool Roster::agents_full() const { return agents_.size() >= kMaxAgents; }

}  // namespace holdfast
