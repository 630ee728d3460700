#pragma once
// Simulated streams between workers and the coordinator. A stream keeps its order; streams are independent of each
// other. A cut direction holds back what is sent until it is healed. A side that closes a stream, or dies, is noticed
// by the other later, or, if it vanishes silently, not at all.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "elastic/control/coordinator.h"
#include "tests/elastic/control/sim_clock.h"

namespace holdfast::sim {

class Network {
 public:
  Network(Clock& clock, int clients) : clock_(clock), cut_up_(clients, false), cut_down_(clients, false) {}

  // What happens at the ends; all are set before the first stream is opened.
  std::function<void(Connection, const WorkerMessage&)> at_server;
  std::function<void(Connection)> broken_at_server;
  using Shared = std::shared_ptr<const CoordinatorMessage>;  // a world of a thousand is not copied on its way
  std::function<void(int client, Connection, const Shared&)> at_client;
  std::function<void(int client, Connection)> broken_at_client;

  /// 0 if the coordinator cannot be reached.
  Connection Open(int client) {
    if (!server_up_ || Cut(client)) return 0;
    const Connection id = ++last_connection_;
    links_[id] = std::make_unique<Link>(Link{.client = client});
    return id;
  }

  void Up(Connection id, WorkerMessage message) {
    Carry(id, /*up=*/true, [this, id, message = std::move(message)] {
      if (links_[id]->server_open) at_server(id, message);
    });
  }
  void Down(Connection id, CoordinatorMessage message) {
    const auto link = links_.find(id);
    if (link == links_.end() || !link->second->server_open) return;
    Carry(id, /*up=*/false, [this, id, message = std::make_shared<const CoordinatorMessage>(std::move(message))] {
      if (links_[id]->client_open) at_client(links_[id]->client, id, message);
    });
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
  void CloseByServer(Connection id) {
    const auto link = links_.find(id);
    if (link == links_.end() || !link->second->server_open) return;
    link->second->server_open = false;
    Carry(id, false, [this, id] {
      if (std::exchange(links_[id]->client_open, false)) broken_at_client(links_[id]->client, id);
    });
  }

  void SetServer(bool up) {
    server_up_ = up;
    if (up) return;
    for (const auto& [id, link] : links_) CloseByServer(id);
  }

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
    int client = 0;
    bool client_open = true, server_open = true;
    struct Way {
      Instant last{0};
      std::deque<std::function<void()>> held;
    };
    Way way[2] = {};  // down, up
  };

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
  bool server_up_ = false;
  Connection last_connection_ = 0;
  std::map<Connection, std::unique_ptr<Link>> links_;
};

}  // namespace holdfast::sim
