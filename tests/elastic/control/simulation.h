#pragma once
// The real Coordinator and real WorkerSessions under a simulated clock and network, with faults drawn from a seed. What
// happened in a run is a function of its options alone.
//
//   Result result = Simulation(Scenario::FromSeed(7)).Run();
//   EXPECT_EQ(result.violation, "");

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/elastic/control/sim_coordinator.h"
#include "tests/elastic/control/sim_worker.h"

namespace holdfast::sim {

/// Defects that the simulation has to find. They live in the shells of this test; the product has no switch for them.
enum class Planted {
  kNone,
  kStaleVote,            // a vote for a world gone by is passed off as one for the world of today
  kForgedVote,           // a vote is counted for two members
  kDroppedUpdate,        // a worker skips the update of a committed step
  kForgottenGeneration,  // a coordinator that starts again does not know which generations were used
  kUnrecordedCommit,     // a commit is told before it is recorded
  kUnsyncedRecord,       // the last lines of the record do not survive a loss of power
  kIgnoredLock,          // a coordinator that was replaced does not find out
  kIgnoredVersion,       // of leases (LeaseBugs)
  kTakenTooSoon,
  kCountedFromAnswer,
  kStoppedClock,
  kIgnoredTerm,
};

/// A size of the run, and what happens to it once it is that large and steps.
struct Stage {
  enum class Then { kNothing, kNodeLost, kCoordinatorDies, kNodesCut, kLinksHeal };
  int workers = 0;
  Then then = Then::kNothing;
};

struct Scenario {
  uint64_t seed = 1;
  int workers = 4, nodes = 2, spares = 0;
  int64_t steps = 40;
  int num_chunks = 64;
  int faults = 0;
  seconds fault_time{12};      // faults fall into the first so many seconds
  bool one_at_a_time = false;  // the next fault waits until the run has got over the one before
  bool crashes_only = false;
  double goes_back = 0.1;         // probability that who starts the coordinator again says --resume STEP; or, half as
                                  // probable, --overwrite
  bool cut_for_good = false;      // between two nodes nothing arrives from some moment on, until the end
  bool cut_from_all = false;      // for a while nothing reaches the coordinator, nor comes from it
  double strikes_at_mirrors = 0;  // probability that somebody is killed while the mirrors of a world are filled
  bool stops = false;             // the run is stopped at some moment, often just after its coordinator was killed
  int bad_copies = 0;             // of the state, that go bad one after the other; meanwhile a worker that has none may
                                  // be killed, and the coordinator
  double replaces = 0.1;          // probability that a fault is a second coordinator
  int candidates = 0;             // coordinators that wait for their turn under a lease in a store; 0 = without one
  int64_t digest_every = 0, validate_every = 0;
  int64_t patience = 0;  // validations without a lower loss that end the run; 0 = it does not end early
  ParallelConfig parallel;
  ElasticConfig elastic;
  CheckpointConfig checkpoint;  // by every_steps alone
  Planted planted = Planted::kNone;
  bool keep_log = false, with_digest = false;
  std::vector<Stage> stages;     // from one size to the next: workers join, or nodes leave; after the last the run is
                                 // stopped. Empty: all are there from the start
  const Codec* codec = nullptr;  // messages as they are in production
  std::function<std::string(int index)> blob;  // a worker's for a rendezvous

  static Scenario FromSeed(uint64_t seed);
};

struct Result {
  std::string violation;  // the first rule broken; empty = none
  int exit_code = -1;     // -1: the run did not end
  std::string end_reason;
  double seconds = 0;
  int64_t committed = 0, worlds = 0, coordinator_lives = 0, hung = 0, lost = 0, bits_differ = 0, state_lost = 0;
  int64_t copies_differ = 0;
  int64_t checkpoints = 0, rewinds = 0, links_cut = 0, links_back = 0;
  int64_t mirrors_missing = 0, mirrors_complete = 0;  // worlds that began without, and that got them
  int64_t replaced = 0, starts_refused = 0;           // coordinators
  int64_t takes = 0;                                  // of the lease
  size_t stages = 0;                                  // that were reached
  Traffic traffic;
  std::vector<std::string> log;
  uint64_t digest = 0;  // of all decisions, if the scenario asks for it
};

inline Scenario Scenario::FromSeed(uint64_t seed) {
  Clock random(seed * 7919 + 13);
  Scenario s;
  s.seed = seed;
  s.workers = static_cast<int>(random.Between(3, 12));
  s.nodes = static_cast<int>(random.Between(1, s.workers));
  s.spares = random.Chance(0.3) ? static_cast<int>(random.Between(1, 3)) : 0;
  s.steps = random.Between(20, 60);
  s.faults = static_cast<int>(random.Between(1, 12));
  const Sharding kinds[] = {Sharding::kFullShard, Sharding::kFullShard, Sharding::kShardGradOp, Sharding::kNoShard};
  s.parallel.sharding = kinds[random.Between(0, 3)];
  s.parallel.replicas = random.Between(1, 2);
  s.parallel.mirrors = random.Between(1, 2);
  s.elastic.rebalance = random.Chance(0.5);
  s.elastic.min_workers = random.Between(1, std::max(1, s.workers / 2));
  s.checkpoint.every_steps = random.Chance(0.6) ? random.Between(1, 10) : 0;
  if (random.Chance(0.3)) s.elastic.max_workers = s.workers + 2;
  s.digest_every = random.Chance(0.5) ? random.Between(1, 7) : 0;
  s.validate_every = random.Chance(0.5) ? random.Between(1, 7) : 0;
  s.patience = random.Chance(0.3) ? random.Between(1, 4) : 0;
  return s;
}

class Simulation {
 public:
  explicit Simulation(Scenario scenario)
      : scenario_(Complete(std::move(scenario))),
        clock_(scenario_.seed),
        truth_(scenario_.num_chunks, scenario_.parallel),
        network_(clock_, scenario_.workers + scenario_.spares + scenario_.nodes),
        collectives_(clock_, [this](const WorkerId& id) { return Find(id) != nullptr; }),
        coordinator_(clock_, network_, truth_, Options(),
                     {.forgets_generation = scenario_.planted == Planted::kForgottenGeneration,
                      .commits_unrecorded = scenario_.planted == Planted::kUnrecordedCommit,
                      .loses_lines = scenario_.planted == Planted::kUnsyncedRecord,
                      .ignores_lock = scenario_.planted == Planted::kIgnoredLock}),
        surroundings_{clock_, network_, truth_, collectives_, Limits(), {}, {}, {}, {}} {
    surroundings_.find = [this](const WorkerId& id) { return Find(id); };
    surroundings_.exited = [this](int index, bool over) { OnExit(index, over); };
    surroundings_.is_there = [this](const std::string& name) { return workers_[by_name_.at(name)]->running(); };
    surroundings_.run_over = [this] { return coordinator_.ended(); };
    if (scenario_.blob != nullptr) surroundings_.blob = scenario_.blob;
    if (scenario_.candidates > 0) {
      coordinator_.UseLeases(scenario_.candidates,
                             {.store_ignores_versions = scenario_.planted == Planted::kIgnoredVersion,
                              .takes_too_soon = scenario_.planted == Planted::kTakenTooSoon,
                              .counts_from_answer = scenario_.planted == Planted::kCountedFromAnswer,
                              .clock_stands_still = scenario_.planted == Planted::kStoppedClock,
                              .ignores_term = scenario_.planted == Planted::kIgnoredTerm});
    }
    network_.codec = scenario_.codec;
    coordinator_.keep_log = scenario_.keep_log;
    coordinator_.with_digest = scenario_.with_digest;
    coordinator_.storage_faults = coordinator_.slow_saves = scenario_.faults > 0 ? 0.1 : 0;
    truth_.digest_every = scenario_.digest_every;
    truth_.validate_every = scenario_.validate_every;
    truth_.total_steps = scenario_.steps;
    truth_.patience = scenario_.patience;
    truth_.goes_bad = scenario_.bad_copies > 0;
    coordinator_.rewinding = [this] {
      truth_.Demand(truth_.goes_bad || IsStateLost(), "the run goes back without need");
    };
    coordinator_.restarting = [this] { GoBackOnPurpose(); };
    coordinator_.mirrors_missing = [this] {
      if (clock_.now() > scenario_.fault_time || !clock_.Chance(scenario_.strikes_at_mirrors)) return;
      clock_.After(clock_.Between(Instant(0), milliseconds(600)),
                   [this] { KillOne(AnyWorker(), clock_.Chance(0.2), true); });
    };
    Wire();
    MakeWorkers();
  }

  Result Run() {
    coordinator_.Start();
    for (size_t i = 0; i < workers_.size(); ++i) {
      const bool first = scenario_.stages.empty() || static_cast<int>(i) < scenario_.stages[0].workers;
      if (first) StartLater(workers_[i]->member().id.name, milliseconds(1500));
    }
    if (!scenario_.stages.empty()) WatchStage();
    for (int i = 0; i < scenario_.faults && !scenario_.one_at_a_time; ++i) {
      clock_.After(clock_.Between(milliseconds(500), scenario_.fault_time), [this] { StrikeAtRandom(); });
    }
    if (scenario_.one_at_a_time) StrikeOneByOne(scenario_.faults);
    GoBadOneByOne(scenario_.bad_copies);
    if (scenario_.stops) StopAtSomeMoment();
    if (scenario_.cut_for_good) clock_.After(clock_.Between(Instant(0), seconds(4)), [this] { CutNodes(); });
    if (scenario_.cut_from_all) clock_.After(clock_.Between(seconds(2), seconds(6)), [this] { CutFromAll(); });
    const Instant healed = std::max<Instant>(scenario_.fault_time, seconds(1));
    if (!scenario_.one_at_a_time) clock_.After(healed, [this] { HealAll(); });
    const Instant limit = healed + seconds(240 + scenario_.steps);
    while (truth_.violation().empty() && !coordinator_.ended() && clock_.now() < limit && clock_.Step()) {
    }
    CheckEnd();
    return Summary();
  }

 private:
  static Scenario Complete(Scenario s) {
    s.elastic.workers = s.stages.empty() ? s.workers : s.stages[0].workers;
    s.checkpoint.every = CheckpointEvery::kNever;
    s.elastic.heartbeat_interval_ms = 500;
    s.elastic.heartbeat_timeout_ms = 3000;
    s.elastic.collective_timeout_ms = 5000;
    s.elastic.kill_timeout_ms = 8000;
    s.elastic.progress_timeout_ms = 12000;
    s.elastic.join_timeout_ms = 5000;
    s.elastic.lost_state_timeout_ms = 10000;
    s.elastic.straggler_steps = 4;
    return s;
  }
  CoordinatorOptions Options() const {
    CoordinatorOptions options;
    options.elastic = scenario_.elastic;
    options.parallel = scenario_.parallel;
    options.checkpoint = scenario_.checkpoint;
    if (scenario_.patience > 0) options.checkpoint.keep_best = 1;
    options.microbatches = scenario_.workers * 2;
    options.total_steps = scenario_.steps;
    options.digests.config = 42;
    options.validates = scenario_.validate_every > 0;
    options.validate_every_steps = scenario_.validate_every;
    options.early_stop.patience = scenario_.patience;
    return options;
  }
  WorkerLimits Limits() const {
    WorkerLimits limits;
    limits.total_steps = scenario_.steps;
    limits.step_time = milliseconds(60);
    limits.failed_save = scenario_.faults > 0 ? 0.1 / scenario_.workers : 0;
    if (scenario_.planted == Planted::kDroppedUpdate) limits.drop_update = 0.01;
    return limits;
  }

  // --- the parts are put together -----------------------------------------------------------------------------------
  void Wire() {
    network_.at_server = [this](Connection from, const WorkerMessage& message) { AtServer(from, message); };
    network_.broken_at_server = [this](Connection c) { coordinator_.Feed(DisconnectEvent{c, "stream broken"}); };
    network_.at_client = [this](int client, Connection from, const Shared& message) {
      if (client < static_cast<int>(workers_.size())) workers_[client]->OnMessage(from, message);
    };
    network_.broken_at_client = [this](int client, Connection c) {
      if (client < static_cast<int>(workers_.size())) workers_[client]->OnBroken(c);
      for (size_t node = 0; node < agents_.size(); ++node) {
        if (agents_[node] != c) continue;
        agents_[node] = 0;
        clock_.After(milliseconds(500), [this, node] { AgentComesBack(static_cast<int>(node)); });
      }
    };
  }

  void MakeWorkers() {
    const int count = scenario_.workers + scenario_.spares;
    agents_.resize(scenario_.nodes, 0);
    for (int i = 0; i < count; ++i) {
      node_of_.push_back(static_cast<int>(static_cast<int64_t>(i) * scenario_.nodes / count));
      Member member;
      const std::string node = absl::StrCat("n", node_of_.back());
      member.id.name = absl::StrCat(node, "/", i);
      member.node = member.host = node;
      member.probe_address = member.id.name;
      agent_instances_.resize(scenario_.nodes, 1);
      workers_.push_back(std::make_unique<Worker>(surroundings_, i, member));
      if (clock_.Chance(0.02)) workers_.back()->data = kRightData + 1;  // until it is started again
      by_name_[member.id.name] = i;
    }
  }

  Worker* Find(const WorkerId& id) {
    const auto it = by_name_.find(id.name);
    if (it == by_name_.end()) return nullptr;
    Worker* worker = workers_[it->second].get();
    return worker->running() && worker->id() == id ? worker : nullptr;
  }

  void AtServer(Connection from, WorkerMessage message) {
    auto* vote = std::get_if<VoteMessage>(&message);
    if (vote != nullptr && scenario_.planted == Planted::kStaleVote) vote->generation = truth_.newest();
    coordinator_.Feed(MessageEvent{from, message});
    if (vote == nullptr || scenario_.planted != Planted::kForgedVote || !clock_.Chance(0.1) || !coordinator_.up())
      return;
    coordinator_.Feed(MessageEvent{from + 1, message});
  }

  void StartLater(const std::string& name, Instant within) {
    Worker* worker = workers_[by_name_[name]].get();
    clock_.After(clock_.Between(Instant(0), within), [worker] {
      if (!worker->running()) worker->Start();
    });
  }

  // The agent sees the exit, tells the coordinator, and starts the worker again.
  void OnExit(int index, bool run_over) {
    if (run_over && !IsOfAnotherAgent(index)) return;
    workers_[index]->data = kRightData;
    TellExit(index);
    if (node_up_after_ <= clock_.now() || node_down_ != node_of_[index]) {
      StartLater(workers_[index]->member().id.name, seconds(2));
    }
  }
  /// It was let go because its node was to leave, by the agent before: its own one has not been taken in yet, and is
  /// started again, with its workers, until it is.
  bool IsOfAnotherAgent(int index) const {
    const auto leaver = leavers_.find(node_of_[index]);
    return !coordinator_.ended() && leaver != leavers_.end() && leaver->second != agent_instances_[node_of_[index]];
  }
  bool ConnectAgent(int node) {
    if (agents_[node] != 0) return true;
    agents_[node] = network_.Open(static_cast<int>(workers_.size()) + node);
    if (agents_[node] == 0) return false;
    network_.Up(agents_[node], AgentHelloMessage{absl::StrCat("n", node), "host", 1, 1, agent_instances_[node]});
    return true;
  }
  // A node is told to leave; whether it is let go or killed, it comes back later under its name, with another agent.
  void LeaveAndReturn(int node) {
    if (!ConnectAgent(node)) return;
    told_to_leave_.insert(absl::StrCat("node n", node));
    leavers_[node] = agent_instances_[node];
    network_.Up(agents_[node], LeaveMessage{15});
    clock_.After(clock_.Between(seconds(2), seconds(12)), [this, node] {
      for (size_t i = 0; i < workers_.size(); ++i) {
        if (node_of_[i] == node) workers_[i]->Kill(false);
      }
      network_.CloseByClient(std::exchange(agents_[node], 0), false);
      ++agent_instances_[node];
      AgentComesBack(node);
      for (size_t i = 0; i < workers_.size(); ++i) {
        if (node_of_[i] == node) StartLater(workers_[i]->member().id.name, seconds(2));
      }
    });
  }
  void AgentComesBack(int node) {
    if (coordinator_.ended() || ConnectAgent(node)) return;
    clock_.After(milliseconds(500), [this, node] { AgentComesBack(node); });
  }
  void TellExit(int index) {
    const int node = node_of_[index];
    if (!ConnectAgent(node)) return;
    network_.Up(agents_[node], WorkerExitMessage{workers_[index]->member().id, "killed by signal 9 (Killed)", true});
  }

  // --- faults -------------------------------------------------------------------------------------------------------
  int AnyWorker() { return static_cast<int>(clock_.Between(0, static_cast<int64_t>(workers_.size()) - 1)); }

  void KillOne(int index, bool silently, bool restart) {
    if (!workers_[index]->running()) return;
    workers_[index]->Kill(silently);
    if (!restart) return;
    if (!silently) clock_.After(clock_.Between(milliseconds(1), milliseconds(20)), [this, index] { TellExit(index); });
    StartLater(workers_[index]->member().id.name, seconds(3));
  }

  void StrikeAtRandom() {
    if (coordinator_.ended()) return;
    const int victim = AnyWorker();
    Worker* worker = workers_[victim].get();
    if (scenario_.candidates > 0 && clock_.Chance(0.6)) return coordinator_.StrikeLease();
    if (!scenario_.crashes_only && clock_.Chance(scenario_.replaces)) {
      coordinator_.Replace(static_cast<int>(clock_.Between(0, 5)));
      return;
    }
    const int64_t kind = scenario_.crashes_only ? 0 : clock_.Between(0, 19);
    const bool one_victim = kind <= 4 || (scenario_.one_at_a_time && kind <= 6);
    if (one_victim) {
      KillOne(victim, clock_.Chance(0.2), true);
    } else if (kind == 5) {  // several at once
      for (int i = 0; i < 3; ++i) KillOne(AnyWorker(), clock_.Chance(0.2), true);
    } else if (kind == 6) {
      LoseNode();
    } else if (kind <= 8) {
      if (worker->running()) worker->Freeze();
      clock_.After(clock_.Between(milliseconds(200), seconds(12)), [worker] { worker->Thaw(); });
    } else if (kind <= 11) {
      const int64_t ways = clock_.Between(0, 2);
      network_.CutOff(victim, ways != 0, ways != 1);
      worker->NoticeCutLater();
      clock_.After(clock_.Between(milliseconds(100), seconds(8)), [this, victim] { HealOne(victim); });
    } else if (kind <= 13) {
      worker->DropConnection();
    } else if (kind <= 15) {
      coordinator_.CrashAfter(static_cast<int>(clock_.Between(0, 2 * scenario_.workers)));
    } else if (kind == 16) {
      coordinator_.Freeze();
      clock_.After(clock_.Between(milliseconds(100), seconds(8)), [this] { coordinator_.Thaw(); });
    } else {
      StrikeMildly(worker);
    }
  }

  void StrikeMildly(Worker* worker) {
    const int64_t kind = clock_.Between(0, 15);
    if (kind == 15) {
      worker->fatal = clock_.Chance(0.2) && worker->running();
      had_fatal_ = had_fatal_ || worker->fatal;
    } else if (kind == 14 && !scenario_.one_at_a_time) {  // who is not let go in time is killed, a node at once
      LeaveAndReturn(node_of_[AnyWorker()]);
    } else if (kind == 12) {
      truth_.DamageNewest();
    } else if (kind == 13) {
      worker->lacks_storage = true;
      clock_.After(clock_.Between(seconds(1), seconds(10)), [worker] { worker->lacks_storage = false; });
    } else if (kind <= 3) {
      worker->slow_factor = 3;
    } else if (kind <= 5) {
      worker->Stick();
    } else if (kind <= 8) {
      collectives_.CutLink(worker->member().id.name, workers_[AnyWorker()]->member().id.name);
      clock_.After(clock_.Between(milliseconds(100), seconds(30)), [this] {
        if (!scenario_.cut_for_good) collectives_.HealLinks();
      });
    } else if (kind <= 10) {
      worker->corrupt_votes = 1;
    } else {
      stop_asked_ = true;
      if (clock_.Chance(0.5)) {
        coordinator_.Feed(StopEvent{15});
      } else {
        worker->AskForStop();
      }
    }
  }

  void LoseNode() {
    node_down_ = node_of_[AnyWorker()];
    node_up_after_ = clock_.now() + clock_.Between(seconds(1), seconds(6));
    const bool silently = clock_.Chance(0.5);
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (node_of_[i] == node_down_) KillOne(static_cast<int>(i), silently, false);
    }
    if (clock_.Chance(0.5)) {  // the whole host: its agent as well, and perhaps the coordinator
      const Connection agent = std::exchange(agents_[node_down_], 0);
      network_.CloseByClient(agent, silently);
      if (silently) clock_.After(seconds(15), [this, agent] { network_.FindGone(agent); });
      ++agent_instances_[node_down_];
      if (clock_.Chance(0.3)) coordinator_.CrashAfter(0);
    }
    clock_.After(node_up_after_ - clock_.now(), [this, node = node_down_] {
      AgentComesBack(node);
      for (size_t i = 0; i < workers_.size(); ++i) {
        if (node_of_[i] == node) StartLater(workers_[i]->member().id.name, seconds(2));
      }
    });
  }

  /// Now and then somebody who starts the coordinator again has it go back to a checkpoint, or begin anew. It reads all
  /// of the checkpoint first, and refuses one that is damaged.
  void GoBackOnPurpose() {
    std::vector<CheckpointChoice> usable = truth_.Usable();
    std::erase_if(usable, [this](const CheckpointChoice& c) { return truth_.IsDamaged(c.name); });
    if (clock_.Chance(scenario_.goes_back / 2)) {
      truth_.GoBackTo(0, /*overwrite=*/true);
      coordinator_.HasGoneBack();
    } else if (clock_.Chance(scenario_.goes_back) && !usable.empty()) {
      truth_.GoBackTo(usable[clock_.Between(0, std::ssize(usable) - 1)].step, /*overwrite=*/false);
      coordinator_.HasGoneBack();
    }
  }

  void StopAtSomeMoment() {
    clock_.After(clock_.Between(Instant(0), seconds(6)), [this] {
      if (clock_.Chance(0.5)) coordinator_.CrashAfter(0);
      stop_asked_ = true;
      AskForStop();
    });
  }
  // Every worker of one from every worker of the other; the coordinator reaches all.
  void CutNodes() {
    cut_nodes_ = {0, static_cast<int>(clock_.Between(1, scenario_.nodes - 1))};
    for (size_t i = 0; i < workers_.size(); ++i) {
      for (size_t j = 0; j < workers_.size(); ++j) {
        if (node_of_[i] != cut_nodes_.first || node_of_[j] != cut_nodes_.second) continue;
        collectives_.CutLink(workers_[i]->member().id.name, workers_[j]->member().id.name);
      }
    }
  }
  // Its machine loses its network, and nobody else anything, for longer than lost state is waited for.
  void CutFromAll() {
    const int workers = static_cast<int>(std::ssize(workers_));
    if (clock_.Chance(0.3)) coordinator_.CrashAfter(static_cast<int>(clock_.Between(0, 2 * workers)));
    const bool reaches_one = scenario_.elastic.min_workers > 1 && clock_.Chance(0.5);
    for (int client = reaches_one ? 1 : 0; client < workers + scenario_.nodes; ++client) {
      network_.CutOff(client, true, true);
      if (client < workers) workers_[static_cast<size_t>(client)]->NoticeCutLater();
    }
    clock_.After(clock_.Between(seconds(15), seconds(40)), [this, workers] {
      for (int node = 0; node < scenario_.nodes; ++node) network_.Heal(workers + node);
      for (int i = 0; i < workers; ++i) HealOne(i);
    });
  }
  void AskForStop() {  // of whatever coordinator is there, as soon as there is one
    if (coordinator_.ended()) return;
    if (coordinator_.well()) return coordinator_.Feed(StopEvent{15});
    clock_.After(milliseconds(10), [this] { AskForStop(); });
  }

  void HealOne(int index) {
    network_.Heal(index);
    workers_[index]->Touch();
  }

  /// Every worker is there, well, and can be reached from now on.
  void HealAll() {
    if (!scenario_.cut_for_good && scenario_.stages.empty()) collectives_.HealLinks();
    coordinator_.Thaw();
    for (size_t i = 0; i < workers_.size(); ++i) {
      Worker* worker = workers_[i].get();
      if (network_.Cut(static_cast<int>(i))) HealOne(static_cast<int>(i));
      worker->Thaw();
      worker->slow_factor = 1;
      worker->lacks_storage = false;
      if (!worker->running()) StartLater(worker->member().id.name, seconds(2));
    }
  }

  int WholeSize() const {
    return static_cast<int>(std::min<int64_t>(scenario_.elastic.most_workers(), std::ssize(workers_)));
  }
  /// Nothing is left of the faults before: everybody is in a world that has committed a step.
  bool IsWhole() {
    const World& world = truth_.world(truth_.newest());
    if (truth_.committed() == 0 || truth_.generation_of(truth_.committed()) != truth_.newest()) return false;
    if (world.size() != WholeSize() || !coordinator_.well() || collectives_.has_cuts()) return false;
    const auto is_there = [this](const Member& member) { return Find(member.id) != nullptr; };
    const auto is_well = [this](const auto& w) {
      const bool votes_well = w->corrupt_votes == 0 && w->corrupted_in != truth_.newest();
      return w->healthy() && w->connected() && votes_well;
    };
    return std::all_of(world.members.begin(), world.members.end(), is_there) &&
           std::all_of(workers_.begin(), workers_.end(), is_well);
  }
  void StrikeOneByOne(int left) {
    clock_.After(clock_.Between(milliseconds(300), milliseconds(900)), [this, left] {
      if (left == 0 || coordinator_.ended()) return;
      if (!IsWhole()) {
        StrikeOneByOne(left);
        return;
      }
      StrikeAtRandom();
      StrikeOneByOne(left - 1);
    });
  }

  void GoBadOneByOne(int left, bool killed = false) {
    if (left == 0) return;
    clock_.After(clock_.Between(milliseconds(100), milliseconds(600)), [this, left, killed] {
      if (coordinator_.ended()) return;
      const bool some =
          std::any_of(workers_.begin(), workers_.end(), [](const auto& worker) { return worker->HasBad(); });
      const int worker = AnyWorker();
      if (!some && IsWhole()) {
        workers_[worker]->GoBad();
        return GoBadOneByOne(left - 1);
      }
      const bool kills = some && !killed && !workers_[worker]->HasBad() && clock_.Chance(0.7);
      if (kills) KillOne(worker, /*silently=*/false, /*restart=*/true);
      if (some && clock_.Chance(0.1)) coordinator_.CrashAfter(static_cast<int>(clock_.Between(0, 20)));
      GoBadOneByOne(left, killed || kills);
    });
  }

  // --- stages -------------------------------------------------------------------------------------------------------
  void WatchStage() {
    if (coordinator_.ended() || stage_ == scenario_.stages.size()) return;
    const Stage& stage = scenario_.stages[stage_];
    const bool reached = truth_.newest() > stage_since_ && truth_.world(truth_.newest()).size() == stage.workers &&
                         truth_.committed() > 0 && truth_.generation_of(truth_.committed()) == truth_.newest();
    if (reached) {
      stage_since_ = truth_.newest();
      if (stage.then == Stage::Then::kNodeLost) LoseNode();
      if (stage.then == Stage::Then::kCoordinatorDies) coordinator_.CrashAfter(0);
      if (stage.then == Stage::Then::kNodesCut) CutNodes();
      if (stage.then == Stage::Then::kLinksHeal) collectives_.HealLinks();
      const bool links = stage.then == Stage::Then::kNodesCut || stage.then == Stage::Then::kLinksHeal;
      if (++stage_ < scenario_.stages.size()) {
        if (!links) Resize(stage.workers, scenario_.stages[stage_].workers);
      } else {
        stop_asked_ = true;
        coordinator_.Feed(StopEvent{15});
      }
    }
    clock_.After(milliseconds(20), [this] { WatchStage(); });
  }
  void Resize(int from, int to) {
    for (int i = from; i < to; ++i) StartLater(workers_[i]->member().id.name, milliseconds(1500));
    for (int node = to < from ? node_of_[to] : scenario_.nodes; node < scenario_.nodes && node_of_[from - 1] >= node;
         ++node) {
      if (agents_[node] == 0) {
        agents_[node] = network_.Open(static_cast<int>(workers_.size()) + node);
        network_.Up(agents_[node], AgentHelloMessage{absl::StrCat("n", node), "host", 1, 1, 1});
      }
      network_.Up(agents_[node], LeaveMessage{15});
    }
  }

  // --- the end ------------------------------------------------------------------------------------------------------
  void CheckEnd() {
    if (!truth_.violation().empty()) return;
    truth_.Demand(coordinator_.ended(), "the run does not end, although no faults come any more: ", WhatItDoes());
    if (!coordinator_.ended()) return;
    const int code = *coordinator_.exit_code();
    if (code == 0) {
      truth_.Demand(truth_.committed() == truth_.LastStep(), "done after ", truth_.committed(), " steps");
    } else if (code == 128 + 15) {
      truth_.Demand(stop_asked_ || told_to_leave_.contains(coordinator_.stopped_by()),
                    "stopped, but nobody asked for it");
      truth_.Demand(truth_.IsSaved(), "stopped at step ", truth_.committed(), ", which is not saved");
    } else if (had_fatal_ && coordinator_.end_reason().find("not finite") != std::string::npos) {
      return;
    } else if (coordinator_.end_reason().find("could not be written") != std::string::npos) {
      truth_.Demand(coordinator_.Count<event::CheckpointFailed>() > 0,
                    "failed without need: ", coordinator_.end_reason());
    } else if (coordinator_.end_reason().find("there is no older one") != std::string::npos) {
      // When it had to go back for a good reason, as the rules for that say.
      truth_.Demand(!truth_.HasWholeCheckpoint(), "failed without need: ", coordinator_.end_reason());
    } else {
      truth_.Demand(coordinator_.Count<event::StateLost>() > 0 && IsStateLost(),
                    "failed without need: ", coordinator_.end_reason());
    }
  }

  std::string WhatItDoes() const {
    if (!coordinator_.up()) return "there is no coordinator";
    const RunStatus status = coordinator_.Status();
    std::string text =
        absl::StrCat(RunStateName(status.state), " (", status.detail, ") at step ", status.committed_step);
    for (const WorkerStatus& worker : status.workers) {
      absl::StrAppend(&text, ", ", worker.id.name, " rank ", worker.rank, " ", PhaseName(worker.phase));
    }
    return text;
  }

  // No worker that has been well for a while holds some chunk as the last commit left it. What the run has gone back
  // behind does not count, even where it has done the same step again.
  bool IsStateLost() const {
    const uint64_t generation = truth_.generation_of(truth_.committed());
    std::vector<bool> there(static_cast<size_t>(scenario_.num_chunks), false);
    for (const auto& worker : workers_) {
      if (!worker->healthy() || clock_.now() - worker->healthy_since() < seconds(6)) continue;
      if (worker->corrupted_in == truth_.newest()) continue;  // nobody believes it
      const auto mark = [&](const Chunks& chunks) {
        for (const auto& [chunk, hash] : chunks.hashes) there[static_cast<size_t>(chunk)] = true;
      };
      const Chunks& held = worker->held();
      if (held.step == truth_.committed() && truth_.branch().Includes(held.generation, held.step)) mark(held);
      if (worker->prepared() == std::pair(generation, truth_.committed())) {
        mark(worker->fetched().generation == generation ? worker->fetched() : worker->held());
      }
    }
    return std::find(there.begin(), there.end(), false) != there.end();
  }

  Result Summary() const {
    Result result;
    result.violation = truth_.violation();
    result.exit_code = coordinator_.exit_code().value_or(-1);
    result.end_reason = coordinator_.end_reason();
    result.seconds = std::chrono::duration<double>(clock_.now()).count();
    result.committed = truth_.committed();
    result.worlds = coordinator_.Count<event::WorldPublished>();
    result.coordinator_lives = coordinator_.life();
    result.hung = coordinator_.Count<event::WorkerHung>();
    result.lost = coordinator_.Count<event::WorkerLost>();
    result.bits_differ = coordinator_.Count<event::BitsDiffer>();
    result.copies_differ = coordinator_.Count<event::CopiesDiffer>();
    result.state_lost = coordinator_.Count<event::StateLost>();
    result.checkpoints = coordinator_.Count<event::CheckpointSaved>();
    result.rewinds = coordinator_.Count<event::Rewind>();
    result.mirrors_missing = coordinator_.Count<event::MirrorsMissing>();
    result.mirrors_complete = coordinator_.Count<event::MirrorsComplete>();
    result.links_cut = coordinator_.Count<event::LinkCut>();
    result.links_back = coordinator_.Count<event::LinkBack>();
    result.stages = stage_;
    result.replaced = coordinator_.replaced();
    result.takes = coordinator_.takes();
    result.starts_refused = coordinator_.refused();
    result.traffic = network_.traffic();
    result.log = coordinator_.log();
    result.digest = coordinator_.digest();
    return result;
  }

  const Scenario scenario_;
  Clock clock_;
  Truth truth_;
  Network network_;
  Collectives collectives_;
  CoordinatorRuntime coordinator_;
  Worker::Surroundings surroundings_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<int> node_of_;
  std::vector<Connection> agents_;  // by node
  std::map<std::string, int> by_name_;
  std::vector<uint64_t> agent_instances_;
  int node_down_ = -1;
  Instant node_up_after_{0};
  bool stop_asked_ = false, had_fatal_ = false;
  std::set<std::string> told_to_leave_;
  std::map<int, uint64_t> leavers_;  // by node: the agent that asked for it last
  std::pair<int, int> cut_nodes_{-1, -1};
  size_t stage_ = 0;
  uint64_t stage_since_ = 0;  // the newest generation then
};

}  // namespace holdfast::sim
