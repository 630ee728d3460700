#include "framework/jinja/functions.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "framework/base/status.h"
#include "framework/jinja/operators.h"
#include "framework/jinja/python_text.h"

namespace holdfast::jinja {
namespace {

constexpr int64_t kRangeMax = 100'000;  // as jinja2's sandbox

constexpr auto kFunctions =
    std::to_array<absl::string_view>({"raise_exception", "strftime_now", "range", "dict", "namespace"});

absl::StatusOr<Value> RaiseException(const Arguments& arguments, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"message"}, 1));
  ASSIGN_OR_RETURN(const std::string message, ToText(*bound[0], budget));
  return absl::InvalidArgumentError(absl::StrCat("the template says: ", message));
}

absl::StatusOr<Value> FormatNow(const Arguments& arguments, const std::string& now, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"format"}, 1));
  ASSIGN_OR_RETURN(const absl::string_view format, StringOf(*bound[0], "the format of the date"));
  if (now.empty()) {
    return absl::InvalidArgumentError(
        "the template writes today's date, which has to be given (data pack --date YYYY-MM-DD), so that the tokens are "
        "the same every day");
  }
  // What Python and absl::FormatTime do not mean alike is refused.
  constexpr absl::string_view kSame = "YmdHMSBbAayjpIe%";
  for (size_t i = format.find('%'); i != absl::string_view::npos; i = format.find('%', i + 2)) {
    if (i + 1 >= format.size() || kSame.find(format[i + 1]) == absl::string_view::npos) {
      return absl::UnimplementedError(absl::StrCat("%", format.substr(i + 1, 1), " of strftime_now is not supported"));
    }
  }
  ASSIGN_OR_RETURN(const absl::CivilSecond second, ParseNow(now));
  RETURN_IF_ERROR(budget.Take(5 * static_cast<int64_t>(format.size())));  // "%A" may become "Wednesday"
  const absl::TimeZone zone = absl::UTCTimeZone();
  return Value(absl::FormatTime(format, absl::FromCivil(second, zone), zone));
}

absl::StatusOr<Value> Range(const Arguments& arguments, Budget& budget) {
  if (!arguments.keywords.empty()) return absl::InvalidArgumentError("range has no parameters with names");
  const Items& given = arguments.positional;
  if (given.empty() || given.size() > 3) return absl::InvalidArgumentError("range has one to three arguments");
  std::array<int64_t, 3> bounds = {0, 0, 1};
  for (size_t i = 0; i < given.size(); ++i) {
    ASSIGN_OR_RETURN(bounds[given.size() == 1 ? 1 : i], IntegerOf(given[i], "an argument of range"));
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) return absl::InvalidArgumentError("the step of range is 0");
  Items items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) == kRangeMax) {
      return absl::ResourceExhaustedError(absl::StrCat("a range of more than ", kRangeMax, " elements"));
    }
    RETURN_IF_ERROR(budget.Take(sizeof(Value)));
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return MakeSeries(Series::Kind::kRange, std::move(items));
}

// dict(mapping or pairs, name=value, ...)
absl::StatusOr<Dict> MakeDict(const Arguments& arguments, Budget& budget) {
  Dict dict;
  if (arguments.positional.size() > 1)
    return absl::InvalidArgumentError("at most one argument without a name is expected");
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.is_dict()) {
      for (const auto& [key, value] : from.dict().entries()) RETURN_IF_ERROR(SetInDict(dict, key, value, budget));
    } else {
      ASSIGN_OR_RETURN(const Items pairs, ItemsOf(from, budget));
      for (const Value& pair : pairs) {
        ASSIGN_OR_RETURN(const Items both, ItemsOf(pair, budget));
        if (both.size() != 2) return absl::InvalidArgumentError("an element is no pair of key and value");
        RETURN_IF_ERROR(SetInDict(dict, both[0], both[1], budget));
      }
    }
  }
  for (const auto& [name, value] : arguments.keywords) RETURN_IF_ERROR(SetInDict(dict, Value(name), value, budget));
  return dict;
}

absl::StatusOr<Value> MakeNamespace(const Arguments& arguments, Budget& budget) {
  auto space = std::make_shared<Namespace>();
  ASSIGN_OR_RETURN(space->attributes, MakeDict(arguments, budget));
  for (const auto& [key, value] : space->attributes.entries()) {
    if (key.is_string()) RETURN_IF_ERROR(CheckAttributeName(key.string()));
  }
  return Value(std::move(space));
}

}  // namespace

bool IsFunction(absl::string_view name) {
  return std::find(kFunctions.begin(), kFunctions.end(), name) != kFunctions.end();
}

absl::StatusOr<absl::CivilSecond> ParseNow(const std::string& now) {
  const std::string text = now.size() == 10   ? now + "T00:00:00"
                           : now.size() == 19 ? absl::StrCat(now.substr(0, 10), "T", now.substr(11))
                                              : "";
  absl::CivilSecond second;  // of which some texts are that have fewer digits
  if (absl::ParseCivilTime(text, &second) && absl::FormatCivilTime(second) == text) return second;
  return absl::InvalidArgumentError(absl::StrCat("the date \"", now, "\" is not YYYY-MM-DD or YYYY-MM-DD HH:MM:SS"));
}

absl::StatusOr<Value> CallFunction(absl::string_view name, const Arguments& arguments, const std::string& now,
                                   Budget& budget) {
  if (name == "raise_exception") return RaiseException(arguments, budget);
  if (name == "strftime_now") return FormatNow(arguments, now, budget);
  if (name == "range") return Range(arguments, budget);
  if (name == "namespace") return MakeNamespace(arguments, budget);
  ASSIGN_OR_RETURN(Dict dict, MakeDict(arguments, budget));
  return Value(std::move(dict));
}

absl::Status CheckAttributeName(absl::string_view name) {
  if (!absl::StartsWith(name, "_")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" cannot be an attribute of a namespace: it begins with \"_\""));
}

}  // namespace holdfast::jinja
