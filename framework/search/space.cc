#include "framework/search/space.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/portable_math.h"

namespace holdfast::search {
namespace {

constexpr double kMaxCount = 0x1p62;

std::string NumberText(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value == 0 ? 0.0 : value);
  return {text, end.ptr};
}

double Readable(double value) {
  double read = value;
  return absl::SimpleAtod(absl::StrFormat("%.6g", value), &read) ? read : value;
}

std::optional<double> NumberOf(const PointValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* number = std::get_if<int64_t>(&value)) return static_cast<double>(*number);
  return std::nullopt;
}

/// What is cut into equal parts: logarithms of a log scale; integers stand in the middle of a part of 1.
struct Range {
  double low, high;

  explicit Range(const Dimension& dimension) : low(dimension.low), high(dimension.high) {
    if (dimension.integer) low -= 0.5, high += 0.5;
    if (dimension.scale == Scale::kLog) low = portable::Log(low), high = portable::Log(high);
  }
};

PointValue ValueAt(const Dimension& dimension, double unit) {
  unit = std::clamp(unit, 0.0, 1.0);
  if (dimension.scale == Scale::kChoice) {
    const size_t index = static_cast<size_t>(unit * static_cast<double>(dimension.choices.size()));
    return dimension.choices[std::min(index, dimension.choices.size() - 1)];
  }
  const Range range(dimension);
  double value = range.low + unit * (range.high - range.low);
  if (dimension.scale == Scale::kLog) value = portable::Exp(value);
  value = dimension.integer ? std::floor(value + 0.5) : Readable(value);
  value = std::clamp(value, dimension.low, dimension.high);
  if (dimension.integer) return static_cast<int64_t>(value);
  return value;
}

absl::StatusOr<double> UnitOf(const Dimension& dimension, const PointValue& value) {
  if (dimension.scale == Scale::kChoice) {
    const auto* text = std::get_if<std::string>(&value);
    const auto found = text == nullptr ? dimension.choices.end()
                                       : std::find(dimension.choices.begin(), dimension.choices.end(), *text);
    if (found == dimension.choices.end()) return absl::InvalidArgumentError("is none of its choices");
    return (static_cast<double>(found - dimension.choices.begin()) + 0.5) /
           static_cast<double>(dimension.choices.size());
  }
  const std::optional<double> number = NumberOf(value);
  if (!number.has_value()) return absl::InvalidArgumentError("is no number");
  if (!(*number >= dimension.low && *number <= dimension.high)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("is %g, not in [%g, %g]", *number, dimension.low, dimension.high));
  }
  if (dimension.integer && *number != std::floor(*number)) return absl::InvalidArgumentError("is not whole");
  const Range range(dimension);
  if (range.high <= range.low) return 0.5;
  const double at = dimension.scale == Scale::kLog ? portable::Log(*number) : *number;
  return std::clamp((at - range.low) / (range.high - range.low), 0.0, 1.0);
}

/// How many values it has, or a grid takes; nothing if they have no number.
std::optional<int64_t> ValuesOf(const Dimension& dimension, bool grid) {
  std::optional<int64_t> all;
  if (dimension.scale == Scale::kChoice) return static_cast<int64_t>(dimension.choices.size());
  if (dimension.low == dimension.high) return 1;
  if (dimension.integer) all = static_cast<int64_t>(dimension.high - dimension.low) + 1;
  if (!grid || dimension.steps == 0) return all;
  return all.has_value() ? std::min(*all, dimension.steps) : dimension.steps;
}

PointValue ValueOf(const Dimension& dimension, int64_t index, int64_t count) {
  if (dimension.scale == Scale::kChoice) return dimension.choices[static_cast<size_t>(index)];
  if (!dimension.integer) {
    return ValueAt(dimension, count == 1 ? 0.5 : static_cast<double>(index) / static_cast<double>(count - 1));
  }
  const double span = dimension.high - dimension.low;
  if (static_cast<double>(count) == span + 1) return static_cast<int64_t>(dimension.low) + index;
  if (count == 1) return ValueAt(dimension, 0.5);
  // Fewer than there are: as even as whole numbers can be, and never the same twice.
  const double part = static_cast<double>(index) / static_cast<double>(count - 1);
  double value = dimension.low + part * span;
  if (dimension.scale == Scale::kLog) {
    const double low = portable::Log(dimension.low);
    value = portable::Exp(low + part * (portable::Log(dimension.high) - low));
  }
  value = std::clamp(std::floor(value + 0.5), dimension.low + static_cast<double>(index),
                     dimension.high - static_cast<double>(count - 1 - index));
  return static_cast<int64_t>(value);
}

std::optional<int64_t> Product(std::optional<int64_t> a, std::optional<int64_t> b) {
  if (!a.has_value() || !b.has_value()) return std::nullopt;
  if (static_cast<double>(*a) * static_cast<double>(*b) >= kMaxCount) return std::nullopt;
  return *a * *b;
}

std::optional<int64_t> Sum(std::optional<int64_t> a, std::optional<int64_t> b) {
  if (!a.has_value() || !b.has_value() || static_cast<double>(*a) + static_cast<double>(*b) >= kMaxCount) {
    return std::nullopt;
  }
  return *a + *b;
}

void CheckNumbers(const Dimension& dimension, std::vector<std::string>* errors) {
  const auto wrong = [&](const std::string& what) { errors->push_back(absl::StrCat(dimension.name, ": ", what)); };
  if (!dimension.choices.empty()) wrong("choices are of a scale of choices only");
  if (!std::isfinite(dimension.low) || !std::isfinite(dimension.high)) return wrong("low and high have to be finite");
  if (dimension.low > dimension.high) {
    wrong(absl::StrFormat("low, %g, is above high, %g", dimension.low, dimension.high));
  }
  if (dimension.scale == Scale::kLog && dimension.low < 1e-300) {
    wrong(absl::StrFormat("low of a log scale has to be above 0, not %g", dimension.low));
  }
  if (dimension.high - dimension.low > 1e300) wrong("low and high are too far apart");
  if (dimension.steps < 0 || dimension.steps == 1) wrong("steps have to be 2 or more");
  if (!dimension.integer) return;
  for (const double end : {dimension.low, dimension.high}) {
    if (end != std::floor(end)) wrong(absl::StrFormat("%g is an end of integers and not whole", end));
    if (std::abs(end) > kLargestInteger) wrong(absl::StrFormat("integers end at %g, not %g", kLargestInteger, end));
  }
}

void CheckChoices(const Dimension& dimension, std::vector<std::string>* errors) {
  const auto wrong = [&](const std::string& what) { errors->push_back(absl::StrCat(dimension.name, ": ", what)); };
  if (dimension.choices.empty()) wrong("has no choices");
  if (std::set<std::string>(dimension.choices.begin(), dimension.choices.end()).size() != dimension.choices.size()) {
    wrong("has a choice twice");
  }
  if (dimension.integer || dimension.low != 0 || dimension.high != 0 || dimension.steps != 0) {
    wrong("low, high, integer and steps are not of choices");
  }
}

void CheckCondition(const Dimension& dimension, absl::Span<const Dimension> earlier, std::vector<std::string>* errors) {
  if (!dimension.condition.has_value()) return;
  const Condition& condition = *dimension.condition;
  for (const Dimension& other : earlier) {
    if (other.name != condition.name || other.scale != Scale::kChoice) continue;
    if (std::find(other.choices.begin(), other.choices.end(), condition.value) != other.choices.end()) return;
    errors->push_back(absl::StrCat(dimension.name, ": its condition is a value that ", other.name, " does not have, ",
                                   condition.value));
    return;
  }
  errors->push_back(
      absl::StrCat(dimension.name, ": its condition has to be on an earlier choice, not on ", condition.name));
}

}  // namespace

std::string PointText(const Point& point) {
  return absl::StrJoin(point, " ", [](std::string* out, const auto& named) {
    const std::optional<double> number = NumberOf(named.second);
    absl::StrAppend(out, named.first, "=",
                    number.has_value()
                        ? NumberText(*number)
                        : absl::StrCat("\"", absl::Utf8SafeCEscape(std::get<std::string>(named.second)), "\""));
  });
}

absl::StatusOr<SearchSpace> SearchSpace::Create(std::vector<Dimension> dimensions) {
  std::vector<std::string> errors;
  if (dimensions.empty()) errors.emplace_back("a search space needs at least one dimension");
  if (dimensions.size() > kMaxDimensions) {
    errors.push_back(absl::StrCat("there are ", dimensions.size(), " dimensions; ", kMaxDimensions, " are the most"));
  }
  std::set<std::string> names;
  for (size_t i = 0; i < dimensions.size(); ++i) {
    const Dimension& dimension = dimensions[i];
    if (dimension.name.empty()) errors.push_back(absl::StrCat("dimension ", i, " has no name"));
    if (!names.insert(dimension.name).second) errors.push_back(absl::StrCat(dimension.name, ": is there twice"));
    (dimension.scale == Scale::kChoice ? CheckChoices : CheckNumbers)(dimension, &errors);
    CheckCondition(dimension, absl::MakeConstSpan(dimensions).first(i), &errors);
  }
  if (!errors.empty()) return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
  return SearchSpace(std::move(dimensions));
}

bool SearchSpace::IsPart(const Dimension& dimension, const Point& point) const {
  if (!dimension.condition.has_value()) return true;
  const auto found = point.find(dimension.condition->name);
  return found != point.end() && found->second == PointValue(dimension.condition->value);
}

Point SearchSpace::FromUnit(absl::Span<const double> unit) const {
  Point point;
  for (size_t i = 0; i < dimensions_.size(); ++i) {
    if (IsPart(dimensions_[i], point)) point[dimensions_[i].name] = ValueAt(dimensions_[i], unit[i]);
  }
  return point;
}

absl::StatusOr<std::vector<double>> SearchSpace::ToUnit(const Point& point) const {
  std::vector<double> unit(dimensions_.size(), 0.5);
  size_t parts = 0;
  for (size_t i = 0; i < dimensions_.size(); ++i) {
    if (!IsPart(dimensions_[i], point)) continue;
    const auto found = point.find(dimensions_[i].name);
    if (found == point.end()) {
      return absl::InvalidArgumentError(absl::StrCat("the point has no ", dimensions_[i].name));
    }
    auto at = UnitOf(dimensions_[i], found->second);
    if (!at.ok()) return absl::InvalidArgumentError(absl::StrCat(dimensions_[i].name, " ", at.status().message()));
    unit[i] = *at;
    ++parts;
  }
  if (parts != point.size()) return absl::InvalidArgumentError("the point has values that are not part of it");
  return unit;
}

std::optional<int64_t> SearchSpace::CountUnder(const std::string& name, const std::string& value, bool grid) const {
  std::optional<int64_t> count = 1;
  for (size_t i = 0; i < dimensions_.size(); ++i) {
    const auto& condition = dimensions_[i].condition;
    if (condition.has_value() && condition->name == name && condition->value == value) {
      count = Product(count, CountBelow(i, grid));
    }
  }
  return count;
}

std::optional<int64_t> SearchSpace::CountBelow(size_t dimension, bool grid) const {
  const Dimension& own = dimensions_[dimension];
  if (own.scale != Scale::kChoice) return ValuesOf(own, grid);
  std::optional<int64_t> count = 0;
  for (const std::string& choice : own.choices) count = Sum(count, CountUnder(own.name, choice, grid));
  return count;
}

std::optional<int64_t> SearchSpace::CountOf(bool grid) const {
  std::optional<int64_t> count = 1;
  for (size_t i = 0; i < dimensions_.size(); ++i) {
    if (!dimensions_[i].condition.has_value()) count = Product(count, CountBelow(i, grid));
  }
  return count;
}

Point SearchSpace::PointAt(int64_t index, bool grid) const {
  Point point;
  // Of each dimension that is part: its number among its own points, given by the one before it in its group.
  const auto fill = [&](const auto& self, const std::optional<Condition>& group, int64_t at) -> void {
    for (size_t i = dimensions_.size(); i-- > 0;) {
      const Dimension& dimension = dimensions_[i];
      if (dimension.condition.has_value() != group.has_value()) continue;
      if (group.has_value() && (dimension.condition->name != group->name || dimension.condition->value != group->value))
        continue;
      const int64_t count = *CountBelow(i, grid);
      int64_t own = at % count;
      at /= count;
      if (dimension.scale != Scale::kChoice) {
        point[dimension.name] = ValueOf(dimension, own, count);
        continue;
      }
      for (const std::string& choice : dimension.choices) {
        const int64_t under = *CountUnder(dimension.name, choice, grid);
        if (own < under) {
          point[dimension.name] = choice;
          self(self, Condition{dimension.name, choice}, own);
          break;
        }
        own -= under;
      }
    }
  };
  fill(fill, std::nullopt, index);
  return point;
}

}  // namespace holdfast::search
