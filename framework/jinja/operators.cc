#include "framework/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clip_text.h"
#include "framework/base/status.h"
#include "framework/jinja/methods.h"
#include "framework/jinja/objects.h"
#include "framework/jinja/search.h"
#include "framework/jinja/unicode.h"

namespace holdfast::jinja {
namespace {

constexpr int64_t kBytesPerCharacter = 96;  // as a value by itself
constexpr size_t kKeyBytesShown = 100;

absl::Status Beyond() { return absl::OutOfRangeError("a whole number beyond 2^63"); }

const Series* AsSeries(const Value& value) {
  return value.is_object() ? dynamic_cast<const Series*>(value.object().get()) : nullptr;
}

bool IsSequence(const Value& value) { return value.is_list() || value.is_tuple(); }

// -1, 0, 1; 2 if one is not a number. Integers beyond 2^53 and floats are compared exactly enough for what they count.
int OrderOfNumbers(const Value& left, const Value& right) {
  if (!left.is_float() && !right.is_float()) {
    return left.integer() < right.integer() ? -1 : left.integer() > right.integer() ? 1 : 0;
  }
  const double a = left.real(), b = right.real();
  if (std::isnan(a) || std::isnan(b)) return 2;
  return a < b ? -1 : a > b ? 1 : 0;
}

absl::StatusOr<bool> AreEqualItems(const Items& left, const Items& right, Budget& budget) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, AreEqual(left[i], right[i], budget));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> AreEqualDicts(const Dict& left, const Dict& right, Budget& budget) {
  if (left.size() != right.size()) return false;
  for (const auto& [key, value] : left.entries()) {
    ASSIGN_OR_RETURN(const Value* const other, FindInDict(right, key, budget));
    if (other == nullptr) return false;
    ASSIGN_OR_RETURN(const bool equal, AreEqual(value, *other, budget));
    if (!equal) return false;
  }
  return true;
}

// -1, 0, 1, or 2 for numbers without an order.
absl::StatusOr<int> OrderOf(const Value& left, const Value& right, Budget& budget) {
  RETURN_IF_ERROR(budget.Step());
  if (left.is_undefined() || right.is_undefined()) return UndefinedError(left.is_undefined() ? left : right);
  if (left.is_number() && right.is_number()) return OrderOfNumbers(left, right);
  if (left.is_string() && right.is_string()) {
    RETURN_IF_ERROR(budget.Compare(left.string().size()));
    const int order = left.string().compare(right.string());
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (!(left.is_list() && right.is_list()) && !(left.is_tuple() && right.is_tuple())) {
    return absl::InvalidArgumentError(absl::StrCat(left.type_text(), " and ", right.type_text(), " have no order"));
  }
  const Items &a = left.items(), &b = right.items();
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    ASSIGN_OR_RETURN(const bool equal, AreEqual(a[i], b[i], budget));
    if (!equal) return OrderOf(a[i], b[i], budget);
  }
  return a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0;
}

absl::StatusOr<bool> Contains(const Value& container, const Value& wanted, Budget& budget) {
  RETURN_IF_ERROR(budget.Step());
  if (container.is_string()) {
    if (wanted.is_undefined()) return UndefinedError(wanted);
    ASSIGN_OR_RETURN(const absl::string_view part, StringOf(wanted, "what is looked for in a string"));
    RETURN_IF_ERROR(StepForSearch(container.string(), part, SearchFrom::kLeft, budget));
    return FindIn(container.string(), part) != absl::string_view::npos;
  }
  if (container.is_dict()) {
    ASSIGN_OR_RETURN(const Value* const found, FindInDict(container.dict(), wanted, budget));
    return found != nullptr;
  }
  ASSIGN_OR_RETURN(const Items items, ItemsOf(container, budget));
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const bool equal, AreEqual(item, wanted, budget));
    if (equal) return true;
  }
  return false;
}

absl::Status CannotCalculate(absl::string_view operation, const Value& left, const Value& right) {
  if (left.is_undefined() || right.is_undefined()) return UndefinedError(left.is_undefined() ? left : right);
  return absl::InvalidArgumentError(
      absl::StrCat("cannot calculate ", left.type_text(), " ", operation, " ", right.type_text()));
}

absl::StatusOr<Value> Add(const Value& left, const Value& right, Budget& budget) {
  if (left.is_string() && right.is_string()) {
    RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(left.string().size() + right.string().size())));
    return Value(left.string() + right.string());
  }
  if ((left.is_list() && right.is_list()) || (left.is_tuple() && right.is_tuple())) {
    RETURN_IF_ERROR(budget.Take(static_cast<int64_t>((left.items().size() + right.items().size()) * sizeof(Value))));
    Items all = left.items();
    all.insert(all.end(), right.items().begin(), right.items().end());
    return left.is_list() ? Value(std::move(all)) : Value::MakeTuple(std::move(all));
  }
  return CannotCalculate("+", left, right);
}

absl::StatusOr<Value> Repeat(const Value& value, int64_t times, Budget& budget) {
  times = std::max<int64_t>(times, 0);
  const size_t size = value.is_string() ? value.string().size() : value.items().size() * sizeof(Value);
  if (size == 0) times = 0;
  if (size > 0 && times > std::numeric_limits<int64_t>::max() / static_cast<int64_t>(size)) return Beyond();
  RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(size) * times));
  if (value.is_string()) {
    std::string text;
    text.reserve(size * static_cast<size_t>(times));
    for (int64_t i = 0; i < times; ++i) text += value.string();
    return Value(std::move(text));
  }
  Items all;
  all.reserve(value.items().size() * static_cast<size_t>(times));
  for (int64_t i = 0; i < times; ++i) all.insert(all.end(), value.items().begin(), value.items().end());
  return value.is_list() ? Value(std::move(all)) : Value::MakeTuple(std::move(all));
}

absl::StatusOr<Value> CalculateFloats(absl::string_view operation, double left, double right) {
  if (operation == "+") return Value(left + right);
  if (operation == "-") return Value(left - right);
  if (operation == "*") return Value(left * right);
  if (operation == "**") {
    const double power = std::pow(left, right);
    if (left == 0 && right < 0) return absl::InvalidArgumentError("zero to a negative power");
    if (left < 0 && std::isnan(power) && !std::isnan(right)) {
      return absl::UnimplementedError("powers that are complex numbers are not supported");
    }
    if (std::isinf(power) && std::isfinite(left) && std::isfinite(right))
      return absl::OutOfRangeError("a power beyond 1e308");
    return Value(power);
  }
  if (right == 0) return absl::InvalidArgumentError("division by zero");
  if (operation == "/") return Value(left / right);
  // Python's: the rest has the sign of the divisor.
  double rest = std::fmod(left, right);
  double quotient = (left - rest) / right;
  if (rest != 0 && (right < 0) != (rest < 0)) {
    rest += right;
    quotient -= 1;
  }
  if (rest == 0) rest = std::copysign(0.0, right);
  if (operation == "%") return Value(rest);
  if (quotient == 0) return Value(std::copysign(0.0, left / right));
  const double whole = std::floor(quotient);
  return Value(quotient - whole > 0.5 ? whole + 1 : whole);
}

absl::StatusOr<Value> PowerOf(int64_t base, int64_t exponent) {
  if (exponent < 0) return CalculateFloats("**", static_cast<double>(base), static_cast<double>(exponent));
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Beyond();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Beyond();
  }
  return Value(result);
}

absl::StatusOr<Value> CalculateIntegers(absl::string_view operation, int64_t left, int64_t right) {
  int64_t result = 0;
  if (operation == "+")
    return __builtin_add_overflow(left, right, &result) ? absl::StatusOr<Value>(Beyond()) : Value(result);
  if (operation == "-")
    return __builtin_sub_overflow(left, right, &result) ? absl::StatusOr<Value>(Beyond()) : Value(result);
  if (operation == "*")
    return __builtin_mul_overflow(left, right, &result) ? absl::StatusOr<Value>(Beyond()) : Value(result);
  if (operation == "**") return PowerOf(left, right);
  if (right == 0) return absl::InvalidArgumentError("division by zero");
  if (operation == "/") return Value(static_cast<double>(left) / static_cast<double>(right));
  if (right == -1) {  // the one quotient that may be too large
    if (operation == "%") return Value(int64_t{0});
    return __builtin_sub_overflow(int64_t{0}, left, &result) ? absl::StatusOr<Value>(Beyond()) : Value(result);
  }
  const bool rounds_down = left % right != 0 && (left < 0) != (right < 0);
  if (operation == "%") return Value(left % right + (rounds_down ? right : 0));
  return Value(left / right - (rounds_down ? 1 : 0));
}

// Where a slice begins or ends in `size` elements, going by `step`.
absl::StatusOr<int64_t> BoundOf(const Value* bound, int64_t size, int64_t step, bool is_start) {
  const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? size - 1 : size;
  if (bound == nullptr || bound->is_none()) return (step > 0) == is_start ? low : high;
  ASSIGN_OR_RETURN(int64_t at, IntegerOf(*bound, "a bound of a slice"));
  if (at < 0) at = at < -size ? -1 - size : at + size;
  return std::clamp(at, low, high);
}

// The elements of a slice, `take(i)` for each.
template <typename Take>
absl::Status ForSlice(const Value* start, const Value* stop, const Value* step_value, int64_t size, Budget& budget,
                      Take take) {
  int64_t step = 1;
  if (step_value != nullptr && !step_value->is_none()) {
    ASSIGN_OR_RETURN(step, IntegerOf(*step_value, "the step of a slice"));
  }
  if (step == 0) return absl::InvalidArgumentError("the step of a slice is 0");
  step = std::clamp<int64_t>(step, -size - 1, size + 1);
  ASSIGN_OR_RETURN(const int64_t begin, BoundOf(start, size, step, true));
  ASSIGN_OR_RETURN(const int64_t end, BoundOf(stop, size, step, false));
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    RETURN_IF_ERROR(budget.Take(sizeof(Value)));
    take(static_cast<size_t>(i));
  }
  return absl::OkStatus();
}

Value NoElementOf(const Value& owner, const Value& key) {
  if (key.is_string()) return NoElement(owner, key.string());
  if (key.is_int()) return Value::MakeUndefined(absl::StrCat(owner.type_text(), " has no element ", key.integer()));
  return Value::MakeUndefined(absl::StrCat(owner.type_text(), " has no such element"));
}

// An element by its number; nothing if there is none.
absl::StatusOr<std::optional<Value>> ElementAt(const Value& owner, int64_t index, Budget& budget) {
  const Series* const series = AsSeries(owner);
  const bool is_range = series != nullptr && series->kind == Series::Kind::kRange;
  if (IsSequence(owner) || is_range) {
    const Items& items = is_range ? series->list.items : owner.items();
    if (index < 0) index += static_cast<int64_t>(items.size());
    if (index < 0 || index >= static_cast<int64_t>(items.size())) return std::nullopt;
    return items[static_cast<size_t>(index)];
  }
  if (!owner.is_string()) return std::nullopt;
  RETURN_IF_ERROR(budget.Step(static_cast<int64_t>(owner.string().size()) / 8));
  const std::vector<size_t> offsets = CharacterOffsets(owner.string());
  const auto size = static_cast<int64_t>(offsets.size()) - 1;
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  const auto at = static_cast<size_t>(index);
  return Value(owner.string().substr(offsets[at], offsets[at + 1] - offsets[at]));
}

absl::StatusOr<std::optional<Value>> FindItem(const Value& owner, const Value& key, Budget& budget) {
  if (owner.is_dict()) {
    ASSIGN_OR_RETURN(const Value* const found, FindInDict(owner.dict(), key, budget));
    return found == nullptr ? std::optional<Value>() : *found;
  }
  if (key.is_int() || key.is_bool()) return ElementAt(owner, key.integer(), budget);
  return std::nullopt;
}

absl::StatusOr<std::optional<Value>> FindAttribute(const Value& owner, absl::string_view name, Budget& budget) {
  if (owner.is_object()) {
    if (const auto* const space = dynamic_cast<const Namespace*>(owner.object().get())) {
      RETURN_IF_ERROR(budget.Compare(name.size()));
      const Value* const found = space->attributes.FindName(name);
      return found == nullptr ? std::optional<Value>() : *found;
    }
  }
  return HasMethod(owner, name) ? std::optional(Value(std::make_shared<Method>(owner, std::string(name))))
                                : std::nullopt;
}

}  // namespace

absl::StatusOr<const Value*> FindInDict(const Dict& dict, const Value& key, Budget& budget) {
  if (key.is_string()) RETURN_IF_ERROR(budget.Compare(key.string().size()));
  return dict.Find(key);
}

absl::Status SetInDict(Dict& dict, const Value& key, Value value, Budget& budget) {
  const size_t key_bytes = key.is_string() ? key.string().size() : 0;
  RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(4 * sizeof(Value) + key_bytes)));
  return dict.Set(key, std::move(value));
}

absl::Status UndefinedError(const Value& value) { return absl::InvalidArgumentError(value.undefined_what()); }

bool IsTrue(const Value& value) {
  if (value.is_none() || value.is_undefined()) return false;
  if (value.is_number()) return value.is_float() ? value.real() != 0 : value.integer() != 0;
  if (value.is_string()) return !value.string().empty();
  if (IsSequence(value)) return !value.items().empty();
  if (value.is_dict()) return !value.dict().empty();
  const Series* const series = AsSeries(value);
  return series == nullptr || series->kind == Series::Kind::kGenerator || !series->list.items.empty();
}

absl::StatusOr<bool> AreEqual(const Value& left, const Value& right, Budget& budget) {
  RETURN_IF_ERROR(budget.Step());
  if (left.is_number() && right.is_number()) return OrderOfNumbers(left, right) == 0;
  if (left.is_string() && right.is_string()) {
    RETURN_IF_ERROR(budget.Compare(left.string().size()));
    return left.string() == right.string();
  }
  if (left.is_undefined() && right.is_undefined()) return true;
  if ((left.is_list() && right.is_list()) || (left.is_tuple() && right.is_tuple())) {
    return AreEqualItems(left.items(), right.items(), budget);
  }
  if (left.is_dict() && right.is_dict()) return AreEqualDicts(left.dict(), right.dict(), budget);
  const Series *const a = AsSeries(left), *const b = AsSeries(right);
  if (a != nullptr && b != nullptr && a->kind == Series::Kind::kRange && b->kind == Series::Kind::kRange) {
    return AreEqualItems(a->list.items, b->list.items, budget);
  }
  return left.IsSame(right);
}

absl::StatusOr<bool> Compare(absl::string_view comparison, const Value& left, const Value& right, Budget& budget) {
  if (comparison == "in" || comparison == "not in") {
    ASSIGN_OR_RETURN(const bool contains, Contains(right, left, budget));
    return contains == (comparison == "in");
  }
  if (comparison == "==" || comparison == "!=") {
    ASSIGN_OR_RETURN(const bool equal, AreEqual(left, right, budget));
    return equal == (comparison == "==");
  }
  ASSIGN_OR_RETURN(const int order, OrderOf(left, right, budget));
  if (order == 2) return false;
  if (comparison == "<") return order < 0;
  if (comparison == "<=") return order <= 0;
  return comparison == ">" ? order > 0 : order >= 0;
}

absl::StatusOr<Value> Calculate(absl::string_view operation, const Value& left, const Value& right, Budget& budget) {
  RETURN_IF_ERROR(budget.Step());
  if (left.is_number() && right.is_number()) {
    return left.is_float() || right.is_float() ? CalculateFloats(operation, left.real(), right.real())
                                               : CalculateIntegers(operation, left.integer(), right.integer());
  }
  if (operation == "+") return Add(left, right, budget);
  const auto repeats = [](const Value& value, const Value& times) {
    return (value.is_string() || IsSequence(value)) && (times.is_int() || times.is_bool());
  };
  if (operation == "*" && repeats(left, right)) return Repeat(left, right.integer(), budget);
  if (operation == "*" && repeats(right, left)) return Repeat(right, left.integer(), budget);
  if (operation == "%" && left.is_string()) {
    return absl::UnimplementedError("formatting with % is not in the subset of Jinja2 that is supported");
  }
  return CannotCalculate(operation, left, right);
}

absl::StatusOr<Value> Negate(const Value& value) {
  if (value.is_float()) return Value(-value.real());
  if (value.is_undefined()) return UndefinedError(value);
  if (!value.is_number()) return absl::InvalidArgumentError(absl::StrCat(value.type_text(), " has no negative"));
  return CalculateIntegers("-", 0, value.integer());
}

absl::StatusOr<int64_t> LengthOf(const Value& value) {
  if (value.is_string()) return CountCharacters(value.string());
  if (IsSequence(value)) return static_cast<int64_t>(value.items().size());
  if (value.is_dict()) return static_cast<int64_t>(value.dict().size());
  if (value.is_undefined()) return 0;
  const Series* const series = AsSeries(value);
  if (series != nullptr && series->kind != Series::Kind::kGenerator) {
    return static_cast<int64_t>(series->list.items.size());
  }
  return absl::InvalidArgumentError(absl::StrCat(value.type_text(), " has no length"));
}

absl::StatusOr<Items> ItemsOf(const Value& value, Budget& budget) {
  Items items;
  if (IsSequence(value)) {
    items = value.items();
  } else if (value.is_string()) {
    RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(value.string().size()) * kBytesPerCharacter));
    for (absl::string_view rest = value.string(); !rest.empty();) {
      const size_t bytes = FirstCharacter(rest).bytes;
      items.emplace_back(rest.substr(0, bytes));
      rest.remove_prefix(bytes);
    }
  } else if (value.is_dict()) {
    for (const auto& [key, item] : value.dict().entries()) items.push_back(key);
  } else if (value.is_object() && dynamic_cast<Series*>(value.object().get()) != nullptr) {
    auto& series = static_cast<Series&>(*value.object());
    items.assign(series.list.items.begin() + static_cast<ptrdiff_t>(series.next), series.list.items.end());
    if (series.kind == Series::Kind::kGenerator) series.next = series.list.items.size();
  } else if (!value.is_undefined()) {
    return absl::InvalidArgumentError(absl::StrCat(value.type_text(), " has no elements to go through"));
  }
  RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(items.size() * sizeof(Value))));
  return items;
}

Value NoElement(const Value& owner, absl::string_view name) {
  return Value::MakeUndefined(
      absl::StrCat(owner.type_text(), " has no \"", ClipText({name.data(), name.size()}, kKeyBytesShown), "\""));
}

absl::StatusOr<Value> ItemOf(const Value& owner, const Value& key, Budget& budget) {
  if (owner.is_undefined()) return UndefinedError(owner);
  ASSIGN_OR_RETURN(std::optional<Value> found, FindItem(owner, key, budget));
  if (!found.has_value() && key.is_string()) {
    ASSIGN_OR_RETURN(found, FindAttribute(owner, key.string(), budget));
  }
  return found.has_value() ? *std::move(found) : NoElementOf(owner, key);
}

absl::StatusOr<Value> AttributeOf(const Value& owner, absl::string_view name, Budget& budget) {
  if (owner.is_undefined()) return UndefinedError(owner);
  ASSIGN_OR_RETURN(std::optional<Value> found, FindAttribute(owner, name, budget));
  if (found.has_value()) return *std::move(found);
  const Value key(name);
  ASSIGN_OR_RETURN(found, FindItem(owner, key, budget));
  return found.has_value() ? *std::move(found) : NoElement(owner, name);
}

absl::StatusOr<Value> SliceOf(const Value& owner, const Value* start, const Value* stop, const Value* step,
                              Budget& budget) {
  if (owner.is_undefined()) return UndefinedError(owner);
  if (owner.is_string()) {
    RETURN_IF_ERROR(budget.Step(static_cast<int64_t>(owner.string().size()) / 8));
    const std::string& text = owner.string();
    const std::vector<size_t> offsets = CharacterOffsets(text);
    std::string part;
    RETURN_IF_ERROR(ForSlice(start, stop, step, static_cast<int64_t>(offsets.size()) - 1, budget,
                             [&](size_t i) { part.append(text, offsets[i], offsets[i + 1] - offsets[i]); }));
    return Value(std::move(part));
  }
  const Series* const series = AsSeries(owner);
  const bool is_range = series != nullptr && series->kind == Series::Kind::kRange;
  if (!IsSequence(owner) && !is_range) {
    return absl::InvalidArgumentError(absl::StrCat(owner.type_text(), " cannot be sliced"));
  }
  const Items& items = is_range ? series->list.items : owner.items();
  Items part;
  RETURN_IF_ERROR(ForSlice(start, stop, step, static_cast<int64_t>(items.size()), budget,
                           [&](size_t i) { part.push_back(items[i]); }));
  if (is_range) return MakeSeries(Series::Kind::kRange, std::move(part));
  return owner.is_list() ? Value(std::move(part)) : Value::MakeTuple(std::move(part));
}

absl::StatusOr<int64_t> IntegerOf(const Value& value, absl::string_view what) {
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_int() || value.is_bool()) return value.integer();
  return absl::InvalidArgumentError(absl::StrCat(what, " is ", value.type_text(), ", not a whole number"));
}

absl::StatusOr<absl::string_view> StringOf(const Value& value, absl::string_view what) {
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_string()) return value.string();
  return absl::InvalidArgumentError(absl::StrCat(what, " is ", value.type_text(), ", not a string"));
}

}  // namespace holdfast::jinja
