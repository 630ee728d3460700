// Proves that a coordinator may close the line to the worker of its own process, and that the worker comes back and
// hears of the end: nobody else would start it again.

#include "elastic/coordinator/in_process_link.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

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

TEST(InProcessLink, AWorkerWhoseLineIsClosedComesBackAndHearsOfTheEnd) {
  Config config;
  config.train.steps = 10;
  config.elastic.workers = 1;
  config.elastic.heartbeat_interval_ms = 10;
  config.elastic.heartbeat_timeout_ms = 50;
  const TemporaryDirectory root;
  const RunDirectory directory(root.path());
  const auto lock = RunLock::Take(directory);
  ASSERT_TRUE(lock.ok()) << lock.status();
  InProcessLink link;
  const RunStart start{.history = {}, .is_ours = [&] { return lock->Check(); }, .usable = {}};
  const auto shell = CoordinatorShell::Create(config, directory, start, link, {});
  ASSERT_TRUE(shell.ok()) << shell.status();
  link.Attach(**shell);
  SilentWorker worker(config, link);
  link.Start(worker);
  EXPECT_TRUE(worker.Until([&] { return worker.worlds_ >= 2; }));
  EXPECT_TRUE(worker.Until([&] { return worker.connected_ >= 2 && worker.disconnected_ >= 1; }));
  (*shell)->RequestStop(15);
  EXPECT_EQ((*shell)->Wait().exit_code, 143);
  EXPECT_TRUE(worker.Until([&] { return worker.ends_ >= 1; }));
  link.Stop();
}

}  // namespace
}  // namespace holdfast
