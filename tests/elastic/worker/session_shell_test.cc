// What a worker's shell says to its coordinator, heard through a link that keeps what is sent.

#include "elastic/worker/session_shell.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

namespace holdfast {
namespace {

class KeepingLink final : public ControlLink {
 public:
  void Start(ControlLinkHandler&) override {}
  void Send(const WorkerMessage& message) override {
    const std::lock_guard lock(mutex_);
    sent_.push_back(message);
    changed_.notify_all();
  }
  void Stop() override {}

  /// Waits for the first of its kind that `fits`.
  template <class Message, class Fits>
  Message Await(const Fits& fits) {
    std::unique_lock lock(mutex_);
    Message found;
    changed_.wait(lock, [&] {
      for (const WorkerMessage& message : sent_) {
        const auto* kind = std::get_if<Message>(&message);
        if (kind == nullptr || !fits(*kind)) continue;
        found = *kind;
        return true;
      }
      return false;
    });
    return found;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<WorkerMessage> sent_;
};

SessionShell::Options Options() {
  SessionShell::Options options;
  options.member.id = {"n0/0", 1};
  options.total_steps = 10;
  options.heartbeat_interval = std::chrono::milliseconds(5);
  return options;
}

TEST(SessionShell, SaysThePhaseThatIsAtWork) {
  KeepingLink link;
  StepProgress progress;
  SessionShell shell(Options(), link, progress);
  for (const Phase phase : {Phase::kRendezvous, Phase::kTransfer, Phase::kValidation, Phase::kSave}) {
    shell.SetPhase(phase, 3);
    EXPECT_EQ(shell.phase(), phase);
    EXPECT_EQ(link.Await<HeartbeatMessage>([&](const auto& beat) { return beat.phase == phase; }).step, 3);
  }
  progress.waiting = true;
  EXPECT_EQ(shell.phase(), Phase::kReduce);
}

TEST(SessionShell, TriesWhomTheCoordinatorAsksFor) {
  KeepingLink link;
  const StepProgress progress;
  auto probe = PeerProbe::Listen("127.0.0.1");
  const auto other = PeerProbe::Listen("127.0.0.1");
  ASSERT_TRUE(probe.ok() && other.ok());
  SessionShell shell(Options(), link, progress, *std::move(probe));
  shell.OnMessage(ProbeMessage{7, {(*other)->address(), "127.0.0.1:1"}});
  const auto reach = link.Await<ReachMessage>([](const auto& message) { return message.round == 7; });
  ASSERT_EQ(reach.seconds.size(), 2u);
  EXPECT_GE(reach.seconds[0], 0);
  EXPECT_LT(reach.seconds[1], 0);
}

}  // namespace
}  // namespace holdfast
