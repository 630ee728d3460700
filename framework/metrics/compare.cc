#include "framework/metrics/compare.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/counted.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

std::string Bits(float value) { return absl::StrFormat("%08x", std::bit_cast<uint32_t>(value)); }
std::string Digest(uint64_t value) { return absl::StrFormat("%016x", value); }

const StepMetrics* FindStep(const std::vector<StepMetrics>& run, int64_t step) {
  const auto at = std::lower_bound(run.begin(), run.end(), step,
                                   [](const StepMetrics& m, int64_t number) { return m.step < number; });
  return at != run.end() && at->step == step ? &*at : nullptr;
}

const Figure* FindFigure(const StepMetrics& step, const std::string& name) {
  const auto found = std::ranges::find(step.figures, name, &Figure::name);
  return found != step.figures.end() ? &*found : nullptr;
}

/// With as many digits as tell all values apart.
std::string FigureText(const Figure& figure) {
  return absl::StrCat(figure.name, " ", absl::StrJoin(figure.values, " ", [](std::string* out, double value) {
                        absl::StrAppendFormat(out, "%.17g", value);
                      }));
}

/// Compared as bits: two NaN of the same pattern are equal, 0 and -0 are not.
std::optional<RunDifference> CompareStep(const StepMetrics& a, const StepMetrics& b) {
  RunDifference difference{
      .step = a.step, .field = "", .value_a = "", .value_b = "", .shown_a = a.loss, .shown_b = b.loss};
  const auto differs = [&difference](const char* field, const std::string& value_a, const std::string& value_b) {
    difference.field = field;
    difference.value_a = value_a;
    difference.value_b = value_b;
    return value_a != value_b;
  };
  if (differs("loss_bits", Bits(a.loss), Bits(b.loss))) return difference;
  if (differs("grad_norm_bits", Bits(a.grad_norm), Bits(b.grad_norm))) {
    difference.shown = "grad norm";
    difference.shown_a = a.grad_norm;
    difference.shown_b = b.grad_norm;
    return difference;
  }
  if (a.state_digest.has_value() && b.state_digest.has_value() &&
      differs("state_digest", Digest(*a.state_digest), Digest(*b.state_digest))) {
    return difference;
  }
  for (const Figure& in_a : a.figures) {
    const Figure* const in_b = FindFigure(b, in_a.name);
    if (in_b != nullptr && differs(in_a.name.c_str(), FigureText(in_a), FigureText(*in_b))) return difference;
  }
  return std::nullopt;
}

/// Of the figures of `step` those that `other` lacks.
void NoteMissing(const StepMetrics& step, const StepMetrics& other, std::set<std::string>& names) {
  for (const Figure& figure : step.figures) {
    if (FindFigure(other, figure.name) == nullptr) names.insert(figure.name);
  }
}

std::string Missing(const char* run, const std::set<std::string>& names) {
  return names.empty() ? "" : absl::StrCat("only ", run, " has ", absl::StrJoin(names, ", "), ": not compared\n");
}

}  // namespace

absl::StatusOr<RunComparison> CompareRuns(const std::vector<StepMetrics>& a, const std::vector<StepMetrics>& b) {
  if (a.empty() || b.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", a.empty() ? "first" : "second", " run has no committed step"));
  }
  RunComparison result;
  result.steps_a = std::ssize(a);
  result.steps_b = std::ssize(b);
  for (const StepMetrics& shorter : a.size() <= b.size() ? a : b) {
    const StepMetrics *in_a = FindStep(a, shorter.step), *in_b = FindStep(b, shorter.step);
    if (in_a == nullptr || in_b == nullptr) {
      result.difference = RunDifference{.step = shorter.step,
                                        .field = "step",
                                        .value_a = in_a ? "present" : "none",
                                        .value_b = in_b ? "present" : "none",
                                        .shown_a = in_a ? in_a->loss : 0,
                                        .shown_b = in_b ? in_b->loss : 0};
      break;
    }
    NoteMissing(*in_a, *in_b, result.only_a);
    NoteMissing(*in_b, *in_a, result.only_b);
    result.difference = CompareStep(*in_a, *in_b);
    if (result.difference.has_value()) break;
    ++result.steps_compared;
    if (in_a->state_digest.has_value() && in_b->state_digest.has_value()) ++result.digests_compared;
  }
  return result;
}

std::string Describe(const RunComparison& comparison) {
  const std::string lengths =
      comparison.steps_a == comparison.steps_b
          ? ""
          : absl::StrCat(" (the runs have ", comparison.steps_a, " and ", Counted(comparison.steps_b, "step"), ")");
  const std::string counts =
      absl::StrCat(Counted(comparison.steps_compared, "step"), " and ", Counted(comparison.digests_compared, "digest"));
  const std::string missing = Missing("A", comparison.only_a) + Missing("B", comparison.only_b);
  if (!comparison.difference.has_value()) {
    return absl::StrCat("equal: ", counts, " are the same bits", lengths, "\n", missing);
  }

  const RunDifference& d = *comparison.difference;
  return absl::StrFormat(
      "different: step %d, %s\n"
      "  A: %-16s  %s %.9g\n"
      "  B: %-16s  %s %.9g\n"
      "%s before it are the same bits%s\n%s",
      d.step, d.field, d.value_a, d.shown, d.shown_a, d.value_b, d.shown, d.shown_b, counts, lengths, missing);
}

}  // namespace holdfast
