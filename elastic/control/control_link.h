#pragma once
// A worker's (or agent's) line to the coordinator, whatever carries it: gRPC between processes, memory inside one.

#include <string>

#include "elastic/control/messages.h"

namespace holdfast {

/// Called by a link, one call at a time, in order.
class ControlLinkHandler {
 public:
  virtual ~ControlLinkHandler() = default;
  virtual void OnConnected() = 0;
  virtual void OnMessage(const CoordinatorMessage& message) = 0;
  /// The line is broken; the link tries to connect again until it is stopped.
  virtual void OnDisconnected(const std::string& reason) = 0;
};

/// Thread-safe.
class ControlLink {
 public:
  virtual ~ControlLink() = default;
  /// Connects, and stays connected until Stop. `handler` must outlive the link.
  virtual void Start(ControlLinkHandler& handler) = 0;
  /// In order; dropped while there is no connection.
  virtual void Send(const WorkerMessage& message) = 0;
  /// No call of the handler is under way or follows when this returns. Must not be called by the handler.
  virtual void Stop() = 0;
};

}  // namespace holdfast
