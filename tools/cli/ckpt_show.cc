// holdfast ckpt list, show and digest: what there is, without changing anything.

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/admin/checkpoint_statistics.h"
#include "checkpoint/admin/checkpoint_text.h"
#include "framework/base/seconds.h"
#include "framework/base/status.h"
#include "framework/config/suggest.h"
#include "tools/cli/ckpt_actions.h"
#include "tools/cli/command.h"
#include "tools/cli/shared_progress.h"

namespace holdfast {
namespace {

void Print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

/// Indices of the tensors called `name`, or of all if it is empty.
absl::StatusOr<std::vector<int>> ChooseTensors(const Manifest& manifest, const std::string& name) {
  std::vector<int> chosen;
  std::vector<std::string> names;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    names.push_back(manifest.tensors[i].name);
    if (name.empty() || name == names.back()) chosen.push_back(static_cast<int>(i));
  }
  if (!chosen.empty()) return chosen;
  const std::string nearest = Nearest(name, names);
  return absl::NotFoundError(absl::StrCat("--tensor ", name, ": ", manifest.name.ToString(), " has no such tensor",
                                          nearest.empty() ? "" : absl::StrCat(" (did you mean '", nearest, "'?)")));
}

void PrintStatistics(const StoredTensor& tensor, const PlaneStatistics& planes) {
  std::printf("%s %s\n", tensor.name.c_str(), ShapeText(tensor.shape).c_str());
  for (size_t plane = 0; plane < planes.size(); ++plane) {
    const TensorStatistics& s = planes[plane];
    std::printf("  %-10s  %13.6g %13.6g %13.6g %13.6g %12s %8s %8s\n", tensor.planes[plane].c_str(), s.min, s.max,
                s.mean(), s.rms(), WithCommas(static_cast<uint64_t>(s.zeros)).c_str(),
                WithCommas(static_cast<uint64_t>(s.nans)).c_str(),
                WithCommas(static_cast<uint64_t>(s.infinities)).c_str());
  }
}

}  // namespace

absl::StatusOr<int> CkptList(const CkptListOptions& options) {
  ASSIGN_OR_RETURN(const CheckpointPlace place, OpenCheckpointPlace(options.target.where, options.target.place));
  ASSIGN_OR_RETURN(Catalog catalog, ScanCheckpoints(*place.storage));
  if (place.checkpoint.has_value()) {
    const std::string name = place.checkpoint->ToString();
    std::erase_if(catalog.valid, [&](const CatalogEntry& entry) { return entry.manifest.name != *place.checkpoint; });
    std::erase_if(catalog.rejected, [&](const RejectedCheckpoint& rejected) { return rejected.name != name; });
  }
  if (options.json) {
    Print(CatalogJson(catalog));
    return kExitDone;
  }
  if (catalog.valid.empty() && catalog.rejected.empty()) {
    return absl::NotFoundError(absl::StrCat(options.target.where, ": no checkpoints here"));
  }
  std::printf("%s\n", place.storage->Describe().c_str());
  Print(CatalogText(catalog, SecondsSinceEpoch()));
  return kExitDone;
}

absl::StatusOr<int> CkptShow(const CkptShowOptions& options) {
  ASSIGN_OR_RETURN(const auto checkpoint, OpenCheckpoint(options.target));
  const Manifest& manifest = checkpoint->reader->manifest();
  if (options.config) {
    Print(manifest.config);
    return kExitDone;
  }
  ASSIGN_OR_RETURN(const std::vector<int> tensors, ChooseTensors(manifest, options.tensor));
  if (options.tensor.empty()) {
    Print(SummaryText(*checkpoint->entry, *checkpoint->reader, Describe(manifest.name, *checkpoint->place.storage),
                      SecondsSinceEpoch()));
  }
  if (!options.statistics) {
    Manifest shown = manifest;
    shown.tensors.clear();
    for (const int i : tensors) shown.tensors.push_back(manifest.tensors[static_cast<size_t>(i)]);
    Print(TensorTable(shown));
    return kExitDone;
  }
  SharedProgress progress("reading");
  ASSIGN_OR_RETURN(const auto statistics,
                   ComputeStatistics(*checkpoint->reader, tensors, options.threads, progress.Listener()));
  progress.Finish();
  std::printf("%-12s  %13s %13s %13s %13s %12s %8s %8s\n", "", "min", "max", "mean", "rms", "zeros", "NaN", "infinite");
  for (size_t i = 0; i < tensors.size(); ++i) {
    PrintStatistics(manifest.tensors[static_cast<size_t>(tensors[i])], statistics[i]);
  }
  return kExitDone;
}

absl::StatusOr<int> CkptDigest(const TargetOptions& options) {
  ASSIGN_OR_RETURN(const auto checkpoint, OpenCheckpoint(options));
  std::printf("%s\n", DigestText(checkpoint->reader->manifest().state_digest).c_str());
  return kExitDone;
}

}  // namespace holdfast
