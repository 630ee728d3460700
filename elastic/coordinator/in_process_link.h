#pragma once
// The line between a coordinator and the one worker that lives in the same process.

#include <atomic>

#include "elastic/control/control_link.h"
#include "elastic/coordinator/coordinator_shell.h"
#include "framework/base/task_thread.h"

namespace holdfast {

/// A line that the coordinator closes comes back as another one, as one over the network does. Thread-safe. Both
/// directions keep their order; neither calls back from within a call.
class InProcessLink final : public ControlLink, public CoordinatorPort {
 public:
  /// Before the link is started; `shell` must outlive it.
  void Attach(CoordinatorShell& shell) { shell_ = &shell; }

  void Start(ControlLinkHandler& handler) override;
  void Send(const WorkerMessage& message) override;
  void Stop() override;

  void Send(Connection to, const CoordinatorMessage& message) override;
  void Close(Connection connection) override;
  void Leave() override;  // here nobody can ask another one: the worker ends

 private:
  CoordinatorShell* shell_ = nullptr;
  ControlLinkHandler* handler_ = nullptr;  // used by down_ only
  std::atomic<Connection> connection_{1};
  TaskThread up_, down_;
};

}  // namespace holdfast
