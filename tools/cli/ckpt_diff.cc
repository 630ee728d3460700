// holdfast ckpt diff: what of two checkpoints differs.

#include <cstdio>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/admin/checkpoint_diff.h"
#include "checkpoint/admin/checkpoint_text.h"
#include "framework/base/status.h"
#include "tools/cli/ckpt_actions.h"
#include "tools/cli/command.h"
#include "tools/cli/shared_progress.h"

namespace holdfast {
namespace {

void PrintSide(const char* side, const OpenedCheckpoint& checkpoint) {
  const Manifest& manifest = checkpoint.reader->manifest();
  std::printf("%s  %s, state digest %s\n", side, Describe(manifest.name, *checkpoint.place.storage).c_str(),
              DigestText(manifest.state_digest).c_str());
}

void PrintMismatch(const TensorMismatch& tensor) {
  if (tensor.shape_b.empty()) {
    std::printf("%s: only in A\n", tensor.name.c_str());
  } else if (tensor.shape_a.empty()) {
    std::printf("%s: only in B\n", tensor.name.c_str());
  } else if (tensor.shape_a == tensor.shape_b) {
    std::printf("%s: state %s in A, %s in B\n", tensor.name.c_str(), absl::StrJoin(tensor.planes_a, ", ").c_str(),
                absl::StrJoin(tensor.planes_b, ", ").c_str());
  } else {
    std::printf("%s: shape %s in A, %s in B\n", tensor.name.c_str(), ShapeText(tensor.shape_a).c_str(),
                ShapeText(tensor.shape_b).c_str());
  }
}

/// "[17, 3]" of a row-major index.
std::string IndexText(int64_t index, const std::vector<int64_t>& shape) {
  std::vector<int64_t> position(shape.size());
  for (size_t i = shape.size(); i > 0; --i) {
    position[i - 1] = index % shape[i - 1];
    index /= shape[i - 1];
  }
  return ShapeText(position);
}

size_t PrintDifferences(const Manifest& manifest, const std::map<int, PlaneDifferences>& differences) {
  size_t different = 0;
  for (const auto& [tensor, planes] : differences) {
    const StoredTensor& t = manifest.tensors[static_cast<size_t>(tensor)];
    bool any = false;
    for (size_t plane = 0; plane < planes.size(); ++plane) {
      const ValueDifference& d = planes[plane];
      if (d.count == 0) continue;
      any = true;
      std::printf("%s %s: %s of %s values differ, by at most %.6g%s; first at %s: %.9g and %.9g\n", t.name.c_str(),
                  t.planes[plane].c_str(), WithCommas(static_cast<uint64_t>(d.count)).c_str(),
                  WithCommas(static_cast<uint64_t>(t.rows() * t.cols())).c_str(), d.max_abs,
                  d.unordered ? " and NaN" : "", IndexText(d.first, t.shape).c_str(), static_cast<double>(d.first_a),
                  static_cast<double>(d.first_b));
    }
    different += any ? 1 : 0;
  }
  return different;
}

/// Prints what differs.
absl::StatusOr<bool> AreEqual(const CkptDiffOptions& options) {
  ASSIGN_OR_RETURN(const auto a, OpenCheckpoint(options.a));
  ASSIGN_OR_RETURN(const auto b, OpenCheckpoint(options.b));
  PrintSide("A", *a);
  PrintSide("B", *b);
  SharedProgress progress("comparing");
  ASSIGN_OR_RETURN(const CheckpointDifference difference,
                   DiffCheckpoints(*a->reader, *b->reader, options.threads, progress.Listener()));
  progress.Finish();
  for (const TensorMismatch& tensor : difference.mismatches) PrintMismatch(tensor);
  const size_t tensors = difference.common + difference.mismatches.size();
  const size_t different = difference.mismatches.size() + PrintDifferences(a->reader->manifest(), difference.of_tensor);
  if (different == 0) {
    std::printf("equal: %zu tensors, all of their state, to the last bit\n", difference.common);
    return true;
  }
  std::printf("different: %zu of %zu tensors\n", different, tensors);
  return false;
}

}  // namespace

absl::StatusOr<int> CkptDiff(const CkptDiffOptions& options) {
  const absl::StatusOr<bool> equal = AreEqual(options);
  if (equal.ok()) return *equal ? kExitDone : kExitFailure;
  if (ExitCodeOf(equal.status()) != kExitFailure) return equal.status();
  return UsageError(absl::StrCat("error: ", equal.status().message()));  // 1 says that they differ
}

}  // namespace holdfast
