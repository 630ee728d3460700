#pragma once
// What a sweep may choose: named dimensions, and the map between their values and the unit cube. Pure and immutable, so
// safe from any thread. Every dimension owns one coordinate, also where its condition leaves it out of a point.
//
//   auto space = SearchSpace::Create({{.name = "optimizer.lr", .scale = Scale::kLog, .low = 1e-5, .high = 1e-1}});
//   Point point = space->FromUnit({0.5});  // optimizer.lr = 0.001

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace holdfast::search {

enum class Scale { kLinear, kLog, kChoice };

/// The dimension is part of a point only where `name`, an earlier choice, is part of it and has this value.
struct Condition {
  std::string name = {}, value = {};
};

struct Dimension {
  std::string name = {};
  Scale scale = Scale::kLinear;
  double low = 0, high = 0;  // both included
  bool integer = false;
  std::vector<std::string> choices = {};  // of kChoice, without order
  std::optional<Condition> condition = {};
  int64_t steps = 0;  // how many values a grid takes of it, ends included; 0: all, of integers and choices
};

using PointValue = std::variant<double, int64_t, std::string>;
using Point = std::map<std::string, PointValue>;

/// One text for equal points and no other: names in order, numbers by their shortest exact digits, texts in quotes.
std::string PointText(const Point& point);

inline constexpr double kLargestInteger = 1e9;
inline constexpr size_t kMaxDimensions = 64;

class SearchSpace {
 public:
  /// InvalidArgument says everything that is wrong, a line each.
  static absl::StatusOr<SearchSpace> Create(std::vector<Dimension> dimensions);

  const std::vector<Dimension>& dimensions() const { return dimensions_; }

  /// unit: a coordinate in [0, 1] for each dimension. Numbers that are not whole have 6 significant digits, so that
  /// people can read them.
  Point FromUnit(absl::Span<const double> unit) const;

  /// A coordinate for each dimension: of integers and choices the middle of what FromUnit maps to them, 0.5 where the
  /// dimension is not part of the point. InvalidArgument if the point is none of this space.
  absl::StatusOr<std::vector<double>> ToUnit(const Point& point) const;

  /// How many points there are; nothing if a dimension has values without number, or all together are over 2^62.
  std::optional<int64_t> Count() const { return CountOf(false); }
  /// Point `index` of Count(): the last dimension changes fastest.
  Point At(int64_t index) const { return PointAt(index, false); }

  /// The same of a grid, which takes `steps` values of a dimension that has any.
  std::optional<int64_t> GridCount() const { return CountOf(true); }
  Point GridAt(int64_t index) const { return PointAt(index, true); }

 private:
  explicit SearchSpace(std::vector<Dimension> dimensions) : dimensions_(std::move(dimensions)) {}

  std::optional<int64_t> CountOf(bool grid) const;
  std::optional<int64_t> CountBelow(size_t dimension, bool grid) const;
  std::optional<int64_t> CountUnder(const std::string& name, const std::string& value, bool grid) const;
  Point PointAt(int64_t index, bool grid) const;
  bool IsPart(const Dimension& dimension, const Point& point) const;

  std::vector<Dimension> dimensions_;
};

}  // namespace holdfast::search
