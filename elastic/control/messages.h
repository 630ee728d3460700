#pragma once
// What coordinator, workers and agents say to each other, as plain values. The wire format is elastic/wire's business;
// the machines in this room (coordinator.h, worker_session.h) know only these.
//
// Every message of a worker that belongs to a world carries its generation, and is ignored by whoever has moved on.

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "elastic/control/world.h"
#include "framework/base/exchanged_bytes.h"
#include "framework/base/figures.h"

namespace holdfast {

/// The state a worker holds: its part, by placement, of the state after `committed_step` steps of a run, as a member of
/// `world` (generation 0 = none). If `prepared_step` is not 0, it has voted for that step as a member of
/// `prepared_world` and can apply its update by itself; then it holds its part of the state after that step as a member
/// of that world. The two worlds differ from a change of the world until the first commit after it, and somebody who
/// has just joined has only the second: should the coordinator die right there, either may be where the state lies.
/// So may `entered_world`: the worker has its part of the state after `committed_step` steps, mirrors included, as a
/// member of that world, too, in which no step was committed yet. Thousands claim the same world, so in a JoinMessage
/// it has its generation alone; the coordinator asks one of them for the rest (AskWorldMessage): a generation is one
/// world only.
struct StateClaim {
  World world;
  int64_t committed_step = 0;
  int64_t prepared_step = 0;
  World prepared_world;
  World entered_world = {};
  friend bool operator==(const StateClaim&, const StateClaim&) = default;
};

enum class Phase : uint8_t {
  kStarting,
  kRendezvous,
  kTransfer,
  kData,
  kForwardBackward,
  kReduce,
  kVote,
  kUpdate,
  kValidation,
  kSave,
  kIdle,
};
const char* PhaseName(Phase phase);

// --- worker to coordinator -----------------------------------------------------------------------------------------

/// What all workers of a run have in common.
struct RunDigests {
  uint64_t config = 0;          // the resolved config
  uint64_t data = 0;            // the token files, and what ends a document in them; 0 = not known
  uint64_t tokens = 0;          // the token files alone, which is what older builds called `data`; 0 = not known
  std::string arithmetic = {};  // the name of what a CPU multiplies matrices in, or a GPU; empty = not known
  uint64_t kernels = 0;         // what its kernels compute; 0 = not known
  std::string build = {};       // of the program
  /// Digests of the values of the resolved config's keys, to name those that differ; `config` says whether any does.
  std::map<std::string, uint32_t> keys = {};
  friend bool operator==(const RunDigests&, const RunDigests&) = default;
};

struct JoinMessage {
  Member member;
  StateClaim claim;
  RunDigests digests = {};
  uint64_t generation = 0;  // the highest it has been in: it ignores worlds up to that
  uint64_t run = 0;         // CoordinatorOptions::run of its agent, or of whoever has taken it in; 0 = not known
};

struct HeartbeatMessage {
  uint64_t generation = 0;
  int64_t step = 0;  // the one being worked on
  Phase phase = Phase::kStarting;
  uint64_t progress = 0;                        // grows whenever the main thread gets on, whatever it does
  int64_t bytes_loaded = 0, bytes_to_load = 0;  // of a checkpoint
};

/// Opaque addresses for connecting communicators; the coordinator sends everybody's to everybody (PeersMessage).
struct RendezvousMessage {
  uint64_t generation = 0;
  std::string blob;
};

/// Connections of the new world stand, and what this member serves is there: how long each phase took.
struct RecoveredMessage {
  uint64_t generation = 0;
  double abort_seconds = 0, rendezvous_seconds = 0, transfer_seconds = 0;
  int64_t bytes_received = 0;
  int64_t mirror_bytes = 0;  // that its mirrors still lack: they come beside the first step
};

/// The mirrors that this member lacked are there. May come before its RecoveredMessage, comes before its first vote.
struct MirroredMessage {
  uint64_t generation = 0;
};

/// Hash of one chunk's planes as they will be after the step.
struct ChunkDigest {
  int32_t chunk = 0;
  uint64_t digest = 0;
  friend bool operator==(const ChunkDigest&, const ChunkDigest&) = default;
};

/// Step `step` (counting from 1) is prepared: its gradient is reduced, mirrored, and its update needs nobody any more.
struct VoteMessage {
  uint64_t generation = 0;
  int64_t step = 0;
  uint32_t loss_bits = 0, grad_norm_bits = 0;  // IEEE binary32; equal on all members
  double lr = 0;
  double compute_seconds = 0;        // forward and backward without waiting for anybody
  double wait_seconds = 0;           // for gathers, reductions and data
  double stall_seconds = 0;          // for a checkpoint's staging memory, in the update before
  int64_t microbatches = 0;          // computed here
  std::vector<ChunkDigest> digests;  // of the chunks this rank is the primary holder of; only on digest steps
  // To be compared with those of the chunk's other holders: on digest steps of all other chunks held here, else of a
  // sample of all, another one in each step. `copies` are what steps are computed with, `mirrors` nobody reads.
  std::vector<ChunkDigest> copies = {}, mirrors = {};
  uint64_t statistics_digest = 0;    // of what else the step says of itself; equal on all members
  std::vector<Figure> figures = {};  // for the record; from rank 0
  ExchangedBytes exchanged = {};     // sent from here
};

/// A collective failed or the step could not be prepared. `suspects`: ranks the transport blames, may be empty.
/// `fatal`: no other world would help (the loss is not finite, a file is broken): the run ends. `bad_checkpoint`: the
/// checkpoint that was to be loaded is damaged; an older one may do. `secondhand`: another member failed and said so,
/// or the communicators were aborted. `out_of_memory`: this member, or its device, has too little. `no_room`: of
/// something, disks most often, there is too little now. `bad_data`: what was read of the token files is damaged.
struct FailureMessage {
  uint64_t generation = 0;
  int64_t step = 0;
  Phase phase = Phase::kStarting;
  std::string cause;
  std::vector<int> suspects;
  bool fatal = false;
  bool bad_checkpoint = false;
  bool secondhand = false;
  bool out_of_memory = false;
  bool no_room = false;
  bool bad_data = false;
};

struct ValidationMessage {  // from rank 0
  uint64_t generation = 0;
  int64_t step = 0;
  double loss = 0;
};

/// What comes after the last step (validation, saving the model) is done.
struct FinishedMessage {
  uint64_t generation = 0;
};

struct SavedFile {
  std::string name;  // in the checkpoint's directory
  uint64_t size = 0;
  std::string digest;
  friend bool operator==(const SavedFile&, const SavedFile&) = default;
};

/// This rank's part of the checkpoint of `step`, begun in `generation`, is durable; or, with a cause, it will never be.
/// `no_room`: the storage is full, does not answer now, or refuses access.
struct SavedMessage {
  uint64_t generation = 0;
  int64_t step = 0;
  std::string cause;
  bool no_room = false;
  SavedFile data, index;
  int64_t chunks = 0;
  int64_t raw_bytes = 0, stored_bytes = 0;        // of values
  double stall_seconds = 0, persist_seconds = 0;  // training held up; from beginning to durable
};

/// The worker asks for the run to be stopped (it got SIGTERM or SIGUSR1).
struct StopRequestMessage {
  int signal = 0;
};

/// Answers a ProbeMessage.
struct ReachMessage {
  uint64_t round = 0;
  std::vector<double> seconds;  // by target, until it was reached; < 0: it was not
};

/// Answers an AskWorldMessage: a world that the worker holds state of.
struct KnownWorldMessage {
  World world;
};

// --- agent to coordinator ------------------------------------------------------------------------------------------

struct AgentHelloMessage {
  std::string node, host;
  int64_t pid = 0;
  int num_workers = 0;
  uint64_t instance = 0;  // of the process: in containers pids repeat, and names and hosts do by intent
  uint64_t run = 0;       // as the last WelcomeMessage had it; 0 = there was none
};

struct WorkerExitMessage {
  WorkerId id;
  std::string cause;  // "killed by signal 9 (Killed)", "exit code 1: <last line of its log>"
  bool restarting = false;
};

/// The node of this agent is to leave (it got a signal). Its workers go on until a step is committed in a world without
/// them; then an EndMessage tells them and the agent to go.
struct LeaveMessage {
  int signal = 0;
};

// --- coordinator to worker (and, for End, to agent) ------------------------------------------------------------------

enum class Purpose : uint8_t {
  kTrain,  // go on from committed_step; at the last step validate, save, finish
  kStop,   // save what is committed and finish
};

struct WorldMessage {
  World world;
  World source;  // where the state of committed_step lies; generation 0: in `checkpoint`, or nowhere: initialise it
  int64_t committed_step = 0;
  Purpose purpose = Purpose::kTrain;
  std::vector<int64_t> microbatches;  // by rank, summing to the config's number
  std::string checkpoint = {};        // name of the one to load; empty = none
  bool save = false;                  // the world that ends the run is to leave a checkpoint
};

struct PeersMessage {
  uint64_t generation = 0;
  std::vector<std::string> blobs;  // by rank
};

struct CommitMessage {
  uint64_t generation = 0;
  int64_t step = 0;
  std::vector<int64_t> microbatches;  // by rank, for the steps that follow; empty: as before
  bool save = false;                  // a checkpoint of this step is to be written
};

/// The worker has no place here. `rejoin`: a new process, or this one without its state, may join. `keep`: its settings
/// are not those of the run, as they are now: if it holds state it keeps that and asks again, for it may be the
/// coordinator that was started with the wrong ones. `other_run`: the worker, or agent, is of another run, whose
/// coordinator may come back: it keeps what it has and asks again.
struct RefusedMessage {
  std::string reason;
  bool rejoin = false;
  bool keep = false;
  bool other_run = false;
};

/// To an agent or a worker: it is taken in.
struct WelcomeMessage {
  uint64_t run = 0;  // CoordinatorOptions::run
};

/// The worker is to try, beside what it does, whether it can reach these.
struct ProbeMessage {
  uint64_t round = 0;
  std::vector<std::string> addresses;
};

/// The worker is to say who the members of the world are that it has named in its claim.
struct AskWorldMessage {
  uint64_t generation = 0;
};

/// The run is over. exit_code: 0 done, 1 failed, 128 + signal after a stop.
struct EndMessage {
  int exit_code = 0;
  std::string reason;
};

using WorkerMessage =
    std::variant<JoinMessage, HeartbeatMessage, RendezvousMessage, RecoveredMessage, VoteMessage, FailureMessage,
                 ValidationMessage, SavedMessage, FinishedMessage, StopRequestMessage, AgentHelloMessage,
                 WorkerExitMessage, LeaveMessage, ReachMessage, MirroredMessage, KnownWorldMessage>;
using CoordinatorMessage = std::variant<WorldMessage, PeersMessage, CommitMessage, RefusedMessage, EndMessage,
                                        ProbeMessage, AskWorldMessage, WelcomeMessage>;

}  // namespace holdfast
