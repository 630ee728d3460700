#pragma once
// A simulated worker process around a real WorkerSession: its line to the coordinator, its one working thread that does
// tasks in order and holds state, and everything that can happen to a process.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elastic/control/worker_session.h"
#include "tests/elastic/control/sim_clock.h"
#include "tests/elastic/control/sim_collectives.h"
#include "tests/elastic/control/sim_network.h"
#include "tests/elastic/control/sim_truth.h"

namespace holdfast::sim {

struct WorkerLimits {
  int64_t total_steps = 0;
  milliseconds heartbeat_interval{500}, collective_timeout{5000}, kill_timeout{8000};
  milliseconds step_time{100};  // of a microbatch's share: about this long with an even split
  double failed_save = 0;       // probability
  double drop_update = 0;       // a planted bug: probability that an UpdateTask is lost
};

constexpr uint64_t kRightData = 7;

class Worker {
 public:
  struct Surroundings {
    Clock& clock;
    Network& network;
    Truth& truth;
    Collectives& collectives;
    WorkerLimits limits;
    std::function<Worker*(const WorkerId&)> find;  // the living process with this id, or null
    std::function<void(int index, bool run_over)> exited;
    std::function<bool()> run_over;
    std::function<bool(const std::string& name)> is_there;  // a process has the name
    std::function<std::string(int index)> blob = [](int) { return "address"; };
  };

  Worker(Surroundings& surroundings, int index, Member member)
      : w_(surroundings), index_(index), member_(std::move(member)) {}

  bool running() const { return running_; }
  bool healthy() const { return running_ && !frozen_ && !stuck_ && !w_.network.Cut(index_); }
  bool connected() const { return connection_ != 0; }
  Instant healthy_since() const { return healthy_since_; }
  void Touch() { healthy_since_ = w_.clock.now(); }
  WorkerId id() const { return session_ ? session_->member().id : WorkerId{}; }
  const Member& member() const { return member_; }
  const Chunks& held() const { return held_; }
  const Chunks& fetched() const { return fetched_; }
  std::pair<uint64_t, int64_t> prepared() const { return prepared_; }

  void Start() {
    ++process_;
    running_ = true;
    frozen_ = stuck_ = busy_ = false;
    corrupt_votes = 0;
    fatal = false;
    slow_factor = 1;
    tasks_.clear();
    later_.clear();
    held_ = fetched_ = {};
    prepared_ = {};
    Touch();
    member_.id.incarnation = (w_.clock.Bits() >> 24) << 22 | 1;
    member_.pid = static_cast<int64_t>(process_) * 1000 + index_;
    session_ = std::make_unique<WorkerSession>(member_, RunDigests{.config = 42, .data = data}, w_.limits.total_steps);
    connection_ = 0;
    ConnectSoon();
    After(w_.limits.heartbeat_interval, [this] { Beat(); });
  }

  void Kill(bool silently) {
    if (!running_) return;
    w_.collectives.Leave(id());
    running_ = false;
    ++process_;
    if (connection_ != 0) w_.network.CloseByClient(connection_, silently);
    connection_ = 0;
  }
  void Freeze() { frozen_ = true; }
  void Thaw() {
    if (!frozen_) return;
    frozen_ = false;
    Touch();
    std::deque<std::function<void()>> later;
    later.swap(later_);
    for (auto& action : later) Run(process_, std::move(action));
  }
  void Stick() { stuck_ = true; }
  /// Memory of a copy that steps are computed with goes bad.
  void GoBad() {
    Chunks& working = fetched_.generation == working_generation_ ? fetched_ : held_;
    const int rank = world_.RankOf(working_id_);
    if (!running_ || rank < 0 || working.generation != working_generation_) return;
    for (auto& [chunk, hash] : working.hashes) {
      if (Serves(rank, chunk)) return void(hash = w_.truth.GoBad(hash));
    }
  }
  bool HasBad() const {
    const auto is_bad = [this](const auto& held) { return w_.truth.IsBad(held.second); };
    return std::any_of(held_.hashes.begin(), held_.hashes.end(), is_bad) ||
           std::any_of(fetched_.hashes.begin(), fetched_.hashes.end(), is_bad);
  }
  void AskForStop() {
    if (connection_ != 0) w_.network.Up(connection_, StopRequestMessage{15});
  }
  /// Gives the connection up, although the coordinator may still hold it to be good.
  void DropConnection() {
    if (connection_ == 0) return;
    w_.network.CloseByClient(std::exchange(connection_, 0), /*silently=*/w_.clock.Chance(0.3));
    Feed(SessionDisconnected{});
    ConnectSoon();
  }
  void NoticeCutLater() {
    const Connection connection = connection_;
    After(w_.clock.Between(seconds(1), seconds(6)), [this, connection] {
      if (w_.network.Cut(index_) && connection == connection_) DropConnection();
    });
  }

  // From the network.
  void OnMessage(Connection from, const Shared& message) {
    Run(process_, [this, from, message] {
      if (from != connection_) return;
      if (const auto* peers = std::get_if<PeersMessage>(message.get())) {
        if (peers->generation == recovering_) Transfer();
      } else if (const auto* probe = std::get_if<ProbeMessage>(message.get())) {
        Probe(*probe);
      } else {
        Feed(SessionMessage{*message});
      }
    });
  }
  // What listens does so apart from the thread that works; also a frozen process is reached.
  void Probe(const ProbeMessage& probe) {
    ReachMessage reach{probe.round, {}};
    bool all = true;
    for (const std::string& address : probe.addresses) {
      const bool reached = w_.is_there(address) && !w_.collectives.IsCut(member_.id.name, address);
      reach.seconds.push_back(reached ? 0.001 : -1);
      all = all && reached;
    }
    After(all ? w_.clock.Between(milliseconds(1), milliseconds(300)) : Instant(seconds(2)),
          [this, reach, to = connection_] {
            if (connection_ == to && to != 0) w_.network.Up(to, reach);
          });
  }
  void OnBroken(Connection from) {
    Run(process_, [this, from] {
      if (from != connection_) return;
      connection_ = 0;
      Feed(SessionDisconnected{});
      ConnectSoon();
    });
  }

  uint64_t data = kRightData;  // what its token files hold
  bool lacks_storage = false;  // its host does not have the place of the checkpoints
  double slow_factor = 1;
  bool fatal = false;         // its next step fails as it would anywhere
  int corrupt_votes = 0;      // as many of the next votes have wrong bits
  uint64_t corrupted_in = 0;  // the generation in which the last one had

 private:
  // What belongs to a process that is gone is dropped; to a frozen one, done when it wakes up.
  void Run(uint64_t process, std::function<void()> action) {
    if (process != process_ || !running_) return;
    if (frozen_) {
      later_.push_back(std::move(action));
    } else {
      action();
    }
  }
  void After(Instant delay, std::function<void()> action) {
    w_.clock.After(
        delay, [this, process = process_, action = std::move(action)]() mutable { Run(process, std::move(action)); });
  }
  /// For steps of the task at work: not done if that has ended meanwhile.
  void AfterInTask(Instant delay, std::function<void()> action) {
    After(delay, [this, task = task_, action = std::move(action)] {
      if (task == task_ && busy_ && !stuck_) action();
    });
  }

  void ConnectSoon() {
    After(w_.clock.Between(milliseconds(20), milliseconds(300)), [this] {
      if (connection_ != 0) return;
      connection_ = w_.network.Open(index_);
      if (connection_ == 0) {
        ConnectSoon();
      } else {
        Feed(SessionConnected{});
      }
    });
  }
  void Beat() {
    if (connection_ != 0) {
      w_.network.Up(connection_, HeartbeatMessage{session_->generation(), step_, phase_, progress_});
    }
    After(w_.limits.heartbeat_interval, [this] { Beat(); });
  }

  void Feed(const SessionEvent& event) {
    const uint64_t process = process_;
    for (SessionAction& action : session_->OnEvent(event)) {
      if (process != process_) return;
      if (auto* send = std::get_if<SendToCoordinator>(&action)) {
        if (connection_ != 0) w_.network.Up(connection_, std::move(send->message));
      } else if (std::holds_alternative<AbortTask>(action)) {
        Abort();
      } else {
        tasks_.push_back(std::move(action));
      }
    }
    Pump();
  }

  void Abort() {
    std::erase_if(tasks_, [](const SessionAction& t) { return !std::holds_alternative<UpdateTask>(t); });
    if (!busy_ || updating_) return;
    w_.collectives.Leave(working_id_, working_generation_);
    if (stuck_) {
      After(w_.limits.kill_timeout, [this] {
        Kill(false);
        w_.exited(index_, false);
      });
      return;
    }
    ++task_;
    After(w_.clock.Between(Instant(10'000), milliseconds(60)), [this, task = task_, generation = working_generation_] {
      if (task != task_) return;
      busy_ = false;
      recovering_ = 0;
      FailureMessage failure;
      failure.generation = generation;
      failure.cause = "aborted";
      failure.secondhand = true;
      if (w_.clock.Chance(0.5)) Feed(TaskFailed{failure});
      Pump();
    });
  }

  void Pump() {
    if (busy_ || tasks_.empty() || !running_) return;
    SessionAction task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    ++task_;
    ++progress_;
    std::visit([this](auto& t) { Do(t); }, task);
  }
  void Done() {
    busy_ = updating_ = false;
    recovering_ = 0;
    ++progress_;
  }
  void Done(const SessionEvent& event) {
    Done();
    Feed(event);
  }
  void Fail(const std::string& cause, std::vector<int> suspects) {
    FailureMessage failure{working_generation_, step_, phase_, cause, std::move(suspects), false};
    Done(TaskFailed{failure});
  }
  void FailAtDeadline() {
    AfterInTask(w_.limits.collective_timeout,
                [this] { Fail("deadline exceeded", w_.collectives.Suspects(world_, world_.RankOf(working_id_))); });
  }

  void Do(SendToCoordinator&) {}
  void Do(AbortTask&) {}

  void Do(RecoverTask& task) {
    const uint64_t source = task.world.source.generation;
    if (source != 0 && fetched_.generation == source) {
      w_.truth.Demand(mirrors_.empty(), member_.id.name, " is counted on for generation ", source,
                      ", whose mirrors it never got");
      held_ = std::move(fetched_);
    }
    recover_ = std::move(task.world);
    world_ = recover_.world;
    working_generation_ = recovering_ = world_.generation;
    working_id_ = id();
    phase_ = Phase::kRendezvous;
    step_ = recover_.committed_step + 1;
    prepared_ = {};
    fetched_ = {};
    mirrors_.clear();
    mirror_failure_.reset();
    AfterInTask(w_.clock.Between(Instant(0), milliseconds(20)), [this] {
      if (connection_ != 0) w_.network.Up(connection_, RendezvousMessage{working_generation_, w_.blob(index_)});
    });
    AfterInTask(w_.limits.collective_timeout, [this] {
      if (phase_ == Phase::kRendezvous) Fail("no peers", {});
    });
  }

  void Transfer() {
    if (w_.collectives.IsCutFromAny(world_, world_.RankOf(working_id_))) return;  // connecting takes until the deadline
    phase_ = Phase::kTransfer;
    ++progress_;
    if (!recover_.checkpoint.empty() && (lacks_storage || w_.truth.IsDamaged(recover_.checkpoint))) {
      AfterInTask(w_.clock.Between(milliseconds(1), milliseconds(100)), [this] {
        FailureMessage failure{working_generation_, step_, phase_, "cannot be loaded", {}, false, true};
        Done(TaskFailed{failure});
      });
      return;
    }
    const int rank = world_.RankOf(working_id_);
    const int64_t step = recover_.committed_step;
    auto wanted = std::make_shared<std::map<int, int>>();  // chunk -> rank to get it from
    incoming_ = {world_.generation, step, {}};
    const bool am_holder = recover_.source.RankOf(working_id_) >= 0;
    if (am_holder) {
      w_.truth.Demand(held_.generation == recover_.source.generation, member_.id.name,
                      " is counted on for the state of ", "generation ", recover_.source.generation,
                      " but has that of ", held_.generation);
      w_.truth.Check(member_.id.name, step, held_);
    }
    std::set<int> holders;
    for (const int chunk : w_.truth.ChunksOf(world_, rank)) {
      const auto own = held_.hashes.find(chunk);
      if (recover_.source.generation == 0) {
        w_.truth.Demand(step == 0 || !recover_.checkpoint.empty(), "step ", step, " is to come from nowhere");
        incoming_.hashes[chunk] =
            step == 0 ? w_.truth.Serial(chunk, step) : w_.truth.Stored(recover_.checkpoint, chunk);
      } else if (am_holder && own != held_.hashes.end()) {
        incoming_.hashes[chunk] = own->second;
      } else {
        const int holder = HolderOf(chunk);
        w_.truth.Demand(holder >= 0, "chunk ", chunk, " has no holder in generation ", world_.generation);
        (Serves(rank, chunk) ? *wanted : mirrors_)[chunk] = holder;
        holders.insert(holder);
      }
    }
    w_.collectives.Serve(world_, rank);
    FailAtDeadline();
    w_.collectives.AwaitHolders(world_, rank, std::move(holders), Collected([this, wanted] {
                                  AfterInTask(w_.clock.Between(milliseconds(1), milliseconds(150)),
                                              [this, wanted] { Fetch(*wanted); });
                                }));
  }

  bool Serves(int rank, int chunk) {
    const Placement& placement = w_.truth.PlacementOf(world_);
    return placement.ServerOf(placement.GroupOf(rank), w_.truth.CellOf(placement, chunk)) == rank;
  }

  int HolderOf(int chunk) {
    const Placement& placement = w_.truth.PlacementOf(recover_.source);
    for (const int rank : placement.Holders(w_.truth.CellOf(placement, chunk))) {
      const int here = world_.RankOf(recover_.source.members[static_cast<size_t>(rank)].id);
      if (here >= 0) return here;
    }
    return -1;
  }

  enum class Fetched { kAll, kLater, kNever };
  /// `gone`: who does not answer any more.
  Fetched TryToFetch(const std::map<int, int>& wanted, Chunks* to, int* gone) {
    for (const auto& [chunk, rank] : wanted) {
      const Worker* holder = w_.find(world_.members[static_cast<size_t>(rank)].id);
      *gone = rank;
      if (holder == nullptr || holder->working_generation_ != working_generation_) return Fetched::kNever;
      if (holder->frozen_ || w_.collectives.IsCut(holder->member_.id.name, member_.id.name)) return Fetched::kLater;
      const Chunks& theirs = holder->held_;
      w_.truth.Demand(theirs.generation == recover_.source.generation && theirs.step == recover_.committed_step,
                      holder->member_.id.name, " should hold step ", recover_.committed_step, " of generation ",
                      recover_.source.generation, " but holds step ", theirs.step, " of ", theirs.generation);
      const auto found = theirs.hashes.find(chunk);
      w_.truth.Demand(found != theirs.hashes.end(), holder->member_.id.name, " does not hold chunk ", chunk);
      if (found != theirs.hashes.end()) to->hashes[chunk] = found->second;
    }
    return Fetched::kAll;
  }

  void Fetch(const std::map<int, int>& wanted) {
    int gone = 0;
    const Fetched result = TryToFetch(wanted, &incoming_, &gone);
    if (result == Fetched::kNever) return Fail("peer closed the connection", {gone});
    if (result == Fetched::kLater) return AfterInTask(milliseconds(100), [this, wanted] { Fetch(wanted); });
    fetched_ = std::move(incoming_);
    w_.truth.Check(member_.id.name, recover_.committed_step, fetched_);
    phase_ = Phase::kIdle;
    FillMirrorsLater(w_.clock.Between(milliseconds(1), milliseconds(600)), working_generation_);
    Done(RecoverDone{{working_generation_, 0.01, 0.02, 0.03, static_cast<int64_t>(wanted.size()),
                      static_cast<int64_t>(mirrors_.size())}});
  }

  /// Beside what the working thread does, as long as it is in this world.
  void FillMirrorsLater(Instant delay, uint64_t generation) {
    After(delay, [this, generation] {
      if (generation != working_generation_ || mirrors_.empty()) return;
      int gone = 0;
      const Fetched result = TryToFetch(mirrors_, &fetched_, &gone);
      if (result == Fetched::kNever) {
        mirror_failure_ = gone;
      } else if (result == Fetched::kLater) {
        FillMirrorsLater(milliseconds(100), generation);
      } else {
        w_.truth.Check(member_.id.name, recover_.committed_step, fetched_);
        mirrors_.clear();
        Feed(MirrorsFilled{generation});
      }
    });
  }
  /// Then goes on with the task.
  void AwaitMirrors(std::function<void()> next) {
    if (mirror_failure_.has_value()) return Fail("peer closed the connection", {*mirror_failure_});
    if (mirrors_.empty()) return next();
    AfterInTask(milliseconds(10), [this, next = std::move(next)]() mutable { AwaitMirrors(std::move(next)); });
  }

  /// Wraps what follows a collective.
  Collectives::Done Collected(std::function<void()> next) {
    return [this, process = process_, task = task_, next = std::move(next)](bool ok, const std::vector<int>& suspects) {
      Run(process, [this, task, next, ok, suspects] {
        if (task != task_ || !busy_ || stuck_) return;
        if (ok) {
          next();
        } else {
          Fail("peer closed the connection", suspects);
        }
      });
    };
  }

  /// What a step of the generation works on.
  const Chunks& Working(uint64_t generation) const { return fetched_.generation == generation ? fetched_ : held_; }

  void Do(StepTask& task) {
    step_ = task.step;
    if (std::exchange(fatal, false)) {
      FailureMessage failure{working_generation_, step_, phase_, "the loss is not finite", {}, /*fatal=*/true};
      Done(TaskFailed{failure});
      return;
    }
    if (w_.truth.IsValidationStep(task.step - 1)) Validated(task.generation, task.step - 1);
    phase_ = Phase::kForwardBackward;
    w_.truth.Demand(Working(task.generation).generation == task.generation, member_.id.name, " steps in generation ",
                    task.generation, " without its state");
    w_.truth.Check(member_.id.name, task.step - 1, Working(task.generation));
    const int rank = world_.RankOf(working_id_);
    const int64_t mine = task.microbatches[static_cast<size_t>(rank)];
    const double share = static_cast<double>(w_.clock.Between(80, 120)) / 100 * slow_factor * static_cast<double>(mine);
    const Instant time =
        milliseconds(1) +
        Instant(static_cast<int64_t>(share * static_cast<double>(Instant(w_.limits.step_time).count())));
    VoteMessage vote{task.generation, task.step, LossBits(task.step), NormBits(task.step), 0.1, 0, 0.01, 0, mine, {}};
    vote.compute_seconds = std::chrono::duration<double>(time).count();
    // A world of one or two cannot tell who is right.
    if (corrupt_votes > 0 && world_.size() > 2) {
      --corrupt_votes;
      corrupted_in = task.generation;
      vote.loss_bits ^= static_cast<uint32_t>(w_.clock.Bits() | 1);
    }
    AfterInTask(time, [this, vote, rank] {
      phase_ = Phase::kReduce;
      ++progress_;
      FailAtDeadline();
      AwaitMirrors([this, vote, rank] {
        w_.collectives.AwaitAll(world_, rank, vote.step, Collected([this, vote]() mutable {
                                  w_.truth.Computed(vote.generation, vote.step, [this] { return SomebodyServesBad(); });
                                  if (w_.truth.IsDigestStep(vote.step)) AddDigests(&vote);
                                  prepared_ = {vote.generation, vote.step};
                                  w_.truth.Prepared(vote.generation, vote.step, working_id_);
                                  phase_ = Phase::kVote;
                                  Done(StepPrepared{vote});
                                }));
      });
    });
  }

  bool SomebodyServesBad() {
    for (int rank = 0; rank < world_.size(); ++rank) {
      const Worker* worker = w_.find(world_.members[static_cast<size_t>(rank)].id);
      if (worker == nullptr) continue;
      for (const auto& [chunk, hash] : worker->Working(working_generation_).hashes) {
        if (w_.truth.IsBad(hash) && Serves(rank, chunk)) return true;
      }
    }
    return false;
  }

  void AddDigests(VoteMessage* vote) {
    const Chunks part = MyPart(Working(vote->generation));
    for (const auto& [chunk, hash] : Working(vote->generation).hashes) {
      const bool mine = part.hashes.contains(chunk);
      if (!mine && !w_.truth.goes_bad) continue;
      auto& digests = mine ? vote->digests : Serves(world_.RankOf(working_id_), chunk) ? vote->copies : vote->mirrors;
      digests.push_back({chunk, w_.truth.After(hash, vote->generation, vote->step)});
    }
  }

  void Validated(uint64_t generation, int64_t step) {
    if (world_.RankOf(working_id_) != 0 || connection_ == 0 || step == 0) return;
    w_.network.Up(connection_, ValidationMessage{generation, step, ValidationLoss(step)});
  }

  void Do(UpdateTask& task) {
    updating_ = true;
    if (w_.clock.Chance(w_.limits.drop_update)) {
      Done();
      Pump();
      return;
    }
    w_.truth.Demand(prepared_.second == task.step, member_.id.name, " is to apply step ", task.step,
                    " but has prepared ", prepared_.second);
    Chunks next = Working(prepared_.first);
    w_.truth.Demand(next.generation == prepared_.first && next.step == task.step - 1, member_.id.name, " applies step ",
                    task.step, " to the state of step ", next.step, " of generation ", next.generation);
    for (auto& [chunk, hash] : next.hashes) hash = w_.truth.After(hash, prepared_.first, task.step);
    next.step = task.step;
    held_ = std::move(next);
    fetched_ = {};
    prepared_ = {};
    w_.truth.Applied(member_.id.name, task.step, held_);
    if (task.save_for != 0) {
      After(w_.clock.Between(milliseconds(20), seconds(2)),
            [this, generation = task.save_for, part = MyPart(held_)] { Save(generation, part); });
    }
    AfterUpdate();
  }
  /// What this rank writes to a checkpoint: of the shards it holds, those it is the first holder of.
  Chunks MyPart(const Chunks& state) {
    Chunks part{state.generation, state.step, {}};
    const Placement& placement = w_.truth.PlacementOf(world_);
    for (const auto& [chunk, hash] : state.hashes) {
      const int first = placement.Holders(w_.truth.CellOf(placement, chunk)).front();
      if (first == world_.RankOf(working_id_)) part.hashes[chunk] = hash;
    }
    return part;
  }
  void Save(uint64_t generation, const Chunks& part) {
    if (!lacks_storage) w_.truth.Saved(generation, part);
    if (connection_ == 0) return;
    SavedMessage saved;
    saved.generation = generation;
    saved.step = part.step;
    if (lacks_storage || w_.clock.Chance(w_.limits.failed_save)) saved.cause = "no space left on device";
    saved.no_room = !saved.cause.empty() && !lacks_storage;  // a disk that is not there stays away
    w_.network.Up(connection_, saved);
  }
  void AfterUpdate() {
    After(w_.clock.Between(Instant(1000), milliseconds(5)), [this, task = task_] {
      if (task != task_) return;
      Done();
      Pump();
    });
  }

  void Do(EndingTask& task) {
    phase_ = Phase::kSave;
    w_.truth.Check(member_.id.name, task.step, Working(task.generation));
    w_.truth.Demand(task.step == w_.truth.committed() || task.generation < w_.truth.newest(), member_.id.name,
                    " ends the run at step ", task.step);
    AfterInTask(w_.clock.Between(milliseconds(20), milliseconds(500)),
                [this, generation = task.generation, save = task.save, step_at_end = task.step,
                 trains = task.purpose == Purpose::kTrain] {
                  if (save) Save(generation, MyPart(Working(generation)));
                  if (trains && w_.truth.IsValidationStep(step_at_end)) Validated(generation, step_at_end);
                  if (world_.RankOf(working_id_) == 0) w_.truth.ModelSaved(step_at_end);
                  Done(EndingDone{generation});
                });
  }
  void Do(ForgetTask&) {
    w_.collectives.Leave(working_id_);
    held_ = fetched_ = {};
    mirrors_.clear();
    prepared_ = {};
    Done();
    Pump();
  }
  void Do(ExitTask& task) {
    const bool replaced = task.reason.find("another process") != std::string::npos;
    w_.truth.Demand(task.exit_code != 1 || replaced || w_.run_over() || held_.generation == 0, member_.id.name,
                    " gives its state up: ", task.reason);
    const bool over = w_.run_over() || (task.exit_code > 128 && !replaced);
    Kill(false);
    w_.exited(index_, over);
  }

  Surroundings& w_;
  int index_;
  Member member_;
  std::unique_ptr<WorkerSession> session_;
  uint64_t process_ = 0;
  bool running_ = false, frozen_ = false, stuck_ = false;
  Instant healthy_since_{0};
  std::deque<std::function<void()>> later_;  // while frozen
  Connection connection_ = 0;

  // The thread that works.
  std::deque<SessionAction> tasks_;
  bool busy_ = false, updating_ = false;
  uint64_t task_ = 0;
  WorldMessage recover_;
  World world_;
  uint64_t working_generation_ = 0, recovering_ = 0;
  WorkerId working_id_;
  Phase phase_ = Phase::kStarting;
  int64_t step_ = 0;
  uint64_t progress_ = 0;

  // What it holds: by its last committed world; fetched for the world at work; and the step prepared (generation,
  // step).
  Chunks held_, fetched_, incoming_;
  std::map<int, int> mirrors_;         // chunk -> rank to get it from; that fetched_ still lacks
  std::optional<int> mirror_failure_;  // the rank that they cannot be got from
  std::pair<uint64_t, int64_t> prepared_;
};

}  // namespace holdfast::sim
