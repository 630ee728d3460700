#include "tools/cli/scaling_command.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checkpoint/admin/new_directory.h"
#include "elastic/sweep/sweep.h"
#include "framework/base/join_first.h"
#include "framework/base/log.h"
#include "framework/base/processors.h"
#include "framework/base/status.h"
#include "framework/metrics/progress.h"
#include "framework/metrics/xml_text.h"
#include "framework/scaling/fit_file.h"
#include "framework/scaling/hyperparameter_law.h"
#include "framework/scaling/interval_ends.h"
#include "framework/scaling/plots.h"
#include "framework/scaling/prediction_file.h"
#include "framework/scaling/report.h"
#include "framework/storage/atomic_file.h"
#include "tools/cli/mixed_runs.h"
#include "tools/cli/output_arguments.h"
#include "tools/cli/scaling_runs.h"
#include "tools/cli/shared_progress.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

constexpr char kFitArgument[] = "directory of `holdfast scaling fit --out`, or the fit.json in it";
constexpr char kFitFile[] = "fit.json";
constexpr size_t kUnknownKeysShown = 6;

/// Runs, each once. A copy of a run directory, a run made again, and a trial that is named as a run of its own, too,
/// have every number in common with what is there, the loss to its last bit, and say nothing new.
class DistinctRuns {
 public:
  /// Of the digits of a file nobody knows whether they are all that there were: its rows count as they are.
  void AddRows(const std::vector<Observation>& rows) { runs_.insert(runs_.end(), rows.begin(), rows.end()); }
  /// `name`: what the run is called in a warning.
  void Add(const Observation& run, const std::string& name) {
    const auto [before, is_new] = names_.try_emplace(DigestOf(absl::MakeConstSpan(&run, 1)), name);
    if (is_new) {
      runs_.push_back(run);
    } else {
      LogWarning(name, " is the same run as ", before->second, ", to the last bit of its loss: it counts once");
    }
  }
  std::vector<Observation> Take() { return std::move(runs_); }

 private:
  std::vector<Observation> runs_;
  std::map<uint64_t, std::string> names_;  // by digest
};

/// The runs of all files, directories and sweeps, in their order.
absl::StatusOr<std::vector<Observation>> ReadRuns(const std::vector<std::string>& places) {
  DistinctRuns runs;
  std::vector<MixableRun> mixable;  // those whose config is known
  std::set<fs::path> seen;
  std::map<std::string, std::string> validated_on;  // and the first run that was
  for (const std::string& place : places) {
    std::error_code error;
    if (!seen.insert(fs::weakly_canonical(place, error)).second) {
      return absl::InvalidArgumentError(absl::StrCat(place, " is named twice: a run counts once"));
    }
    const std::string of_sweep = absl::StrCat(place, "/", kTrialObservationsFile);
    const bool is_sweep = fs::exists(of_sweep, error);
    if (is_sweep || !fs::is_directory(place, error)) {
      ASSIGN_OR_RETURN(const std::vector<Observation> more, ReadObservations(is_sweep ? of_sweep : place));
      if (is_sweep) {
        for (const Observation& trial : more) runs.Add(trial, absl::StrCat(trial.name, " of ", place));
        const TrialRuns trials = RunsOfTrials(place, more);
        mixable.insert(mixable.end(), trials.runs.begin(), trials.runs.end());
        if (!trials.unknown_keys.empty()) {
          LogWarning("runs of the sweep ", place, " are gone: its trials may differ in ",
                     JoinFirst(trials.unknown_keys, kUnknownKeysShown), ", of which a law knows nothing");
        }
      } else {
        runs.AddRows(more);
      }
      continue;
    }
    if (fs::exists(SweepPlace{.directory = place}.config(), error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("sweep ", place,
                       " has no trial yet that can be fitted: one of a whole model from random weights whose learning ",
                       "rate has come to its end"));
    }
    ASSIGN_OR_RETURN(const FinishedRun run, ReadFinishedRun(place));
    std::printf("%s: loss %.4f, %s\n", place.c_str(), run.observation.loss, run.loss_from.c_str());
    if (!run.validated_on.empty()) validated_on.emplace(run.validated_on, place);
    runs.Add(run.observation, place);
    mixable.push_back({run.config, run.observation.data_tokens, place, run.data_digest});
  }
  if (validated_on.size() > 1) {
    const auto& [here, run] = *validated_on.begin();
    const auto& [there, other] = *validated_on.rbegin();
    LogWarning("the loss of ", run, " is of ", here, ", that of ", other, " of ", there,
               ": a law takes them for losses of the same text");
  }
  if (const std::string mixed = MixedKeys(mixable); !mixed.empty()) {
    LogWarning("the runs differ in ", mixed,
               ": a law takes them for runs that differ in size, tokens, learning rate and batch alone; fit each kind ",
               "by itself, of its run directories only (of a sweep, those that its results.csv names)");
  }
  return runs.Take();
}

/// `place`: as kFitArgument says.
absl::StatusOr<Fit> ReadFitAt(const std::string& place) {
  std::error_code error;
  if (!fs::is_directory(place, error)) return ReadFit(place);
  absl::StatusOr<Fit> fit = ReadFit(absl::StrCat(place, "/", kFitFile));
  if (!absl::IsNotFound(fit.status())) return fit;
  return absl::NotFoundError(absl::StrCat(place, " holds no ", kFitFile, ": FIT is a ", kFitArgument));
}

absl::StatusOr<std::vector<Optimum>> OptimaFor(const Fit& fit, const std::vector<double>& budgets, double ratio) {
  std::vector<Optimum> optima;
  for (const double flops : budgets) {
    ASSIGN_OR_RETURN(const Optimum optimum, OptimumFor(fit, flops, ratio));
    optima.push_back(optimum);
  }
  return optima;
}

void PrintTable(const std::string& title, const Table& table) {
  std::printf("%s\n%s", title.c_str(), table.ToText().c_str());
}

/// A prediction is made before its run. One that takes its place when the loss is known would predict nothing, and
/// nobody could see that there was another.
absl::Status CheckReplacesNoPrediction(const std::string& out) {
  if (out.empty()) return absl::OkStatus();
  const auto old = ReadPrediction(out);
  if (!old.ok()) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("--out ", out, ": there is a prediction already, for run '",
                                               old->run_name, "', made at ",
                                               absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", old->when, absl::UTCTimeZone()),
                                               "; give another name, or pass --overwrite to replace it"));
}

/// A directory for a fit alone: elsewhere its runs.csv or loss.svg may be somebody's, even what it is to read.
absl::Status CheckFitDirectory(const std::string& out) {
  if (out.empty() || IsAbsentOrEmpty(out) || ReadFit(absl::StrCat(out, "/", kFitFile)).ok()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("--out ", out, ": there is something already that is no fit; name a new directory"));
}

/// What a fit says: printed, and written into a directory as files and as one page. Nothing is written without one.
class FitReport {
 public:
  explicit FitReport(std::string directory) : directory_(std::move(directory)) {}

  absl::Status Write(const std::string& name, const std::string& contents) const {
    if (directory_.empty()) return absl::OkStatus();
    std::error_code error;
    fs::create_directories(directory_, error);
    if (error) return ErrnoToStatus(error.value(), absl::StrCat("cannot make ", directory_));
    return WriteFileAtomically(absl::StrCat(directory_, "/", name), contents);
  }
  absl::Status Add(const std::string& title, const Table& table) {
    PrintTable(title, table);
    return AddFiles(title, table);
  }
  /// One that is too long for a terminal.
  absl::Status AddFiles(const std::string& title, const Table& table) {
    absl::StrAppend(&page_, "<h2>", XmlText(title), "</h2>\n", table.ToHtml());
    RETURN_IF_ERROR(Write(table.name + ".csv", table.ToCsv()));
    return Write(table.name + ".json", table.ToJson());
  }
  absl::Status Add(const std::string& file, const Plot& plot) {
    const std::string svg = PlotSvg(plot.curves, plot.options);
    page_ += svg;
    return Write(file, svg);
  }
  void Add(const std::string& line) {
    std::printf("  %s\n", line.c_str());
    absl::StrAppend(&page_, "<p>", XmlText(line), "</p>\n");
  }
  absl::Status Finish() const {
    if (directory_.empty()) return absl::OkStatus();
    std::printf("written to %s: report.html shows all of it\n", directory_.c_str());
    return Write("report.html", HtmlPage("Scaling law", page_));
  }

 private:
  const std::string directory_;
  std::string page_;
};

absl::Status AddFit(const Fit& fit, FitReport& report) {
  // First: it makes the directory one of a fit, which may be replaced if this does not come to its end.
  RETURN_IF_ERROR(report.Write(kFitFile, ToJson(fit)));
  report.Add(
      absl::StrCat(NameOf(fit.options.form), ": ", ShapeOf(fit.options.form).formula, ", ", fit.runs.size(), " runs"));
  RETURN_IF_ERROR(
      report.Add(absl::StrFormat("values, with intervals of %.3g %%", 100 * fit.options.level), ValuesTable(fit)));
  for (const std::string& warning : Warnings(fit)) report.Add("note: " + warning);
  RETURN_IF_ERROR(report.Add("loss.svg", LossPlot(fit)));
  RETURN_IF_ERROR(report.Add("frontier.svg", FrontierPlot(fit)));
  return report.AddFiles("runs", RunsTable(fit));
}

absl::Status AddIsoflop(const Fit& fit, FitReport& report) {
  const IsoflopCurves curves = FindIsoflopCurves(fit.runs);
  if (curves.curves.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(
      report.Add("IsoFLOP parabolas (biased where runs are not about the optimum: see the law's for what to train)",
                 IsoflopTable(curves)));
  if (curves.optimum.has_value()) report.Add(PowerLawText("N", *curves.optimum, {"C"}));
  return report.Add("isoflop.svg", IsoflopPlot(fit, curves));
}

absl::Status AddHyperparameter(absl::Span<const Observation> runs, Hyperparameter which, FitReport& report) {
  const HyperparameterLaw law = FindHyperparameterLaw(runs, which);
  if (law.sizes.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(report.Add(absl::StrCat("best ", NameOf(which)), HyperparameterTable(law, which)));
  if (law.law.has_value()) {
    const std::vector<std::string> of =
        law.over_tokens ? std::vector<std::string>{"N", "D"} : std::vector<std::string>{"N"};
    report.Add(PowerLawText(NameOf(which), *law.law, of));
  }
  return report.Add(absl::StrCat(NameOf(which), ".svg"), HyperparameterPlot(law, which));
}

}  // namespace

void ScalingFitCommand::AddTo(CLI::App& command) {
  threads = AvailableProcessors();
  AddPathOption(command, "RUNS", runs,
                "run directories, sweep directories, and CSV files with columns parameters, tokens, loss, ...")
      ->required();
  command.add_option("--form", form, "chinchilla (default), kaplan or moe")
      ->check(CLI::IsMember({"chinchilla", "kaplan", "moe"}));
  AddPathOption(command, "--out", out,
                "directory for fit.json, tables (CSV, JSON) and pictures (SVG): a new one, or that of another fit");
  command.add_option("--budget", budgets, "print the best size for so many FLOPs")
      ->type_name("FLOPS")
      ->allow_extra_args(false)
      ->check(Positive());
  command.add_option("--level", options.level, "level of the intervals; default 0.9")->check(NumberWithin(0.5, 0.99));
  command.add_option("--resamples", options.resamples, "fits for the intervals; default 1000")
      ->check(WholeNumberWithin(20, kMaxResamples));
  command.add_option("--seed", options.seed, "of the resamples; default 0")->check(IsSeed());
  command
      .add_option("--huber-delta", options.huber_delta, "errors of log loss beyond it count linearly; default 0.001")
      ->check(Positive());
  command.add_option("--threads", threads, "default: all processors; the result does not depend on it")
      ->check(WholeNumberWithin(1, 4096));
}

absl::StatusOr<int> ScalingFitCommand::Run() const {
  RETURN_IF_ERROR(CheckFitDirectory(out));
  for (const double flops : budgets) RETURN_IF_ERROR(CheckBudget(flops));
  FitOptions chosen = options;
  ASSIGN_OR_RETURN(chosen.form, LawFormNamed(form));
  ASSIGN_OR_RETURN(const std::vector<Observation> all, ReadRuns(runs));
  const std::vector<Observation> best = WithBestHyperparameters(all);
  const std::string selection =
      best.size() == all.size()
          ? ""
          : absl::StrCat("of ", all.size(), " runs those with the best learning rate and batch of their size");
  SharedProgress progress("fitting", "fits");
  const absl::StatusOr<Fit> fit = FitLaw(best, chosen, threads, progress.Listener());
  if (!fit.ok()) return selection.empty() ? fit.status() : Annotate(fit.status(), selection);
  progress.Finish();
  const absl::StatusOr<std::vector<Optimum>> optima = OptimaFor(*fit, budgets, 1);
  FitReport report(out);
  if (!selection.empty()) report.Add(selection);
  RETURN_IF_ERROR(AddFit(*fit, report));
  if (optima.ok() && !optima->empty()) RETURN_IF_ERROR(report.Add("best sizes", OptimumTable(*optima)));
  RETURN_IF_ERROR(AddIsoflop(*fit, report));
  RETURN_IF_ERROR(AddHyperparameter(all, Hyperparameter::kLearningRate, report));
  RETURN_IF_ERROR(AddHyperparameter(all, Hyperparameter::kBatchTokens, report));
  RETURN_IF_ERROR(report.Finish());
  RETURN_IF_ERROR(optima.status());  // the fit is shown all the same
  return kExitDone;
}

void ScalingOptimumCommand::AddTo(CLI::App& command) {
  AddPathOption(command, "FIT", fit, kFitArgument)->required();
  command.add_option("FLOPS", budgets, "budgets: 6 x active parameters x tokens")->required()->check(Positive());
  command.add_option("--ratio", ratio, "all parameters by active ones, of a mixture of experts; default 1")
      ->check(Positive());
}

absl::StatusOr<int> ScalingOptimumCommand::Run() const {
  ASSIGN_OR_RETURN(const Fit read, ReadFitAt(fit));
  ASSIGN_OR_RETURN(const std::vector<Optimum> optima, OptimaFor(read, budgets, ratio));
  PrintTable(absl::StrFormat("best sizes, with intervals of %.3g %%", 100 * read.options.level), OptimumTable(optima));
  return kExitDone;
}

void ScalingNextCommand::AddTo(CLI::App& command) {
  AddPathOption(command, "FIT", fit, kFitArgument)->required();
  command.add_option("--parameters", parameters, "of the model whose loss is to be predicted")
      ->required()
      ->check(Positive());
  command.add_option("--active", active, "its active parameters; default: all")->check(Positive());
  command.add_option("--tokens", tokens, "it is trained on")->required()->check(Positive());
  command.add_option("--max-flops", flops_max, "of the next run")->required()->check(Positive());
  command.add_option("--min-narrowing", narrowing_percent_min, "percent that a run has to narrow by; default 10")
      ->check(NumberWithin(0, 100));
  command.add_option("--rows", rows, "how many to print; default 10")->check(WholeNumberWithin(1, 1000));
}

absl::StatusOr<int> ScalingNextCommand::Run() const {
  ASSIGN_OR_RETURN(const Fit read, ReadFitAt(fit));
  const RunSize target{.parameters = parameters, .active = active > 0 ? active : parameters, .tokens = tokens};
  ASSIGN_OR_RETURN(
      std::vector<NextRun> next,
      NextRuns(read, {.target = target, .flops_max = flops_max, .narrowing_min = narrowing_percent_min / 100}));
  if (next.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("no run of up to %g FLOPs narrows the prediction by %g %%: allow more, or ask for less",
                        flops_max, narrowing_percent_min));
  }
  next.resize(std::min(next.size(), static_cast<size_t>(rows)));
  PrintTable("next runs, those that narrow most per FLOP first", NextRunTable(next));
  return kExitDone;
}

void ScalingPredictCommand::AddTo(CLI::App& command) {
  AddPathOption(command, "FIT", fit, kFitArgument)->required();
  config.AddTo(command);
  AddPathOption(command, "--out", out, "file for the prediction (JSON), for `holdfast scaling compare`");
  command.add_flag("--overwrite", overwrite, "replace the prediction in the file of --out");
}

absl::StatusOr<int> ScalingPredictCommand::Run() const {
  RETURN_IF_ERROR(CheckReplaces("--out", out, "prediction of `holdfast scaling predict`",
                                [](const std::string& path) { return ReadPrediction(path).ok(); }));
  if (!overwrite) RETURN_IF_ERROR(CheckReplacesNoPrediction(out));
  ASSIGN_OR_RETURN(const Fit read, ReadFitAt(fit));
  ASSIGN_OR_RETURN(const Config checked, config.Load());
  if (const std::string why = NoLawBecause(checked); !why.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a run of this config ", why, ": a law of other runs does not say its loss"));
  }
  const RunSize size = RunSizeOf(checked);
  const SavedPrediction saved{.run_name = checked.run.name,
                              .config_digest = RunDigestOf(checked),
                              .fit_digest = DigestOf(read),
                              .size = size,
                              .level = read.options.level,
                              .prediction = Predict(read, size),
                              .when = absl::Now()};
  const LossPrediction& p = saved.prediction;
  std::printf("parameters  %s, active %s\ntokens      %s\nloss        %.4f nats per token\n",
              FormatCount(size.parameters).c_str(), FormatCount(size.active).c_str(), FormatCount(size.tokens).c_str(),
              p.loss);
  std::printf("the law     %.4f to %.4f (%.3g %%)\na run       %.4f to %.4f\n", p.law.low, p.law.high,
              100 * saved.level, p.run.low, p.run.high);
  const LimitedInterval law =
      LimitedIntervalOf(read, LawPart::kWhole, [&size](const Law& one) { return one.Loss(size); });
  if (const std::string note = law.Note(); !note.empty()) {
    std::printf("note        %s; there the runs do not bound the loss\n", note.c_str());
  }
  if (!out.empty()) RETURN_IF_ERROR(WriteFileAtomically(out, ToJson(saved)));
  return kExitDone;
}

void ScalingCompareCommand::AddTo(CLI::App& command) {
  AddPathOption(command, "PREDICTION", prediction, "file of `holdfast scaling predict --out`")->required();
  AddPathOption(command, "RUN_DIR", run_dir, "directory of the run, which has ended")->required();
}

absl::StatusOr<int> ScalingCompareCommand::Run() const {
  const auto compare = [this]() -> absl::StatusOr<int> {
    ASSIGN_OR_RETURN(const SavedPrediction saved, ReadPrediction(prediction));
    ASSIGN_OR_RETURN(const FinishedRun run, ReadFinishedRun(run_dir));
    if (RunDigestOf(run.config) != saved.config_digest) {
      return absl::InvalidArgumentError(
          absl::StrCat("the prediction is for another config than that of ", run_dir, " (run '", saved.run_name, "')"));
    }
    std::printf("%s%s\n", DescribeOutcome(saved, run.observation).c_str(), run.loss_from.c_str());
    return IsWithin(saved.prediction.run, run.observation.loss) ? kExitDone : kExitFailure;
  };
  absl::StatusOr<int> result = compare();
  if (!result.ok()) return UsageError(absl::StrCat("error: ", result.status().message()));
  return result;
}

}  // namespace holdfast
