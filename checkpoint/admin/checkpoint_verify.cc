// holdfast ckpt verify: reads every byte of checkpoints and compares it with its digest.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "tools/ckpt_actions.h"
#include "tools/ckpt_text.h"
#include "tools/command.h"

namespace holdfast {
namespace {

using Problems = std::vector<std::string>;

/// A checkpoint to look at: one that the catalog lists, or one that it has refused already.
struct Verifiable {
  std::string name;
  const CatalogEntry* entry = nullptr;
  std::string reason;
};

std::vector<Verifiable> AllFinished(const Catalog& catalog) {
  std::vector<Verifiable> candidates;
  for (const CatalogEntry& entry : catalog.valid) candidates.push_back({entry.manifest.name.ToString(), &entry, ""});
  for (const RejectedCheckpoint& rejected : catalog.rejected) {
    if (!rejected.unfinished && !rejected.given_up) candidates.push_back({rejected.name, nullptr, rejected.reason});
  }
  return candidates;
}

/// The newest of those asked for, also if it is damaged: who verifies wants to hear of that one.
absl::StatusOr<Verifiable> Newest(const Catalog& catalog, const CheckpointPlace& place, const TargetOptions& options) {
  const Verifiable* newest = nullptr;
  const std::vector<Verifiable> candidates = AllFinished(catalog);
  for (const Verifiable& candidate : candidates) {
    const auto name = CheckpointName::Parse(candidate.name);
    const bool matches = name.has_value() && (!place.checkpoint.has_value() || *name == *place.checkpoint) &&
                         (!options.step.has_value() || name->step == *options.step);
    if (matches && (newest == nullptr || name > CheckpointName::Parse(newest->name))) newest = &candidate;
  }
  if (newest != nullptr) return *newest;
  const auto chosen = ChooseCheckpoint(catalog, place, options);
  return chosen.ok() ? absl::InternalError("a checkpoint was listed and then not found") : chosen.status();
}

absl::StatusOr<Problems> VerifyEntry(Storage& storage, const CatalogEntry& entry, int threads) {
  const std::string name = entry.manifest.name.ToString();
  const auto reader = CheckpointReader::Open(storage, entry.manifest.name);
  if (absl::IsDataLoss(reader.status()) || absl::IsInvalidArgument(reader.status())) {
    return Problems{std::string(reader.status().message())};
  }
  HF_RETURN_IF_ERROR(reader.status());
  uint64_t bytes = entry.manifest.model.size;
  for (const StoredShard& shard : entry.manifest.shards) bytes += shard.data.size + shard.index.size;
  SharedProgress progress("verifying " + name, bytes);
  auto problems = (*reader)->Verify({.threads = threads, .on_progress = [&](uint64_t read) { progress.Update(read); }});
  progress.Finish();
  return problems;
}

}  // namespace

absl::StatusOr<int> CkptVerify(const CkptVerifyOptions& options) {
  HF_ASSIGN_OR_RETURN(const CheckpointPlace place, OpenCheckpointPlace(options.target.where, options.target.place));
  HF_ASSIGN_OR_RETURN(const Catalog catalog, ScanCheckpoints(*place.storage));
  std::vector<Verifiable> candidates = AllFinished(catalog);
  if (!options.all || candidates.empty()) {
    HF_ASSIGN_OR_RETURN(Verifiable newest, Newest(catalog, place, options.target));
    candidates = {std::move(newest)};
  }
  size_t damaged = 0;
  for (const Verifiable& candidate : candidates) {
    Problems problems{absl::StrCat(candidate.name, "/", candidate.reason)};
    if (candidate.entry != nullptr) {
      HF_ASSIGN_OR_RETURN(problems, VerifyEntry(*place.storage, *candidate.entry, options.threads));
    }
    for (const std::string& problem : problems) std::printf("%s\n", problem.c_str());
    damaged += problems.empty() ? 0 : 1;
    if (!problems.empty()) continue;
    std::printf("%s: valid, state digest %s\n", candidate.name.c_str(),
                DigestText(candidate.entry->manifest.state_digest).c_str());
  }
  if (damaged == 0) return kExitDone;
  return absl::DataLossError(
      absl::StrCat(place.storage->Describe(), ": ", damaged, " of ", candidates.size(), " checkpoints damaged"));
}

}  // namespace holdfast
