#pragma once
// Who is connected: workers by name and by connection, and agents; of each node as well, and which nodes are to leave.
//
// Thread-safety: none.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "elastic/control/messages.h"

namespace holdfast {

/// A worker that has joined, in the world or waiting for one.
struct JoinedWorker {
  using Instant = std::chrono::nanoseconds;

  uint64_t connection = 0;
  Member member;
  StateClaim claim;           // as it joined; looked at only while it is not known where the state lies
  uint64_t data_digest = 0;   // RunDigests::data
  uint64_t token_digest = 0;  // RunDigests::tokens
  std::string arithmetic;     // RunDigests::arithmetic
  uint64_t kernels = 0;       // RunDigests::kernels
  bool left_out = false;      // of worlds, until it reaches all members again
  bool kept_out = false;      // of worlds, for good: another process of the name is another JoinedWorker
  bool holds_state = false;   // its part of the committed state, as a member of the source world
  uint64_t entered = 0;       // the last world whose state it has got its part of
  bool was_member = false;    // of the last world
  int rank = -1;              // in the open world
  int64_t arrival = 0;
  Instant joined{0};
  Instant admitted{0};  // to the first of the worlds that it has been in since
  Instant last_message{0};
  Instant progressed{0};  // the main thread got on
  bool has_beaten = false;
  HeartbeatMessage beat;               // the last
  int64_t recent_messages = 0;         // since the last tick
  std::optional<Instant> cut_since{};  // its stream has ended: its agent is about to say why
  std::string cut_cause{};
};

class Roster {
 public:
  using Instant = JoinedWorker::Instant;

  /// Nobody who is there has its name or its connection.
  JoinedWorker& Add(JoinedWorker worker);
  void Remove(const std::string& name);
  JoinedWorker* Find(const std::string& name);
  JoinedWorker* FindByConnection(uint64_t connection);

  std::map<std::string, JoinedWorker>& workers() { return workers_; }
  const std::map<std::string, JoinedWorker>& workers() const { return workers_; }
  /// Its stream has ended.
  void Cut(JoinedWorker* worker, Instant now, const std::string& cause);
  /// The coordinator itself was away for so long, and could read nothing.
  void Forgive(Instant gap);
  /// Names of those whose stream has, and since when: the first to be cut first.
  const std::set<std::pair<Instant, std::string>>& cut() const { return cut_; }
  /// Of these, the names of those of `node`.
  std::set<std::string> CutOf(const std::string& node) const { return FindNode(node).cut; }
  /// Names.
  const std::set<std::string>& WorkersOf(const std::string& node) const { return FindNode(node).workers; }

  void AddAgent(uint64_t connection, const AgentHelloMessage& agent);
  void RemoveAgent(uint64_t connection);
  const std::map<uint64_t, AgentHelloMessage>& agents() const { return agents_; }  // by connection
  /// Of a node; nullptr if none is connected.
  const AgentHelloMessage* AgentOf(const std::string& node) const;
  /// Connections.
  const std::set<uint64_t>& AgentsOf(const std::string& node) const { return FindNode(node).agents; }
  bool full() const;
  bool agents_full() const;

  /// Whether a node is to leave; whoever is of it may come and go meanwhile.
  void SetLeaves(const std::string& node, bool leaves);
  /// Somebody is connected whose node is not to leave, and may come to have a worker that is not kept out.
  bool SomebodyStays() const { return staying_ > 0; }

 private:
  struct Node {
    std::set<std::string> workers, cut;  // names; those of which the stream has ended
    std::set<uint64_t> agents;           // connections
    size_t started = 0;                  // workers, by its agent
    size_t kept_out = 0;                 // of its workers
    bool leaves = false;

    bool IsDeserted() const { return workers.empty() && agents.empty(); }
    bool IsKeptOut() const { return kept_out > 0 && kept_out >= std::max(workers.size(), started); }
    bool Stays() const { return !leaves && !IsDeserted() && !IsKeptOut(); }
  };
  const Node& FindNode(const std::string& node) const;
  void Change(const std::string& node, const std::function<void(Node&)>& change);

  std::map<std::string, JoinedWorker> workers_;
  std::map<uint64_t, JoinedWorker*> by_connection_;
  std::set<std::pair<Instant, std::string>> cut_;
  std::map<uint64_t, AgentHelloMessage> agents_;
  std::map<std::string, Node> nodes_;  // that leave, or of which somebody is connected
  int64_t staying_ = 0;                // of them
};

}  // namespace holdfast
