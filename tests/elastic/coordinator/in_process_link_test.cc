// Proves that a coordinator may close the line to the worker of its own process, and that the worker comes back and
// hears of the end: nobody else would start it again.

#include "elastic/coordinator/in_process_link.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "elastic/coordinator/run_digests.h"
#include "framework/metrics/run_lock.h"
#include "tests/framework/base/temporary_directory.h"

namespace holdfast {
namespace {

/// Joins, and is silent from then on.
class SilentWorker final : public ControlLinkHandler {
 public:
  SilentWorker(const Config& config, InProcessLink& link) : digests_(DigestsOf(config)), link_(link) {}
  void OnConnected() override {
    Count(&connected_);
    link_.Send(JoinMessage{{{"n/0", 1}, "n", "h"}, {}, digests_});
  }
  void OnMessage(const CoordinatorMessage& message) override {
    if (std::holds_alternative<WorldMessage>(message)) Count(&worlds_);
    if (std::holds_alternative<EndMessage>(message)) Count(&ends_);
  }
  void OnDisconnected(const std::string& /*reason*/) override { Count(&disconnected_); }

  /// Whether it comes to that.
  template <class Condition>
  bool Until(const Condition& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), condition);
  }
  int connected_ = 0, disconnected_ = 0, worlds_ = 0, ends_ = 0;  // read within Until

 private:
  void Count(int* what) {
    const std::lock_guard lock(mutex_);
    ++*what;
    changed_.notify_all();
  }

  RunDigests digests_;
  InProcessLink& link_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

class InProcessLinkTest : public testing::Test {
 protected:
  InProcessLinkTest() {
    config_.train.steps = 10;
    config_.elastic.workers = 1;
  }

  void Start() {
    auto lock = RunLock::Take(directory_);
    ASSERT_TRUE(lock.ok()) << lock.status();
    lock_.emplace(*std::move(lock));
    const RunStart start{.history = {}, .is_ours = [&] { return lock_->Check(); }, .usable = {}};
    auto shell = CoordinatorShell::Create(config_, directory_, start, link_, {});
    ASSERT_TRUE(shell.ok()) << shell.status();
    shell_ = *std::move(shell);
    link_.Attach(*shell_);
    worker_.emplace(config_, link_);
    link_.Start(*worker_);
  }

  Config config_;
  const TemporaryDirectory root_;
  const RunDirectory directory_{root_.path()};
  std::optional<RunLock> lock_;
  InProcessLink link_;
  std::unique_ptr<CoordinatorShell> shell_;
  std::optional<SilentWorker> worker_;
};

TEST_F(InProcessLinkTest, AWorkerWhoseLineIsClosedComesBackAndHearsOfTheEnd) {
  config_.elastic.heartbeat_interval_ms = 10;
  config_.elastic.heartbeat_timeout_ms = 50;
  Start();
  EXPECT_TRUE(worker_->Until([&] { return worker_->worlds_ >= 2; }));
  EXPECT_TRUE(worker_->Until([&] { return worker_->connected_ >= 2 && worker_->disconnected_ >= 1; }));
  shell_->RequestStop(15);
  EXPECT_EQ(shell_->Wait().exit_code, 143);
  EXPECT_TRUE(worker_->Until([&] { return worker_->ends_ >= 1; }));
  link_.Stop();
}

TEST_F(InProcessLinkTest, AWorkerWhoseLineIsBeingClosedHearsThatTheRunIsAnothersNow) {
  config_.elastic.heartbeat_timeout_ms = 3600'000;  // it is silent, and not to be missed for it
  Start();
  EXPECT_TRUE(worker_->Until([&] { return worker_->worlds_ == 1; }));
  link_.Close(1);
  link_.Leave();
  EXPECT_TRUE(worker_->Until([&] { return worker_->ends_ == 1; }));
  link_.Stop();
}

}  // namespace
}  // namespace holdfast
