#include "tools/cli/check_width_command.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "framework/base/counted.h"
#include "framework/base/status.h"
#include "framework/config/enums.h"
#include "framework/metrics/plot.h"
#include "framework/metrics/progress.h"
#include "framework/storage/atomic_file.h"
#include "models/runtime/coordinate_check.h"

namespace holdfast {
namespace {

constexpr int kColumnsMax = 78, kRows = 18;  // of the picture in the terminal

/// The models of `sizes`, each made from the config's.
absl::StatusOr<std::vector<Config>> ModelsOf(const Config& config, bool width, const std::vector<int64_t>& sizes) {
  std::vector<Config> made;
  for (const int64_t size : sizes) {
    made.push_back(config);
    const absl::StatusOr<ModelConfig> model =
        Resized(config.model, width ? size : config.model.hidden_size, width ? config.model.num_layers : size);
    if (!model.ok()) return UsageError(absl::StrCat("error: ", model.status().message()));
    made.back().model = *model;
  }
  return made;
}

}  // namespace

struct CheckWidthCommand::Axis {
  bool width;
  const char* key;   // of the config
  const char* file;  // of the picture
  std::vector<int64_t> sizes;
};

absl::StatusOr<bool> CheckWidthCommand::Check(const Config& checked, const Axis& axis) const {
  ASSIGN_OR_RETURN(const std::vector<Config> models, ModelsOf(checked, axis.width, axis.sizes));
  std::vector<std::vector<double>> changes(kActivations.size());
  Progress progress(absl::StrCat("models by ", axis.key), static_cast<int64_t>(models.size()), "models");
  for (size_t i = 0; i < models.size(); ++i) {
    progress.Update(static_cast<int64_t>(i), absl::StrCat(axis.key, " ", axis.sizes[i]));
    ASSIGN_OR_RETURN(const Changes measured, MeasureChanges(models[i], steps, seeds));
    for (size_t a = 0; a < measured.size(); ++a) changes[a].push_back(measured[a]);
  }
  progress.Update(static_cast<int64_t>(models.size()));
  progress.Finish();
  std::printf("%-24s", axis.key);
  for (const int64_t size : axis.sizes) std::printf("%11s", absl::StrCat(size).c_str());
  std::printf("%10s\n", "slope");
  bool pass = true;
  std::vector<Curve> curves;
  for (size_t a = 0; a < kActivations.size(); ++a) {
    const double found = LogSlope(axis.sizes, changes[a]);
    const bool small = std::abs(found) < slope;
    pass = pass && small;
    std::printf("  %-22s", kActivations[a]);
    curves.push_back({.label = kActivations[a], .x = {}, .y = changes[a], .points = true});
    for (size_t i = 0; i < axis.sizes.size(); ++i) {
      std::printf("%11.4g", changes[a][i]);
      curves.back().x.push_back(static_cast<double>(axis.sizes[i]));
    }
    std::printf("%+10.3f  %s\n", found, small ? "pass" : "fail");
  }
  const PlotOptions options{.title = Name(checked.model.parametrization),
                            .x_label = axis.key,
                            .y_label = "change, root mean square",
                            .log_y = true,
                            .log_x = true};
  const int columns = PictureColumns(stdout, kColumnsMax);
  std::printf("\n%s\n", PlotTerminal(curves, options, columns, kRows, /*unicode=*/true).c_str());
  if (out.empty()) return pass;
  RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(out, "/", axis.file), PlotSvg(curves, options)));
  return pass;
}

absl::StatusOr<int> CheckWidthCommand::Run() const {
  ASSIGN_OR_RETURN(const Config checked, config.Load());
  if (!checked.train.init_from.empty()) {
    return UsageError("error: train.init_from: models of other sizes have no saved weights; leave it out");
  }
  std::vector<Axis> axes = {{true, "hidden_size", "widths.svg", widths}, {false, "num_layers", "depths.svg", depths}};
  if (widths.empty() && depths.empty()) {
    axes[0].sizes = {64, 128, 256, 512};
    if (checked.model.parametrization == Parametrization::kCompleteP) axes[1].sizes = {4, 8, 16, 32};
  }
  for (const Axis& axis : axes) {
    if (axis.sizes.empty()) continue;
    if (std::set<int64_t>(axis.sizes.begin(), axis.sizes.end()).size() < 2) {
      return UsageError(absl::StrCat("error: --", axis.width ? "widths" : "depths", ": a slope takes two sizes"));
    }
    RETURN_IF_ERROR(ModelsOf(checked, axis.width, axis.sizes).status());
  }
  std::error_code error;
  if (!out.empty() && !std::filesystem::create_directories(out, error) && error) {
    return ErrnoToStatus(error.value(), absl::StrCat("cannot make the directory ", out));
  }
  std::printf("change of activations since initialisation, root mean square, after %s: %s, %s, f32, mean of %s\n",
              Counted(steps, "step").c_str(), Name(checked.model.parametrization), Name(checked.optimizer.name),
              Counted(seeds, "seed").c_str());
  bool pass = true;
  for (const Axis& axis : axes) {
    if (axis.sizes.empty()) continue;
    ASSIGN_OR_RETURN(const bool good, Check(checked, axis));
    pass = pass && good;
  }
  std::printf("%s slope is within %g\n", pass ? "pass: every" : "fail: not every", slope);
  return pass ? kExitDone : kExitFailure;
}

void CheckWidthCommand::AddTo(CLI::App& command) {
  config.AddTo(command);
  const CLI::Validator sizes = WholeNumberWithin(1, int64_t{1} << 17);
  const std::string list = "INT,INT,... in [1 - 131072]";  // the parser would show spaces between them
  command
      .add_option("--widths", widths, "values of model.hidden_size; default 64,128,256,512 unless --depths is given")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(sizes)
      ->option_text(list);
  command
      .add_option("--depths", depths,
                  "values of model.num_layers; default, with completep and unless --widths is given, 4,8,16,32")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(sizes)
      ->option_text(list);
  command.add_option("--steps", steps, "of training; default 10")->check(WholeNumberWithin(1, 1000));
  command.add_option("--seeds", seeds, "runs of each model; default 8")->check(WholeNumberWithin(1, 1000));
  command.add_option("--slope", slope, "a larger one of log(change) over log(size) fails; default 0.05")
      ->check(NumberWithin(1e-6, 10.0));
  AddPathOption(command, "-o,--out", out, "directory for widths.svg and depths.svg; default: none are written");
}

}  // namespace holdfast
