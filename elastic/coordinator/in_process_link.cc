#include "elastic/coordinator/in_process_link.h"

#include <chrono>
#include <thread>

namespace holdfast {
namespace {

constexpr std::chrono::milliseconds kReconnect{100};  // or a worker that is refused would ask without a pause

}  // namespace

void InProcessLink::Start(ControlLinkHandler& handler) {
  down_.Post([this, &handler] {
    handler_ = &handler;
    handler.OnConnected();
  });
}

void InProcessLink::Send(const WorkerMessage& message) {
  up_.Post([this, from = connection_.load(), message] { shell_->OnMessage(from, message); });
}

void InProcessLink::Stop() {
  down_.Post([this] { handler_ = nullptr; });
  down_.Drain();
  up_.Drain();  // the coordinator may be gone soon
}

void InProcessLink::Send(Connection to, const CoordinatorMessage& message) {
  down_.Post([this, to, message] {
    if (handler_ != nullptr && to == connection_) handler_->OnMessage(message);
  });
}

void InProcessLink::Close(Connection connection) {
  down_.Post([this, connection] {
    if (handler_ == nullptr || connection != connection_) return;
    static constexpr char kCause[] = "the coordinator closed the connection";
    handler_->OnDisconnected(kCause);
    up_.Post([this, connection] { shell_->OnDisconnect(connection, kCause); });
    std::this_thread::sleep_for(kReconnect);
    ++connection_;
    handler_->OnConnected();
  });
}

void InProcessLink::Leave() {
  down_.Post([this] {  // by whichever line there is then
    if (handler_ != nullptr) handler_->OnMessage(EndMessage{1, "another coordinator owns the run"});
  });
}

}  // namespace holdfast
