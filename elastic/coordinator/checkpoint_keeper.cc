#include "elastic/coordinator/checkpoint_keeper.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "framework/base/host.h"
#include "framework/base/status.h"
#include "framework/config/enum_names.h"
#include "framework/config/load.h"
#include "xxhash.h"

namespace holdfast {
namespace {

StoredFile ToStored(const SavedFile& file) { return {file.name, file.size, file.digest}; }

std::string Owner(const RunDirectory& directory) {
  return absl::StrCat("process ", getpid(), " on ", HostName(), ", run directory ", directory.root());
}

std::string ShardingText(const ParallelConfig& parallel) {
  const std::string kind = EnumNames(Sharding{})[static_cast<size_t>(parallel.sharding)];
  return parallel.replicas > 1 ? absl::StrCat(kind, ", ", parallel.replicas, " replicas") : kind;
}

/// The oldest ones of those that would stay that the space limit has no room for; never the newest.
std::vector<CheckpointName> BeyondLimit(const std::vector<CatalogEntry>& valid,
                                        const std::vector<CheckpointName>& doomed, double max_gib) {
  std::vector<CheckpointName> beyond;
  double bytes = 0;
  bool first = true;
  for (const CatalogEntry& entry : valid) {
    if (std::find(doomed.begin(), doomed.end(), entry.manifest.name) != doomed.end()) continue;
    bytes += static_cast<double>(entry.bytes);
    if (!std::exchange(first, false) && bytes > max_gib * (1 << 30)) beyond.push_back(entry.manifest.name);
  }
  return beyond;
}

// A step that a checkpoint holds must not be missing from the metrics after a loss of power.
absl::Status SyncFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  return synced ? absl::OkStatus() : ErrnoToStatus(error, absl::StrCat("cannot sync ", path));
}

}  // namespace

std::vector<CheckpointChoice> ChoicesOf(const Catalog& catalog) {
  std::vector<CheckpointChoice> choices;
  for (const CatalogEntry& entry : catalog.valid) {
    choices.push_back({entry.manifest.name.ToString(), entry.manifest.name.step, entry.manifest.data_digest});
  }
  return choices;
}

uint64_t BitsDigest(const Config& config) {
  Config same;
  same.run.seed = config.run.seed;
  same.model = config.model;
  same.data.shuffle = config.data.shuffle;
  same.batch = config.batch;
  same.train.compute_dtype = config.train.compute_dtype;
  same.train.steps = config.train.steps;
  same.train.device = config.train.device;
  same.train.gemm_table_digest = config.train.gemm_table_digest;
  same.train.arithmetic = config.train.arithmetic;
  same.optimizer = config.optimizer;
  same.schedule = config.schedule;
  const std::string text = PrintConfig(same);
  return XXH3_64bits(text.data(), text.size());
}

absl::StatusOr<std::unique_ptr<CheckpointKeeper>> CheckpointKeeper::Open(const Config& config,
                                                                         const RunDirectory& directory,
                                                                         std::unique_ptr<Storage> storage,
                                                                         std::vector<StoredTensor> tensors) {
  std::unique_ptr<CheckpointKeeper> keeper(
      new CheckpointKeeper(config, directory, std::move(storage), std::move(tensors)));
  HF_ASSIGN_OR_RETURN(keeper->fence_, Fence::Claim(*keeper->storage_, Owner(directory)));
  HF_RETURN_IF_ERROR(keeper->storage_->Sweep());
  HF_ASSIGN_OR_RETURN(keeper->found_, ScanCheckpoints(*keeper->storage_));
  keeper->usable_ = ChoicesOf(keeper->found_);
  return keeper;
}

Manifest CheckpointKeeper::Describe(const CommitCheckpointAction& commit) const {
  Manifest manifest;
  manifest.name = {commit.step, commit.generation};
  manifest.config = PrintConfig(config_);
  manifest.config_digest = BitsDigest(config_);
  manifest.data_digest = commit.data_digest;
  manifest.kernel_digest = digests_.kernels;
  manifest.build = digests_.build;
  manifest.samples = commit.step * config_.batch.microbatches * config_.batch.microbatch_size;
  manifest.world_size = static_cast<int64_t>(commit.shards.size());
  manifest.sharding = ShardingText(config_.parallel);
  manifest.time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  manifest.validation_loss = commit.validation_loss;
  manifest.tensors = tensors_;
  for (const SavedMessage& shard : commit.shards) {
    if (shard.chunks > 0) manifest.shards.push_back({ToStored(shard.data), ToStored(shard.index), shard.chunks});
  }
  return manifest;
}

void CheckpointKeeper::Commit(const CommitCheckpointAction& commit,
                              std::function<void(const CheckpointDoneEvent&)> done) {
  thread_.Post([this, commit, manifest = Describe(commit), done = std::move(done)] {
    CheckpointDoneEvent event;
    event.step = commit.step;
    event.generation = commit.generation;
    event.name = manifest.name.ToString();
    event.stall_seconds = commit.stall_seconds;
    const absl::Status status = MakeExist(manifest, &event);
    event.cause = std::string(status.message());
    event.fenced = absl::IsFailedPrecondition(status);
    event.usable = usable_;
    done(event);
  });
}

absl::Status CheckpointKeeper::MakeExist(const Manifest& manifest, CheckpointDoneEvent* done) {
  HF_RETURN_IF_ERROR(SyncFile(directory_.metrics()));
  HF_ASSIGN_OR_RETURN(const Manifest made, CommitCheckpoint(*storage_, *fence_, manifest));
  for (const StoredShard& shard : made.shards) done->bytes += static_cast<int64_t>(shard.data.size + shard.index.size);
  usable_.insert(usable_.begin(), {done->name, done->step, manifest.data_digest});
  Tidy(made.name, done);
  return absl::OkStatus();
}

// What cannot be deleted now is tried again after the next one. Whatever it is, training does not suffer from it.
void CheckpointKeeper::Tidy(const CheckpointName& newest, CheckpointDoneEvent* done) {
  absl::StatusOr<Catalog> catalog = ScanCheckpoints(*storage_);
  if (!catalog.ok()) return;
  const CheckpointConfig& c = config_.checkpoint;
  const Retention retention{.keep_last = c.keep_last, .keep_every_steps = c.keep_every_steps, .keep_best = c.keep_best};
  std::vector<CheckpointName> doomed = ChooseDeletions(catalog->valid, retention, {newest});
  if (c.max_gib > 0) {
    const std::vector<CheckpointName> beyond = BeyondLimit(catalog->valid, doomed, c.max_gib);
    doomed.insert(doomed.end(), beyond.begin(), beyond.end());
  }
  for (const RejectedCheckpoint& rejected : catalog->rejected) {
    const auto name = CheckpointName::Parse(rejected.name);
    const bool old = name.has_value() && (name->generation < newest.generation ||
                                          (name->generation == newest.generation && name->step < newest.step));
    if (rejected.unfinished && old) doomed.push_back(*name);
  }
  for (const CheckpointName& name : doomed) {
    const absl::Status deleted = DeleteCheckpoint(*storage_, name.ToString());
    if (!deleted.ok())
      done->warning = absl::StrCat("cannot delete ", name.ToString(), ": ", std::string(deleted.message()));
  }
  catalog = ScanCheckpoints(*storage_);
  if (catalog.ok()) usable_ = ChoicesOf(*catalog);
}

}  // namespace holdfast
