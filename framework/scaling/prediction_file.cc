#include "framework/scaling/prediction_file.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status.h"
#include "framework/scaling/json_fields.h"

namespace holdfast {
namespace {

constexpr char kPredictionFormat[] = "holdfast scaling prediction";
constexpr int kPredictionVersion = 1;
constexpr size_t kMaxPredictionBytes = size_t{1} << 20;
constexpr char kTimeFormat[] = "%Y-%m-%dT%H:%M:%SZ";

absl::StatusOr<Interval> IntervalField(const nlohmann::json& object, const std::string& key) {
  ASSIGN_OR_RETURN(const std::vector<double> ends, NumbersField(object, key, 2));
  if (ends[0] <= ends[1] && ends[0] > 0) return Interval{ends[0], ends[1]};
  return absl::InvalidArgumentError(absl::StrCat("'", key, "' has to be positive and ascending"));
}

absl::StatusOr<SavedPrediction> PredictionOf(const nlohmann::json& file) {
  SavedPrediction saved;
  ASSIGN_OR_RETURN(saved.run_name, TextField(file, "run"));
  ASSIGN_OR_RETURN(saved.config_digest, DigestField(file, "config_digest"));
  ASSIGN_OR_RETURN(saved.fit_digest, DigestField(file, "fit_digest"));
  ASSIGN_OR_RETURN(saved.size.parameters, NumberField(file, "parameters"));
  ASSIGN_OR_RETURN(saved.size.active, NumberField(file, "active_parameters"));
  ASSIGN_OR_RETURN(saved.size.tokens, NumberField(file, "tokens"));
  ASSIGN_OR_RETURN(saved.level, NumberField(file, "level"));
  ASSIGN_OR_RETURN(saved.prediction.loss, NumberField(file, "loss"));
  ASSIGN_OR_RETURN(saved.prediction.law, IntervalField(file, "law_interval"));
  ASSIGN_OR_RETURN(saved.prediction.run, IntervalField(file, "run_interval"));
  ASSIGN_OR_RETURN(const std::string when, TextField(file, "predicted_at"));
  std::string error;
  if (!absl::ParseTime(kTimeFormat, when, &saved.when, &error)) {
    return absl::InvalidArgumentError(absl::StrCat("'predicted_at' is '", when, "': ", error));
  }
  RETURN_IF_ERROR(CheckObservation({.name = "",
                                    .size = saved.size,
                                    .flops = 1,
                                    .loss = saved.prediction.loss,
                                    .learning_rate = {},
                                    .batch_tokens = {}}));
  return saved;
}

}  // namespace

std::string ToJson(const SavedPrediction& saved) {
  const LossPrediction& p = saved.prediction;
  const nlohmann::ordered_json file = {
      {"format", kPredictionFormat},
      {"version", kPredictionVersion},
      {"run", saved.run_name},
      {"config_digest", HexText(saved.config_digest)},
      {"fit_digest", HexText(saved.fit_digest)},
      {"parameters", saved.size.parameters},
      {"active_parameters", saved.size.active},
      {"tokens", saved.size.tokens},
      {"loss", p.loss},
      {"level", saved.level},
      {"law_interval", {p.law.low, p.law.high}},
      {"run_interval", {p.run.low, p.run.high}},
      {"predicted_at", absl::FormatTime(kTimeFormat, saved.when, absl::UTCTimeZone())}};
  return absl::StrCat(file.dump(2, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace), "\n");
}

absl::StatusOr<SavedPrediction> ReadPrediction(const std::string& path) {
  ASSIGN_OR_RETURN(const nlohmann::json file,
                   ReadJsonFile(path, kMaxPredictionBytes, kPredictionFormat, kPredictionVersion));
  auto saved = PredictionOf(file);
  if (!saved.ok()) return Annotate(saved.status(), path);
  return saved;
}

bool IsWithin(const Interval& interval, double value) { return interval.low <= value && value <= interval.high; }

std::string DescribeOutcome(const SavedPrediction& saved, const Observation& run) {
  const LossPrediction& p = saved.prediction;
  return absl::StrFormat(
      "predicted  %.4f nats per token, a run %.4f to %.4f (%.0f %%), on %s\n"
      "actual     %.4f\n"
      "off by     %+.4f (%+.2f %%), %s the interval\n",
      p.loss, p.run.low, p.run.high, 100 * saved.level, absl::FormatTime(kTimeFormat, saved.when, absl::UTCTimeZone()),
      run.loss, run.loss - p.loss, 100 * (run.loss / p.loss - 1), IsWithin(p.run, run.loss) ? "within" : "outside");
}

}  // namespace holdfast
