#pragma once
// What happens in a run, for people and for programs that watch it: one struct for each kind of event, with its fields,
// and RunEvent, which is one of them. A new kind is a struct here and a name in RunEvent's list; whoever watches events
// (elastic/coordinator/run_observer.h) takes those that it knows by std::visit.
//
// kName and the keys in Fields are those of events.jsonl (elastic/coordinator/event_json.h), which users read: they
// stay. Fields is given a const event to write it, another one to read it. The table in README.md says what they mean.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "elastic/control/messages.h"

namespace holdfast {
namespace event {

// --- agents, nodes and workers ---------------------------------------------------------------------------------------

struct AgentJoined {
  static constexpr const char* kName = "agent_joined";
  std::string node, host;
  int workers = 0;
  static void Fields(auto& e, auto& field) { field("node", e.node)("host", e.host)("workers", e.workers); }
};

struct AgentLost {
  static constexpr const char* kName = "agent_lost";
  std::string node, host, cause;
  static void Fields(auto& e, auto& field) { field("node", e.node)("host", e.host)("cause", e.cause); }
};

/// Another agent has the name of its node.
struct AgentRefused {
  static constexpr const char* kName = "agent_refused";
  std::string node, host;
  int64_t pid = 0;
  std::string other_host;
  int64_t other_pid = 0;
  static void Fields(auto& e, auto& field) {
    field("node", e.node)("host", e.host)("pid", e.pid)("other_host", e.other_host)("other_pid", e.other_pid);
  }
};

struct WorkerJoined {
  static constexpr const char* kName = "worker_joined";
  std::string worker;
  int rank = -1;
  std::string node, host;
  int64_t pid = 0;
  static void Fields(auto& e, auto& field) {
    field("worker", e.worker)("rank", e.rank)("node", e.node)("host", e.host)("pid", e.pid);
  }
};

/// It holds state, and its run, settings or data are others than the coordinator's: it asks again.
struct WorkerRefused {
  static constexpr const char* kName = "worker_refused";
  std::string worker, node, host, cause;
  static void Fields(auto& e, auto& field) {
    field("worker", e.worker)("node", e.node)("host", e.host)("cause", e.cause);
  }
};

struct WorkerLost {
  static constexpr const char* kName = "worker_lost";
  std::string worker;
  int rank = -1;
  std::string node, host, cause;
  uint64_t generation = 0;
  int64_t step = 0;
  static void Fields(auto& e, auto& field) {
    field("worker", e.worker)("rank", e.rank)("node", e.node)("host", e.host)("cause", e.cause);
    field("generation", e.generation)("step", e.step);
  }
};

/// A WorkerLost follows.
struct WorkerHung {
  static constexpr const char* kName = "worker_hung";
  std::string worker;
  int rank = -1;
  std::string node, host;
  Phase phase = Phase::kStarting;
  int64_t step = 0;
  double seconds = 0;
  std::string reason;
  static void Fields(auto& e, auto& field) {
    field("worker", e.worker)("rank", e.rank)("node", e.node)("host", e.host)("phase", e.phase)("step", e.step);
    field("seconds", e.seconds)("reason", e.reason);
  }
};

/// As its agent reports it.
struct WorkerExited {
  static constexpr const char* kName = "worker_exited";
  std::string worker, cause;
  bool restarting = false;
  static void Fields(auto& e, auto& field) { field("worker", e.worker)("cause", e.cause)("restarting", e.restarting); }
};

struct Quarantined {
  static constexpr const char* kName = "quarantined";
  std::string worker;
  int64_t failures = 0;
  double seconds = 0;
  static void Fields(auto& e, auto& field) { field("worker", e.worker)("failures", e.failures)("seconds", e.seconds); }
};

/// Most had other bits than it, again and again.
struct KeptOut {
  static constexpr const char* kName = "kept_out";
  std::string worker, node, host;
  int64_t pid = 0;
  int64_t contradictions = 0;
  static void Fields(auto& e, auto& field) {
    field("worker", e.worker)("node", e.node)("host", e.host)("pid", e.pid)("contradictions", e.contradictions);
  }
};

/// Another process has its name.
struct KeptOutResolved {
  static constexpr const char* kName = "kept_out_resolved";
  std::string worker, node, host;
  int64_t pid = 0;
  static void Fields(auto& e, auto& field) { field("worker", e.worker)("node", e.node)("host", e.host)("pid", e.pid); }
};

struct NodeLeaving {
  static constexpr const char* kName = "node_leaving";
  std::string node, host;
  int64_t step = 0;
  static void Fields(auto& e, auto& field) { field("node", e.node)("host", e.host)("step", e.step); }
};

struct NodeLeft {
  static constexpr const char* kName = "node_left";
  std::string node;
  int64_t step = 0;
  static void Fields(auto& e, auto& field) { field("node", e.node)("step", e.step); }
};

struct NodeReturned {
  static constexpr const char* kName = "node_returned";
  std::string node, host;
  static void Fields(auto& e, auto& field) { field("node", e.node)("host", e.host); }
};

// --- worlds and steps ------------------------------------------------------------------------------------------------

struct WorldPublished {
  static constexpr const char* kName = "world_published";
  uint64_t generation = 0;
  int size = 0;
  int64_t step = 0;  // committed
  std::string reason;
  static void Fields(auto& e, auto& field) {
    field("generation", e.generation)("size", e.size)("step", e.step)("reason", e.reason);
  }
};

/// The first commit of a world: how long each phase of getting there took, the slowest member's.
struct Recovered {
  static constexpr const char* kName = "recovered";
  uint64_t generation = 0;
  int size = 0;
  std::string reason;
  double detect_seconds = 0, abort_seconds = 0, rendezvous_seconds = 0, transfer_seconds = 0, first_step_seconds = 0;
  int64_t bytes = 0;
  static void Fields(auto& e, auto& field) {
    field("generation", e.generation)("size", e.size)("reason", e.reason)("detect_seconds", e.detect_seconds);
    field("abort_seconds", e.abort_seconds)("rendezvous_seconds", e.rendezvous_seconds);
    field("transfer_seconds", e.transfer_seconds)("first_step_seconds", e.first_step_seconds)("bytes", e.bytes);
  }
};

/// Training begins; until MirrorsComplete another loss may cost steps.
struct MirrorsMissing {
  static constexpr const char* kName = "mirrors_missing";
  uint64_t generation = 0;
  int64_t step = 0;   // committed
  int64_t bytes = 0;  // still to come
  static void Fields(auto& e, auto& field) { field("generation", e.generation)("step", e.step)("bytes", e.bytes); }
};

struct MirrorsComplete {
  static constexpr const char* kName = "mirrors_complete";
  uint64_t generation = 0;
  int64_t step = 0;
  double seconds = 0;  // since MirrorsMissing
  int64_t bytes = 0;
  static void Fields(auto& e, auto& field) {
    field("generation", e.generation)("step", e.step)("seconds", e.seconds)("bytes", e.bytes);
  }
};

/// The first report of a world.
struct StepFailed {
  static constexpr const char* kName = "step_failed";
  std::string worker;
  int rank = -1;
  std::string host;
  int64_t step = 0;
  Phase phase = Phase::kStarting;
  std::string cause;
  std::vector<int> suspects;  // ranks
  static void Fields(auto& e, auto& field) {
    field("worker", e.worker)("rank", e.rank)("host", e.host)("step", e.step)("phase", e.phase)("cause", e.cause);
    field("suspects", e.suspects);
  }
};

struct BitsDiffer {
  static constexpr const char* kName = "bits_differ";
  int64_t step = 0;
  std::string workers, bits;  // loss/gradient norm/digest of the statistics of each, hexadecimal
  bool majority = false;      // these were removed; else the step is done again
  static void Fields(auto& e, auto& field) {
    field("step", e.step)("workers", e.workers)("bits", e.bits)("majority", e.majority);
  }
};

struct CopiesDiffer {
  static constexpr const char* kName = "copies_differ";
  int64_t step = 0;
  std::string workers;
  int chunk = 0;          // the first
  int64_t chunks = 0;     // how many
  bool majority = false;  // these were removed; else the run goes back to where all agreed, or fails
  // Committed steps may have been computed with a wrong copy, or the next one would be: the run goes back to where all
  // agreed, if it can.
  bool computed_with = false;
  static void Fields(auto& e, auto& field) {
    field("step", e.step)("workers", e.workers)("chunk", e.chunk)("chunks", e.chunks)("majority", e.majority);
    field("computed_with", e.computed_with);
  }
};

struct NoProgress {
  static constexpr const char* kName = "no_progress";
  uint64_t generation = 0;
  int64_t step = 0;
  double seconds = 0;
  static void Fields(auto& e, auto& field) { field("generation", e.generation)("step", e.step)("seconds", e.seconds); }
};

/// There has been no world for heartbeat_timeout_ms.
struct TooFewWorkers {
  static constexpr const char* kName = "too_few_workers";
  int64_t step = 0;
  std::string detail;
  double seconds = 0;
  static void Fields(auto& e, auto& field) { field("step", e.step)("detail", e.detail)("seconds", e.seconds); }
};

// --- speed -----------------------------------------------------------------------------------------------------------

struct StragglerFields {
  std::string worker;
  int rank = -1;
  std::string host;
  double factor = 0, own_factor = 0;  // against the median of the ranks, and against its own past
  Phase phase = Phase::kForwardBackward;
  int64_t step = 0;
  std::string reason;
  static void Fields(auto& e, auto& field) {
    field("worker", e.worker)("rank", e.rank)("host", e.host)("factor", e.factor)("own_factor", e.own_factor);
    field("phase", e.phase)("step", e.step)("reason", e.reason);
  }
};
struct Straggler : StragglerFields {
  static constexpr const char* kName = "straggler";
};
struct StragglerResolved : StragglerFields {
  static constexpr const char* kName = "straggler_resolved";
};

struct Rebalanced {
  static constexpr const char* kName = "rebalanced";
  int64_t step = 0;
  std::vector<int64_t> microbatches;  // by rank
  static void Fields(auto& e, auto& field) { field("step", e.step)("microbatches", e.microbatches); }
};

struct StepSlow {
  static constexpr const char* kName = "step_slow";
  int64_t step = 0;
  double seconds = 0, usual_seconds = 0;
  std::string waiting_for;
  static void Fields(auto& e, auto& field) {
    field("step", e.step)("seconds", e.seconds)("usual_seconds", e.usual_seconds)("waiting_for", e.waiting_for);
  }
};

struct StepSlowResolved {
  static constexpr const char* kName = "step_slow_resolved";
  int64_t step = 0;
  double seconds = 0, usual_seconds = 0;
  static void Fields(auto& e, auto& field) {
    field("step", e.step)("seconds", e.seconds)("usual_seconds", e.usual_seconds);
  }
};

// --- links between workers -------------------------------------------------------------------------------------------

/// One event for all links between two hosts.
struct LinkFields {
  std::string host, peer_host, worker, peer;
  int64_t links = 0;
  int64_t step = 0;
  std::string without;  // who is left out; empty: nobody can be
  static void Fields(auto& e, auto& field) {
    field("host", e.host)("peer_host", e.peer_host)("worker", e.worker)("peer", e.peer)("links", e.links);
    field("step", e.step)("without", e.without);
  }
};
struct LinkCut : LinkFields {
  static constexpr const char* kName = "link_cut";
};
struct LinkBack : LinkFields {
  static constexpr const char* kName = "link_back";
};

/// Of all links of a worker, or, with a peer, of that between their two hosts.
struct LinkSlow {
  static constexpr const char* kName = "link_slow";
  std::string worker, host, peer, peer_host;
  double milliseconds = 0, usual_milliseconds = 0;
  int64_t step = 0;
  static void Fields(auto& e, auto& field) {
    field("worker", e.worker)("host", e.host)("peer", e.peer)("peer_host", e.peer_host);
    field("milliseconds", e.milliseconds)("usual_milliseconds", e.usual_milliseconds)("step", e.step);
  }
};

// --- state and checkpoints -------------------------------------------------------------------------------------------

struct StateFields {
  int64_t step = 0;
  std::string holders;
  static void Fields(auto& e, auto& field) { field("step", e.step)("holders", e.holders); }
};
struct StateMissing : StateFields {
  static constexpr const char* kName = "state_missing";
};
struct StateLost : StateFields {
  static constexpr const char* kName = "state_lost";
};

/// It exists.
struct CheckpointSaved {
  static constexpr const char* kName = "checkpoint";
  int64_t step = 0;
  std::string name;
  int64_t bytes = 0;
  double seconds = 0, stall_seconds = 0;
  int64_t skipped = 0;  // that were due meanwhile
  static void Fields(auto& e, auto& field) {
    field("step", e.step)("name", e.name)("bytes", e.bytes)("seconds", e.seconds);
    field("stall_seconds", e.stall_seconds)("skipped", e.skipped);
  }
};

/// It never will exist.
struct CheckpointFailed {
  static constexpr const char* kName = "checkpoint_failed";
  int64_t step = 0;
  std::string cause;
  static void Fields(auto& e, auto& field) { field("step", e.step)("cause", e.cause); }
};

/// It is damaged.
struct CheckpointRejected {
  static constexpr const char* kName = "checkpoint_rejected";
  std::string name, cause;
  static void Fields(auto& e, auto& field) { field("name", e.name)("cause", e.cause); }
};

/// Old ones could not be deleted, or one has been written, or read because it is in doubt, for long.
struct CheckpointWarning {
  static constexpr const char* kName = "checkpoint_warning";
  int64_t step = 0;
  std::string cause;
  double seconds = 0;  // that one has been written for; 0: old ones
  static void Fields(auto& e, auto& field) { field("step", e.step)("cause", e.cause)("seconds", e.seconds); }
};

/// With `every: auto`.
struct CheckpointInterval {
  static constexpr const char* kName = "checkpoint_interval";
  double seconds = 0, cost_seconds = 0;
  double failure_seconds = 0;  // between two; assumed while there has been none
  int64_t failures = 0;
  static void Fields(auto& e, auto& field) {
    field("seconds", e.seconds)("cost_seconds", e.cost_seconds)("failure_seconds", e.failure_seconds);
    field("failures", e.failures);
  }
};

/// The token files, or what ends a document in them, are not those of the checkpoint.
struct DataChanged {
  static constexpr const char* kName = "data_changed";
  std::string name;
  static void Fields(auto& e, auto& field) { field("name", e.name); }
};

/// The gradient is exactly 0, and the loss is not: nothing is learned. Of the first such step.
struct NoGradient {
  static constexpr const char* kName = "no_gradient";
  int64_t step = 0;
  double loss = 0;
  static void Fields(auto& e, auto& field) { field("step", e.step)("loss", e.loss); }
};

/// The workers compute other bits than those of the checkpoint did.
struct KernelsChanged {
  static constexpr const char* kName = "kernels_changed";
  std::string name;
  static void Fields(auto& e, auto& field) { field("name", e.name); }
};

struct Rewind {
  static constexpr const char* kName = "rewind";
  int64_t from_step = 0, step = 0;
  std::string name, reason;  // of the checkpoint; empty: the run begins anew
  static void Fields(auto& e, auto& field) {
    field("from_step", e.from_step)("step", e.step)("name", e.name)("reason", e.reason);
  }
};

// --- the run ---------------------------------------------------------------------------------------------------------

struct RunStarted {
  static constexpr const char* kName = "run_started";
  int64_t workers = 0;
  int64_t step = 0, total_steps = 0;
  int64_t data_tokens = 0;       // of one pass over the training data
  std::string data_digest = {};  // RunDigests::data, hexadecimal; empty: not known
  static void Fields(auto& e, auto& field) {
    field("workers", e.workers)("step", e.step)("total_steps", e.total_steps)("data_tokens", e.data_tokens);
    field("data_digest", e.data_digest);
  }
};

/// One that stood by leads the run on.
struct CoordinatorChanged {
  static constexpr const char* kName = "coordinator_changed";
  std::string cause;  // who led before, and what became of it
  static void Fields(auto& e, auto& field) { field("cause", e.cause); }
};

/// Something cannot be written now, a full disk say.
struct Paused {
  static constexpr const char* kName = "paused";
  std::string cause;
  static void Fields(auto& e, auto& field) { field("cause", e.cause); }
};

struct Resumed {
  static constexpr const char* kName = "resumed";
  double seconds = 0;
  static void Fields(auto& e, auto& field) { field("seconds", e.seconds); }
};

struct Validation {
  static constexpr const char* kName = "validation";
  int64_t step = 0;
  double loss = 0;
  static void Fields(auto& e, auto& field) { field("step", e.step)("loss", e.loss); }
};

/// The run is to end: its validation loss does not fall any more.
struct EarlyStop {
  static constexpr const char* kName = "early_stop";
  int64_t step = 0;
  double loss = 0;
  int64_t best_step = 0;
  double best_loss = 0;
  int64_t validations = 0;  // since the last fall by more than train.early_stop_min_delta
  int64_t fall_step = 0;    // of that; 0 = not known, the best
  double fall_loss = 0;
  static void Fields(auto& e, auto& field) {
    field("step", e.step)("loss", e.loss)("best_step", e.best_step)("best_loss", e.best_loss);
    field("validations", e.validations)("fall_step", e.fall_step)("fall_loss", e.fall_loss);
  }
};

struct StopRequested {
  static constexpr const char* kName = "stop_requested";
  int signal = 0;
  std::string by;
  int64_t step = 0;
  static void Fields(auto& e, auto& field) { field("signal", e.signal)("by", e.by)("step", e.step); }
};

/// An alert could not be delivered.
struct AlertFailed {
  static constexpr const char* kName = "alert_failed";
  std::string cause;
  static void Fields(auto& e, auto& field) { field("cause", e.cause); }
};

struct EndFields {
  int exit_code = 0;
  int64_t step = 0;
  std::string reason;
  static void Fields(auto& e, auto& field) { field("exit_code", e.exit_code)("step", e.step)("reason", e.reason); }
};
struct RunFinished : EndFields {
  static constexpr const char* kName = "run_finished";
};
struct RunStopped : EndFields {
  static constexpr const char* kName = "run_stopped";
};
struct RunFailed : EndFields {
  static constexpr const char* kName = "run_failed";
};

}  // namespace event

using RunEvent =
    std::variant<event::AgentJoined, event::AgentLost, event::AgentRefused, event::WorkerJoined, event::WorkerRefused,
                 event::WorkerLost, event::WorkerHung, event::WorkerExited, event::Quarantined, event::KeptOut,
                 event::KeptOutResolved, event::NodeLeaving, event::NodeLeft, event::NodeReturned,
                 event::WorldPublished, event::Recovered, event::MirrorsMissing, event::MirrorsComplete,
                 event::StepFailed, event::BitsDiffer, event::CopiesDiffer, event::NoProgress, event::NoGradient,
                 event::TooFewWorkers, event::Straggler, event::StragglerResolved, event::Rebalanced, event::StepSlow,
                 event::StepSlowResolved, event::LinkCut, event::LinkBack, event::LinkSlow, event::StateMissing,
                 event::StateLost, event::CheckpointSaved, event::CheckpointFailed, event::CheckpointRejected,
                 event::CheckpointWarning, event::CheckpointInterval, event::DataChanged, event::KernelsChanged,
                 event::Rewind, event::RunStarted, event::CoordinatorChanged, event::Paused, event::Resumed,
                 event::Validation, event::EarlyStop, event::StopRequested, event::AlertFailed, event::RunFinished,
                 event::RunStopped, event::RunFailed>;

/// "worker_lost"
const char* EventName(const RunEvent& event);

/// A field as events.jsonl has it: bools are 0 or 1, phases their names, lists of numbers joined by commas.
using EventFieldValue = std::variant<int64_t, double, std::string>;

/// All fields, in order.
std::vector<std::pair<const char*, EventFieldValue>> FieldsOf(const RunEvent& event);

/// The event of that name with these fields; fields that are missing or of another kind stay as they are by default.
/// Nothing if there is no such event.
std::optional<RunEvent> EventOf(std::string_view name, const std::map<std::string, EventFieldValue>& fields);

}  // namespace holdfast
