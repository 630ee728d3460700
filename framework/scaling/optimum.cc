#include "framework/scaling/optimum.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

/// The exponents of the term in N and of the term in D.
struct TwoExponents {
  double active, tokens;
};
TwoExponents ExponentsOf(const Law& law) {
  const LawShape& shape = ShapeOf(law.form);
  TwoExponents two{};
  for (const LawTerm& term : shape.terms) {
    if (term.active >= 0) two.active = law.exponents[static_cast<size_t>(term.active)];
    if (term.tokens >= 0) two.tokens = law.exponents[static_cast<size_t>(term.tokens)];
    if (term.tokens == kPowerOne) two.tokens = 1;
  }
  return two;
}

RunSize OptimalSize(const Law& law, double flops, double ratio) {
  const LawShape& shape = ShapeOf(law.form);
  const auto [a, b] = ExponentsOf(law);
  double log_active_term = 0, log_tokens_term = 0;  // at N = 1, D = 1
  for (size_t k = 0; k < shape.terms.size(); ++k) {
    const LawTerm& term = shape.terms[k];
    if (term.active >= 0) {
      log_active_term = law.log_coefficients[k];
      if (term.ratio >= 0) log_active_term -= law.exponents[static_cast<size_t>(term.ratio)] * std::log(ratio);
    }
    if (term.tokens != kNoFactor) log_tokens_term = law.log_coefficients[k];
  }
  const double log_product = std::log(flops / 6);  // of N and D
  const double log_active = (std::log(a / b) + log_active_term - log_tokens_term + b * log_product) / (a + b);
  const double active = std::exp(log_active);
  return {.parameters = active * ratio, .active = active, .tokens = std::exp(log_product - log_active)};
}

}  // namespace

double AllocationExponent(const Law& law) {
  const auto [a, b] = ExponentsOf(law);
  return b / (a + b);
}

absl::Status CheckBudget(double flops, double ratio) {
  if (!(flops > 0 && flops < 1e60)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a budget has to be a positive number of FLOPs below 1e60, not %g", flops));
  }
  if (ratio >= 1 && ratio < 1e6) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "all parameters have to be at least the active ones, and less than 1e6 times as many, not %g times", ratio));
}

absl::StatusOr<Optimum> OptimumFor(const Fit& fit, double flops, double ratio) {
  RETURN_IF_ERROR(CheckBudget(flops, ratio));
  const RunSize size = OptimalSize(fit.law, flops, ratio);
  if (!(size.active >= 1 && size.tokens >= 1)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "this fit has no optimum for %g FLOPs: it would be %g parameters and %g tokens, as a term is as good as 0",
        flops, size.active, size.tokens));
  }
  Optimum optimum{
      .flops = flops, .size = size, .loss = fit.law.Loss(size), .active = {}, .tokens = {}, .loss_interval = {}};
  const auto size_of = [&](const Law& law) { return OptimalSize(law, flops, ratio); };
  optimum.active = LimitedIntervalOf(fit, LawPart::kFalling, [&](const Law& law) { return size_of(law).active; });
  optimum.tokens = LimitedIntervalOf(fit, LawPart::kFalling, [&](const Law& law) { return size_of(law).tokens; });
  optimum.loss_interval =
      LimitedIntervalOf(fit, LawPart::kWhole, [&](const Law& law) { return law.Loss(size_of(law)); });
  return optimum;
}

}  // namespace holdfast
