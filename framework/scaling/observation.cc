#include "framework/scaling/observation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/byte_order_mark.h"
#include "framework/base/files.h"
#include "framework/base/limits.h"
#include "framework/base/status.h"
#include "xxhash.h"

namespace holdfast {
namespace {

enum Column { kName, kParameters, kActive, kTokens, kFlops, kLoss, kLearningRate, kBatchTokens, kDataTokens, kColumns };
constexpr std::array<absl::string_view, kColumns> kColumnNames = {"name",          "parameters",   "active_parameters",
                                                                  "tokens",        "flops",        "loss",
                                                                  "learning_rate", "batch_tokens", "data_tokens"};

using Fields = std::vector<std::string>;

Fields SplitLine(absl::string_view line) {
  Fields fields = absl::StrSplit(line, ',');
  for (std::string& field : fields) field = std::string(absl::StripAsciiWhitespace(field));
  return fields;
}

/// What the file has there, which may be anything.
std::string Quoted(const std::string& field) {
  constexpr size_t kMostBytes = 60;
  return absl::StrCat("'", absl::CHexEscape(field.substr(0, kMostBytes)), field.size() > kMostBytes ? "...'" : "'");
}

/// For each column of the file which one it is.
absl::StatusOr<std::vector<Column>> ParseHeader(const Fields& fields) {
  std::vector<Column> columns;
  for (const std::string& field : fields) {
    const auto known = std::find(kColumnNames.begin(), kColumnNames.end(), field);
    if (known == kColumnNames.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no column ", Quoted(field), ": ", absl::StrJoin(kColumnNames, ", "), " are known"));
    }
    const auto column = static_cast<Column>(known - kColumnNames.begin());
    if (std::find(columns.begin(), columns.end(), column) != columns.end()) {
      return absl::InvalidArgumentError(absl::StrCat("column '", field, "' is there twice"));
    }
    columns.push_back(column);
  }
  for (const Column needed : {kParameters, kTokens, kLoss}) {
    if (std::find(columns.begin(), columns.end(), needed) == columns.end()) {
      return absl::InvalidArgumentError(absl::StrCat("column '", kColumnNames[needed], "' is missing"));
    }
  }
  return columns;
}

absl::StatusOr<Observation> ParseRow(const Fields& fields, const std::vector<Column>& columns) {
  if (fields.size() != columns.size()) {
    return absl::InvalidArgumentError(absl::StrCat(columns.size(), " values are expected, there are ", fields.size()));
  }
  Observation run;
  std::array<std::optional<double>, kColumns> numbers;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (columns[i] == kName) {
      run.name = fields[i];
    } else if (!fields[i].empty()) {
      if (!absl::SimpleAtod(fields[i], &numbers[columns[i]].emplace())) {
        return absl::InvalidArgumentError(
            absl::StrCat(kColumnNames[columns[i]], " ", Quoted(fields[i]), " is no number"));
      }
    }
  }
  for (const Column needed : {kParameters, kTokens, kLoss}) {
    if (!numbers[needed].has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(kColumnNames[needed], " is empty"));
    }
  }
  run.size = {.parameters = *numbers[kParameters],
              .active = numbers[kActive].value_or(*numbers[kParameters]),
              .tokens = *numbers[kTokens]};
  run.flops = numbers[kFlops].value_or(run.size.Flops());
  run.loss = *numbers[kLoss];
  run.learning_rate = numbers[kLearningRate];
  run.batch_tokens = numbers[kBatchTokens];
  run.data_tokens = numbers[kDataTokens];
  RETURN_IF_ERROR(CheckObservation(run));
  return run;
}

std::string Number(double value) { return absl::StrFormat("%.17g", value); }
std::string Number(const std::optional<double>& value) { return value.has_value() ? Number(*value) : ""; }

}  // namespace

absl::Status CheckObservation(const Observation& observation) {
  if (observation.name.size() > kMaxNameBytes) return absl::InvalidArgumentError("the name is too long");
  const RunSize& size = observation.size;
  const std::array<std::pair<Column, double>, 8> numbers = {{{kParameters, size.parameters},
                                                             {kActive, size.active},
                                                             {kTokens, size.tokens},
                                                             {kFlops, observation.flops},
                                                             {kLoss, observation.loss},
                                                             {kLearningRate, observation.learning_rate.value_or(1)},
                                                             {kBatchTokens, observation.batch_tokens.value_or(1)},
                                                             {kDataTokens, observation.data_tokens.value_or(1)}}};
  constexpr double kSmallest = 1e-30, kLargest = 1e60;  // so that no power of a power overflows
  for (const auto& [column, value] : numbers) {
    if (value >= kSmallest && value <= kLargest) continue;  // not for NaN
    return absl::InvalidArgumentError(
        absl::StrFormat("%s has to be a positive number, not %g", kColumnNames[column], value));
  }
  if (size.active <= size.parameters) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("active_parameters %.6g are more than all parameters, %.6g", size.active, size.parameters));
}

absl::StatusOr<std::vector<Observation>> ParseObservations(const std::string& text, const std::string& file) {
  std::vector<Observation> runs;
  std::optional<std::vector<Column>> columns;
  int64_t number = 0;
  for (const absl::string_view whole : absl::StrSplit(WithoutByteOrderMark(absl::string_view(text)), '\n')) {
    const std::string where = absl::StrCat(file, ":", ++number);
    const absl::string_view line = absl::StripAsciiWhitespace(whole);
    if (line.empty() || line.front() == '#') continue;
    if (!columns.has_value()) {
      auto header = ParseHeader(SplitLine(line));
      if (!header.ok()) return Annotate(header.status(), where);
      columns = *std::move(header);
      continue;
    }
    auto run = ParseRow(SplitLine(line), *columns);
    if (!run.ok()) return Annotate(run.status(), where);
    if (run->name.empty()) run->name = absl::StrCat("line ", number);
    if (runs.size() == kMaxObservations) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": more than ", kMaxObservations, " runs"));
    }
    runs.push_back(*std::move(run));
  }
  if (!columns.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": no line that names the columns"));
  }
  if (runs.empty()) return absl::InvalidArgumentError(absl::StrCat(file, ": no runs"));
  return runs;
}

absl::StatusOr<std::vector<Observation>> ReadObservations(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxObservationBytes));
  return ParseObservations(text, path);
}

std::string ToCsv(absl::Span<const Observation> observations) {
  std::string csv = absl::StrCat(absl::StrJoin(kColumnNames, ","), "\n");
  for (const Observation& run : observations) {
    std::string name = run.name;  // which nothing depends on
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == ',' || c == '\n' || c == '\r'; }, ' ');
    absl::StrAppend(&csv, name, ",", Number(run.size.parameters), ",", Number(run.size.active), ",",
                    Number(run.size.tokens), ",", Number(run.flops), ",", Number(run.loss), ",",
                    Number(run.learning_rate), ",", Number(run.batch_tokens), ",", Number(run.data_tokens), "\n");
  }
  return csv;
}

uint64_t DigestOf(absl::Span<const Observation> observations) {
  std::vector<double> numbers;
  for (const Observation& run : observations) {
    numbers.insert(numbers.end(), {run.size.parameters, run.size.active, run.size.tokens, run.flops, run.loss,
                                   run.learning_rate.value_or(0), run.batch_tokens.value_or(0)});
  }
  return XXH3_64bits(numbers.data(), numbers.size() * sizeof(double));
}

}  // namespace holdfast
