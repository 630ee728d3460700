#include "tools/cli/sweep_command.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "elastic/sweep/sweep.h"
#include "elastic/sweep/sweep_report.h"
#include "elastic/sweep/trial_reading.h"
#include "framework/base/counted.h"
#include "framework/base/files.h"
#include "framework/base/limits.h"
#include "framework/base/log.h"
#include "framework/base/signal_text.h"
#include "framework/base/status.h"
#include "framework/config/yaml_tree.h"
#include "framework/metrics/progress.h"
#include "framework/metrics/run_directory.h"
#include "framework/metrics/run_lock.h"
#include "framework/storage/atomic_file.h"
#include "models/runtime/initial_weights.h"
#include "models/runtime/training_data.h"
#include "tools/cli/run_arguments.h"
#include "tools/cli/scaling_runs.h"
#include "tools/cli/stoppable.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kColumnsMax = 100;
constexpr char kResultsCsv[] = "/results.csv", kResultsJson[] = "/results.json", kReportHtml[] = "/report.html";
constexpr std::chrono::seconds kReportInterval{5}, kWatchInterval{2};

std::string ValueWords(const SweepConfig& config, const PlannedTrial& trial) {
  if (!trial.result->measured) return absl::StrCat("failed: ", trial.result->reason);
  return absl::StrFormat("%s %.4f", config.metric, trial.result->value);
}

std::string SpentWords(const SweepConfig& config, const SweepPlan& plan) {
  const SweepPlan::Spent spent = plan.spent();
  std::string text = absl::StrCat(FormatCount(spent.flops), "FLOP, ", FormatCount(spent.tokens), " tokens, ",
                                  FormatDuration(spent.seconds), " of workers");
  if (config.budget.money > 0) absl::StrAppendFormat(&text, ", %.2f of %.2f money", spent.money, config.budget.money);
  return text;
}

/// By what was spent so far, if all workers go on to be busy. Empty where nothing is known or left.
std::string TimeLeftWords(const SweepConfig& config, const SweepPlan& plan) {
  const double share = plan.share_of_budget(), seconds = plan.spent().seconds;
  if (plan.done() || share <= 0 || share >= 1 || seconds <= 0) return "";
  return absl::StrCat(", about ", FormatDuration(seconds * (1 - share) / share / static_cast<double>(config.workers)),
                      " to go with ", Counted(config.workers, "worker"));
}

/// Keeps the files of results up to date.
class ResultFiles {
 public:
  ResultFiles(const SweepConfig& config, const SweepPlace& place) : config_(config), place_(place) {}

  /// Not more often than now and then, but for `now`.
  absl::Status Write(const SweepPlan& plan, bool now) {
    if (!now && Clock::now() - last_ < kReportInterval) return absl::OkStatus();
    last_ = Clock::now();
    const Table table = ResultsTable(config_, plan);
    RETURN_IF_ERROR(WriteFileAtomically(place_.directory + kResultsCsv, table.ToCsv()));
    RETURN_IF_ERROR(WriteFileAtomically(place_.directory + kResultsJson, table.ToJson()));
    const std::vector<Observation> observations = TrialObservations(config_, plan, passes_);
    if (!observations.empty()) {
      RETURN_IF_ERROR(
          WriteFileAtomically(absl::StrCat(place_.directory, "/", kTrialObservationsFile), ToCsv(observations)));
    }
    return WriteFileAtomically(place_.directory + kReportHtml, ReportHtml(config_, plan));
  }

 private:
  const SweepConfig& config_;
  const SweepPlace& place_;
  PassTokens passes_;
  Clock::time_point last_{};
};

/// A line for what happens, and a bar for what is left of the budget.
class Console final : public SweepObserver {
 public:
  Console(const SweepConfig& config, ResultFiles& report) : config_(config), report_(report) {}

  void OnTrialBegins(const PlannedTrial& trial, int64_t from_step, int64_t to_step) override {
    Line(absl::StrCat("trial ", trial.number, " {", search::PointText(trial.suggestion.point), "}: steps ",
                      from_step + 1, " to ", to_step, "; ", trial.suggestion.why));
  }

  void OnTrialEnds(const SweepPlan& plan, const PlannedTrial& trial, bool reused) override {
    const PlannedTrial* best = plan.best_known();
    Line(absl::StrCat("trial ", trial.number, " {", search::PointText(trial.suggestion.point),
                      "}: ", ValueWords(config_, trial), reused ? " (from a run that was there)" : "",
                      best == nullptr ? ""
                                      : absl::StrFormat("; best so far %.4f, trial %d", best->result->value,
                                                        static_cast<int>(best->number))));
    if (const absl::Status written = report_.Write(plan, /*now=*/false); !written.ok()) {
      Line(absl::StrCat("warning: ", written.message()));
    }
  }

  void OnStatus(const SweepPlan& plan, const std::vector<Running>& running) override {
    constexpr int64_t kParts = 1000;
    if (!progress_.has_value()) progress_.emplace("budget of the sweep", kParts, /*unit=*/"");
    progress_->Update(static_cast<int64_t>(plan.share_of_budget() * kParts), StatusText(plan, running));
  }

 private:
  void Line(const std::string& text) {
    if (progress_.has_value()) progress_->Clear();
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  }

  const SweepConfig& config_;
  ResultFiles& report_;
  std::optional<Progress> progress_;
};

/// Empty where some trial may be trained in full.
std::string ShortBudgetWords(const SweepConfig& config) {
  const double fewest = search::FewestTrialsToTheLastRung(config.strategy);
  if (config.budget.trials == 0 || static_cast<double>(config.budget.trials) >= fewest) return "";
  return absl::StrFormat(
      "warning: budget.trials, %d, ends the search before any trial is trained in full: promotions count, and the last "
      "of %s takes %.0f trials at least\n",
      config.budget.trials, Counted(config.strategy.rungs, "rung"), fewest);
}

std::string WatchText(const SweepConfig& config, const SweepPlace& place, const SweepPlan& plan) {
  const SweepPlan::Spent spent = plan.spent();
  std::error_code error;
  const bool has_begun = fs::exists(place.config(), error);
  const std::string cost = has_begun ? absl::StrCat("spent ", SpentWords(config, plan))
                                     : absl::StrCat("not begun; the first trials will take ", FormatCount(spent.flops),
                                                    "FLOP, ", FormatCount(spent.tokens), " tokens");
  std::string text = absl::StrCat(
      "sweep ", config.name, " in ", place.directory, ": ", Counted(plan.results(), "trial"), " done\n", cost, "; ",
      absl::StrFormat("%.0f %% of the budget", 100 * plan.share_of_budget()), TimeLeftWords(config, plan), "\n\n");
  for (const PlannedTrial& trial : plan.trials()) {
    if (trial.result.has_value()) {
      if (has_begun) continue;
      absl::StrAppend(&text, "trial ", trial.number, " {", search::PointText(trial.suggestion.point),
                      "}: ", ValueWords(config, trial), "\n");  // refused by its config
      continue;
    }
    const RunDirectory run(place.run(config, NextOf(config, place, *trial.setup)));
    absl::StrAppend(&text, "trial ", trial.number, " {", search::PointText(trial.suggestion.point), "}: step ",
                    LastStep(run), " of ", trial.setup->steps(), "; ", trial.suggestion.why, "\n");
  }
  if (!plan.end().empty()) absl::StrAppend(&text, "no more trials: ", plan.end(), "\n");
  return absl::StrCat(text, "\n",
                      ReportText(config, plan, PictureColumns(stdout, kColumnsMax), isatty(STDOUT_FILENO) != 0));
}

absl::Status BelongsToNoSweep(const std::string& file) {
  return UsageError(
      absl::StrCat("error: ", file, " exists and does not belong to a sweep; choose another --sweep-dir"));
}

/// The sweep in the directory is this one, or there is none yet. Other files may lie there, as beside a run, but none
/// where a sweep has its own.
absl::Status CheckIdentity(const SweepConfig& config, const SweepPlace& place) {
  std::error_code error;
  if (RunDirectory(place.directory).HoldsRun()) {
    return UsageError(
        absl::StrCat("error: ", place.directory, " holds a run, not a sweep; choose another --sweep-dir"));
  }
  if (!fs::exists(place.config(), error)) {
    for (const std::string& file :
         {place.results(), place.directory + kResultsCsv, place.directory + kResultsJson, place.directory + kReportHtml,
          absl::StrCat(place.directory, "/", kTrialObservationsFile)}) {
      if (fs::exists(file, error)) return BelongsToNoSweep(file);
    }
    return absl::OkStatus();
  }
  const absl::StatusOr<SweepConfig> before = LoadSweepConfig(place.config());
  if (absl::IsInvalidArgument(before.status()) && !HoldsSweep(place)) return BelongsToNoSweep(place.config());
  RETURN_IF_ERROR(before.status());
  const std::vector<std::string> now = absl::StrSplit(IdentityText(config), '\n'),
                                 then = absl::StrSplit(IdentityText(*before), '\n');
  for (size_t i = 0; i < std::max(now.size(), then.size()); ++i) {
    const std::string a = i < then.size() ? then[i] : "", b = i < now.size() ? now[i] : "";
    if (a == b) continue;
    return UsageError(absl::StrCat("error: ", place.directory, " holds another sweep: it has '", a, "', this one '", b,
                                   "'; choose another --sweep-dir"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SweepConfig> LoadWith(const std::string& path, int64_t workers) {
  absl::StatusOr<SweepConfig> config = LoadSweepConfig(path);
  if (!config.ok()) return AsConfigError(config.status());
  if (workers == 0) return config;
  if (config->hosts.size() > 1 || !config->hosts[0].command.empty()) {
    return UsageError("error: --workers: the hosts of " + path + " say how many workers they have");
  }
  config->workers = config->hosts[0].workers = workers;
  return config;
}

/// The configs of trials: the base config, whose file is read once, with the sweep's overrides and a trial's.
class TrialConfigs {
 public:
  TrialConfigs(const SweepConfig& config, std::string base) : config_(config), base_(std::move(base)) {}

  absl::StatusOr<Config> Load(const std::vector<std::string>& overrides) {
    ASSIGN_OR_RETURN(Config trial, ArgumentsOf(overrides).Load());
    if (trial.train.init_from.empty() || !trial.train.init_digest.empty()) return trial;
    // Trials that begin with other weights are others, also where none of these stay.
    std::string& digest = digests_[trial.train.init_from];
    if (digest.empty()) {
      ASSIGN_OR_RETURN(digest, InitialWeightsDigest(trial));
    }
    trial.train.init_digest = digest;
    return trial;
  }
  /// Reads no weights.
  absl::StatusOr<Config> LoadUnresolved(const std::vector<std::string>& overrides) const {
    return ArgumentsOf(overrides).LoadUnresolved();
  }

 private:
  ConfigArguments ArgumentsOf(const std::vector<std::string>& overrides) const {
    std::vector<std::string> all = config_.overrides;
    all.insert(all.end(), overrides.begin(), overrides.end());
    return {.path = config_.config, .overrides = std::move(all), .text = base_};
  }

  const SweepConfig& config_;
  const std::string base_;
  std::map<std::string, std::string> digests_;  // of the weights in a train.init_from
};

/// On a terminal until the sweep is done or a signal comes, else once.
absl::StatusOr<int> Watch(const SweepConfig& config, const SweepPlace& place, SweepPlan& plan, const StopSignal& stop) {
  while (true) {
    const bool terminal = isatty(STDOUT_FILENO) != 0;
    if (terminal) std::printf("\033[H\033[2J");
    std::printf("%s", WatchText(config, place, plan).c_str());
    if (!plan.done() && !RunLock::IsHeld(RunDirectory(place.directory)).value_or(true)) {
      std::printf("no process works at this sweep: the same command without --watch resumes it\n");
    }
    std::fflush(stdout);
    if (!terminal || plan.done() || stop.received() != 0) return kExitDone;
    std::this_thread::sleep_for(kWatchInterval);
    RETURN_IF_ERROR(TellRecorded(place, plan));
  }
}

absl::StatusOr<RunLock> Lock(const SweepPlace& place) {
  absl::StatusOr<RunLock> lock = RunLock::Take(RunDirectory(place.directory));
  if (lock.ok()) return lock;
  return AsUsageError(absl::Status(
      lock.status().code(), absl::StrReplaceAll(lock.status().message(),
                                                {{"--run-dir", "--sweep-dir"}, {"run directory", "sweep directory"}})));
}

/// FailedPrecondition once another process has the sweep, or may have it.
absl::Status CheckLock(const RunLock& lock) {
  absl::Status ours = lock.Check();
  if (!absl::IsFailedPrecondition(ours)) return ours;
  return absl::FailedPreconditionError(absl::StrReplaceAll(ours.message(), {{" the run", " the sweep"}}));
}

/// To its end, or until a signal comes.
absl::StatusOr<int> RunAndReport(const SweepConfig& config, const SweepPlace& place, SweepPlan& plan,
                                 const StopSignal& stop, const RunLock& lock) {
  ResultFiles report(config, place);
  Console console(config, report);
  absl::StatusOr<int> ran = RunSweep(
      config, place, plan, console, [&stop] { return stop.received() == 0 ? 0 : 128 + stop.received(); },
      [&lock] { return CheckLock(lock); });
  if (absl::IsAborted(ran.status())) return ran;  // what is there is another one's
  const bool has_runs = std::any_of(plan.trials().begin(), plan.trials().end(), [](const PlannedTrial& trial) {
    return trial.setup.has_value() && trial.result.has_value();
  });
  const absl::Status written = has_runs ? report.Write(plan, /*now=*/true) : absl::OkStatus();
  ASSIGN_OR_RETURN(const int code, ran);
  RETURN_IF_ERROR(written);
  if (code != 0) {
    std::printf("stopped by %s; the same command resumes the sweep\n", SignalText(code - 128).c_str());
    return code;
  }
  std::printf("\n%s\n%s\nspent %s\nresults %s%s, %s%s\n", plan.end().c_str(),
              ReportText(config, plan, PictureColumns(stdout, kColumnsMax), isatty(STDOUT_FILENO) != 0).c_str(),
              SpentWords(config, plan).c_str(), place.directory.c_str(), kResultsCsv, place.directory.c_str(),
              kReportHtml);
  if (const PlannedTrial* const best = plan.best(); best != nullptr) {
    std::printf("run     %s, of the best trial\n", place.run(config, *best->setup).c_str());
  }
  return kExitDone;
}

}  // namespace

absl::StatusOr<int> SweepCommand::Run() const {
  return RunStoppable("no more trials are begun", [this](const StopSignal& stop_signal) { return Sweep(stop_signal); });
}

absl::StatusOr<int> SweepCommand::Sweep(const StopSignal& stop_signal) const {
  const std::stop_token stop = stop_signal.token();
  ASSIGN_OR_RETURN(const SweepConfig config, LoadWith(path, workers));
  const SweepPlace place{.directory = directory.empty() ? "sweeps/" + config.name : directory};
  RETURN_IF_ERROR(CheckIdentity(config, place));
  ASSIGN_OR_RETURN(const search::SearchSpace space, search::SearchSpace::Create(config.space));
  ASSIGN_OR_RETURN(const std::unique_ptr<search::SearchStrategy> strategy,
                   search::MakeStrategy(space, config.strategy));
  absl::StatusOr<std::string> base = ReadFile(config.config, kMaxConfigBytes);
  if (!base.ok()) return AsConfigError(Annotate(base.status(), absl::StrCat(path, ": sweep.config")));
  TrialConfigs trials(config, *std::move(base));
  const auto take_up = [&] {
    const auto load = [&](const auto& overrides) { return trials.Load(overrides); };
    const auto set_up = [&config, load, stop](const auto& point, int64_t rung) {
      return SetUpTrial(config, load, point, rung, stop);
    };
    return AsUsageError(TakeUpPlan(config, *strategy, place, set_up));
  };
  if (watch) {
    std::error_code error;
    if (!fs::exists(place.config(), error)) {
      return UsageError(absl::StrCat("error: there is no sweep in ", place.directory,
                                     "; --watch shows one that was started, --dry-run what would be"));
    }
    ASSIGN_OR_RETURN(const auto plan, take_up());
    return Watch(config, place, *plan, stop_signal);
  }
  const auto load_quickly = [&](const auto& overrides) { return trials.LoadUnresolved(overrides); };
  if (const absl::Status every = CheckEveryTrial(config, load_quickly, space, stop); !every.ok()) {
    return UsageError(
        absl::StrCat(path, ": no trial can be trained (", config.config, " with sweep.set):\n", every.message()));
  }
  if (const std::string differs = ValidationDifference(config, load_quickly, space, stop); !differs.empty()) {
    LogWarning(path, ": ", differs);
  }
  if (const auto base_config = trials.LoadUnresolved({}); base_config.ok()) WarnOfTokenizer(*base_config, stop);
  if (dry_run) {
    ASSIGN_OR_RETURN(const auto plan, take_up());
    std::printf("%s\n%s%s", IdentityText(config).c_str(), WatchText(config, place, *plan).c_str(),
                ShortBudgetWords(config).c_str());
    return kExitDone;
  }
  ASSIGN_OR_RETURN(const RunLock lock, Lock(place));
  RETURN_IF_ERROR(CheckIdentity(config, place));  // again: another sweep may have been there until now
  ASSIGN_OR_RETURN(const auto plan, take_up());
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  RETURN_IF_ERROR(WriteFileAtomically(place.config(), text));
  return RunAndReport(config, place, *plan, stop_signal, lock);
}

void SweepCommand::AddTo(CLI::App& command) {
  AddPathOption(command, "SWEEP", path, "file that says what to try (YAML): see SWEEPS.md")->required();
  AddPathOption(command, "--sweep-dir", directory, "directory of the sweep; default sweeps/<sweep.name>");
  command.add_option("--workers", workers, "worker processes that the trials share; default sweep.workers")
      ->check(WholeNumberWithin(1, kMaxWorkers));
  command.add_flag("--watch", watch, "show how the sweep goes, and start nothing");
  command.add_flag("--dry-run", dry_run, "print the first trials and what they cost, and start nothing");
}

}  // namespace holdfast
