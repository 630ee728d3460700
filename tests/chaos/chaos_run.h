#pragma once
// A run of real processes that is hurt on purpose, and the questions asked of it. Every wait is for an event, with one
// deadline for all (kTestTimeoutSeconds); none takes a speed for granted.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/chaos/logged_process.h"

namespace holdfast::chaos {

/// For tests in which nobody may be taken for dead who lives.
inline constexpr char kLongHeartbeats[] = "elastic.heartbeat_timeout_ms=15000";

inline void Sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

/// A directory with a config and token files. The config's runs are endless, so that none is over before its test has
/// done to it what it wants to; "train.steps=N" ends one. The learning rate does not depend on that.
class Stage {
 public:
  /// `settings` (a.b=c) are those of the undisturbed run.
  explicit Stage(std::vector<std::string> settings = {});
  ~Stage();

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string config() const { return Path("config.yaml"); }

  /// Every step of the run stands there once, in order, with the bits of a run that nobody touched, which is made here.
  testing::AssertionResult HasUndisturbedBits(const std::string& run) const;
  /// The console output of all processes whose logs are Path(prefix...).
  void PrintLogs(const std::string& prefix) const;

 private:
  std::string root_;
  std::vector<std::string> settings_;
};

/// Tests that share a stage. When one has failed, the console output of its runs is printed, once.
class StageTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { stage_ = std::make_unique<Stage>(); }
  static void TearDownTestSuite() { stage_.reset(); }
  void TearDown() override {
    if (HasFailure() && stage_ != nullptr) stage_->PrintLogs(Name());
  }

  /// Of the test, as a file name: that of its runs begins with it.
  static std::string Name();
  static std::string Run() { return stage_->Path(Name()); }

  inline static std::unique_ptr<Stage> stage_;
};

struct WorkerView {
  std::string id, phase;
  int rank = -1, pid = 0;
  int64_t step = 0;
};

struct RunView {
  bool reachable = false;
  std::string state;
  int world_size = 0;
  int64_t generation = 0, committed_step = 0;
  std::vector<WorkerView> workers;
};

/// `holdfast status RUN --json`.
RunView Look(const std::string& run_directory);
/// Runs the binary and returns its exit code; output into `log_path`.
int RunBinary(const std::vector<std::string>& arguments, const std::string& log_path);

/// The whole lines of a file of a run.
std::vector<nlohmann::json> Lines(const std::string& path);
/// Lines of metrics.jsonl.
int64_t CommittedSteps(const std::string& run_directory);
/// Lines of events.jsonl with this name.
std::vector<nlohmann::json> Events(const std::string& run_directory, const std::string& name);
/// Processes whose command line contains `text`.
std::vector<int> ProcessesWith(const std::string& text);

/// These wait until something holds. False if it does not in time, or if `process` has ended before.
bool WaitFor(const std::function<bool()>& condition);
bool WaitFor(LoggedProcess& process, const std::function<bool()>& condition);
bool WaitUntil(LoggedProcess& process, const std::string& run_directory,
               const std::function<bool(const RunView&)>& condition);
bool WaitForStep(LoggedProcess& process, const std::string& run_directory, int64_t step);
bool WaitForEvents(LoggedProcess& process, const std::string& run_directory, const std::string& name, size_t count = 1);
/// Until it trains with so many workers, some steps past where it was. Not before that world itself has committed:
/// until then the state lies where the world before it had it, so a loss on top of the one that is being healed may be
/// one too many.
testing::AssertionResult GoesOn(LoggedProcess& process, const std::string& run_directory, int workers);

/// kill -9 of a run's first process and of everything else that belongs to it; waits until all are gone.
testing::AssertionResult KillAll(LoggedProcess& process, const std::string& run_directory);

}  // namespace holdfast::chaos
