#include "tools/cli/loss_plot.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/status.h"
#include "framework/metrics/figure_curves.h"
#include "framework/metrics/plot.h"
#include "framework/metrics/progress.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {
namespace {

constexpr int kColumnsMax = 78, kRows = 18;

Curve ValidationCurve(const RunDirectory& directory) {
  Curve curve{.label = "validation", .x = {}, .y = {}, .points = true};
  std::ifstream events = OpenToRead(directory.events());
  for (std::string line; std::getline(events, line);) {
    const nlohmann::json event = ParseJson(line).value_or(nullptr);
    if (!event.is_object() || event.value("event", nlohmann::json()) != "validation" || !event.contains("loss"))
      continue;
    const nlohmann::json number = event.value("step", nlohmann::json());
    if (!number.is_number()) continue;
    const auto step = number.get<double>();
    while (!curve.x.empty() && curve.x.back() >= step) {  // the run has gone back since
      curve.x.pop_back();
      curve.y.pop_back();
    }
    if (!event["loss"].is_number()) continue;  // null, as it was not finite
    curve.x.push_back(step);
    curve.y.push_back(event["loss"].get<double>());
  }
  return curve;
}

/// How many workers made each step; empty if the number has always been the same.
Curve WorldSizes(const std::vector<StepMetrics>& metrics) {
  Curve curve{.label = "workers", .x = {}, .y = {}};
  bool changed = false;
  for (const StepMetrics& m : metrics) {
    changed = changed || m.world_size != metrics.front().world_size;
    curve.x.push_back(static_cast<double>(m.step));
    curve.y.push_back(static_cast<double>(m.world_size));
  }
  return changed ? curve : Curve{};
}

}  // namespace

absl::Status PlotLoss(const RunDirectory& directory) {
  ASSIGN_OR_RETURN(const std::vector<StepMetrics> metrics, directory.ReadMetrics());
  Curve training{.label = "training", .x = {}, .y = {}};
  for (const StepMetrics& m : metrics) {
    training.x.push_back(static_cast<double>(m.step));
    training.y.push_back(m.loss);
  }
  std::vector<Curve> curves{std::move(training)};
  if (Curve validation = ValidationCurve(directory); !validation.x.empty()) curves.push_back(std::move(validation));
  const PlotOptions options{
      .title = "Loss", .x_label = "step", .y_label = "nats per token", .steps_below = WorldSizes(metrics)};
  RETURN_IF_ERROR(WriteFileAtomically(directory.loss_plot(), PlotSvg(curves, options)));
  const int columns = PictureColumns(stdout, kColumnsMax);
  std::printf("\n%s\n", PlotTerminal(curves, options, columns, kRows, /*unicode=*/true).c_str());
  return absl::OkStatus();
}

absl::StatusOr<bool> PlotExpertLoads(const RunDirectory& directory) {
  ASSIGN_OR_RETURN(const std::vector<StepMetrics> metrics, directory.ReadMetrics());
  const std::vector<Curve> curves = FigureCurves(metrics, "expert_load");
  if (curves.empty()) return false;
  const PlotOptions options{
      .title = "Expert load", .x_label = "step", .y_label = "most tokens of an expert / mean of its layer"};
  RETURN_IF_ERROR(WriteFileAtomically(directory.load_plot(), PlotSvg(curves, options)));
  return true;
}

}  // namespace holdfast
