#include "checkpoint/admin/checkpoint_target.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/join_first.h"
#include "framework/base/log.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kShownSteps = 8;

/// "; there are steps 30, 20, 10 and 4 more".
std::string StepsOf(const Catalog& catalog) {
  std::set<int64_t, std::greater<>> steps;
  for (const CatalogEntry& entry : catalog.valid) steps.insert(entry.manifest.name.step);
  if (steps.empty()) return "";
  return absl::StrCat("; there ", steps.size() == 1 ? "is step " : "are steps ",
                      JoinFirst(steps, kShownSteps, absl::AlphaNumFormatter()));
}

bool Matches(const CheckpointName& name, const CheckpointPlace& place, const TargetOptions& options) {
  if (place.checkpoint.has_value() && name != *place.checkpoint) return false;
  return !options.step.has_value() || name.step == *options.step;
}

absl::Status NothingValid(const Catalog& catalog, const Storage& storage) {
  std::string message = absl::StrCat(storage.Describe(), ": no valid checkpoint");
  for (const RejectedCheckpoint& rejected : catalog.rejected) {
    absl::StrAppend(&message, "; ", rejected.name, ": ", rejected.reason);
  }
  return catalog.rejected.empty() ? absl::NotFoundError(message) : absl::DataLossError(message);
}

/// What is not finished, or was given up, is not missed.
void WarnOfDamageSince(const CheckpointName& chosen, const Catalog& catalog, const Storage& storage) {
  for (const RejectedCheckpoint& rejected : catalog.rejected) {  // newest first
    const auto name = CheckpointName::Parse(rejected.name);
    if (rejected.unfinished || rejected.given_up || !name.has_value() || *name < chosen) continue;
    LogWarning(storage.Describe(), ": ", rejected.name, " is newer and damaged (", rejected.reason,
               "); the newest that can be used is ", chosen.ToString());
    return;
  }
}

}  // namespace

absl::StatusOr<const CatalogEntry*> ChooseCheckpoint(const Catalog& catalog, const CheckpointPlace& place,
                                                     const TargetOptions& options) {
  for (const CatalogEntry& entry : catalog.valid) {  // newest first
    if (Matches(entry.manifest.name, place, options)) return &entry;
  }
  const std::string where = place.storage->Describe();
  if (!place.checkpoint.has_value() && !options.step.has_value()) return NothingValid(catalog, *place.storage);
  for (const RejectedCheckpoint& rejected : catalog.rejected) {
    const auto name = CheckpointName::Parse(rejected.name);
    if (name.has_value() && Matches(*name, place, options)) {
      return absl::DataLossError(absl::StrCat(where, "/", rejected.name, ": ", rejected.reason));
    }
  }
  const std::string wanted = place.checkpoint.has_value() ? absl::StrCat("checkpoint ", place.checkpoint->ToString())
                                                          : absl::StrCat("checkpoint of step ", *options.step);
  const bool contradiction =
      place.checkpoint.has_value() && options.step.has_value() && place.checkpoint->step != *options.step;
  return absl::NotFoundError(contradiction
                                 ? absl::StrCat("--step ", *options.step, ": ", options.where, " names another step")
                                 : absl::StrCat(where, ": no ", wanted, StepsOf(catalog)));
}

absl::StatusOr<std::unique_ptr<OpenedCheckpoint>> OpenCheckpoint(const TargetOptions& options) {
  auto opened = std::make_unique<OpenedCheckpoint>();
  ASSIGN_OR_RETURN(opened->place, OpenCheckpointPlace(options.where, options.place));
  ASSIGN_OR_RETURN(opened->catalog, ScanCheckpoints(*opened->place.storage));
  ASSIGN_OR_RETURN(opened->entry, ChooseCheckpoint(opened->catalog, opened->place, options));
  if (!options.step.has_value() && !opened->place.checkpoint.has_value()) {
    WarnOfDamageSince(opened->entry->manifest.name, opened->catalog, *opened->place.storage);
  }
  ASSIGN_OR_RETURN(opened->reader, CheckpointReader::Open(*opened->place.storage, opened->entry->manifest.name));
  return opened;
}

std::string Describe(const CheckpointName& name, const Storage& storage) {
  return absl::StrCat(name.ToString(), " in ", storage.Describe());
}

}  // namespace holdfast
