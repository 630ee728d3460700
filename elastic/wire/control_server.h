#pragma once
// A gRPC server that turns streams into plain messages, for the coordinator. It decides nothing about the run; it
// decides who may send (token, certificates), how much, and how long one may be silent at the start.
//
// A connection is one stream of a worker or agent. The handler is called with its first message, and once more when it
// is gone. One that never sends anything valid is cut, and the handler is not called for it:
//   wrong or missing token     UNAUTHENTICATED at once
//   silent after connecting    cut after `handshake_timeout`, or `first_message_timeout` within a stream
//   no call that is let in     cut after twice `handshake_timeout`, or 128 KiB, or when `max_strangers` wait (door.h)
//   more than `max_streams`    RESOURCE_EXHAUSTED
//   garbage, oversized         the connection is closed; a stream that sent a message out of bounds ends with
//                              INVALID_ARGUMENT
//   does not read              cut when `max_queued_bytes` wait for it
//
// Example:
//   ASSIGN_OR_RETURN(auto server, ControlServer::Start({.address = "127.0.0.1:0"}, &handler));
//   server->Send(connection, CommitMessage{...});

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elastic/control/coordinator.h"
#include "elastic/control/messages.h"
#include "elastic/control/run_status.h"
#include "elastic/wire/tls_files.h"
#include "framework/base/limits.h"

namespace holdfast {

struct ControlServerOptions {
  std::string address = "127.0.0.1:29400";  // port 0 = any free one; beyond loopback only with token or TLS
  std::string advertise{};                  // the host by which others reach it; empty = see ReachableAddress
  std::string token{};                      // empty = none asked for; ReadTokenFile
  TlsFiles tls{};
  int max_streams = kMaxStreams;
  size_t max_strangers = 1024;                        // connections of which no call has been let in yet
  std::chrono::milliseconds handshake_timeout{5000};  // from accept to the first HTTP/2 frame, TLS included
  std::chrono::milliseconds first_message_timeout{5000};
  std::chrono::milliseconds keepalive{10'000};  // a peer whose machine is gone is noticed within twice this
  size_t max_queued_bytes = kMaxQueuedBytes;    // per connection, of messages not yet sent
  int max_queued_messages = kMaxQueuedMessages;
};

/// Calls come from the server's threads, one at a time, a connection's messages in order. They may call Send and Close.
/// While one is at work the others wait, so it should be quick.
class ControlHandler {
 public:
  virtual ~ControlHandler() = default;
  virtual void OnMessage(Connection from, WorkerMessage message) = 0;
  /// The last call for a connection of which a message has come; exactly one.
  virtual void OnDisconnect(Connection connection, std::string cause) = 0;
  /// Comes beside other calls, and may take its time.
  virtual RunStatus StatusNow() = 0;
};

/// Thread-safe.
class ControlServer {
 public:
  /// The handler outlives the server. InvalidArgument: the address or the security options; AlreadyExists: another
  /// process listens there.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(const ControlServerOptions& options,
                                                              ControlHandler* handler);
  /// The errors of Start that can be known before there is a handler.
  static absl::Status Check(const ControlServerOptions& options);
  /// Shutdown without grace.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  /// "127.0.0.1:29400", with the port that was chosen.
  const std::string& address() const;
  /// ReachableAddress of it, or the one that the options say, with the port.
  const std::string& reached_at() const;

  /// Queues a message and returns; messages to one connection arrive in order. To a connection that is gone: nothing.
  void Send(Connection to, const CoordinatorMessage& message);
  /// The same to many, made into bytes once.
  void SendToAll(const std::vector<Connection>& to, const CoordinatorMessage& message);
  /// Ends the connection once what was sent to it is on its way, or 2 s later. The handler is told by OnDisconnect.
  void Close(Connection connection);
  /// Refuses new connections, closes all as Close does, cuts those that are left after `grace`, and returns when the
  /// handler has been called for the last time. Not from inside the handler, nor holding a lock that it takes.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit ControlServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast
