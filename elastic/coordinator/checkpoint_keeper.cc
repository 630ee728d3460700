#include "elastic/coordinator/checkpoint_keeper.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "checkpoint/sharded/checkpoint_reader.h"
#include "checkpoint/sharded/commit.h"
#include "framework/base/files.h"
#include "framework/base/out_of_memory.h"
#include "framework/base/process_id.h"
#include "framework/base/seconds.h"
#include "framework/base/status.h"
#include "framework/config/decides.h"
#include "framework/config/enums.h"
#include "framework/config/load.h"

namespace holdfast {
namespace {

constexpr std::chrono::seconds kTidyAtEnd{5};

StoredFile ToStored(const SavedFile& file) { return {file.name, file.size, file.digest}; }

std::string Owner(const RunDirectory& directory) {
  return absl::StrCat(Describe(ThisProcess()), ", run directory ", directory.root());
}

std::string ShardingText(const ParallelConfig& parallel) {
  const std::string kind = Name(parallel.sharding);
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

/// What was never finished or given up, of checkpoints that were begun before `next`.
std::vector<CheckpointName> LeftBefore(const CheckpointName& next, const Catalog& catalog) {
  std::vector<CheckpointName> left;
  for (const RejectedCheckpoint& rejected : catalog.rejected) {
    const auto name = CheckpointName::Parse(rejected.name);
    const bool old = name.has_value() && (name->generation < next.generation ||
                                          (name->generation == next.generation && name->step < next.step));
    if ((rejected.unfinished || rejected.given_up) && old) left.push_back(*name);
  }
  return left;
}

}  // namespace

std::vector<CheckpointChoice> ChoicesOf(const Catalog& catalog) {
  std::vector<CheckpointChoice> choices;
  for (const CatalogEntry& entry : catalog.valid) {
    choices.push_back({entry.manifest.name.ToString(), entry.manifest.name.step, entry.manifest.data_digest,
                       entry.manifest.name.generation, entry.manifest.kernel_digest});
  }
  return choices;
}

absl::StatusOr<std::unique_ptr<CheckpointKeeper>> CheckpointKeeper::Open(
    const Config& config, const RunDirectory& directory, std::unique_ptr<Storage> storage,
    std::vector<StoredTensor> tensors, const CoordinatorState& past, const std::function<absl::Status()>& may_claim,
    std::stop_source storage_stop) {
  std::unique_ptr<CheckpointKeeper> keeper(
      new CheckpointKeeper(config, directory, std::move(storage), std::move(tensors)));
  keeper->may_claim_ = may_claim;
  keeper->storage_stop_ = std::move(storage_stop);
  ASSIGN_OR_RETURN(keeper->fence_, Fence::Claim(*keeper->storage_, Owner(directory), {past.generation, past.branch},
                                                ThisProcess(), [it = keeper.get()] { return it->MayClaim(); }));
  keeper->state_ = {keeper->fence_->epoch() * kGenerationsPerEpoch, keeper->fence_->branch(), past.contradicted,
                    past.contradictions};
  keeper->branch_ = keeper->state_.branch;
  RETURN_IF_ERROR(keeper->storage_->Sweep());
  ASSIGN_OR_RETURN(keeper->found_, ScanCheckpoints(*keeper->storage_, &keeper->manifests_));
  keeper->usable_ = ChoicesOf(keeper->found_);
  return keeper;
}

Manifest CheckpointKeeper::Describe(const CommitCheckpointAction& commit) const {
  Manifest manifest;
  manifest.name = {commit.step, commit.generation};
  manifest.config = PrintConfig(config_);
  manifest.config_digest = BitsDigest(config_);
  manifest.data_digest = commit.data_digest;
  manifest.state_digest = commit.state_digest;
  manifest.kernel_digest = commit.kernel_digest;
  manifest.build = digests_.build;
  manifest.samples = commit.step * config_.batch.microbatches * config_.batch.microbatch_size;
  manifest.world_size = static_cast<int64_t>(commit.shards.size());
  manifest.sharding = ShardingText(config_.parallel);
  manifest.time = SecondsSinceEpoch();
  manifest.validation_loss = commit.validation_loss;
  manifest.tensors = tensors_;
  for (const SavedMessage& shard : commit.shards) {
    if (shard.chunks > 0) manifest.shards.push_back({ToStored(shard.data), ToStored(shard.index), shard.chunks});
  }
  return manifest;
}

void CheckpointKeeper::Commit(const CommitCheckpointAction& commit, Answer answer) {
  {
    const std::lock_guard lock(mutex_);
    ++commits_;
  }
  thread_.Post([this, commit, manifest = Describe(commit), answer = std::move(answer)] {
    CheckpointDoneEvent event;
    event.step = commit.step;
    event.generation = commit.generation;
    event.name = manifest.name.ToString();
    event.stall_seconds = commit.stall_seconds;
    const absl::Status status = PublishManifest(manifest, &event);
    event.cause = std::string(status.message());
    event.no_room = MayPass(status);
    event.fenced = fence_->lost();
    event.usable = usable_;
    answer(event);  // before anything goes: from here on the run would go back to this one
    {
      const std::lock_guard lock(mutex_);
      --commits_;
    }
    changed_.notify_all();
    if (!status.ok()) return;
    CheckpointsTidiedEvent tidied;
    ApplyRetention(manifest.name, &tidied);
    tidied.usable = usable_;
    answer(tidied);
  });
}

Branch CheckpointKeeper::BranchNow() {
  const std::lock_guard lock(mutex_);
  return branch_;
}

// The storage learns of it as soon as it can; at the latest before the next checkpoint exists, and before any goes.
void CheckpointKeeper::GoBack(const Branch& branch) {
  {
    const std::lock_guard lock(mutex_);
    if (branch == branch_) return;
    branch_ = branch;
  }
  thread_.Post([this] { fence_->GoBack(BranchNow()).IgnoreError(); });
}

// A server that does not answer holds up the end of the run for a checkpoint, but not for what could go.
void CheckpointKeeper::Finish() {
  finishing_.request_stop();
  bool is_done = false;
  thread_.Post([&] {
    const std::lock_guard lock(mutex_);
    is_done = true;
    changed_.notify_all();
  });
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return commits_ == 0; });
    if (!changed_.wait_for(lock, kTidyAtEnd, [&] { return is_done; })) storage_stop_.request_stop();
  }
  thread_.Drain();
}

absl::Status CheckpointKeeper::PublishManifest(const Manifest& manifest, CheckpointDoneEvent* done) {
  const Branch branch = BranchNow();
  RETURN_IF_ERROR(fence_->GoBack(branch));
  if (!branch.Includes(done->generation, done->step)) return absl::AbortedError("the run has rewound past it");
  ASSIGN_OR_RETURN(const Manifest made, CommitCheckpoint(*storage_, *fence_, manifest));
  for (const StoredShard& shard : made.shards) done->bytes += static_cast<int64_t>(shard.data.size + shard.index.size);
  const auto older = std::find_if(usable_.begin(), usable_.end(), [&](const auto& c) { return c.step <= done->step; });
  usable_.insert(older, {done->name, done->step, manifest.data_digest, done->generation, manifest.kernel_digest});
  return absl::OkStatus();
}

void CheckpointKeeper::Verify(const std::string& name, Answer answer) {
  thread_.Post([this, name, answer = std::move(answer)] {
    MakeDirectoryAgain();
    const absl::Status ours = fence_->Check();  // in another place it would be missing, and the run would go back
    answer(ours.ok() ? Read(name) : CheckpointVerifiedEvent{.name = name, .cause = std::string(ours.message())});
  });
}

CheckpointVerifiedEvent CheckpointKeeper::Read(const std::string& name) {
  return ReadWhole(*storage_, name, tensors_, config_.checkpoint.threads, finishing_.get_token());
}

CheckpointVerifiedEvent ReadWhole(Storage& storage, const std::string& name, const std::vector<StoredTensor>& tensors,
                                  int64_t threads, std::stop_token stop) {
  const auto problems = [&]() -> absl::StatusOr<std::vector<std::string>> {
    ASSIGN_OR_RETURN(const auto reader, CheckpointReader::Open(storage, *CheckpointName::Parse(name)));
    if (reader->manifest().tensors != tensors) return absl::FailedPreconditionError(name + " is not of this model");
    return reader->Verify({.threads = static_cast<int>(threads), .stop = std::move(stop)});
  }();
  if (problems.ok()) {
    const std::string first = problems->empty() ? "" : problems->front();
    return {.name = name, .cause = first, .damaged = !problems->empty()};
  }
  const bool damaged = absl::IsNotFound(problems.status()) || absl::IsDataLoss(problems.status()) ||
                       absl::IsInvalidArgument(problems.status());
  return {.name = name, .cause = std::string(problems.status().message()), .damaged = damaged};
}

std::string CheckpointKeeper::Delete(const std::vector<CheckpointName>& doomed) {
  std::string first;
  int64_t failed = 0;
  const auto begun = std::chrono::steady_clock::now();
  for (const CheckpointName& name : doomed) {
    // Who stands by waits for us to leave; and who was replaced meanwhile deletes nothing any more.
    if (finishing_.stop_requested() && std::chrono::steady_clock::now() - begun > kTidyAtEnd) break;
    if (!fence_->Check().ok()) break;
    const absl::Status deleted = DeleteCheckpoint(*storage_, name.ToString(), [this] { return fence_->Check(); });
    if (!deleted.ok() && failed++ == 0) first = absl::StrCat(name.ToString(), ": ", deleted.message());
    std::erase_if(usable_, [&](const CheckpointChoice& c) { return c.name == name.ToString(); });
  }
  if (failed == 0) return "";
  return absl::StrCat("cannot delete ", failed == 1 ? "" : absl::StrCat(failed, " checkpoints, the first of them "),
                      first);
}

void CheckpointKeeper::ClearAway() {
  thread_.Post([this] {
    if (!fence_->Check().ok()) return;
    const absl::StatusOr<Catalog> catalog = ScanCheckpoints(*storage_, &manifests_);
    if (!catalog.ok()) return;
    std::vector<CheckpointName> left;
    for (const RejectedCheckpoint& rejected : catalog->rejected) {
      const auto name = CheckpointName::Parse(rejected.name);
      if (rejected.unfinished && name.has_value() && name->generation <= state_.generation) left.push_back(*name);
    }
    Delete(left);
  });
}

// Where there is neither our claim nor a checkpoint that we know, it may be another place, such as the directory on
// which a disk is not mounted now. A run's own directory is the run's.
absl::Status CheckpointKeeper::MayClaim() {
  if (may_claim_ != nullptr) RETURN_IF_ERROR(may_claim_());
  if (usable_.empty() || config_.checkpoint.directory.empty()) return absl::OkStatus();
  const std::string& name = usable_.front().name;
  absl::Status known = storage_->Size(absl::StrCat(name, "/", kManifestName)).status();
  if (!absl::IsNotFound(known)) return known;
  return absl::UnavailableError(absl::StrCat(storage_->Describe(), " has neither this run's claim nor its checkpoint ",
                                             name, ": put them back, or mount what was there"));
}

// Elsewhere it may be a disk that is not mounted now.
void CheckpointKeeper::MakeDirectoryAgain() {
  if (!config_.checkpoint.directory.empty() || !MayClaim().ok()) return;
  if (mkdir(directory_.checkpoints().c_str(), 0777) == 0) SyncDirectory(directory_.root()).IgnoreError();
}

// Which checkpoints somebody else has deleted, in words: the run would have gone back to one of them.
std::string CheckpointKeeper::TakeStock(const Catalog& catalog) {
  std::set<std::string> there;
  for (const CatalogEntry& entry : catalog.valid) there.insert(entry.manifest.name.ToString());
  for (const RejectedCheckpoint& rejected : catalog.rejected) there.insert(rejected.name);
  std::vector<std::string> gone;
  for (const CheckpointChoice& choice : usable_) {
    if (!there.contains(choice.name)) gone.push_back(choice.name);
  }
  usable_ = ChoicesOf(catalog);
  if (gone.empty()) return "";
  return absl::StrCat(storage_->Describe(), ": ", absl::StrJoin(gone, ", "), gone.size() == 1 ? " is" : " are",
                      " gone, which the run has not deleted; ",
                      usable_.empty() ? "it has no checkpoint until the next one is written"
                                      : absl::StrCat("the newest is ", usable_.front().name));
}

void CheckpointKeeper::MakeRoom(const CheckpointName& next, Answer answer) {
  thread_.Post([this, next, answer = std::move(answer)] {
    MakeDirectoryAgain();
    if (!fence_->Check().ok()) return;
    storage_->Sweep().IgnoreError();
    // It writes, for which there may be no room before something has gone; what is given up goes the next time then.
    fence_->GoBack(BranchNow()).IgnoreError();
    const absl::StatusOr<Catalog> catalog = ScanCheckpoints(*storage_, &manifests_);
    if (!catalog.ok()) return;
    CheckpointsTidiedEvent tidied{.warning = TakeStock(*catalog), .usable = {}};
    Delete(LeftBefore(next, *catalog));
    tidied.usable = usable_;
    answer(tidied);
  });
}

// What cannot be deleted now is tried again after the next one. Whatever it is, training does not suffer from it.
void CheckpointKeeper::ApplyRetention(const CheckpointName& newest, CheckpointsTidiedEvent* tidied) {
  if (!fence_->GoBack(BranchNow()).ok() || !fence_->Check().ok()) return;
  storage_->Sweep().IgnoreError();  // a worker that was killed while it wrote leaves up to a shard, which is no object
  const absl::StatusOr<Catalog> catalog = ScanCheckpoints(*storage_, &manifests_);
  if (!catalog.ok()) return;
  tidied->warning = TakeStock(*catalog);
  const CheckpointConfig& c = config_.checkpoint;
  const Retention retention{.keep_last = c.keep_last, .keep_every_steps = c.keep_every_steps, .keep_best = c.keep_best};
  std::vector<CheckpointName> doomed = ChooseDeletions(catalog->valid, retention, {newest});
  if (c.max_gib > 0) {
    const std::vector<CheckpointName> beyond = BeyondLimit(catalog->valid, doomed, c.max_gib);
    doomed.insert(doomed.end(), beyond.begin(), beyond.end());
  }
  const std::vector<CheckpointName> left = LeftBefore(newest, *catalog);
  doomed.insert(doomed.end(), left.begin(), left.end());
  const std::string not_deleted = Delete(doomed);
  absl::StrAppend(&tidied->warning, tidied->warning.empty() || not_deleted.empty() ? "" : "; ", not_deleted);
}

}  // namespace holdfast
