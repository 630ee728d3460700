#include "framework/jinja/tests.h"

#include <algorithm>
#include <array>
#include <string>

#include "framework/base/status.h"
#include "framework/jinja/letter_case.h"
#include "framework/jinja/operators.h"
#include "framework/jinja/python_text.h"

namespace holdfast::jinja {
namespace {

using Answer = absl::StatusOr<bool>;

// One that looks at nothing but the value.
template <bool (*kHolds)(const Value&)>
Answer Alone(const Value& value, const Arguments& arguments, Budget&) {
  RETURN_IF_ERROR(Bind(arguments, {}).status());
  return kHolds(value);
}

bool IsSeries(const Value& value, Series::Kind kind) {
  const auto* const series = value.is_object() ? dynamic_cast<const Series*>(value.object().get()) : nullptr;
  return series != nullptr && series->kind == kind;
}

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsBoolean(const Value& value) { return value.is_bool(); }
bool IsTrueItself(const Value& value) { return value.is_bool() && value.boolean(); }
bool IsFalseItself(const Value& value) { return value.is_bool() && !value.boolean(); }
bool IsInteger(const Value& value) { return value.is_int(); }
bool IsFloat(const Value& value) { return value.is_float(); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsString(const Value& value) { return value.is_string(); }
bool IsMapping(const Value& value) { return value.is_dict(); }
bool IsSequenceTest(const Value& value) {
  return value.is_string() || value.is_list() || value.is_tuple() || value.is_dict() || value.is_undefined() ||
         IsSeries(value, Series::Kind::kRange);
}
bool IsIterable(const Value& value) {
  return IsSequenceTest(value) || IsSeries(value, Series::Kind::kView) || IsSeries(value, Series::Kind::kGenerator);
}
bool IsCallable(const Value& value) {
  return value.is_undefined() || (value.is_object() && dynamic_cast<const Series*>(value.object().get()) == nullptr &&
                                  dynamic_cast<const Namespace*>(value.object().get()) == nullptr);
}

Answer RestIs(const Value& value, int64_t divisor, int64_t rest, Budget& budget) {
  ASSIGN_OR_RETURN(const Value got, Calculate("%", value, Value(divisor), budget));
  return AreEqual(got, Value(rest), budget);
}
Answer IsOdd(const Value& value, const Arguments&, Budget& budget) { return RestIs(value, 2, 1, budget); }
Answer IsEven(const Value& value, const Arguments&, Budget& budget) { return RestIs(value, 2, 0, budget); }
Answer IsDivisible(const Value& value, const Arguments& arguments, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"num"}, 1));
  ASSIGN_OR_RETURN(const int64_t divisor, IntegerOf(*bound[0], "a divisor"));
  return RestIs(value, divisor, 0, budget);
}

Answer IsInCase(const Value& value, Case wanted, Budget& budget) {
  ASSIGN_OR_RETURN(const std::string text, ToText(value, budget));
  RETURN_IF_ERROR(budget.Take(2 * static_cast<int64_t>(text.size())));
  return text == ToCase(text, wanted) && text != ToCase(text, wanted == Case::kUpper ? Case::kLower : Case::kUpper);
}
Answer IsLower(const Value& value, const Arguments&, Budget& budget) { return IsInCase(value, Case::kLower, budget); }
Answer IsUpper(const Value& value, const Arguments&, Budget& budget) { return IsInCase(value, Case::kUpper, budget); }

Answer IsSameAs(const Value& value, const Arguments& arguments, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"other"}, 1));
  if (value.is_string()) RETURN_IF_ERROR(budget.Compare(value.string().size()));
  return value.IsSame(*bound[0]);
}

Answer Compared(const char* comparison, const Value& value, const Arguments& arguments, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"other"}, 1));
  return Compare(comparison, value, *bound[0], budget);
}
Answer IsIn(const Value& v, const Arguments& a, Budget& b) { return Compared("in", v, a, b); }
Answer IsEqual(const Value& v, const Arguments& a, Budget& b) { return Compared("==", v, a, b); }
Answer IsUnequal(const Value& v, const Arguments& a, Budget& b) { return Compared("!=", v, a, b); }
Answer IsGreater(const Value& v, const Arguments& a, Budget& b) { return Compared(">", v, a, b); }
Answer IsAtLeast(const Value& v, const Arguments& a, Budget& b) { return Compared(">=", v, a, b); }
Answer IsLess(const Value& v, const Arguments& a, Budget& b) { return Compared("<", v, a, b); }
Answer IsAtMost(const Value& v, const Arguments& a, Budget& b) { return Compared("<=", v, a, b); }

constexpr auto kTests = std::to_array<Test>({
    {"defined", Alone<IsDefined>},
    {"undefined", Alone<IsUndefined>},
    {"none", Alone<IsNone>},
    {"boolean", Alone<IsBoolean>},
    {"true", Alone<IsTrueItself>},
    {"false", Alone<IsFalseItself>},
    {"integer", Alone<IsInteger>},
    {"float", Alone<IsFloat>},
    {"number", Alone<IsNumber>},
    {"string", Alone<IsString>},
    {"mapping", Alone<IsMapping>},
    {"sequence", Alone<IsSequenceTest>},
    {"iterable", Alone<IsIterable>},
    {"callable", Alone<IsCallable>},
    {"odd", IsOdd},
    {"even", IsEven},
    {"divisibleby", IsDivisible},
    {"lower", IsLower},
    {"upper", IsUpper},
    {"sameas", IsSameAs},
    {"in", IsIn},
    {"eq", IsEqual},
    {"equalto", IsEqual},
    {"==", IsEqual},
    {"ne", IsUnequal},
    {"!=", IsUnequal},
    {"gt", IsGreater},
    {"greaterthan", IsGreater},
    {">", IsGreater},
    {"ge", IsAtLeast},
    {">=", IsAtLeast},
    {"lt", IsLess},
    {"lessthan", IsLess},
    {"<", IsLess},
    {"le", IsAtMost},
    {"<=", IsAtMost},
});

}  // namespace

const Test* FindTest(absl::string_view name) {
  const auto found = std::find_if(kTests.begin(), kTests.end(), [&](const Test& test) { return test.name == name; });
  return found == kTests.end() ? nullptr : &*found;
}

}  // namespace holdfast::jinja
