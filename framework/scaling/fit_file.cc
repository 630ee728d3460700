#include "framework/scaling/fit_file.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "framework/scaling/interval_ends.h"
#include "framework/scaling/json_fields.h"
#include "framework/scaling/minimise.h"
#include "xxhash.h"

namespace holdfast {
namespace {

using nlohmann::json;

constexpr char kFitFormat[] = "holdfast scaling fit";
constexpr int kFitVersion = 1;
constexpr size_t kMaxFitBytes = size_t{64} << 20;

json RunJson(const Observation& run) {
  json object = {{"name", run.name},
                 {"parameters", run.size.parameters},
                 {"active_parameters", run.size.active},
                 {"tokens", run.size.tokens},
                 {"flops", run.flops},
                 {"loss", run.loss}};
  if (run.learning_rate.has_value()) object["learning_rate"] = *run.learning_rate;
  if (run.batch_tokens.has_value()) object["batch_tokens"] = *run.batch_tokens;
  if (run.data_tokens.has_value()) object["data_tokens"] = *run.data_tokens;
  return object;
}

absl::StatusOr<Observation> RunOf(const json& object) {
  Observation run;
  ASSIGN_OR_RETURN(run.name, TextField(object, "name"));
  ASSIGN_OR_RETURN(run.size.parameters, NumberField(object, "parameters"));
  ASSIGN_OR_RETURN(run.size.active, NumberField(object, "active_parameters"));
  ASSIGN_OR_RETURN(run.size.tokens, NumberField(object, "tokens"));
  ASSIGN_OR_RETURN(run.flops, NumberField(object, "flops"));
  ASSIGN_OR_RETURN(run.loss, NumberField(object, "loss"));
  if (object.contains("learning_rate")) {
    ASSIGN_OR_RETURN(run.learning_rate, NumberField(object, "learning_rate"));
  }
  if (object.contains("batch_tokens")) {
    ASSIGN_OR_RETURN(run.batch_tokens, NumberField(object, "batch_tokens"));
  }
  if (object.contains("data_tokens")) {
    ASSIGN_OR_RETURN(run.data_tokens, NumberField(object, "data_tokens"));
  }
  RETURN_IF_ERROR(CheckObservation(run));
  return run;
}

absl::StatusOr<Law> LawOfNumbers(LawForm form, const std::vector<double>& numbers) {
  const auto coefficients = numbers.begin() + ShapeOf(form).coefficients();
  Law law{
      .form = form, .log_coefficients = {numbers.begin(), coefficients}, .exponents = {coefficients, numbers.end()}};
  for (const double exponent : law.exponents) {
    if (exponent >= kExponentMin && exponent <= kExponentMax) continue;
    return absl::InvalidArgumentError(absl::StrCat("an exponent is ", exponent, ", which no fit has"));
  }
  constexpr double kLargest = 700;  // of a logarithm
  for (const double c : law.log_coefficients) {
    if (std::abs(c) > kLargest * kExponentMax) {
      return absl::InvalidArgumentError(absl::StrCat("the logarithm of a coefficient is ", c));
    }
  }
  return law;
}

std::vector<double> NumbersOf(const Law& law) {
  std::vector<double> numbers = law.log_coefficients;
  numbers.insert(numbers.end(), law.exponents.begin(), law.exponents.end());
  return numbers;
}

absl::StatusOr<Fit> FitOf(const json& file) {
  Fit fit;
  ASSIGN_OR_RETURN(const std::string form, TextField(file, "form"));
  ASSIGN_OR_RETURN(fit.options.form, LawFormNamed(form));
  const LawShape& shape = ShapeOf(fit.options.form);
  ASSIGN_OR_RETURN(fit.options.huber_delta, NumberField(file, "huber_delta"));
  ASSIGN_OR_RETURN(fit.options.seed, DigestField(file, "seed"));
  ASSIGN_OR_RETURN(fit.options.level, NumberField(file, "level"));
  if (!(fit.options.level >= 0.5 && fit.options.level <= 0.99)) {
    return absl::InvalidArgumentError("'level' has to be in [0.5, 0.99]");
  }
  const json runs = file.value("runs", json());
  if (!runs.is_array() || runs.size() <= static_cast<size_t>(shape.values()) || runs.size() > kMaxObservations) {
    return absl::InvalidArgumentError(absl::StrCat("'runs' has to be a list of more than ", shape.values(), " runs"));
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    auto run = RunOf(runs[i]);
    if (!run.ok()) return Annotate(run.status(), absl::StrCat("run ", i + 1, " of 'runs'"));
    fit.runs.push_back(*std::move(run));
  }
  ASSIGN_OR_RETURN(const uint64_t digest, DigestField(file, "runs_digest"));
  if (digest != DigestOf(fit.runs)) {
    return absl::InvalidArgumentError("its runs are not those of its runs_digest: it has been changed");
  }
  ASSIGN_OR_RETURN(std::vector<double> numbers,
                   NumbersField(file, "log_coefficients", static_cast<size_t>(shape.coefficients())));
  ASSIGN_OR_RETURN(const std::vector<double> exponents,
                   NumbersField(file, "exponents", static_cast<size_t>(shape.exponents)));
  numbers.insert(numbers.end(), exponents.begin(), exponents.end());
  ASSIGN_OR_RETURN(fit.law, LawOfNumbers(fit.options.form, numbers));
  const json resampled = file.value("resampled", json());
  if (!resampled.is_array() || resampled.empty() || resampled.size() > kMaxResamples) {
    return absl::InvalidArgumentError(absl::StrCat("'resampled' has to be a list of up to ", kMaxResamples, " laws"));
  }
  fit.options.resamples = static_cast<int>(resampled.size());
  for (const json& row : resampled) {
    const json object = {{"resampled", row}};
    ASSIGN_OR_RETURN(const std::vector<double> values,
                     NumbersField(object, "resampled", static_cast<size_t>(shape.values())));
    ASSIGN_OR_RETURN(Law law, LawOfNumbers(fit.options.form, values));
    fit.resampled.push_back(std::move(law));
  }
  return fit;
}

}  // namespace

std::string ToJson(const Fit& fit) {
  json values = json::object(), runs = json::array(), resampled = json::array();
  for (const ValueInterval& value : ValueIntervals(fit)) {
    if (value.name == "p") continue;  // no value of the law
    json& object = values[value.name];
    object = {{"value", value.fitted}, {"low", value.interval.low}, {"high", value.interval.high}};
    // Only where it is so: the digest of a fit of which all ends come from the runs is that of earlier builds.
    if (value.low_is_limit) object["low_is_limit"] = true;
    if (value.high_is_limit) object["high_is_limit"] = true;
  }
  for (const Observation& run : fit.runs) runs.push_back(RunJson(run));
  for (const Law& law : fit.resampled) resampled.push_back(NumbersOf(law));
  const nlohmann::ordered_json file = {{"format", kFitFormat},
                                       {"version", kFitVersion},
                                       {"form", NameOf(fit.options.form)},
                                       {"formula", ShapeOf(fit.options.form).formula},
                                       {"values", values},
                                       {"log_coefficients", fit.law.log_coefficients},
                                       {"exponents", fit.law.exponents},
                                       {"huber_delta", fit.options.huber_delta},
                                       {"seed", HexText(fit.options.seed)},
                                       {"level", fit.options.level},
                                       {"runs_digest", HexText(DigestOf(fit.runs))},
                                       {"runs", runs},
                                       {"resampled", resampled}};
  return absl::StrCat(file.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace), "\n");
}

absl::StatusOr<Fit> ReadFit(const std::string& path) {
  ASSIGN_OR_RETURN(const json file, ReadJsonFile(path, kMaxFitBytes, kFitFormat, kFitVersion));
  auto fit = FitOf(file);
  if (!fit.ok()) return Annotate(fit.status(), path);
  return fit;
}

uint64_t DigestOf(const Fit& fit) {
  const std::string text = ToJson(fit);
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace holdfast
