// holdfast ckpt prune: deletes checkpoints that retention does not keep, and what was never finished.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/admin/checkpoint_verify.h"
#include "checkpoint/admin/fence_owner.h"
#include "checkpoint/admin/retention_plan.h"
#include "checkpoint/sharded/fence.h"
#include "checkpoint/sharded/manifest.h"
#include "checkpoint/sharded/stored_files.h"
#include "framework/base/format_bytes.h"
#include "framework/base/processors.h"
#include "framework/base/status.h"
#include "framework/metrics/progress.h"
#include "tools/cli/ckpt_actions.h"
#include "tools/cli/command.h"
#include "tools/cli/shared_progress.h"

namespace holdfast {
namespace {

/// What the command line says, else what is configured.
absl::StatusOr<Retention> RetentionOf(const CkptPruneOptions& options, const CheckpointPlace& place,
                                      const Catalog& catalog) {
  Retention retention;
  if (!options.keep_last.has_value() || !options.keep_every_steps.has_value() || !options.keep_best.has_value()) {
    ASSIGN_OR_RETURN(retention, ConfiguredRetention(place, catalog));
  }
  return Retention{.keep_last = options.keep_last.value_or(retention.keep_last),
                   .keep_every_steps = options.keep_every_steps.value_or(retention.keep_every_steps),
                   .keep_best = options.keep_best.value_or(retention.keep_best)};
}

std::string Describe(const Retention& retention) {
  std::string text = absl::StrCat("keeping the newest ", retention.keep_last);
  if (retention.keep_every_steps > 0)
    absl::StrAppend(&text, ", every step that is a multiple of ", retention.keep_every_steps);
  if (retention.keep_best > 0) absl::StrAppend(&text, ", the best ", retention.keep_best, " by validation loss");
  return text;
}

void PrintKept(const Catalog& catalog, const std::vector<Deletion>& doomed) {
  std::set<std::string> names;
  for (const Deletion& d : doomed) names.insert(d.name);
  for (const CatalogEntry& entry : catalog.valid) {
    const std::string name = entry.manifest.name.ToString();
    if (!names.contains(name)) std::printf("  keep    %s\n", name.c_str());
  }
  for (const RejectedCheckpoint& rejected : catalog.rejected) {
    if (names.contains(rejected.name)) continue;
    std::printf("  keep    %s: damaged (%s); --damaged deletes it\n", rejected.name.c_str(), rejected.reason.c_str());
  }
}

/// What is wrong with the newest valid checkpoint, every byte of which is read; empty if nothing is.
absl::StatusOr<std::string> DamageOfNewest(Storage& storage, const Catalog& catalog) {
  const CatalogEntry& newest = catalog.valid.front();
  const std::string name = newest.manifest.name.ToString();
  SharedProgress progress("verifying " + name);
  ASSIGN_OR_RETURN(const std::vector<std::string> problems,
                   VerifyCheckpoint(storage, {.name = name, .entry = &newest, .reason = ""}, AvailableProcessors(),
                                    progress.Listener()));
  progress.Finish();
  if (problems.empty()) return "";
  // While a dry run reads, the run that writes them may delete what was the newest; its manifest goes first.
  const absl::Status there = storage.Size(ObjectName(newest.manifest.name, kManifestName)).status();
  if (absl::IsNotFound(there)) return absl::UnavailableError(name + " was deleted while it was read; try again");
  return problems.front();
}

/// What is to go. An older checkpoint may be the last that is intact, so none goes before the newest has been read. If
/// that is damaged it goes too, if --damaged says so, and it is the next one that is kept.
absl::StatusOr<std::vector<Deletion>> PlanAndVerify(Storage& storage, Catalog& catalog, const Retention& retention,
                                                    bool damaged) {
  while (true) {
    std::vector<Deletion> plan = PlanDeletions(catalog, retention, damaged);
    if (std::none_of(plan.begin(), plan.end(), [](const Deletion& d) { return d.valid; })) return plan;
    ASSIGN_OR_RETURN(const std::string damage, DamageOfNewest(storage, catalog));
    if (damage.empty()) return plan;
    const CatalogEntry& newest = catalog.valid.front();
    const std::string name = newest.manifest.name.ToString();
    if (!damaged) {
      return absl::DataLossError(
          absl::StrCat(storage.Describe(), ": ", name, ", the newest checkpoint, is damaged (", damage,
                       "), and an older one that would go may be the last that is intact: nothing is deleted; "
                       "--damaged deletes ",
                       name, " and keeps the newest that is intact instead"));
    }
    catalog.rejected.insert(catalog.rejected.begin(), {.name = name, .reason = damage, .bytes = newest.bytes});
    catalog.valid.erase(catalog.valid.begin());
  }
}

absl::Status RefuseIfInUse(Storage& storage) {
  absl::Status status = CheckNotInUse(storage);
  if (absl::IsAborted(status)) {
    return absl::AbortedError(absl::StrCat(status.message(), ": wait for the run, or stop it"));
  }
  if (!absl::IsFailedPrecondition(status)) return status;
  return absl::FailedPreconditionError(
      absl::StrCat(status.message(),
                   ": once it has ended, pass --take-over (a run that still works could write no more checkpoints)"));
}

}  // namespace

absl::StatusOr<int> CkptPrune(const CkptPruneOptions& options) {
  PlaceOptions place_options = options.target.place;
  place_options.access = options.dry_run ? PlaceAccess::kRead : PlaceAccess::kWrite;
  ASSIGN_OR_RETURN(const CheckpointPlace place, OpenCheckpointPlace(options.target.where, place_options));
  if (place.checkpoint.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.target.where, ": this is one checkpoint; give the directory"));
  }
  Storage& storage = *place.storage;
  ASSIGN_OR_RETURN(const bool holds_checkpoints, HoldsCheckpoints(storage));
  if (!holds_checkpoints) return absl::NotFoundError(absl::StrCat(options.target.where, ": no checkpoints here"));
  std::unique_ptr<Fence> fence;
  if (!options.dry_run) {
    if (!options.take_over) RETURN_IF_ERROR(RefuseIfInUse(storage));
    ASSIGN_OR_RETURN(fence, Fence::Claim(storage, FenceOwner("holdfast ckpt prune")));
    RETURN_IF_ERROR(storage.Sweep());
  }
  ASSIGN_OR_RETURN(Catalog catalog, ScanCheckpoints(storage));
  ASSIGN_OR_RETURN(const Retention retention, RetentionOf(options, place, catalog));
  ASSIGN_OR_RETURN(const std::vector<Deletion> doomed, PlanAndVerify(storage, catalog, retention, options.damaged));
  std::printf("%s: %s\n", storage.Describe().c_str(), Describe(retention).c_str());
  PrintKept(catalog, doomed);
  if (fence != nullptr) RETURN_IF_ERROR(fence->Check());  // what looks unfinished may be a new owner's
  uint64_t bytes = 0;
  for (const Deletion& d : doomed) {
    if (!options.dry_run) RETURN_IF_ERROR(DeleteCheckpoint(storage, d.name, [&] { return fence->Check(); }));
    std::printf("  delete  %s: %s\n", d.name.c_str(), d.reason.c_str());
    bytes += d.bytes;
  }
  std::printf("%s %zu, %s\n", options.dry_run ? "would delete" : "deleted", doomed.size(),
              FormatBytes(static_cast<double>(bytes)).c_str());
  return kExitDone;
}

}  // namespace holdfast
