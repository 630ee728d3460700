#include "tools/cli/compare_command.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/metrics/compare.h"
#include "framework/metrics/plot.h"
#include "framework/metrics/run_directory.h"
#include "framework/storage/atomic_file.h"
#include "tools/cli/output_arguments.h"
#include "tools/cli/run_record.h"

namespace holdfast {
namespace {

bool IsPicture(const std::string& path) {
  constexpr size_t kLargest = size_t{16} << 20;
  const auto text = ReadFile(path, kLargest);
  return text.ok() && text->starts_with("<svg");
}

/// For a file that is written as SVG, whose name is not to say another format.
CLI::Validator IsNoOtherPicture() {
  return {[](const std::string& path) {
            constexpr std::array kOthers = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".eps"};
            std::filesystem::path name(path);
            const std::string extension = absl::AsciiStrToLower(name.extension().string());
            if (std::ranges::find(kOthers, extension) == kOthers.end()) return std::string();
            return absl::StrCat("pictures are written as SVG alone; write ", name.replace_extension(".svg").string());
          },
          ""};
}

Curve LossCurve(const std::string& run, const std::vector<StepMetrics>& steps) {
  Curve curve{.label = run, .x = {}, .y = {}};
  for (const StepMetrics& step : steps) {
    curve.x.push_back(static_cast<double>(step.step));
    curve.y.push_back(static_cast<double>(step.loss));
  }
  return curve;
}

/// Of a run directory, or of a metrics.jsonl without one.
absl::StatusOr<std::vector<StepMetrics>> ReadSteps(const std::string& run) {
  std::error_code error;
  const bool is_file = std::filesystem::exists(run, error) && !std::filesystem::is_directory(run, error);
  if (is_file) return ReadStepMetrics(run);
  return ExplainSweep(RunDirectory(run).ReadMetrics(), run);
}

/// Whether all others are the same bits as the first.
absl::StatusOr<bool> Compare(const CompareCommand& runs) {
  if (!runs.out.empty()) RETURN_IF_ERROR(CheckReplaces("--out", runs.out, "picture (SVG)", IsPicture));
  ASSIGN_OR_RETURN(const std::vector<StepMetrics> first, ReadSteps(runs.first));
  std::vector<Curve> curves{LossCurve(runs.first, first)};
  bool equal = true;
  std::string text;
  for (const std::string& run : runs.others) {
    ASSIGN_OR_RETURN(const std::vector<StepMetrics> other, ReadSteps(run));
    const absl::StatusOr<RunComparison> comparison = CompareRuns(first, other);
    if (!comparison.ok()) {
      return runs.others.size() == 1 ? comparison.status()
                                     : Annotate(comparison.status(), absl::StrCat(runs.first, " and ", run));
    }
    equal = equal && !comparison->difference.has_value();
    absl::StrAppend(&text, text.empty() ? "" : "\n", "A: ", runs.first, "\nB: ", run, "\n", Describe(*comparison));
    curves.push_back(LossCurve(run, other));
    curves.back().dashed = true;  // equal runs have one curve
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (!runs.out.empty()) {
    const PlotOptions options{.title = "Training loss", .x_label = "step", .y_label = "nats per token"};
    RETURN_IF_ERROR(WriteFileAtomically(runs.out, PlotSvg(curves, options)));
  }
  return equal;
}

}  // namespace

absl::StatusOr<int> CompareCommand::Run() const {
  const absl::StatusOr<bool> equal = Compare(*this);
  if (!equal.ok()) return UsageError(absl::StrCat("error: ", equal.status().message()));
  return *equal ? kExitDone : kExitFailure;
}

void CompareCommand::AddTo(CLI::App& command) {
  AddPathOption(command, "RUN_A", first, "a run directory, or its metrics.jsonl")->required();
  AddPathOption(command, "RUN_B", others, "another, or several, each of which is compared with the first")->required();
  AddPathOption(command, "--out", out, "file for a picture (SVG) of all losses")->check(IsNoOtherPicture());
}

}  // namespace holdfast
