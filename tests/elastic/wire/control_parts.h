#pragma once
// Handlers that keep what they hear, and waiting with a deadline.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "elastic/wire/control_client.h"
#include "elastic/wire/control_server.h"

namespace holdfast::testing {

inline constexpr std::chrono::seconds kTestTimeout(120);  // no measure of speed: a busy machine is far from needing it

class Waiter {
 public:
  template <typename Condition>
  bool Until(Condition condition, std::chrono::milliseconds patience = kTestTimeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, condition);
  }
  template <typename Change>
  void Do(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class RecordingServer : public ControlHandler, public Waiter {
 public:
  void OnMessage(Connection from, WorkerMessage message) override {
    Do([&] { messages.emplace_back(from, std::move(message)); });
    if (reply) reply(from, messages.back().second);
  }
  void OnDisconnect(Connection connection, std::string cause) override {
    Do([&] { lost.emplace_back(connection, std::move(cause)); });
  }
  RunStatus StatusNow() override {
    ++status_calls;
    return status;
  }

  std::vector<std::pair<Connection, WorkerMessage>> messages;
  std::vector<std::pair<Connection, std::string>> lost;
  std::function<void(Connection, const WorkerMessage&)> reply;
  RunStatus status;
  std::atomic<int> status_calls = 0;
};

class RecordingClient : public ClientHandler, public Waiter {
 public:
  void OnConnected() override {
    Do([&] { ++connected; });
  }
  void OnMessage(CoordinatorMessage message) override {
    Do([&] { messages.push_back(std::move(message)); });
  }
  void OnDisconnected(const absl::Status& reason) override {
    Do([&] { disconnects.emplace_back(reason.message()); });
  }
  void OnConnectFailed(const absl::Status& reason) override {
    Do([&] { failures.push_back(reason); });
  }
  void OnStuck(const absl::Status& reason) override {
    Do([&] { stuck = reason; });
  }

  int connected = 0;
  absl::Status stuck;
  std::vector<CoordinatorMessage> messages;
  std::vector<std::string> disconnects;
  std::vector<absl::Status> failures;
};

/// In the place of the defaults: on a busy machine everybody may be silent, or be slow to connect and to say the first
/// word, for longer than those.
inline constexpr std::chrono::milliseconds kPatience = std::chrono::minutes(10);

inline std::unique_ptr<ControlServer> StartServer(ControlHandler* handler, ControlServerOptions options = {}) {
  if (options.address == ControlServerOptions().address) options.address = "127.0.0.1:0";
  const ControlServerOptions defaults;
  if (options.keepalive == defaults.keepalive) options.keepalive = kPatience;
  if (options.handshake_timeout == defaults.handshake_timeout) options.handshake_timeout = kPatience;
  if (options.first_message_timeout == defaults.first_message_timeout) options.first_message_timeout = kPatience;
  auto server = ControlServer::Start(options, handler);
  if (!server.ok()) std::fprintf(stderr, "%s\n", std::string(server.status().message()).c_str());
  return server.ok() ? *std::move(server) : nullptr;
}

inline std::unique_ptr<ControlClient> StartClient(const std::string& address, RecordingClient* handler,
                                                  ControlClientOptions options = {}) {
  options.address = address;
  const ControlClientOptions defaults;
  if (options.keepalive == defaults.keepalive) options.keepalive = kPatience;
  if (options.connect_timeout == defaults.connect_timeout) options.connect_timeout = kTestTimeout;
  auto client = ControlClient::Start(options, handler);
  return client.ok() ? *std::move(client) : nullptr;
}

/// FetchStatus with time for a busy machine.
inline absl::StatusOr<RunStatus> FetchStatusPatiently(ControlClientOptions options) {
  options.connect_timeout = kTestTimeout;
  return FetchStatus(options);
}

}  // namespace holdfast::testing
