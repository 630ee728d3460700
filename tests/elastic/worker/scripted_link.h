#pragma once
// A link whose coordinator is the test: it says what it likes and sees everything that the worker sends.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <variant>
#include <vector>

#include "elastic/control/control_link.h"

namespace holdfast {

/// Thread-safe.
class ScriptedLink final : public ControlLink {
 public:
  void Start(ControlLinkHandler& handler) override { handler_ = &handler; }
  void Send(const WorkerMessage& message) override {
    const std::lock_guard lock(mutex_);
    sent_.push_back(message);
    changed_.notify_all();
  }
  void Stop() override { stopped_ = true; }

  bool stopped() const { return stopped_; }

  void Connect() { handler_->OnConnected(); }
  void Disconnect() { handler_->OnDisconnected(""); }
  void Tell(const CoordinatorMessage& message) { handler_->OnMessage(message); }

  /// Waits for the first message that `fits`.
  template <class Fits>
  WorkerMessage AwaitAny(const Fits& fits) {
    std::unique_lock lock(mutex_);
    std::vector<WorkerMessage>::iterator found;
    changed_.wait(lock, [&] {
      found = std::find_if(sent_.begin(), sent_.end(), fits);
      return found != sent_.end();
    });
    return *found;
  }
  /// The same of one kind.
  template <class Message, class Fits>
  Message Await(const Fits& fits) {
    return std::get<Message>(AwaitAny([&](const WorkerMessage& message) {
      const auto* kind = std::get_if<Message>(&message);
      return kind != nullptr && fits(*kind);
    }));
  }
  template <class Message>
  Message Await() {
    return Await<Message>([](const Message&) { return true; });
  }

  /// How many of its kind were sent so far.
  template <class Message>
  int Count() {
    const std::lock_guard lock(mutex_);
    int count = 0;
    for (const WorkerMessage& message : sent_) count += std::holds_alternative<Message>(message) ? 1 : 0;
    return count;
  }

 private:
  ControlLinkHandler* handler_ = nullptr;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<WorkerMessage> sent_;
};

}  // namespace holdfast
