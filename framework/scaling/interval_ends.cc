#include "framework/scaling/interval_ends.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/scaling/minimise.h"
#include "framework/scaling/optimum.h"

namespace holdfast {
namespace {

/// What a value follows from, as indices into a law's numbers.
struct Sources {
  std::vector<int> coefficients, exponents;
};

void AddExponent(int index, Sources& sources) {
  if (index >= 0) sources.exponents.push_back(index);  // else it is fixed, or there is none
}

/// Of each of ValuesOf. A coefficient is found at the mean of the runs and is then carried to N = 1 or D = 1 by the
/// exponents of its term; kaplan's aN is the product of both exponents.
std::vector<Sources> SourcesOfValues(const LawShape& shape) {
  std::vector<Sources> all;
  for (const LawTerm& term : shape.terms) {
    Sources& sources = all.emplace_back();
    sources.coefficients.push_back(static_cast<int>(all.size()) - 1);
    for (const int index : {term.active, term.ratio, term.tokens}) AddExponent(index, sources);
  }
  for (int index = 0; index < shape.exponents; ++index) {
    Sources& sources = all.emplace_back();
    AddExponent(index, sources);
    if (shape.outer != index) AddExponent(shape.outer, sources);
  }
  return all;
}

Sources SourcesOfAllocation(const LawShape& shape) {
  Sources sources;
  for (const LawTerm& term : shape.terms) {
    AddExponent(term.active, sources);
    AddExponent(term.tokens, sources);
  }
  return sources;
}

Sources SourcesOfPart(const LawShape& shape, LawPart part) {
  Sources sources;
  for (int index = 0; index < shape.coefficients(); ++index) {
    const LawTerm& term = shape.terms[static_cast<size_t>(index)];
    const bool falls = term.active != kNoFactor || term.tokens != kNoFactor;
    if (falls || part == LawPart::kWhole) sources.coefficients.push_back(index);
  }
  for (int index = 0; index < shape.exponents; ++index) sources.exponents.push_back(index);
  return sources;
}

/// `law` is of centred runs.
bool IsLimited(const Law& law, const Sources& sources) {
  return std::any_of(sources.coefficients.begin(), sources.coefficients.end(),
                     [&](int index) { return IsNothing(law.log_coefficients[static_cast<size_t>(index)]); }) ||
         std::any_of(sources.exponents.begin(), sources.exponents.end(),
                     [&](int index) { return IsAtLimit(law.exponents[static_cast<size_t>(index)]); });
}

/// A resampled value, and whether it is limited.
using Resampled = std::pair<double, bool>;

/// Whether one of the two values that make the quantile at `share` is.
bool IsLimitedAt(const std::vector<Resampled>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below].second || (at > static_cast<double>(below) && sorted[above].second);
}

/// The resampled laws of a fit, to ask which ends are limits.
class Resamples {
 public:
  explicit Resamples(const Fit& fit)
      : fit_(fit),
        tail_(ExpandedTail(fit.options.level, static_cast<int64_t>(fit.runs.size()),
                           ShapeOf(fit.options.form).values())) {
    const CentredRuns runs(fit.runs);
    for (const Law& law : fit.resampled) centred_.push_back(runs.Centred(law));
  }

  LimitedInterval Of(const Sources& sources, const std::function<double(const Law&)>& value) const {
    std::vector<Resampled> sorted;
    for (size_t i = 0; i < centred_.size(); ++i) {
      sorted.emplace_back(value(fit_.resampled[i]), IsLimited(centred_[i], sources));
    }
    std::sort(sorted.begin(), sorted.end());
    return {.interval = fit_.IntervalOf(value),
            .low_is_limit = IsLimitedAt(sorted, tail_),
            .high_is_limit = IsLimitedAt(sorted, 1 - tail_)};
  }

 private:
  const Fit& fit_;
  const double tail_;
  std::vector<Law> centred_;
};

}  // namespace

std::string LimitedInterval::Note() const {
  if (!low_is_limit && !high_is_limit) return "";
  const char* const ends = low_is_limit && high_is_limit ? "both ends" : (low_is_limit ? "low end" : "high end");
  return absl::StrCat(ends, ": limit of the search");
}

std::vector<ValueInterval> ValueIntervals(const Fit& fit) {
  const LawShape& shape = ShapeOf(fit.options.form);
  const Resamples resamples(fit);
  std::vector<ValueInterval> intervals;
  const auto add = [&](const char* name, const Sources& sources, const std::function<double(const Law&)>& value) {
    ValueInterval& added = intervals.emplace_back();
    static_cast<LimitedInterval&>(added) = resamples.Of(sources, value);
    added.name = name;
    added.fitted = value(fit.law);
  };
  const std::vector<NamedValue> values = ValuesOf(fit.law);
  const std::vector<Sources> sources = SourcesOfValues(shape);
  for (size_t i = 0; i < values.size(); ++i) {
    add(values[i].name, sources[i], [i](const Law& law) { return ValuesOf(law)[i].value; });
  }
  add("p", SourcesOfAllocation(shape), AllocationExponent);
  return intervals;
}

LimitedInterval LimitedIntervalOf(const Fit& fit, LawPart part, const std::function<double(const Law&)>& value) {
  return Resamples(fit).Of(SourcesOfPart(ShapeOf(fit.options.form), part), value);
}

}  // namespace holdfast
