#include "tools/compare_command.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "framework/metrics/compare.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {
namespace {

struct CompareArguments {
  std::string run_a, run_b;
};

absl::StatusOr<RunComparison> Compare(const CompareArguments& arguments) {
  HF_ASSIGN_OR_RETURN(const std::vector<StepMetrics> a, RunDirectory(arguments.run_a).ReadMetrics());
  HF_ASSIGN_OR_RETURN(const std::vector<StepMetrics> b, RunDirectory(arguments.run_b).ReadMetrics());
  return CompareRuns(a, b);
}

/// Like diff and cmp: "different" is 1, so "could not tell" must be something else.
absl::StatusOr<int> RunCompare(const CompareArguments& arguments) {
  const absl::StatusOr<RunComparison> comparison = Compare(arguments);
  if (!comparison.ok()) return UsageError(absl::StrCat("error: ", comparison.status().message()));
  std::printf("A: %s\nB: %s\n%s", arguments.run_a.c_str(), arguments.run_b.c_str(), Describe(*comparison).c_str());
  return comparison->difference.has_value() ? kExitFailure : kExitDone;
}

}  // namespace

CLI::App* AddCompareCommand(CLI::App& parent, CommandBody& body) {
  CLI::App* command = parent.add_subcommand("compare", "Say whether two runs are the same bits, or where they part");
  const auto arguments = std::make_shared<CompareArguments>();  // lives as long as the callback that reads it
  command->add_option("RUN_A", arguments->run_a, "A run directory")->required();
  command->add_option("RUN_B", arguments->run_b, "Another")->required();
  command->callback([arguments, &body] { body = [arguments] { return RunCompare(*arguments); }; });
  return command;
}

}  // namespace holdfast
