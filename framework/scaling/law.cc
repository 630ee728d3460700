#include "framework/scaling/law.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

constexpr std::array<const char*, 3> kFormNames = {"chinchilla", "kaplan", "moe"};

double ExponentOf(const Law& law, int index) {
  return index == kNoFactor ? 0 : (index == kPowerOne ? 1 : law.exponents[static_cast<size_t>(index)]);
}

/// Names of the values, in order.
const std::vector<const char*>& NamesOf(LawForm form) {
  static const std::vector<const char*> names[] = {
      {"E", "A", "B", "a", "b"}, {"Nc", "Dc", "aN", "aD"}, {"E", "A", "B", "a", "c", "b"}};
  return names[static_cast<size_t>(form)];
}

}  // namespace

const char* NameOf(LawForm form) { return kFormNames[static_cast<size_t>(form)]; }

absl::StatusOr<LawForm> LawFormNamed(absl::string_view name) {
  for (size_t i = 0; i < kFormNames.size(); ++i) {
    if (name == kFormNames[i]) return static_cast<LawForm>(i);
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no form '", name, "': chinchilla, kaplan, moe are known"));
}

const LawShape& ShapeOf(LawForm form) {
  // Of kaplan the exponents are aN / aD and aD.
  static const LawShape shapes[] = {{.terms = {{}, {.active = 0}, {.tokens = 1}},
                                     .exponents = 2,
                                     .outer = kNoFactor,
                                     .formula = "E + A / N^a + B / D^b"},
                                    {.terms = {{.active = 0}, {.tokens = kPowerOne}},
                                     .exponents = 2,
                                     .outer = 1,
                                     .formula = "((Nc / N)^(aN / aD) + Dc / D)^aD"},
                                    {.terms = {{}, {.active = 0, .ratio = 1}, {.tokens = 2}},
                                     .exponents = 3,
                                     .outer = kNoFactor,
                                     .formula = "E + A / (N^a (M/N)^c) + B / D^b"}};
  return shapes[static_cast<size_t>(form)];
}

LogSize::LogSize(const RunSize& size)
    : active(std::log(size.active)), ratio(std::log(size.parameters / size.active)), tokens(std::log(size.tokens)) {}

double Law::LogLoss(const LogSize& size) const { return LogLoss(size, nullptr); }

double Law::LogLoss(const LogSize& size, std::array<double, kMaxValues>* gradient) const {
  const LawShape& shape = ShapeOf(form);
  const size_t terms = shape.terms.size();
  std::array<double, kMaxTerms> logs = {};
  double largest = -INFINITY;
  for (size_t k = 0; k < terms; ++k) {
    const LawTerm& term = shape.terms[k];
    logs[k] = log_coefficients[k] - ExponentOf(*this, term.active) * size.active -
              ExponentOf(*this, term.ratio) * size.ratio - ExponentOf(*this, term.tokens) * size.tokens;
    largest = std::max(largest, logs[k]);
  }
  std::array<double, kMaxTerms> parts = {};  // relative to the largest
  double sum = 0;
  for (size_t k = 0; k < terms; ++k) sum += parts[k] = std::exp(logs[k] - largest);
  const double log_sum = largest + std::log(sum);
  const double power = shape.outer == kNoFactor ? 1 : exponents[static_cast<size_t>(shape.outer)];
  if (gradient == nullptr) return power * log_sum;

  gradient->fill(0);
  const auto add = [&](int index, double amount) {
    if (index >= 0) (*gradient)[terms + static_cast<size_t>(index)] += amount;
  };
  for (size_t k = 0; k < terms; ++k) {
    const double share = power * parts[k] / sum;  // of the term in the logarithm
    (*gradient)[k] = share;
    add(shape.terms[k].active, -share * size.active);
    add(shape.terms[k].ratio, -share * size.ratio);
    add(shape.terms[k].tokens, -share * size.tokens);
  }
  add(shape.outer, log_sum);
  return power * log_sum;
}

double Law::Loss(const RunSize& size) const { return std::exp(LogLoss(LogSize(size))); }

std::vector<NamedValue> ValuesOf(const Law& law) {
  std::vector<double> values;
  if (law.form == LawForm::kKaplan) {
    const double ratio = law.exponents[0], power = law.exponents[1];
    values = {std::exp(law.log_coefficients[0] / ratio), std::exp(law.log_coefficients[1]), ratio * power, power};
  } else {
    for (const double c : law.log_coefficients) values.push_back(std::exp(c));
    values.insert(values.end(), law.exponents.begin(), law.exponents.end());
  }
  std::vector<NamedValue> named;
  for (size_t i = 0; i < values.size(); ++i) named.push_back({NamesOf(law.form)[i], values[i]});
  return named;
}

}  // namespace holdfast
