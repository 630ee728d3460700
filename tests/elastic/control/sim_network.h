#pragma once
// Simulated streams between workers and the coordinator. A stream keeps its order; streams are independent of each
// other. A cut direction holds back what is sent until it is healed. A side that closes a stream, or dies, is noticed
// by the other later, or, if it vanishes silently, not at all.
//
// With a codec messages travel as they do in production: made into bytes, limited in size, and queued in bytes for
// receivers that do not take them.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "elastic/control/coordinator.h"
#include "tests/elastic/control/sim_clock.h"

namespace holdfast::sim {

using Shared = std::shared_ptr<const CoordinatorMessage>;  // a world of a thousand is not copied on its way

struct Codec {
  // What arrives, and how many bytes it took; null, and nothing, where a message is refused.
  std::function<std::pair<Shared, size_t>(const CoordinatorMessage&)> down;
  std::function<std::pair<std::unique_ptr<WorkerMessage>, size_t>(const WorkerMessage&)> up;
  size_t most_bytes_queued = 0, most_messages_queued = 0;  // for one client: then its stream is cut
};

struct Traffic {
  int64_t messages_up = 0, messages_down = 0, bytes_up = 0, bytes_down = 0;
  size_t largest_up = 0, largest_down = 0, largest_commit = 0, largest_queue = 0;
  int64_t refused = 0, cut = 0;
  int64_t probe_bytes = 0;  // of all rounds: who is to try whom, and what came of it
  size_t largest_claim = 0;
};

class Network {
 public:
  Network(Clock& clock, int clients) : clock_(clock), cut_up_(clients, false), cut_down_(clients, false) {}

  // What happens at the ends; all are set before the first stream is opened.
  std::function<void(Connection, const WorkerMessage&)> at_server;
  std::function<void(Connection)> broken_at_server;
  std::function<void(int client, Connection, const Shared&)> at_client;
  std::function<void(int client, Connection)> broken_at_client;
  const Codec* codec = nullptr;
  const Traffic& traffic() const { return traffic_; }

  /// To the server that was started last. 0 if it cannot be reached.
  Connection Open(int client) {
    if (server_ == 0 || Cut(client)) return 0;
    const Connection id = ++last_connection_;
    links_[id] = std::make_unique<Link>(Link{.client = client, .server = server_});
    return id;
  }
  int ServerOf(Connection id) const {  // 0: there is no such stream
    const auto link = links_.find(id);
    return link == links_.end() ? 0 : link->second->server;
  }

  void Up(Connection id, WorkerMessage message) {
    if (codec != nullptr && !ThroughCodec(&message)) {
      CloseByClient(id, /*silently=*/false);
      return;
    }
    Carry(id, /*up=*/true, [this, id, message = std::move(message)] {
      if (links_[id]->server_open) at_server(id, message);
    });
  }
  void Down(Connection id, CoordinatorMessage message) { DownToAll({id}, std::move(message)); }
  void DownToAll(const std::vector<Connection>& ids, CoordinatorMessage message) {
    size_t bytes = 0;
    Shared shared;
    if (codec != nullptr) {
      std::tie(shared, bytes) = codec->down(message);
      traffic_.largest_down = std::max(traffic_.largest_down, bytes);
      const bool commit = std::holds_alternative<CommitMessage>(message);
      if (commit) traffic_.largest_commit = std::max(traffic_.largest_commit, bytes);
      if (std::holds_alternative<ProbeMessage>(message))
        traffic_.probe_bytes += static_cast<int64_t>(bytes * ids.size());
    } else {
      shared = std::make_shared<const CoordinatorMessage>(std::move(message));
    }
    for (const Connection id : ids) DownOne(id, shared, bytes);
  }

  void CloseByClient(Connection id, bool silently) {
    const auto link = links_.find(id);
    if (link == links_.end() || !link->second->client_open) return;
    link->second->client_open = false;
    if (silently) return;
    Carry(id, true, [this, id] {
      if (std::exchange(links_[id]->server_open, false)) broken_at_server(id);
    });
  }
  /// What keepalive does for a side that vanished silently.
  void FindGone(Connection id) {
    const auto link = links_.find(id);
    if (link != links_.end() && !link->second->client_open && std::exchange(link->second->server_open, false)) {
      broken_at_server(id);
    }
  }
  void CloseByServer(Connection id) {
    const auto link = links_.find(id);
    if (link == links_.end() || !link->second->server_open) return;
    link->second->server_open = false;
    Carry(id, false, [this, id] {
      if (std::exchange(links_[id]->client_open, false)) broken_at_client(links_[id]->client, id);
    });
  }

  int StartServer() { return server_ = ++last_server_; }
  void StopServer(int server) {
    if (server == server_) server_ = 0;
    for (const auto& [id, link] : links_) {
      if (link->server == server) CloseByServer(id);
    }
  }
  /// It does not answer any more: nobody comes, and whoever is there leaves one after the other.
  void HideServer(int server) {
    server_ = 0;
    for (const auto& [id, link] : links_) {
      if (link->server != server || !link->client_open) continue;
      clock_.After(clock_.Between(std::chrono::seconds(1), std::chrono::seconds(6)), [this, id = id, server] {
        const Link& there = *links_[id];
        if (server_ == server || !there.client_open) return;
        CloseByClient(id, false);
        broken_at_client(there.client, id);
      });
    }
  }
  void ShowServer(int server) { server_ = server; }

  void CutOff(int client, bool up, bool down) {
    cut_up_[client] = cut_up_[client] || up;
    cut_down_[client] = cut_down_[client] || down;
  }
  bool Cut(int client) const { return cut_up_[client] || cut_down_[client]; }

  void Heal(int client) {
    cut_up_[client] = cut_down_[client] = false;
    for (const auto& [id, link] : links_) {
      if (link->client != client) continue;
      for (const bool up : {true, false}) {
        auto& held = link->way[up].held;
        while (!held.empty()) {
          Carry(id, up, std::move(held.front()));
          held.pop_front();
        }
      }
    }
  }

 private:
  struct Link {
    int client = 0, server = 0;
    bool client_open = true, server_open = true;
    size_t bytes_queued = 0, messages_queued = 0;
    struct Way {
      Instant last{0};
      std::deque<std::function<void()>> held;
    };
    Way way[2] = {};  // down, up
  };

  bool ThroughCodec(WorkerMessage* message) {
    const auto [copy, bytes] = codec->up(*message);
    ++traffic_.messages_up;
    traffic_.bytes_up += static_cast<int64_t>(bytes);
    traffic_.largest_up = std::max(traffic_.largest_up, bytes);
    if (std::holds_alternative<ReachMessage>(*message)) traffic_.probe_bytes += static_cast<int64_t>(bytes);
    if (std::holds_alternative<JoinMessage>(*message)) traffic_.largest_claim = std::max(traffic_.largest_claim, bytes);
    traffic_.refused += copy == nullptr ? 1 : 0;
    if (copy != nullptr) *message = *copy;
    return copy != nullptr;
  }

  void DownOne(Connection id, const Shared& message, size_t bytes) {
    const auto found = links_.find(id);
    if (found == links_.end() || !found->second->server_open) return;
    Link& link = *found->second;
    traffic_.refused += message == nullptr ? 1 : 0;
    const bool full = codec != nullptr && (link.bytes_queued + bytes > codec->most_bytes_queued ||
                                           link.messages_queued >= codec->most_messages_queued);
    if (message == nullptr || full) {
      ++traffic_.cut;
      CloseByServer(id);
      clock_.After(Instant(0), [this, id] { broken_at_server(id); });
      return;
    }
    ++traffic_.messages_down;
    traffic_.bytes_down += static_cast<int64_t>(bytes);
    link.bytes_queued += bytes;
    link.messages_queued += 1;
    traffic_.largest_queue = std::max(traffic_.largest_queue, link.bytes_queued);
    Carry(id, /*up=*/false, [this, id, message, bytes] {
      Link& arrived = *links_[id];
      arrived.bytes_queued -= bytes;
      arrived.messages_queued -= 1;
      if (arrived.client_open) at_client(arrived.client, id, message);
    });
  }

  void Carry(Connection id, bool up, std::function<void()> deliver) {
    Link::Way& way = links_[id]->way[up];
    const Instant delay = clock_.Chance(0.03) ? clock_.Between(milliseconds(5), milliseconds(400))
                                              : clock_.Between(Instant(50'000), milliseconds(3));
    way.last = std::max(way.last + Instant(1), clock_.now() + delay);
    clock_.After(way.last - clock_.now(), [this, id, up, deliver = std::move(deliver)]() mutable {
      Link& link = *links_[id];
      if ((up ? cut_up_ : cut_down_)[link.client]) {
        link.way[up].held.push_back(std::move(deliver));
      } else {
        deliver();
      }
    });
  }

  Clock& clock_;
  std::vector<bool> cut_up_, cut_down_;  // by client
  int server_ = 0, last_server_ = 0;     // 0: nobody is there
  Connection last_connection_ = 0;
  std::map<Connection, std::unique_ptr<Link>> links_;
  Traffic traffic_;
};

}  // namespace holdfast::sim
