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
  int coefficient = kNoFactor;
  std::vector<int> exponents;
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
    sources.coefficient = static_cast<int>(all.size()) - 1;
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

/// `law` is of centred runs.
bool IsLimited(const Law& law, const Sources& sources) {
  if (sources.coefficient >= 0 && IsNothing(law.log_coefficients[static_cast<size_t>(sources.coefficient)]))
    return true;
  return std::any_of(sources.exponents.begin(), sources.exponents.end(),
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

}  // namespace

std::string ValueInterval::Note() const {
  if (!low_is_limit && !high_is_limit) return "";
  const char* const ends = low_is_limit && high_is_limit ? "both ends" : (low_is_limit ? "low end" : "high end");
  return absl::StrCat(ends, ": limit of the search");
}

std::vector<ValueInterval> ValueIntervals(const Fit& fit) {
  const LawShape& shape = ShapeOf(fit.options.form);
  const CentredRuns runs(fit.runs);
  std::vector<Law> centred;
  for (const Law& law : fit.resampled) centred.push_back(runs.Centred(law));
  const double tail = ExpandedTail(fit.options.level, static_cast<int64_t>(fit.runs.size()), shape.values());
  std::vector<ValueInterval> intervals;
  const auto add = [&](const char* name, const Sources& sources, const std::function<double(const Law&)>& value) {
    std::vector<Resampled> sorted;
    for (size_t i = 0; i < centred.size(); ++i) {
      sorted.emplace_back(value(fit.resampled[i]), IsLimited(centred[i], sources));
    }
    std::sort(sorted.begin(), sorted.end());
    intervals.push_back({.name = name,
                         .fitted = value(fit.law),
                         .interval = fit.IntervalOf(value),
                         .low_is_limit = IsLimitedAt(sorted, tail),
                         .high_is_limit = IsLimitedAt(sorted, 1 - tail)});
  };
  const std::vector<NamedValue> values = ValuesOf(fit.law);
  const std::vector<Sources> sources = SourcesOfValues(shape);
  for (size_t i = 0; i < values.size(); ++i) {
    add(values[i].name, sources[i], [i](const Law& law) { return ValuesOf(law)[i].value; });
  }
  add("p", SourcesOfAllocation(shape), AllocationExponent);
  return intervals;
}

}  // namespace holdfast
