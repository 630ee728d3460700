#include "elastic/coordinator/in_process_link.h"

namespace holdfast {

void InProcessLink::Start(ControlLinkHandler& handler) {
  down_.Post([this, &handler] {
    handler_ = &handler;
    handler.OnConnected();
  });
}

void InProcessLink::Send(const WorkerMessage& message) {
  up_.Post([this, message] { shell_->OnMessage(kOnly, message); });
}

void InProcessLink::Stop() {
  down_.Post([this] { handler_ = nullptr; });
  down_.Drain();
}

void InProcessLink::Send(Connection, const CoordinatorMessage& message) {
  down_.Post([this, message] {
    if (handler_ != nullptr) handler_->OnMessage(message);
  });
}

void InProcessLink::Leave() { Send(kOnly, EndMessage{1, "another coordinator owns the run"}); }

}  // namespace holdfast
