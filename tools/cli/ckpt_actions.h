#pragma once
// What the subcommands of `holdfast ckpt` do once their arguments are read. Each returns its exit code.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/admin/checkpoint_target.h"
#include "checkpoint/admin/model_export.h"
#include "tools/cli/run_arguments.h"

namespace holdfast {

struct CkptListOptions {
  TargetOptions target;
  bool json = false;
};
absl::StatusOr<int> CkptList(const CkptListOptions& options);

struct CkptShowOptions {
  TargetOptions target;
  std::string tensor;  // empty = all
  bool statistics = false, config = false;
  int threads = 1;
};
absl::StatusOr<int> CkptShow(const CkptShowOptions& options);

absl::StatusOr<int> CkptDigest(const TargetOptions& options);

struct CkptVerifyOptions {
  TargetOptions target;
  bool all = false;
  int threads = 1;
};
absl::StatusOr<int> CkptVerify(const CkptVerifyOptions& options);

struct CkptPruneOptions {
  TargetOptions target;
  std::optional<int64_t> keep_last, keep_every_steps, keep_best;  // empty = as the config says
  bool damaged = false, take_over = false, dry_run = false;
};
absl::StatusOr<int> CkptPrune(const CkptPruneOptions& options);

struct CkptExportOptions {
  TargetOptions target;
  ModelExportOptions model;
};
absl::StatusOr<int> CkptExport(const CkptExportOptions& options);

struct CkptImportOptions {
  std::string model, where;
  ConfigArguments config;
  PlaceOptions place;
};
absl::StatusOr<int> CkptImport(const CkptImportOptions& options);

struct CkptDiffOptions {
  TargetOptions a, b;
  int threads = 1;
};
/// Exit code 0: equal to the last bit; 1: not. What keeps it from telling, as damage, is a mistake (2).
absl::StatusOr<int> CkptDiff(const CkptDiffOptions& options);

}  // namespace holdfast
