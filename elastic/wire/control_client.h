#pragma once
// A worker's or agent's line to the coordinator: one stream, opened again whenever it breaks, until Stop.
//
// Messages belong to the stream they were sent on. What was queued when it broke is gone: after OnConnected a session
// starts over with its first message.
//
// Example:
//   ASSIGN_OR_RETURN(auto client, ControlClient::Start({.address = "node0:29400"}, &handler));
//   client->Send(HeartbeatMessage{...});

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elastic/control/messages.h"
#include "elastic/control/run_status.h"
#include "elastic/wire/coordinator_addresses.h"
#include "elastic/wire/tls_files.h"

namespace holdfast {

struct ControlClientOptions {
  std::string address = "127.0.0.1:29400";  // or several, with commas between, of which each is tried in turn
  std::string address_file{};               // where the one that leads notes its address (CoordinatorAddresses)
  LeaderFinder find_leader{};               // where else it does, instead
  std::string token{};                      // empty = none is sent
  std::string token_file{};                 // where it is read again when it was refused; empty = nowhere
  TlsFiles tls{};
  std::chrono::milliseconds connect_timeout{5000};  // of one attempt, until the coordinator has accepted the connection
  std::chrono::milliseconds first_backoff{50}, max_backoff{1000};
  std::chrono::milliseconds keepalive{5000};        // a coordinator whose machine is gone is noticed within twice this
  std::chrono::milliseconds look_interval{1000};    // of silence, then it is looked for another one
  size_t max_queued_bytes = size_t{64} << 20;       // more waiting: the stream is cut
  std::chrono::milliseconds grpc_patience{30'000};  // with gRPC, to end a stream when it is told to
};

/// One call at a time, from the client's threads. They may call Send, and should be quick.
class ClientHandler {
 public:
  virtual ~ClientHandler() = default;
  virtual void OnConnected() = 0;
  virtual void OnMessage(CoordinatorMessage message) = 0;
  /// Once after each OnConnected. The client connects again by itself.
  virtual void OnDisconnected(const absl::Status& reason) = 0;
  /// An attempt failed; the next follows by itself. Unauthenticated will not go away without somebody's doing.
  virtual void OnConnectFailed(const absl::Status& /*reason*/) {}
  /// gRPC does not work in this process, as it could not start its threads, and never will: no call follows.
  virtual void OnStuck(const absl::Status& /*reason*/) {}
};

/// Thread-safe.
class ControlClient {
 public:
  /// Begins to connect and returns. The handler outlives the client. InvalidArgument, NotFound: the TLS files.
  static absl::StatusOr<std::unique_ptr<ControlClient>> Start(const ControlClientOptions& options,
                                                              ClientHandler* handler);
  /// Stop without grace.
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  /// Queues a message and returns; messages arrive in order. While not connected: dropped, and false.
  bool Send(const WorkerMessage& message);
  /// Waits up to `grace` for what was sent to arrive, and ends. No call of the handler comes after it. Not from inside
  /// the handler.
  void Stop(std::chrono::milliseconds grace = std::chrono::milliseconds(0));

 private:
  class Impl;
  explicit ControlClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Asks each coordinator once, until one answers. Blocks for `options.connect_timeout` for each at most.
absl::StatusOr<RunStatus> FetchStatus(const ControlClientOptions& options);

}  // namespace holdfast
