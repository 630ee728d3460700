#pragma once
// A run directory made ready for its coordinator: a new run, or the one in it, to go on from a checkpoint or from what
// its workers still hold.

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/sharded/catalog.h"
#include "elastic/coordinator/checkpoint_keeper.h"
#include "elastic/coordinator/coordinator_shell.h"
#include "elastic/launch/standby.h"
#include "framework/config/config.h"
#include "framework/data/dataset.h"
#include "framework/metrics/run_directory.h"
#include "framework/nn/layout.h"

namespace holdfast {

struct PreparedRun {
  std::shared_ptr<Lead> lead;
  CoordinatorHistory history;
  std::unique_ptr<CheckpointKeeper> keeper;         // null = the run has no checkpoints
  std::vector<CheckpointChoice> usable;             // to go on from, newest first
  bool step_is_named = false;                       // by --resume STEP: all of `usable` are of that step
  std::vector<std::string> warnings;                // above all, what of the config is not as it was
  std::vector<RejectedCheckpoint> unrecorded = {};  // whole, of steps that metrics.jsonl does not have
  std::string leader = {};                          // as RunStatus has it
};

struct PrepareOptions {
  bool overwrite = false;        // remove the run that is there
  std::string resume{};          // "auto": go on with what is there; "never": refuse that; a step: from its checkpoint;
                                 // "": auto, but overwriting needs to be told what becomes of checkpoints elsewhere
  bool workers_are_new = false;  // no worker of an earlier life can be alive
  std::stop_token stop{};        // as of OpenCheckpointStorage, until the run is prepared
};

/// Takes the directory's lock first, unless it is given. AlreadyExists, saying what to do, if the directory holds a run
/// that is done (unless workers of it may be alive, who are to be told then), or one that cannot go on, or if
/// checkpoints of another run would be given up. What is given up is so durably, by a barrier
/// (framework/base/branch.h), before anything else changes. After an error nothing is left of a lock that was not
/// given and of a directory made for it, unless a run has begun there.
absl::StatusOr<PreparedRun> PrepareRun(const Config& config, const RunDirectory& directory,
                                       const ParameterLayout& layout, const PrepareOptions& options,
                                       std::shared_ptr<Lead> lead = nullptr);

/// Where the run resumes from, and why not from others: lines for people; empty for a new run.
std::string ResumeText(const PreparedRun& run);

/// What the coordinator of `run` starts from; `run` must outlive it.
RunStart StartOf(const Config& config, const PreparedRun& run, const DatasetSize& data);

}  // namespace holdfast
