#include "framework/scaling/fit.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/counted.h"
#include "framework/base/join_first.h"
#include "framework/base/parallel.h"
#include "framework/base/status.h"
#include "framework/scaling/interval_ends.h"
#include "framework/scaling/minimise.h"
#include "kernels/philox.h"

namespace holdfast {
namespace {

enum Site : uint32_t { kWeights, kErrors };  // what random numbers of a resample are for

/// In (0, 1), of run or resample `element`.
double Uniform(uint64_t seed, Site site, int resample, uint64_t element) {
  const kernels::RandomKey key{.seed = seed, .step = static_cast<uint32_t>(resample), .microbatch = 0, .site = site};
  return (kernels::PhiloxWord(key, element) + 0.5) * 0x1p-32;
}

/// How many of the values differ by more than a thousandth.
int64_t CountDistinct(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  int64_t count = 0;
  double last = 0;
  for (const double value : values) {
    if (count > 0 && value <= last * 1.001) continue;
    ++count;
    last = value;
  }
  return count;
}

absl::Status CheckDistinct(absl::Span<const Observation> runs, const char* what, int64_t needed,
                           double (*value)(const RunSize&)) {
  std::vector<double> values;
  for (const Observation& run : runs) values.push_back(value(run.size));
  const int64_t distinct = CountDistinct(std::move(values));
  if (distinct >= needed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the runs have ", Counted(distinct, absl::StrCat("different ", what)),
                                                 "; a fit needs at least ", needed));
}

absl::Status CheckRuns(absl::Span<const Observation> runs, LawForm form) {
  const int values = ShapeOf(form).values();
  for (const Observation& run : runs) {
    RETURN_IF_ERROR(Annotate(CheckObservation(run), run.name));
  }
  if (runs.size() <= static_cast<size_t>(values) || runs.size() > kMaxObservations) {
    return absl::InvalidArgumentError(absl::StrCat(Counted(static_cast<int64_t>(runs.size()), "run"), "; a fit of the ",
                                                   values, " values of ", NameOf(form), " needs ", values + 1, " to ",
                                                   kMaxObservations));
  }
  RETURN_IF_ERROR(CheckDistinct(runs, "model size", 3, [](const RunSize& size) { return size.active; }));
  RETURN_IF_ERROR(CheckDistinct(runs, "number of tokens", 3, [](const RunSize& size) { return size.tokens; }));
  if (form != LawForm::kMoe) return absl::OkStatus();
  return CheckDistinct(runs, "ratio of all to active parameters", 2,
                       [](const RunSize& size) { return size.parameters / size.active; });
}

absl::Status CheckOptions(const FitOptions& options) {
  if (!(options.huber_delta > 0 && options.huber_delta < 10)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("Huber's delta has to be in (0, 10), not %g", options.huber_delta));
  }
  if (options.resamples < 20 || options.resamples > kMaxResamples) {
    return absl::InvalidArgumentError(
        absl::StrCat("the number of resamples has to be 20 to ", kMaxResamples, ", not ", options.resamples));
  }
  if (options.level >= 0.5 && options.level <= 0.99) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("the level of intervals has to be in [0.5, 0.99], not %g", options.level));
}

/// What a law's values are fewer by than runs, as a factor of the spread of residuals.
double SpreadFactor(const Fit& fit) {
  const auto n = static_cast<double>(fit.runs.size());
  return std::sqrt(n / (n - ShapeOf(fit.options.form).values()));
}

}  // namespace

std::vector<double> Fit::Residuals() const {
  std::vector<double> residuals;
  for (const Observation& run : runs) residuals.push_back(std::log(run.loss) - law.LogLoss(LogSize(run.size)));
  return residuals;
}

Interval Fit::IntervalOf(const std::function<double(const Law&)>& value) const {
  std::vector<double> values;
  for (const Law& one : resampled) values.push_back(value(one));
  return CentralInterval(std::move(values), ExpandedTail(options.level, static_cast<int64_t>(runs.size()),
                                                         ShapeOf(options.form).values()));
}

absl::StatusOr<Fit> FitLaw(absl::Span<const Observation> runs, const FitOptions& options, int threads,
                           const FitProgress& progress) {
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(CheckRuns(runs, options.form));
  const CentredRuns centred(runs);
  std::optional<Minimum> best;
  const std::vector<double> ones(runs.size(), 1.0);
  for (const Law& start : StartingLaws(options.form, centred)) {
    Minimum minimum = Minimise(start, centred, ones, options.huber_delta, 1e-9);
    if (!best.has_value() || minimum.objective < best->objective) best = std::move(minimum);
  }
  if (!best.has_value()) return absl::InvalidArgumentError("no law of this form fits the runs at all");

  Fit fit{.options = options, .runs = {runs.begin(), runs.end()}, .law = centred.Uncentred(best->law), .resampled = {}};
  fit.resampled.resize(static_cast<size_t>(options.resamples));
  constexpr double kEnoughOfResample = 1e-6;  // far less than they differ by
  std::atomic<uint64_t> done{0};
  RETURN_IF_ERROR(RunParallel(options.resamples, threads, [&](int64_t resample) {
    std::vector<double> weights(runs.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = -std::log(Uniform(options.seed, kWeights, static_cast<int>(resample), i));
    }
    fit.resampled[static_cast<size_t>(resample)] =
        centred.Uncentred(Minimise(best->law, centred, weights, options.huber_delta, kEnoughOfResample).law);
    if (progress) progress(++done, fit.resampled.size());
    return absl::OkStatus();
  }));
  return fit;
}

namespace {

/// A law takes each token for a new one. Names the runs of which that is not so; empty if none is known.
std::string RepeatsWarning(absl::Span<const Observation> runs) {
  constexpr size_t kMostNames = 8;
  std::vector<std::string> repeated;
  for (const Observation& run : runs) {
    // The last step of a pass may begin the next one.
    if (!run.data_tokens.has_value() || run.size.tokens <= *run.data_tokens + run.batch_tokens.value_or(0)) continue;
    repeated.push_back(absl::StrFormat("%s (%.3g)", run.name, run.size.tokens / *run.data_tokens));
  }
  if (repeated.empty()) return "";
  return absl::StrCat("runs that read their data more than once, and how often: ", JoinFirst(repeated, kMostNames),
                      "; the fit takes tokens that come again for new ones, which they are nearly worth up to about 4 ",
                      "passes, and then less and less (arXiv 2305.16264)");
}

}  // namespace

std::vector<std::string> Warnings(const Fit& fit) {
  std::vector<std::string> warnings;
  const Law centred = CentredRuns(fit.runs).Centred(fit.law);
  const LawShape& shape = ShapeOf(fit.options.form);
  const std::vector<NamedValue> values = ValuesOf(fit.law);
  for (size_t k = 0; k < shape.terms.size(); ++k) {
    if (IsNothing(centred.log_coefficients[k])) {
      warnings.push_back(absl::StrCat(values[k].name, " is fitted as 0: the runs do not show this term"));
    }
  }
  for (const double exponent : fit.law.exponents) {
    if (IsAtLimit(exponent)) {
      warnings.push_back(
          absl::StrFormat("an exponent is at the end of what is searched, %g: the runs do not determine it", exponent));
    }
  }
  std::vector<std::string> ends;
  for (const ValueInterval& value : ValueIntervals(fit)) {
    if (value.low_is_limit) ends.push_back(absl::StrCat("low of ", value.name));
    if (value.high_is_limit) ends.push_back(absl::StrCat("high of ", value.name));
  }
  if (!ends.empty()) {
    warnings.push_back(absl::StrCat("the runs do not bound values on the side where an interval ends at the limit of ",
                                    "the search: ", absl::StrJoin(ends, ", ")));
  }
  if (std::string repeats = RepeatsWarning(fit.runs); !repeats.empty()) warnings.push_back(std::move(repeats));
  return warnings;
}

LossPrediction Predict(const Fit& fit, const RunSize& size) {
  const LogSize logs(size);
  const std::vector<double> residuals = fit.Residuals();
  LossPrediction prediction{.loss = fit.law.Loss(size), .law = {}, .run = {}};
  prediction.law = fit.IntervalOf([&](const Law& law) { return std::exp(law.LogLoss(logs)); });
  int resample = 0;
  prediction.run = fit.IntervalOf([&](const Law& law) {
    const double at = Uniform(fit.options.seed, kErrors, resample++, 0) * static_cast<double>(residuals.size());
    return std::exp(law.LogLoss(logs) + SpreadFactor(fit) * residuals[static_cast<size_t>(at)]);
  });
  return prediction;
}

}  // namespace holdfast
