#pragma once
// A coordinator and workers that are nothing but messages, for tests of single decisions. Worker "n0/1" has connection
// 1, and so on; what is sent to each is kept.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elastic/control/coordinator.h"

namespace holdfast {

class CoordinatorTest : public testing::Test {
 protected:
  static CoordinatorOptions DefaultOptions() {
    CoordinatorOptions options;
    options.elastic.workers = 3;
    options.elastic.min_workers = 1;
    options.elastic.max_workers = 4;
    options.microbatches = 8;
    options.total_steps = 100;
    options.digests.config = 42;
    options.checkpoint.every = CheckpointEvery::kNever;
    return options;
  }
  /// Of a run that lies in the newest of its checkpoints, which comes first.
  static CoordinatorOptions After(std::vector<CheckpointChoice> checkpoints) {
    CoordinatorOptions options = DefaultOptions();
    options.checkpoint.directory = "somewhere";
    options.recorded_step = checkpoints.front().step;
    options.checkpoints = std::move(checkpoints);
    options.workers_are_new = true;
    return options;
  }

  /// Each step is validated.
  static CoordinatorOptions EndingEarly(const EarlyStopRule& rule) {
    CoordinatorOptions options = DefaultOptions();
    options.validates = true;
    options.validate_every_steps = 1;
    options.early_stop = rule;
    return options;
  }

  /// Whose state each worker has a part of that nobody else has.
  static CoordinatorOptions WithoutMirrors() {
    CoordinatorOptions options = DefaultOptions();
    options.parallel.mirrors = 0;
    return options;
  }

  void Start(const CoordinatorOptions& options = DefaultOptions()) {
    coordinator_ = std::make_unique<Coordinator>(options);
    worlds_.clear();
  }
  /// All of `workers` join.
  void StartWith(const std::vector<int>& workers, const CoordinatorOptions& options = DefaultOptions()) {
    Start(options);
    for (const int w : workers) Join(w);
  }
  /// And commit the first step.
  void StartTraining(const std::vector<int>& workers, const CoordinatorOptions& options = DefaultOptions()) {
    StartWith(workers, options);
    Commit(workers);
  }

  static Member MemberOf(int worker, uint64_t incarnation = 0) {
    Member member;
    const std::string node = absl::StrCat("n", worker / 2);
    member.id = {absl::StrCat(node, "/", worker), incarnation != 0 ? incarnation : First(worker)};
    member.node = member.host = node;
    return member;
  }
  static uint64_t First(int worker) { return (static_cast<uint64_t>(worker) + 1) << 32; }

  // One event, and the ends of the streams that are closed for it; what came of them is in actions_, sent_, events_.
  void Event(const CoordinatorEvent& event) {
    now_ += std::chrono::milliseconds(1);
    actions_.clear();
    std::deque<CoordinatorEvent> events{event};
    for (; !events.empty(); events.pop_front()) {
      for (CoordinatorAction& action : coordinator_->OnEvent(now_, events.front())) {
        if (const auto* close = std::get_if<CloseAction>(&action); close != nullptr && closes_at_once_) {
          events.push_back(DisconnectEvent{close->connection, "closed"});
        }
        Carry(action);
        actions_.push_back(std::move(action));
      }
    }
  }
  void Carry(const CoordinatorAction& action) {
    if (const auto* send = std::get_if<SendAction>(&action)) {
      sent_[send->to].push_back(send->message);
      if (const auto* world = std::get_if<WorldMessage>(&send->message)) worlds_[send->to] = *world;
    } else if (const auto* all = std::get_if<SendToAllAction>(&action)) {
      for (const uint64_t to : all->to) {
        sent_[to].push_back(all->message);
        if (const auto* world = std::get_if<WorldMessage>(&all->message)) worlds_[to] = *world;
      }
    } else if (const auto* report = std::get_if<ReportAction>(&action)) {
      events_.push_back(report->event);
    } else if (const auto* end = std::get_if<EndAction>(&action)) {
      ended_ = *end;
    } else if (const auto* record = std::get_if<RecordAction>(&action)) {
      records_.push_back(*record);
    } else if (const auto* commit = std::get_if<CommitCheckpointAction>(&action)) {
      commits_.push_back(*commit);
    } else if (const auto* rewind = std::get_if<RewindAction>(&action)) {
      rewinds_.push_back(rewind->step);
      branch_before_rewind_ = branch_;
    } else if (const auto* persist = std::get_if<PersistAction>(&action)) {
      branch_ = persist->branch;
      contradicted_ = persist->contradicted;
      contradictions_ = persist->contradictions;
    } else if (const auto* close = std::get_if<CloseAction>(&action)) {
      closed_.push_back(close->connection);
    }
  }
  void Say(int worker, WorkerMessage message) { Event(MessageEvent{Connection(worker), std::move(message)}); }
  void Join(int worker, const StateClaim& claim = {}, uint64_t incarnation = 0) {
    Member member = MemberOf(worker, incarnation);
    if (probes_) member.probe_address = absl::StrCat("at ", member.id.name);
    Say(worker,
        JoinMessage{
            member, claim, {.config = 42, .data = data_digest_, .tokens = token_digest_, .kernels = kernel_digest_}});
  }
  /// An agent, over a connection that no worker has; as a process it is `instance`.
  void AgentComes(uint64_t connection, const std::string& node, int workers = 1, uint64_t instance = 0) {
    Event(MessageEvent{connection, AgentHelloMessage{node, "host of " + node, /*pid=*/1, workers, instance}});
  }
  // Time passes, in ticks; all of `alive` send heartbeats, with or without progress.
  void Pass(std::chrono::milliseconds time, const std::vector<int>& alive, bool progress = true) {
    const Instant until = now_ + time;
    while (now_ < until) {
      now_ += std::chrono::milliseconds(50);
      for (const int worker : alive) {
        HeartbeatMessage beat{.generation = 0, .step = 1, .phase = Phase::kForwardBackward, .progress = 0};
        if (progress) beat.progress = ++beats_;
        Say(worker, beat);
      }
      Event(TickEvent{});
    }
  }
  static VoteMessage Vote(uint64_t generation, int64_t step) { return {generation, step, 7, 8, 0.5, 0.1, 0, 0, 2, {}}; }
  // Of 0, 1 and 2, all members of the world, 1 has computed other `bits` of a step.
  void VoteWithOtherOf1(uint32_t VoteMessage::*bits, int64_t step) {
    const uint64_t generation = Generation();
    VoteMessage other = Vote(generation, step);
    other.*bits ^= 1;
    Say(0, Vote(generation, step));
    Say(1, other);
    Say(2, Vote(generation, step));
  }
  // All vote for the next step of the world that worker `any` was told of.
  void Commit(const std::vector<int>& workers) {
    const uint64_t generation = Generation();
    const int64_t step = coordinator_->Status(now_).committed_step + 1;
    for (const int worker : workers) Say(worker, Vote(generation, step));
  }
  uint64_t Generation() const { return coordinator_->Status(now_).generation; }
  int WorldSize() const { return coordinator_->Status(now_).world_size; }
  int64_t Committed() const { return coordinator_->Status(now_).committed_step; }

  template <class Message>
  const Message* LastSent(int worker) {
    const auto& messages = sent_[Connection(worker)];
    return messages.empty() ? nullptr : std::get_if<Message>(&messages.back());
  }
  template <class Event>
  int64_t Count() const {
    return std::count_if(events_.begin(), events_.end(),
                         [](const RunEvent& e) { return std::holds_alternative<Event>(e); });
  }
  template <class Event>
  Event Last() const {
    Event last;
    bool found = false;
    for (const RunEvent& e : events_) {
      if (const auto* one = std::get_if<Event>(&e)) last = *one, found = true;
    }
    EXPECT_TRUE(found) << "no " << Event::kName;
    return last;
  }
  static uint64_t Connection(int worker) { return static_cast<uint64_t>(worker) + 1; }

  std::unique_ptr<Coordinator> coordinator_;
  Instant now_{1'000'000'000};
  uint64_t beats_ = 0;
  uint64_t data_digest_ = 0, token_digest_ = 0, kernel_digest_ = 0;  // that workers join with
  bool probes_ = false;                                              // they can be probed
  std::vector<CoordinatorAction> actions_;
  std::map<uint64_t, std::vector<CoordinatorMessage>> sent_;
  std::map<uint64_t, WorldMessage> worlds_;  // the last told, by connection
  std::vector<RunEvent> events_;
  std::vector<RecordAction> records_;
  std::vector<CommitCheckpointAction> commits_;
  std::vector<int64_t> rewinds_;
  Branch branch_, branch_before_rewind_;          // as persisted last
  std::map<std::string, uint64_t> contradicted_;  // likewise
  std::map<std::string, Contradictions> contradictions_;
  std::vector<uint64_t> closed_;
  bool closes_at_once_ = true;  // what the coordinator closes
  std::optional<EndAction> ended_;
};

}  // namespace holdfast
