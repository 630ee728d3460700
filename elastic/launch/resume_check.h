#pragma once
// A config against that of the checkpoint a run resumes from, or of the run.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "checkpoint/sharded/manifest.h"
#include "framework/config/config.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// What decides the bits of a run, config or program, and is not as it was when the checkpoint was written; empty if
/// nothing is known to differ. Of a config each key on a line of its own, of many keys the first ten. An import
/// computed nothing: a train.arithmetic that its config leaves open (auto, native) is no difference.
std::string Differences(const Config& config, const Manifest& manifest);

/// How the learning rates of steps to come move, without a key of the schedule having changed: a cosine or linear decay
/// ends with the run where schedule.decay_steps is 0, and that of wsd always, so another train.steps is another decay.
/// And which of the steps that are done had another rate than in a run of that length that was never stopped. Empty if
/// none moves.
std::string ScheduleChange(const Config& config, const Manifest& manifest);

/// Which sequences of the data come again, or are passed over, because the batch is another one: those of a step follow
/// from its number (SampleOf in framework/data/dataset.h); or that their order is another one. Empty if none.
std::string DataChange(const Config& config, const Manifest& manifest);

/// Where validations decide something (train.early_stop_patience, checkpoint.keep_best): that those to come read
/// another part of data.validation than those before. Of other files their digest tells. Empty if nothing has changed.
std::string ValidationChange(const Config& config, const Manifest& manifest);

/// Keys that decide the bits of a run and are not as in the printed config, on one line: "run.seed was 1 and is 2;
/// ...". Of many the first ten.
std::string ChangedKeys(const std::string& printed, const Config& config);

/// Keys that all workers have alike and that are not as in the config that the run in `directory` had last: workers
/// that hold its state may have that. "optimizer.lr was 0.001 and is 0.1; ..."; empty if there are none.
std::string ChangesToWorkers(const Config& config, const RunDirectory& directory);

/// FailedPrecondition if the checkpoint holds an imported model that computes something else than the config's. It has
/// no run of its own that a change could be meant for: its weights mean what its files say.
absl::Status CheckImported(const Config& config, const Manifest& manifest);

/// FailedPrecondition, with the keys that say so, if the checkpoint is of another model, or of other parts of one.
absl::Status CheckSameModel(const Config& config, const Manifest& manifest, const std::vector<StoredTensor>& tensors);

/// FailedPrecondition, with the keys that say so, if the checkpoint holds the state of another optimizer.
absl::Status CheckOptimizer(const Config& config, const Manifest& manifest, const std::vector<StoredTensor>& tensors);

/// FailedPrecondition if the checkpoint has a part of a model, or adapters, and the rest of the model is another now.
absl::Status CheckFrozenWeights(const Config& config, const Manifest& manifest);

struct LeadingConfig {
  Config config;
  std::string changes;  // "optimizer.lr was 0.001 and is 0.1; ...": of the run, and of the one that leads it on
};

/// With what config one that has `config` leads on the run in `directory`, which another one has led until now. Its
/// workers live, and would be refused if a key that all workers have alike had another value: those keys are the run's,
/// as its directory has them. Of others each coordinator has its own, where they fit those. `config` as it is if no run
/// has begun there, or its config cannot be read.
LeadingConfig ConfigToLeadOnWith(const Config& config, const RunDirectory& directory);

}  // namespace holdfast
