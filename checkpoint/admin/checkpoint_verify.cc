#include "checkpoint/admin/checkpoint_verify.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

using Problems = std::vector<std::string>;

std::vector<Verifiable> AllFinished(const Catalog& catalog) {
  std::vector<Verifiable> candidates;
  for (const CatalogEntry& entry : catalog.valid) candidates.push_back({entry.manifest.name.ToString(), &entry, ""});
  for (const RejectedCheckpoint& rejected : catalog.rejected) {
    if (!rejected.unfinished && !rejected.given_up) candidates.push_back({rejected.name, nullptr, rejected.reason});
  }
  return candidates;
}

/// The newest of those asked for, also if it is damaged: verifying has to report that one.
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

}  // namespace

absl::StatusOr<std::vector<Verifiable>> ChooseVerifiable(const Catalog& catalog, const CheckpointPlace& place,
                                                         const TargetOptions& options, bool all) {
  std::vector<Verifiable> candidates = AllFinished(catalog);
  if (all && !candidates.empty()) return candidates;
  ASSIGN_OR_RETURN(Verifiable newest, Newest(catalog, place, options));
  return std::vector<Verifiable>{std::move(newest)};
}

absl::StatusOr<Problems> VerifyCheckpoint(Storage& storage, const Verifiable& checkpoint, int threads,
                                          const ByteProgress& progress) {
  if (checkpoint.entry == nullptr) return Problems{absl::StrCat(checkpoint.name, "/", checkpoint.reason)};
  const Manifest& manifest = checkpoint.entry->manifest;
  const auto reader = CheckpointReader::Open(storage, manifest.name);
  if (absl::IsDataLoss(reader.status()) || absl::IsInvalidArgument(reader.status())) {
    return Problems{std::string(reader.status().message())};
  }
  RETURN_IF_ERROR(reader.status());
  uint64_t bytes = manifest.model.size;
  for (const StoredShard& shard : manifest.shards) bytes += shard.data.size + shard.index.size;
  const auto on_progress = [&](uint64_t read) {
    if (progress != nullptr) progress(read, bytes);
  };
  return (*reader)->Verify({.threads = threads, .on_progress = on_progress});
}

}  // namespace holdfast
