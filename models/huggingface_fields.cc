#include "models/huggingface_fields.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace holdfast {
namespace {

constexpr size_t kMaxProblems = 20;

/// Short enough for a message.
std::string Shown(const nlohmann::json& value) {
  constexpr size_t kLongest = 80;
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

}  // namespace

int64_t FieldReader::Size(const std::string& key, int64_t max) {
  Know(key);
  if (!Has(key)) return Invalid(key, "is missing"), 1;
  const nlohmann::json& value = object_[key];
  if (!value.is_number_integer() || value.get<double>() < 1 || value.get<double>() > static_cast<double>(max)) {
    return Invalid(key, absl::StrCat("is ", Shown(value), ", not a whole number from 1 to ", max)), 1;
  }
  return value.get<int64_t>();
}

double FieldReader::Number(const std::string& key, double otherwise, bool zero_allowed) {
  Know(key);
  if (!Has(key)) return otherwise;
  const nlohmann::json& value = object_[key];
  const double number = value.is_number() ? value.get<double>() : -1;
  if (std::isfinite(number) && (number > 0 || (zero_allowed && number == 0))) return number;
  return Invalid(key, absl::StrCat("is ", Shown(value), ", not a positive number")), 1;
}

double FieldReader::Positive(const std::string& key, double otherwise) { return Number(key, otherwise, false); }
double FieldReader::NotNegative(const std::string& key, double otherwise) { return Number(key, otherwise, true); }

bool FieldReader::Bool(const std::string& key, bool otherwise) {
  Know(key);
  if (!Has(key)) return otherwise;
  if (!object_[key].is_boolean()) {
    return Invalid(key, absl::StrCat("is ", Shown(object_[key]), ", neither true nor false")), otherwise;
  }
  return object_[key].get<bool>();
}

std::string FieldReader::String(const std::string& key, const std::string& otherwise) {
  Know(key);
  if (!Has(key)) return otherwise;
  if (!object_[key].is_string())
    return Invalid(key, absl::StrCat("is ", Shown(object_[key]), ", not a string")), otherwise;
  return object_[key].get<std::string>();
}

void FieldReader::Only(const std::string& key, std::initializer_list<nlohmann::json> values) {
  Know(key);
  if (Has(key) && std::find(values.begin(), values.end(), object_[key]) == values.end()) Unsupported(key);
}

void FieldReader::Invalid(const std::string& key, const std::string& what) {
  Add(absl::StatusCode::kInvalidArgument, key, absl::StrCat(" ", what));
}

void FieldReader::Unsupported(const std::string& key) {
  const std::string value = object_.contains(key) ? Shown(object_[key]) : "missing";
  Add(absl::StatusCode::kUnimplemented, key, absl::StrCat(" = ", value, " is not supported"));
}

void FieldReader::RefuseUnknown() {
  for (const auto& [key, value] : object_.items()) {
    if (value.is_null() || key.starts_with('_') || known_.contains(key)) continue;
    Add(absl::StatusCode::kUnimplemented, Shown(key),
        absl::StrCat(" = ", Shown(value), " is not known: if it changes nothing that the model computes, remove it"));
  }
}

void FieldReader::Add(absl::StatusCode code, const std::string& key, const std::string& what) {
  Add(absl::Status(code, absl::StrCat(path_, ": ", key, what)));
}

void FieldReader::Add(const absl::Status& status) {
  if (code_ == absl::StatusCode::kOk) code_ = status.code();
  if (!status.ok() && problems_.size() < kMaxProblems) problems_.emplace_back(status.message());
}

absl::Status FieldReader::status() const { return absl::Status(code_, absl::StrJoin(problems_, "\n")); }

}  // namespace holdfast
