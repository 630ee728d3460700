// Proves what the shell around a coordinator promises it: a step's line is on the disk before anybody hears of its
// commit, and so is a barrier before anything is cut. One worker takes part, as messages; this program's own fdatasync
// is used in place of the C library's, to see when it is called.

#include "elastic/coordinator/coordinator_shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>

#include "checkpoint/sharded/catalog.h"
#include "checkpoint/sharded/stored_files.h"
#include "elastic/coordinator/checkpoint_keeper.h"
#include "elastic/coordinator/event_log.h"
#include "elastic/coordinator/run_digests.h"
#include "framework/base/files.h"
#include "framework/metrics/run_lock.h"
#include "tests/framework/base/file_size_limit.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/framework/storage/memory_storage.h"

namespace {
std::atomic<int> syncs{0}, failing_syncs{0}, sync_error{EIO};
std::atomic<bool> disk_stands{false}, disk_is_asked{false};
}  // namespace

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library's has a reserved name
extern "C" int fdatasync(int fd) {
  disk_is_asked = true;
  disk_is_asked.notify_all();
  disk_stands.wait(true);
  if (failing_syncs > 0) {
    --failing_syncs;
    errno = sync_error;
    return -1;
  }
  ++syncs;
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}

namespace holdfast {
namespace {

constexpr Connection kWorker = 1;
constexpr std::chrono::seconds kLongWait{300};  // no measure of speed

class ShellTest : public testing::Test, public CoordinatorPort {
 protected:
  ShellTest() {
    config_.elastic.workers = 1;
    config_.train.steps = 1000;
    config_.elastic.heartbeat_interval_ms = 20;
    config_.elastic.heartbeat_timeout_ms = config_.elastic.progress_timeout_ms = 3600'000;  // the worker is the test
  }
  void Send(Connection, const CoordinatorMessage& message) override {
    const std::lock_guard lock(mutex_);
    if (std::holds_alternative<CommitMessage>(message)) syncs_at_commit_.push_back(syncs);
    if (const auto* world = std::get_if<WorldMessage>(&message)) generation_ = world->world.generation;
    if (std::holds_alternative<EndMessage>(message)) ended_ = true;
    ++sent_after_leaving_;
  }
  void Leave() override { has_left_ = true; }
  void Close(Connection) override {}

  void StartShell(const CoordinatorHistory& history = {}) {
    auto lock = RunLock::Take(directory_);
    ASSERT_TRUE(lock.ok()) << lock.status();
    lock_.emplace(*std::move(lock));
    const auto is_ours = [this] {
      absl::Status ours = store_answers_ ? lock_->Check() : absl::UnavailableError("the store does not answer");
      if (ours.ok() && is_replaced_next_.exchange(false)) LetAnotherTakeOver();
      return ours;
    };
    const RunStart start{.history = history, .is_ours = is_ours, .usable = {}};
    auto shell = CoordinatorShell::Create(config_, directory_, start, *this, Observers());
    ASSERT_TRUE(shell.ok()) << shell.status();
    shell_ = std::move(*shell);
    JoinMessage join{{{"n/0", 1}, "n", "h"}, {}, DigestsOf(config_)};
    shell_->OnMessage(kWorker, join);
    ASSERT_TRUE(WaitFor([&] { return generation_ != 0; }));
  }
  void LetAnotherTakeOver() {
    std::filesystem::remove(directory_.lock());
    auto other = RunLock::Take(directory_);
    ASSERT_TRUE(other.ok()) << other.status();
    other_.emplace(*std::move(other));
    ASSERT_TRUE(directory_.TakeOver().ok());
  }
  void VoteFor(int64_t step) {
    VoteMessage vote;
    vote.generation = generation_;
    vote.step = step;
    shell_->OnMessage(kWorker, vote);
    shell_->Drain();
  }
  testing::AssertionResult IsPaused() {
    const std::string detail = shell_->StatusNow().detail;
    return detail.starts_with("paused") ? testing::AssertionSuccess() : testing::AssertionFailure() << detail;
  }
  /// Without room for another line.
  FileSizeLimit FullDisk() const { return FileSizeLimit(std::filesystem::file_size(directory_.metrics()) + 10); }
  /// Workers with another config, in more than 65,536 events.
  void ManyComeAndGo(Connection first) {
    const JoinMessage other{{{"n/2", 1}, "n", "h"}, {}, {}};
    for (Connection c = first; c < 34'000; ++c) {
      shell_->OnMessage(c, other);
      shell_->OnDisconnect(c, "killed");
    }
  }
  bool WaitFor(const std::function<bool()>& condition, std::chrono::seconds limit = kLongWait) {
    for (const auto end = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < end;) {
      {
        const std::lock_guard lock(mutex_);
        if (condition()) return true;
      }
      shell_->OnMessage(kWorker, HeartbeatMessage{});
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  class Observer final : public RunObserver {
   public:
    explicit Observer(ShellTest& test) : test_(test) {}
    void OnStep(const StepMetrics& step) override {
      const std::lock_guard lock(test_.mutex_);
      steps.push_back(step.step);
      lines_at_step.push_back(test_.directory_.ReadMetrics()->size());
    }
    void OnEvent(const RunEvent& event) override {
      const std::lock_guard lock(test_.mutex_);
      events.push_back(event);
    }
    void OnStatus(const RunStatus& status) override {
      const std::lock_guard lock(test_.mutex_);
      states.push_back(status.state);
    }
    std::vector<int64_t> steps;
    std::vector<size_t> lines_at_step;
    std::vector<RunEvent> events;
    std::vector<RunState> states;

   private:
    ShellTest& test_;
  };
  std::vector<RunObserver*> Observers() {
    auto log = EventLog::Open(directory_, [this](const std::string&) { ++events_lost_; });
    EXPECT_TRUE(log.ok()) << log.status();
    log_ = *std::move(log);
    return {log_.get(), &observer_};
  }

  Config config_;
  const TemporaryDirectory root_;
  const RunDirectory directory_{root_.path()};
  std::mutex mutex_;
  std::vector<int> syncs_at_commit_;
  uint64_t generation_ = 0;
  bool ended_ = false, has_left_ = false;
  int sent_after_leaving_ = 0;
  Observer observer_{*this};  // under mutex_
  std::atomic<int> events_lost_ = 0;
  std::unique_ptr<EventLog> log_;
  std::optional<RunLock> lock_, other_;
  std::atomic<bool> store_answers_ = true;      // which says whether the run is still ours
  std::atomic<bool> is_replaced_next_ = false;  // right after it was looked at
  std::unique_ptr<CoordinatorShell> shell_;
};

// Somebody has started another one while this one, or its host, could not be reached. Its workers hold what the other
// one counts on, so they are told nothing, and least of all that the run is over.
TEST_F(ShellTest, ACoordinatorThatWasReplacedTellsNobodyAnything) {
  StartShell();
  VoteFor(1);
  LetAnotherTakeOver();
  VoteFor(2);
  const CoordinatorShell::Outcome outcome = shell_->Wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.reason.find("has been taken by"), std::string::npos) << outcome.reason;
  shell_->OnMessage(kWorker + 1, AgentHelloMessage{"n", "h", 1, 1});
  shell_->Drain();
  EXPECT_FALSE(ended_);
  EXPECT_EQ(syncs_at_commit_.size(), 1u);
  EXPECT_EQ(directory_.ReadMetrics()->size(), 1u);
}

// Its record has been replaced, which is no failure of the run, and no reason to pause it.
TEST_F(ShellTest, ACoordinatorThatIsReplacedWhileItRecordsTellsNobodyAnything) {
  StartShell();
  VoteFor(1);
  is_replaced_next_ = true;
  VoteFor(2);
  const CoordinatorShell::Outcome outcome = shell_->Wait();
  EXPECT_FALSE(is_replaced_next_);
  EXPECT_TRUE(outcome.goes_on);
  EXPECT_NE(outcome.reason.find("has been taken by"), std::string::npos) << outcome.reason;
  EXPECT_FALSE(ended_);
  EXPECT_EQ(syncs_at_commit_.size(), 1u);
  EXPECT_EQ(directory_.ReadMetrics()->size(), 1u);
  EXPECT_TRUE(std::none_of(observer_.events.begin(), observer_.events.end(),
                           [](const RunEvent& e) { return std::holds_alternative<event::Paused>(e); }));
}

// A run that was killed while it deleted its last superfluous checkpoint makes no other one that would clear it away.
TEST_F(ShellTest, WhatWasHalfDeletedGoesWhenTheRunIsStartedAgain) {
  const auto keeper =
      CheckpointKeeper::Open(config_, directory_, MakeMemoryStorage(root_.path()), {{"weight", {40, 50}}}, {}, nullptr);
  ASSERT_TRUE(keeper.ok()) << keeper.status();
  Storage& storage = (*keeper)->storage();
  const CheckpointName before{.step = 4, .generation = 1};
  const CheckpointName written{.step = 4, .generation = (*keeper)->state().generation + 1};
  for (const CheckpointName& name : {before, written}) {
    ASSERT_TRUE(storage.Create(ObjectName(name, "shard.idx"), "what is left").ok());
  }
  RunStart start{.history = {}, .is_ours = [] { return absl::OkStatus(); }, .keeper = keeper->get(), .usable = {}};
  start.history.state = (*keeper)->state();
  const auto shell = CoordinatorShell::Create(config_, directory_, start, *this, {});
  ASSERT_TRUE(shell.ok()) << shell.status();
  (*keeper)->Finish();
  const auto catalog = ScanCheckpoints(storage);
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  ASSERT_EQ(catalog->rejected.size(), 1u);
  EXPECT_EQ(catalog->rejected[0].name, written.ToString());
}

// Whoever comes while it still listens is to come to the next one.
TEST_F(ShellTest, ACoordinatorThatMakesWayTellsNobodyAnything) {
  StartShell();
  VoteFor(1);
  shell_->MakeWay(SIGTERM);
  const CoordinatorShell::Outcome outcome = shell_->Wait();
  EXPECT_EQ(outcome.exit_code, 143);
  EXPECT_TRUE(outcome.goes_on);
  EXPECT_FALSE(outcome.is_said);
  EXPECT_EQ(outcome.steps, 1);
  EXPECT_TRUE(has_left_);
  sent_after_leaving_ = 0;
  VoteFor(2);
  JoinMessage stranger{{{"other/0", 1}, "other", "h"}, {}, {}};  // with another config, which is refused at once
  shell_->OnMessage(2, stranger);
  shell_->Drain();
  EXPECT_EQ(sent_after_leaving_, 0);
  EXPECT_FALSE(ended_);
  EXPECT_EQ(directory_.ReadMetrics()->size(), 1u);
}

TEST_F(ShellTest, AStepIsOnTheDiskBeforeAnybodyHearsOfItsCommit) {
  StartShell();
  const int before = syncs;
  VoteFor(1);
  VoteFor(2);
  EXPECT_EQ(syncs_at_commit_, (std::vector<int>{before + 1, before + 2}));
  EXPECT_EQ(directory_.ReadMetrics()->size(), 2u);
}

// Whoever carries messages is not held up, however long the disk takes.
TEST_F(ShellTest, HeartbeatsDoNotWaitBehindTheDisk) {
  StartShell();
  disk_is_asked = false;
  disk_stands = true;
  auto said = std::async(std::launch::async, [&] {
    VoteMessage vote;
    vote.generation = generation_;
    vote.step = 1;
    shell_->OnMessage(kWorker, vote);
    disk_is_asked.wait(false);
    for (int i = 0; i < 1000; ++i) shell_->OnMessage(kWorker, HeartbeatMessage{.step = i});
    shell_->OnDisconnect(kWorker + 1, "gone");
  });
  const bool at_once = said.wait_for(kLongWait) == std::future_status::ready;
  EXPECT_TRUE(syncs_at_commit_.empty());
  disk_stands = false;
  disk_stands.notify_all();
  EXPECT_TRUE(at_once);
  said.get();
  EXPECT_TRUE(WaitFor([&] { return syncs_at_commit_.size() == 1; }));
}

TEST_F(ShellTest, AFullDiskPausesTheRunUntilThereIsRoom) {
  StartShell();
  VoteFor(1);
  {
    const FileSizeLimit limit = FullDisk();
    VoteFor(2);
    EXPECT_FALSE(WaitFor([&] { return syncs_at_commit_.size() > 1; }, std::chrono::seconds(1)));
    EXPECT_TRUE(IsPaused());
    EXPECT_EQ(shell_->StatusNow().committed_step, 1) << "step 2 has no line yet";
    VoteFor(3);  // waits
  }
  EXPECT_TRUE(WaitFor([&] { return syncs_at_commit_.size() == 3; }));
  EXPECT_EQ(directory_.ReadMetrics()->size(), 3u);
  EXPECT_EQ(shell_->StatusNow().committed_step, 3);
}

// What is open is still that of the directory which was moved, so nothing is lost when it is back.
TEST_F(ShellTest, ARunDirectoryThatIsMissingPausesTheRunUntilItIsBack) {
  StartShell();
  VoteFor(1);
  const std::string moved = directory_.root() + ".moved";
  std::filesystem::rename(directory_.root(), moved);
  VoteFor(2);
  EXPECT_FALSE(WaitFor([&] { return ended_ || syncs_at_commit_.size() > 1; }, std::chrono::seconds(1)));
  EXPECT_TRUE(IsPaused());
  EXPECT_EQ(RunDirectory(moved).ReadMetrics()->size(), 1u);
  VoteFor(3);  // waits
  EXPECT_FALSE(std::filesystem::exists(directory_.root()));
  std::filesystem::rename(moved, directory_.root());
  EXPECT_TRUE(WaitFor([&] { return syncs_at_commit_.size() == 3; }));
  EXPECT_EQ(directory_.ReadMetrics()->size(), 3u);
}

TEST_F(ShellTest, ARecordThatIsMovedAwayPausesTheRunUntilItIsBack) {
  StartShell();
  VoteFor(1);
  const std::string moved = directory_.root() + "/moved";
  std::filesystem::rename(directory_.metrics(), moved);
  VoteFor(2);
  EXPECT_TRUE(IsPaused());
  EXPECT_EQ(syncs_at_commit_.size(), 1u);
  std::filesystem::rename(moved, directory_.metrics());
  EXPECT_TRUE(WaitFor([&] { return syncs_at_commit_.size() == 2; }));
  EXPECT_EQ(directory_.ReadMetrics()->size(), 2u);
}

TEST_F(ShellTest, ARecordThatWasRemovedIsWrittenAnew) {
  StartShell();
  VoteFor(1);
  std::filesystem::remove(directory_.metrics());
  std::filesystem::remove(directory_.coordinator_state());
  VoteFor(2);
  EXPECT_TRUE(WaitFor([&] { return ended_ || syncs_at_commit_.size() == 2; }));
  EXPECT_FALSE(ended_);
  EXPECT_EQ(directory_.ReadMetrics()->size(), 2u);
  const uint64_t trained_in = generation_;
  shell_->RequestStop(15);  // a world of another generation
  EXPECT_TRUE(WaitFor([&] { return generation_ > trained_in; }));
  EXPECT_EQ(ReadCoordinatorState(directory_)->generation, generation_);
}

TEST_F(ShellTest, ARecordThatWasReplacedEndsTheRun) {
  StartShell();
  VoteFor(1);
  const std::string copy = directory_.root() + "/copy";
  std::filesystem::copy(directory_.metrics(), copy);
  std::filesystem::rename(copy, directory_.metrics());
  VoteFor(2);
  const CoordinatorShell::Outcome outcome = shell_->Wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.reason.find("metrics.jsonl has been removed and replaced"), std::string::npos) << outcome.reason;
  EXPECT_TRUE(ended_) << "workers are told";
  EXPECT_EQ(syncs_at_commit_.size(), 1u);
}

// As when a disk is full for a night and a worker is started again and again.
TEST_F(ShellTest, WhoComesAndGoesWhileTheRunIsPausedDoesNotEndIt) {
  StartShell();
  store_answers_ = false;
  VoteFor(1);
  ASSERT_TRUE(IsPaused());
  ManyComeAndGo(kWorker + 1);
  store_answers_ = true;
  EXPECT_TRUE(WaitFor([&] { return ended_ || syncs_at_commit_.size() == 1; }));
  EXPECT_FALSE(ended_);
}

TEST_F(ShellTest, WhoCameAndWentWhileTheRunWasPausedMayHaveAskedForAStop) {
  StartShell();
  store_answers_ = false;
  VoteFor(1);
  shell_->OnMessage(kWorker + 1, JoinMessage{{{"n/1", 1}, "n", "h"}, {}, DigestsOf(config_)});
  shell_->OnMessage(kWorker + 1, StopRequestMessage{15});
  shell_->OnDisconnect(kWorker + 1, "killed");
  ManyComeAndGo(kWorker + 2);
  store_answers_ = true;
  const auto is_stop = [](const RunEvent& e) { return std::holds_alternative<event::StopRequested>(e); };
  EXPECT_TRUE(WaitFor([&] { return std::any_of(observer_.events.begin(), observer_.events.end(), is_stop); }));
}

TEST_F(ShellTest, ALineWhoseSyncFailedIsWrittenOnce) {
  StartShell();
  failing_syncs = 2;
  VoteFor(1);
  EXPECT_TRUE(WaitFor([&] { return syncs_at_commit_.size() == 1; }));
  EXPECT_EQ(failing_syncs, 0);
  EXPECT_EQ(directory_.ReadMetrics()->size(), 1u);
}

// A file system that is read-only for a while, a ticket of NFS that has lapsed, an export that was made anew.
TEST_F(ShellTest, AccessThatIsRefusedPausesTheRunUntilItIsGivenBack) {
  StartShell();
  int64_t step = 0;
  for (const int error : {EACCES, EPERM, EROFS, ESTALE, EIO}) {
    sync_error = error;
    failing_syncs = 1'000'000;
    VoteFor(++step);
    EXPECT_TRUE(IsPaused()) << error;
    const std::string detail = shell_->StatusNow().detail;
    const bool is_refused = error == EACCES || error == EPERM || error == EROFS;
    EXPECT_NE(detail.find("cannot sync " + directory_.metrics() + ": "), std::string::npos) << detail;
    EXPECT_EQ(detail.find("make it writable again") != std::string::npos, is_refused) << detail;
    failing_syncs = 0;
    ASSERT_TRUE(WaitFor([&] { return ended_ || static_cast<int64_t>(syncs_at_commit_.size()) == step; }));
    ASSERT_FALSE(ended_) << error;
  }
  EXPECT_EQ(directory_.ReadMetrics()->size(), 5u);
  sync_error = EIO;
}

TEST_F(ShellTest, AStopEndsARunThatStaysPaused) {
  config_.elastic.lost_state_timeout_ms = 50;
  StartShell();
  VoteFor(1);
  const FileSizeLimit limit = FullDisk();
  VoteFor(2);
  shell_->RequestStop(15);
  EXPECT_TRUE(WaitFor([&] { return ended_; }));
  const CoordinatorShell::Outcome outcome = shell_->Wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.reason.find("stopped by SIGTERM while the run was paused"), std::string::npos) << outcome.reason;
  EXPECT_EQ(outcome.steps, 1);
}

// How it ends is decided, and whether the run is still this coordinator's to end cannot be found out.
TEST_F(ShellTest, AStopEndsARunWhoseEndCannotBeTold) {
  config_.elastic.lost_state_timeout_ms = 50;
  StartShell();
  VoteFor(1);
  const uint64_t trained_in = generation_;
  shell_->RequestStop(15);
  ASSERT_TRUE(WaitFor([&] { return generation_ > trained_in; }));
  store_answers_ = false;
  shell_->OnMessage(kWorker, FinishedMessage{generation_});
  ASSERT_TRUE(WaitFor([&] { return ended_; }));
  const CoordinatorShell::Outcome outcome = shell_->Wait();
  EXPECT_EQ(outcome.exit_code, 128 + 15) << outcome.reason;
}

// By which whoever is started in its place knows that all is done.
TEST_F(ShellTest, TheEndIsTheLastEventAlsoOfARunThatWasPausedBeforeIt) {
  config_.train.steps = 1;
  StartShell();
  VoteFor(1);
  store_answers_ = false;
  shell_->OnMessage(kWorker, FinishedMessage{generation_});
  shell_->Drain();
  EXPECT_TRUE(IsPaused());
  store_answers_ = true;
  EXPECT_EQ(shell_->Wait().exit_code, 0);
  shell_->Drain();
  EXPECT_TRUE(ReadCoordinatorHistory(directory_)->finished);
}

TEST_F(ShellTest, AStopOfARunThatIsPausedSavesWhenThereIsRoomAgain) {
  StartShell();
  VoteFor(1);
  const uint64_t trained_in = generation_;
  {
    const FileSizeLimit limit = FullDisk();
    VoteFor(2);
    shell_->RequestStop(15);
    shell_->Drain();
    EXPECT_FALSE(ended_);
  }
  ASSERT_TRUE(WaitFor([&] { return generation_ > trained_in; }));  // a world whose purpose it is to save
  shell_->OnMessage(kWorker, FinishedMessage{generation_});
  const CoordinatorShell::Outcome outcome = shell_->Wait();
  EXPECT_EQ(outcome.exit_code, 128 + 15) << outcome.reason;
  EXPECT_EQ(outcome.steps, 2);
  EXPECT_TRUE(outcome.is_said);
}

// An agent that was just starting when the run was stopped.
TEST_F(ShellTest, WhoComesAfterTheEndHearsOfIt) {
  StartShell();
  shell_->RequestStop(15);  // nothing is done yet that could be saved
  shell_->Wait();
  ended_ = false;
  shell_->OnMessage(kWorker + 1, AgentHelloMessage{"n", "h", 1, 1});
  shell_->Drain();
  EXPECT_TRUE(ended_);
}

TEST_F(ShellTest, EventsThatCannotBeWrittenDoNotMatter) {
  StartShell();
  VoteFor(1);
  shell_->Report(event::AlertFailed{std::string(20'000, 'x')});  // metrics.jsonl stays shorter
  const FileSizeLimit limit(std::filesystem::file_size(directory_.events()));
  shell_->Report(event::AlertFailed{"x"});
  shell_->Report(event::AlertFailed{"x"});
  VoteFor(2);
  EXPECT_TRUE(WaitFor([&] { return syncs_at_commit_.size() == 2; }));
  EXPECT_EQ(events_lost_, 1) << "said once";
}

TEST_F(ShellTest, EventsOfAFileThatWasRemovedAreWrittenAnew) {
  StartShell();
  shell_->Report(event::AlertFailed{"first"});
  std::filesystem::remove(directory_.events());
  shell_->Report(event::AlertFailed{"second"});
  EXPECT_EQ(events_lost_, 0);
  const std::string events = ReadFile(directory_.events(), 1 << 20).value();
  EXPECT_LT(events.find("first"), events.find("second"));
  EXPECT_NE(events.find("second"), std::string::npos);
  std::filesystem::remove(directory_.lock());  // as by rm -r
  std::filesystem::remove(directory_.events());
  shell_->Report(event::AlertFailed{"third"});
  EXPECT_FALSE(std::filesystem::exists(directory_.events()));
  EXPECT_EQ(events_lost_, 1);
}

// Else they would go where nobody can read them.
TEST_F(ShellTest, EventsOfAFileThatWasReplacedAreMissed) {
  StartShell();
  VoteFor(1);
  shell_->Report(event::AlertFailed{"x"});
  VoteFor(2);
  ASSERT_TRUE(WaitFor([&] { return syncs_at_commit_.size() == 2; }));
  EXPECT_EQ(events_lost_, 0);
  const std::string copy = directory_.root() + "/copy";
  std::filesystem::copy(directory_.events(), copy);
  std::filesystem::rename(copy, directory_.events());
  shell_->Report(event::AlertFailed{"x"});
  shell_->Report(event::AlertFailed{"x"});
  VoteFor(3);
  ASSERT_TRUE(WaitFor([&] { return syncs_at_commit_.size() == 3; }));
  EXPECT_EQ(events_lost_, 1) << "said once";
}

// What an exporter is told: steps that are committed, events, and the state of the run, last that it has ended.
TEST_F(ShellTest, ObserversAreToldOfStepsEventsAndTheEnd) {
  StartShell();
  VoteFor(1);
  VoteFor(2);
  shell_->Report(event::Validation{2, 1.5});
  shell_->RequestStop(15);
  ASSERT_TRUE(WaitFor([&] { return generation_ > 1; }));
  shell_->OnMessage(kWorker, FinishedMessage{generation_});
  const CoordinatorShell::Outcome outcome = shell_->Wait();
  EXPECT_EQ(outcome.validation_loss, 1.5);
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(observer_.steps, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(observer_.lines_at_step, (std::vector<size_t>{1, 2})) << "a step was told before its line was there";
  ASSERT_FALSE(observer_.events.empty());
  EXPECT_TRUE(std::holds_alternative<event::WorkerJoined>(observer_.events.front()));
  EXPECT_TRUE(std::holds_alternative<event::RunStopped>(observer_.events.back()));
  ASSERT_FALSE(observer_.states.empty());
  EXPECT_EQ(observer_.states.back(), RunState::kEnded);
}

TEST_F(ShellTest, WhatIsPersistedIsThereForTheNextCoordinator) {
  Branch branch;
  branch.GoBack({.generation = 7, .step = 20});
  const std::map<std::string, uint64_t> contradicted{{"n0/1", uint64_t{1} << 63}};
  const std::map<std::string, Contradictions> contradictions{
      {"n0/1", {.process = uint64_t{1} << 63, .kept_out = true, .times = {std::chrono::seconds(1'764'428'000)}}}};
  ASSERT_TRUE(WriteCoordinatorState(directory_, {8, branch, contradicted, contradictions}).ok());
  auto writer = JsonLinesWriter::Open(directory_.metrics());
  ASSERT_TRUE(writer.ok());
  for (const auto& [step, generation] : {std::pair{20, 3}, {21, 4}, {22, 7}}) {  // killed before it was cut
    StepMetrics line;
    line.step = step;
    line.generation = generation;
    ASSERT_TRUE(writer->Write(line.ToJson()).ok());
  }
  const auto history = ReadCoordinatorHistory(directory_);
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(history->state.generation, 8u);
  EXPECT_EQ(history->state.branch, branch);
  EXPECT_EQ(history->state.contradicted, contradicted);
  EXPECT_EQ(history->state.contradictions, contradictions);
  EXPECT_EQ(history->recorded_step, 20);
}

// By a clock that machines share and that runs while they do not.
TEST_F(ShellTest, WhoIsKeptOutIsHandedOnAndWhoWasContradictedDaysAgoIsForgotten) {
  using std::chrono::seconds;
  const auto now = std::chrono::floor<seconds>(std::chrono::system_clock::now().time_since_epoch());
  const Contradictions once{.process = 3, .kept_out = false, .times = {now}};
  const Contradictions kept_out{.process = 3, .kept_out = true, .times = {seconds(1), seconds(2), seconds(3)}};
  CoordinatorHistory history;
  history.state.contradictions = {{"n/1", once}, {"n/2", kept_out}, {"n/3", once}};
  history.state.contradictions.at("n/3").times = {now - std::chrono::hours(48)};
  StartShell(history);
  EXPECT_THAT(ReadCoordinatorState(directory_)->contradictions,
              testing::ElementsAre(testing::Pair("n/1", once), testing::Pair("n/2", kept_out)));
  shell_->OnMessage(kWorker + 1, JoinMessage{{{"n/2", 3}, "n", "h"}, {}, DigestsOf(config_)});
  shell_->Drain();
  EXPECT_THAT(shell_->StatusNow().detail, testing::EndsWith("kept out, as most had other bits: n/2"));
}

}  // namespace
}  // namespace holdfast
