#include "tools/cli/compare_command.h"

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "framework/metrics/compare.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {
namespace {

absl::StatusOr<RunComparison> Compare(const CompareCommand& runs) {
  ASSIGN_OR_RETURN(const std::vector<StepMetrics> a, RunDirectory(runs.run_a).ReadMetrics());
  ASSIGN_OR_RETURN(const std::vector<StepMetrics> b, RunDirectory(runs.run_b).ReadMetrics());
  return CompareRuns(a, b);
}

}  // namespace

absl::StatusOr<int> CompareCommand::Run() const {
  const absl::StatusOr<RunComparison> comparison = Compare(*this);
  if (!comparison.ok()) return UsageError(absl::StrCat("error: ", comparison.status().message()));
  std::printf("A: %s\nB: %s\n%s", run_a.c_str(), run_b.c_str(), Describe(*comparison).c_str());
  return comparison->difference.has_value() ? kExitFailure : kExitDone;
}

void CompareCommand::AddTo(CLI::App& command) {
  command.add_option("RUN_A", run_a, "A run directory")->required();
  command.add_option("RUN_B", run_b, "Another")->required();
}

}  // namespace holdfast
