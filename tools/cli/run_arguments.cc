#include "tools/cli/run_arguments.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elastic/coordinator/run_alerts.h"
#include "elastic/launch/resume_check.h"
#include "elastic/sweep/sweep.h"
#include "framework/base/files.h"
#include "framework/base/limits.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/config/decides.h"
#include "framework/config/load.h"
#include "framework/data/byte_level.h"
#include "models/families/families.h"
#include "models/plan.h"
#include "models/runtime/arithmetic.h"
#include "models/runtime/epochs.h"
#include "models/runtime/gemm_table.h"
#include "models/runtime/initial_adapters.h"
#include "models/runtime/initial_model.h"
#include "models/runtime/initial_weights.h"
#include "models/runtime/trained_parameters.h"
#include "models/runtime/training_data.h"
#include "tools/cli/command.h"

namespace holdfast {
namespace {

/// All but the steps.
absl::Status ResolveRest(Config* config, const std::string& run_config) {
  RETURN_IF_ERROR(ResolveGemmTable(&config->train));
  RETURN_IF_ERROR(ResolveInitDigest(config));
  RETURN_IF_ERROR(ResolveAdapterDigest(config));
  return ResolveArithmetic(&config->train, run_config);
}

/// `run_config` of the config: where the resolved one of its run lies, if there is one.
absl::StatusOr<Config> Resolved(absl::StatusOr<Config> config, absl::FunctionRef<std::string(const Config&)> run_config,
                                const std::stop_token& stop = {}) {
  RETURN_IF_ERROR(config.status());
  RETURN_IF_ERROR(AsDataMistake(ResolveSteps(&*config, run_config(*config), stop)));
  RETURN_IF_ERROR(ResolveRest(&*config, run_config(*config)));
  return config;
}

/// What is kept of a config, in a manifest above all, is JSON: other text would become another one.
absl::Status CheckIsUtf8(const Config& config) {
  for (const auto& [key, value] : ValuesByKey(PrintConfig(config))) {
    if (Utf8ValidLength(value) == value.size()) continue;
    return UsageError(absl::StrCat("error: ", key, " is not UTF-8: ", absl::CHexEscape(value)));
  }
  return absl::OkStatus();
}

/// Of reading the config in `path`; who names the directory of a run, as to resume it, is told where its config is.
absl::Status ReadError(const absl::Status& status, const std::string& path) {
  const RunDirectory run(path);
  if (!run.HoldsRun()) return AsConfigError(status);
  return UsageError(
      absl::StrCat("error: ", path, " is the directory of a run, and a config is a file: name ", run.config()));
}

}  // namespace

void ConfigArguments::AddTo(CLI::App& command) {
  AddPathOption(command, "CONFIG", path, "config file (YAML)")->required();
  AddOverrides(command);
}

void ConfigArguments::AddOverrides(CLI::App& command) {
  command.add_option("--set", overrides, "override a value of the config: section.key=value; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void ConfigArguments::SetWorkers(int64_t workers) {
  if (workers > 0) overrides.push_back(absl::StrCat("elastic.workers=", workers));
}

absl::Status ConfigArguments::Read() {
  absl::StatusOr<std::string> read = ReadConfigFile(path);
  if (!read.ok()) return ReadError(read.status(), path);
  text = *std::move(read);
  return absl::OkStatus();
}

void AddWorkersOption(CLI::App& command, int64_t& workers, const std::string& help) {
  command.add_option("--workers", workers, help)->check(WholeNumberWithin(1, kMaxWorkers));
}

absl::StatusOr<Config> ConfigArguments::LoadUnresolved(const std::string& model) const {
  absl::Status unreadable;
  std::optional<InitialModel> initial_model;
  const auto read = [&](const std::string& init_from) {
    auto initial = ReadInitialModel(model.empty() ? init_from : model);
    if (!initial.ok() && model.empty()) initial = Annotate(initial.status(), "train.init_from");
    unreadable = initial.status();
    if (initial.ok()) initial_model = *initial;
    return initial;
  };
  const ModelSources models{
      .families = FamilyPresets(), .initial_model = read, .check_parameters = TrainedParameterViolations};
  absl::StatusOr<Config> config =
      text.has_value() ? ParseConfig(*text, path, overrides, models) : LoadConfig(path, overrides, models);
  if (config.ok()) RETURN_IF_ERROR(CheckIsUtf8(*config));
  if (config.ok() && initial_model.has_value() && config->model.router_bias && !initial_model->model.router_bias) {
    LogInfo("model.router_bias: ", initial_model->file, " has none; a run that starts from it begins with biases of 0");
  }
  if (config.ok() || config.status() == unreadable) return config;
  return ReadError(config.status(), path);
}

absl::StatusOr<Config> ConfigArguments::Load() const {
  return Resolved(LoadUnresolved(), [](const Config&) { return std::string(); });
}

absl::StatusOr<Config> ConfigArguments::LoadBeforeData() const {
  ASSIGN_OR_RETURN(Config config, LoadUnresolved());
  if (config.train.epochs > 0 && MeasureTraining(config).ok()) RETURN_IF_ERROR(ResolveSteps(&config, ""));
  RETURN_IF_ERROR(ResolveRest(&config, ""));
  return config;
}

absl::Status CheckDataOf(const Config& config, const std::stop_token& stop) {
  return AsUsageError(CheckTrainingData(config, stop));
}

absl::Status CheckAlertsOf(const Config& config) {
  const absl::Status checked = CheckAlerts(config.alerts);
  return checked.ok() ? checked : UsageError(absl::StrCat("error: ", checked.message()));
}

void RunArguments::AddTo(CLI::App& command) {
  config.AddTo(command);
  AddPathOption(command, "--run-dir", run_dir, "directory of the run's files; default runs/<run.name>");
}

absl::StatusOr<Config> RunArguments::Load(bool overwrite, const std::stop_token& stop) const {
  const auto run_config = [&](const Config& of_run) { return overwrite ? "" : Directory(of_run).config(); };
  ASSIGN_OR_RETURN(Config resolved, Resolved(config.LoadUnresolved(), run_config, stop));
  const RunDirectory directory = Directory(resolved);
  RETURN_IF_ERROR(directory.CheckFiles());
  RETURN_IF_ERROR(CheckNamesOneRun(directory));
  if (!directory.HoldsRun() && HoldsSweep({.directory = directory.root()})) {
    return UsageError(absl::StrCat("error: ", directory.root(), " holds a sweep, not a run; choose another --run-dir"));
  }
  // It follows from the number of workers, which MPI says later.
  if (resolved.parallel.transport != Transport::kMpi) ResolveExpertPlacement(&resolved);
  return resolved;
}

absl::Status RunArguments::CheckNamesOneRun(const RunDirectory& directory) const {
  const RunDirectory beside(DirectoryOf(config.path));
  const auto& overrides = config.overrides;
  const bool is_named = !run_dir.empty() || std::any_of(overrides.begin(), overrides.end(), [](const std::string& set) {
    return absl::StartsWith(set, "run.name=");
  });
  std::error_code error;
  if (is_named || std::filesystem::path(config.path).filename() != "config.yaml" || !beside.HoldsRun() ||
      std::filesystem::weakly_canonical(beside.root(), error) ==
          std::filesystem::weakly_canonical(directory.root(), error)) {
    return absl::OkStatus();
  }
  return UsageError(absl::StrCat("error: ", config.path, " is the config of the run in ", beside.root(),
                                 ", but its run.name stands for ", directory.root(), ": pass --run-dir ", beside.root(),
                                 " to resume that run, or another --run-dir for a new one"));
}

absl::Status RunArguments::CheckIsSameRun(const Config& of_run) const {
  const RunDirectory directory = Directory(of_run);
  if (!run_dir.empty() || of_run.run.name != RunConfig().name || !directory.HoldsRun()) return absl::OkStatus();
  auto stored = LoadStoredConfig(directory.config(), FamilyPresets());
  if (!stored.ok()) return absl::OkStatus();  // of a later build, say: the checkpoint has its config, too
  stored->train.steps = of_run.train.steps;
  if (BitsDigest(*stored) == BitsDigest(of_run)) return absl::OkStatus();
  return UsageError(absl::StrCat(
      "error: ", directory.root(), " holds a run of another config (", ChangedKeys(PrintConfig(*stored), of_run),
      "): give run.name or --run-dir for a new run, or --run-dir ", directory.root(), " to resume that one"));
}

void StartArguments::AddTo(CLI::App& command) {
  const auto check = [](const std::string& text) {
    int64_t step = 0;
    const bool good = text == "auto" || text == "never" || (absl::SimpleAtoi(text, &step) && step >= 0);
    return good ? std::string() : "auto, never or a step is expected, not '" + text + "'";
  };
  command
      .add_option(
          "--resume", resume,
          "auto: resume the run in the run directory; never: fail if there is one; STEP: resume from its checkpoint; "
          "default auto; --overwrite begins anew")
      ->type_name("auto|never|STEP")
      ->check(check);
  command.add_flag("--overwrite", overwrite, "replace the run that is in the run directory");
}

RunDirectory RunArguments::Directory(const Config& of_run) const {
  return RunDirectory(run_dir.empty() ? "runs/" + of_run.run.name : run_dir);
}

}  // namespace holdfast
