#include "framework/jinja/filters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/status.h"
#include "framework/jinja/letter_case.h"
#include "framework/jinja/methods.h"
#include "framework/jinja/operators.h"
#include "framework/jinja/python_text.h"
#include "framework/jinja/tests.h"
#include "framework/jinja/unicode.h"

namespace holdfast::jinja {
namespace {

using Result = absl::StatusOr<Value>;

absl::StatusOr<bool> FlagOf(const Value* value) { return value != nullptr && IsTrue(*value); }

// An element or attribute of an element ("function.name", 0); the element itself without one. `fallback` or null: for
// what is not defined on the way.
Result Reach(const Value& item, const Value* path, Budget& budget, const Value* fallback = nullptr) {
  if (path == nullptr || path->is_none()) return item;
  if (!path->is_string()) return ItemOf(item, *path, budget);
  RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(path->string().size())));
  Value reached = item;
  for (const absl::string_view part : absl::StrSplit(path->string(), '.')) {
    int64_t number = 0;
    const bool is_number =
        !part.empty() && std::all_of(part.begin(), part.end(), absl::ascii_isdigit) && absl::SimpleAtoi(part, &number);
    ASSIGN_OR_RETURN(reached, ItemOf(reached, is_number ? Value(number) : Value(part), budget));
    if (reached.is_undefined() && fallback != nullptr) reached = *fallback;
  }
  return reached;
}

// What is sorted by: the element or its attribute, a string without regard to case unless that counts.
Result SortKey(const Value& item, const Value* path, bool case_counts, Budget& budget) {
  ASSIGN_OR_RETURN(const Value key, Reach(item, path, budget));
  if (case_counts || !key.is_string()) return key;
  RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(key.string().size())));
  return Value(ToCase(key.string(), Case::kLower));
}

absl::StatusOr<Items> SortBy(Items items, const Items& keys, bool descending, Budget& budget) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  absl::Status status;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (!status.ok()) return false;
    const auto less = Compare("<", keys[descending ? b : a], keys[descending ? a : b], budget);
    status = less.status();
    return less.ok() && *less;
  });
  RETURN_IF_ERROR(status);
  Items sorted;
  for (const size_t i : order) sorted.push_back(items[i]);
  return sorted;
}

Result Abs(const Value& value, const Arguments& arguments, Budget&) {
  RETURN_IF_ERROR(Bind(arguments, {}).status());
  if (value.is_float()) return Value(std::abs(value.real()));
  ASSIGN_OR_RETURN(const int64_t number, IntegerOf(value, "the value"));
  return number < 0 ? Negate(Value(number)) : Value(number);
}

Result CapitalizeFilter(const Value& value, const Arguments& arguments, Budget& budget) {
  RETURN_IF_ERROR(Bind(arguments, {}).status());
  ASSIGN_OR_RETURN(const std::string text, ToText(value, budget));
  RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(text.size())));
  return Value(Capitalize(text));
}

Result Default(const Value& value, const Arguments& arguments, Budget&) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"default_value", "boolean"}));
  ASSIGN_OR_RETURN(const bool replaces_false, FlagOf(bound[1]));
  if (!value.is_undefined() && (!replaces_false || IsTrue(value))) return value;
  return bound[0] == nullptr ? Value("") : *bound[0];
}

Result DictSort(const Value& value, const Arguments& arguments, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"case_sensitive", "by", "reverse"}));
  if (!value.is_dict()) return absl::InvalidArgumentError(absl::StrCat(value.type_text(), " is no dict"));
  ASSIGN_OR_RETURN(const bool case_counts, FlagOf(bound[0]));
  ASSIGN_OR_RETURN(const bool descending, FlagOf(bound[2]));
  const bool by_value = bound[1] != nullptr && bound[1]->is_string() && bound[1]->string() == "value";
  Items items, keys;
  for (const auto& [key, item] : value.dict().entries()) {
    RETURN_IF_ERROR(budget.Take(4 * sizeof(Value)));
    items.push_back(Value::MakeTuple({key, item}));
    ASSIGN_OR_RETURN(Value by, SortKey(by_value ? item : key, nullptr, case_counts, budget));
    keys.push_back(std::move(by));
  }
  ASSIGN_OR_RETURN(Items sorted, SortBy(std::move(items), keys, descending, budget));
  return Value(std::move(sorted));
}

Result First(const Value& value, const Arguments& arguments, Budget& budget) {
  RETURN_IF_ERROR(Bind(arguments, {}).status());
  if (value.is_object()) {
    if (auto* const series = dynamic_cast<Series*>(value.object().get())) {
      if (series->next < series->list.items.size()) {
        const size_t at = series->next;
        if (series->kind == Series::Kind::kGenerator) ++series->next;
        return series->list.items[at];
      }
      return Value::MakeUndefined("there is no first element of nothing");
    }
  }
  ASSIGN_OR_RETURN(const Items items, ItemsOf(value, budget));
  return items.empty() ? Value::MakeUndefined("there is no first element of nothing") : items.front();
}

Result Last(const Value& value, const Arguments& arguments, Budget& budget) {
  RETURN_IF_ERROR(Bind(arguments, {}).status());
  RETURN_IF_ERROR(LengthOf(value).status());  // a generator has no last element
  ASSIGN_OR_RETURN(const Items items, ItemsOf(value, budget));
  return items.empty() ? Value::MakeUndefined("there is no last element of nothing") : items.back();
}

// Python's float("..."); nothing if it is no number.
std::optional<double> ParseFloat(absl::string_view text) {
  std::string digits(StripRight(StripLeft(text)));
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  double number = 0;
  return absl::SimpleAtod(digits, &number) ? std::optional(number) : std::nullopt;
}

Result Float(const Value& value, const Arguments& arguments, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"default"}));
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_string()) RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(value.string().size())));
  if (value.is_number()) return Value(value.real());
  const std::optional<double> number = value.is_string() ? ParseFloat(value.string()) : std::nullopt;
  if (number.has_value()) return Value(*number);
  return bound[0] == nullptr ? Value(0.0) : *bound[0];
}

Result Int(const Value& value, const Arguments& arguments, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"default", "base"}));
  if (bound[1] != nullptr) return absl::UnimplementedError("the base of int is not supported");
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_int() || value.is_bool()) return Value(value.integer());
  std::optional<double> number = value.is_float() ? std::optional(value.real()) : std::nullopt;
  if (value.is_string()) {
    RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(value.string().size())));
    std::string digits(StripRight(StripLeft(value.string())));
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    int64_t integer = 0;
    if (absl::SimpleAtoi(digits, &integer)) return Value(integer);
    number = ParseFloat(digits);
  }
  if (!number.has_value() || !std::isfinite(*number)) return bound[0] == nullptr ? Value(int64_t{0}) : *bound[0];
  if (std::abs(*number) >= 9.2e18) return absl::OutOfRangeError("a whole number beyond 2^63");
  return Value(static_cast<int64_t>(*number));
}

Result Indent(const Value& value, const Arguments& arguments, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"width", "first", "blank"}));
  ASSIGN_OR_RETURN(const absl::string_view given, StringOf(value, "what is indented"));
  std::string indention(4, ' ');
  if (bound[0] != nullptr && bound[0]->is_string()) {
    indention = bound[0]->string();
  } else if (bound[0] != nullptr) {
    ASSIGN_OR_RETURN(const int64_t width, IntegerOf(*bound[0], "the width"));
    RETURN_IF_ERROR(budget.Take(std::max<int64_t>(width, 0)));
    indention = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  ASSIGN_OR_RETURN(const bool first, FlagOf(bound[1]));
  ASSIGN_OR_RETURN(const bool blank, FlagOf(bound[2]));
  const std::string text = absl::StrCat(given, "\n");
  const std::vector<absl::string_view> lines = SplitLines(text);
  std::string out = first ? indention : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(lines[i].size() + indention.size() + 1)));
    if (i > 0) absl::StrAppend(&out, "\n", blank || !lines[i].empty() ? indention : "");
    absl::StrAppend(&out, lines[i]);
  }
  return Value(std::move(out));
}

Result ItemPairs(const Value& value, const Arguments& arguments, Budget& budget) {
  RETURN_IF_ERROR(Bind(arguments, {}).status());
  Items pairs;
  if (!value.is_undefined() && !value.is_dict()) {
    return absl::InvalidArgumentError(absl::StrCat(value.type_text(), " has no pairs of key and value"));
  }
  if (value.is_dict()) {
    RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(value.dict().size() * 4 * sizeof(Value))));
    for (const auto& [key, item] : value.dict().entries()) pairs.push_back(Value::MakeTuple({key, item}));
  }
  return MakeSeries(Series::Kind::kGenerator, std::move(pairs));
}

Result Join(const Value& value, const Arguments& arguments, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"d", "attribute"}));
  std::string separator;
  if (bound[0] != nullptr) {
    ASSIGN_OR_RETURN(separator, ToText(*bound[0], budget));
  }
  ASSIGN_OR_RETURN(const Items items, ItemsOf(value, budget));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const Value item, Reach(items[i], bound[1], budget));
    ASSIGN_OR_RETURN(const std::string text, ToText(item, budget));
    RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(separator.size())));
    absl::StrAppend(&out, i == 0 ? "" : separator, text);
  }
  return Value(std::move(out));
}

Result Length(const Value& value, const Arguments& arguments, Budget& budget) {
  RETURN_IF_ERROR(Bind(arguments, {}).status());
  if (value.is_string()) RETURN_IF_ERROR(budget.Compare(value.string().size()));
  ASSIGN_OR_RETURN(const int64_t length, LengthOf(value));
  return Value(length);
}

Result ListFilter(const Value& value, const Arguments& arguments, Budget& budget) {
  RETURN_IF_ERROR(Bind(arguments, {}).status());
  ASSIGN_OR_RETURN(Items items, ItemsOf(value, budget));
  return Value(std::move(items));
}

Result InCase(const Value& value, const Arguments& arguments, Case wanted, Budget& budget) {
  RETURN_IF_ERROR(Bind(arguments, {}).status());
  ASSIGN_OR_RETURN(const std::string text, ToText(value, budget));
  RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(text.size())));
  return Value(ToCase(text, wanted));
}
Result LowerFilter(const Value& v, const Arguments& a, Budget& b) { return InCase(v, a, Case::kLower, b); }
Result UpperFilter(const Value& v, const Arguments& a, Budget& b) { return InCase(v, a, Case::kUpper, b); }

// Before an element is looked at and a value kept for it.
absl::Status TakeElement(Budget& budget) {
  RETURN_IF_ERROR(budget.Step());
  return budget.Take(sizeof(Value));
}

Result MapAttribute(const Value& value, const Arguments& arguments, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"attribute", "default"}, 1));
  Items mapped;
  ASSIGN_OR_RETURN(const Items items, ItemsOf(value, budget));
  for (const Value& item : items) {
    RETURN_IF_ERROR(TakeElement(budget));
    ASSIGN_OR_RETURN(Value reached, Reach(item, bound[0], budget, bound[1]));
    mapped.push_back(std::move(reached));
  }
  return MakeSeries(Series::Kind::kGenerator, std::move(mapped));
}

// The name of a filter or test, and what it is called with.
absl::StatusOr<std::pair<std::string, Arguments>> NameAndRest(const Arguments& arguments, size_t at) {
  if (arguments.positional.size() <= at) return absl::InvalidArgumentError("the name of a filter or a test is missing");
  ASSIGN_OR_RETURN(const absl::string_view name, StringOf(arguments.positional[at], "the name of a filter or a test"));
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<ptrdiff_t>(at) + 1);
  return std::pair(std::string(name), std::move(rest));
}

Result Map(const Value& value, const Arguments& arguments, Budget& budget) {
  if (!IsTrue(value)) return MakeSeries(Series::Kind::kGenerator, {});
  if (arguments.positional.empty()) return MapAttribute(value, arguments, budget);
  ASSIGN_OR_RETURN(const auto call, NameAndRest(arguments, 0));
  const Filter* const filter = FindFilter(call.first);
  if (filter == nullptr || filter->name == "map") {
    return absl::UnimplementedError(
        absl::StrCat("the filter \"", call.first, "\" is not in the subset of Jinja2 that is supported"));
  }
  Items mapped;
  ASSIGN_OR_RETURN(const Items items, ItemsOf(value, budget));
  for (const Value& item : items) {
    RETURN_IF_ERROR(TakeElement(budget));
    ASSIGN_OR_RETURN(Value result, filter->apply(item, call.second, budget));
    mapped.push_back(std::move(result));
  }
  return MakeSeries(Series::Kind::kGenerator, std::move(mapped));
}

Result Choose(const Value& value, const Arguments& arguments, bool by_attribute, bool keeps, Budget& budget) {
  if (!IsTrue(value)) return MakeSeries(Series::Kind::kGenerator, {});
  const size_t name_at = by_attribute ? 1 : 0;
  if (arguments.positional.size() < name_at) return absl::InvalidArgumentError("the name of an attribute is missing");
  const Test* test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > name_at) {
    ASSIGN_OR_RETURN(auto call, NameAndRest(arguments, name_at));
    test = FindTest(call.first);
    if (test == nullptr) {
      return absl::UnimplementedError(
          absl::StrCat("the test \"", call.first, "\" is not in the subset of Jinja2 that is supported"));
    }
    rest = std::move(call.second);
  }
  Items chosen;
  ASSIGN_OR_RETURN(const Items items, ItemsOf(value, budget));
  for (const Value& item : items) {
    RETURN_IF_ERROR(TakeElement(budget));
    ASSIGN_OR_RETURN(const Value tested, Reach(item, by_attribute ? arguments.positional.data() : nullptr, budget));
    bool holds = IsTrue(tested);
    if (test != nullptr) {
      ASSIGN_OR_RETURN(holds, test->holds(tested, rest, budget));
    }
    if (holds == keeps) chosen.push_back(item);
  }
  return MakeSeries(Series::Kind::kGenerator, std::move(chosen));
}
Result Select(const Value& v, const Arguments& a, Budget& b) { return Choose(v, a, false, true, b); }
Result Reject(const Value& v, const Arguments& a, Budget& b) { return Choose(v, a, false, false, b); }
Result SelectAttr(const Value& v, const Arguments& a, Budget& b) { return Choose(v, a, true, true, b); }
Result RejectAttr(const Value& v, const Arguments& a, Budget& b) { return Choose(v, a, true, false, b); }

Result ReplaceFilter(const Value& value, const Arguments& arguments, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const std::string text, ToText(value, budget));
  ASSIGN_OR_RETURN(const std::string from, ToText(*bound[0], budget));
  ASSIGN_OR_RETURN(const std::string to, ToText(*bound[1], budget));
  int64_t count = -1;
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    ASSIGN_OR_RETURN(count, IntegerOf(*bound[2], "count"));
  }
  ASSIGN_OR_RETURN(std::string replaced, ReplaceAll(text, from, to, count, budget));
  return Value(std::move(replaced));
}

Result Reverse(const Value& value, const Arguments& arguments, Budget& budget) {
  RETURN_IF_ERROR(Bind(arguments, {}).status());
  const Value backwards(int64_t{-1});
  if (value.is_string()) return SliceOf(value, nullptr, nullptr, &backwards, budget);
  const bool is_generator = !LengthOf(value).ok();
  ASSIGN_OR_RETURN(Items items, ItemsOf(value, budget));
  std::reverse(items.begin(), items.end());
  return is_generator ? Value(std::move(items)) : MakeSeries(Series::Kind::kGenerator, std::move(items));
}

Result Sort(const Value& value, const Arguments& arguments, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"reverse", "case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const bool descending, FlagOf(bound[0]));
  ASSIGN_OR_RETURN(const bool case_counts, FlagOf(bound[1]));
  ASSIGN_OR_RETURN(Items items, ItemsOf(value, budget));
  Items keys;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value key, SortKey(item, bound[2], case_counts, budget));
    keys.push_back(std::move(key));
  }
  ASSIGN_OR_RETURN(Items sorted, SortBy(std::move(items), keys, descending, budget));
  return Value(std::move(sorted));
}

Result String(const Value& value, const Arguments& arguments, Budget& budget) {
  RETURN_IF_ERROR(Bind(arguments, {}).status());
  if (value.is_string()) return value;
  ASSIGN_OR_RETURN(std::string text, ToText(value, budget));
  return Value(std::move(text));
}

// Whether a word may begin behind the first character: white space, and the brackets and the dash that Jinja2 lists.
bool SeparatesWords(absl::string_view text) {
  return IsSpace(FirstCharacter(text).code) || absl::string_view("-({[<").find(text[0]) != absl::string_view::npos;
}

Result TitleFilter(const Value& value, const Arguments& arguments, Budget& budget) {
  RETURN_IF_ERROR(Bind(arguments, {}).status());
  ASSIGN_OR_RETURN(const std::string text, ToText(value, budget));
  RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(text.size())));
  std::string out;
  for (absl::string_view rest = text; !rest.empty();) {
    const size_t first = FirstCharacter(rest).bytes;
    size_t end = first;
    while (!SeparatesWords(rest) && end < rest.size() && !SeparatesWords(rest.substr(end))) {
      end += FirstCharacter(rest.substr(end)).bytes;
    }
    out += ToCase(rest.substr(0, first), Case::kUpper) + ToCase(rest.substr(first, end - first), Case::kLower);
    rest.remove_prefix(end);
  }
  return Value(std::move(out));
}

// As transformers replaces Jinja2's own: json.dumps, nothing escaped for HTML.
Result ToJsonFilter(const Value& value, const Arguments& arguments, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  ASSIGN_OR_RETURN(style.ensure_ascii, FlagOf(bound[0]));
  ASSIGN_OR_RETURN(style.sort_keys, FlagOf(bound[3]));
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    style.item_separator = std::string(1, ',');
    if (bound[1]->is_string()) {
      ASSIGN_OR_RETURN(style.indent, ToText(*bound[1], budget));
    } else {
      ASSIGN_OR_RETURN(const int64_t width, IntegerOf(*bound[1], "the indent"));
      RETURN_IF_ERROR(budget.Take(std::max<int64_t>(width, 0)));
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    const Value& both = *bound[2];
    const bool is_pair = (both.is_list() || both.is_tuple()) && both.items().size() == 2;
    if (!is_pair) return absl::InvalidArgumentError("separators are two strings");
    for (const Value& separator : both.items()) RETURN_IF_ERROR(StringOf(separator, "a separator").status());
    ASSIGN_OR_RETURN(style.item_separator, ToText(both.items()[0], budget));
    ASSIGN_OR_RETURN(style.key_separator, ToText(both.items()[1], budget));
  }
  ASSIGN_OR_RETURN(std::string json, ToJson(value, style, budget));
  return Value(std::move(json));
}

Result Trim(const Value& value, const Arguments& arguments, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"chars"}));
  ASSIGN_OR_RETURN(const std::string text, ToText(value, budget));
  if (bound[0] == nullptr || bound[0]->is_none()) return Value(StripLeft(StripRight(text)));
  ASSIGN_OR_RETURN(const absl::string_view characters, StringOf(*bound[0], "what is stripped"));
  RETURN_IF_ERROR(budget.Step(static_cast<int64_t>(characters.size())));
  return Value(StripLeft(StripRight(text, characters), characters));
}

Result Unique(const Value& value, const Arguments& arguments, Budget& budget) {
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const bool case_counts, FlagOf(bound[0]));
  ASSIGN_OR_RETURN(const Items items, ItemsOf(value, budget));
  Items kept;
  Dict seen;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value key, SortKey(item, bound[1], case_counts, budget));
    ASSIGN_OR_RETURN(const Value* const before, FindInDict(seen, key, budget));
    if (before != nullptr) continue;
    RETURN_IF_ERROR(SetInDict(seen, key, true, budget));
    kept.push_back(item);
  }
  return MakeSeries(Series::Kind::kGenerator, std::move(kept));
}

constexpr auto kFilters = std::to_array<Filter>({
    {"abs", Abs},
    {"capitalize", CapitalizeFilter},
    {"count", Length},
    {"d", Default},
    {"default", Default},
    {"dictsort", DictSort},
    {"first", First},
    {"float", Float},
    {"indent", Indent},
    {"int", Int},
    {"items", ItemPairs},
    {"join", Join},
    {"last", Last},
    {"length", Length},
    {"list", ListFilter},
    {"lower", LowerFilter},
    {"map", Map},
    {"reject", Reject},
    {"rejectattr", RejectAttr},
    {"replace", ReplaceFilter},
    {"reverse", Reverse},
    {"safe", String},
    {"select", Select},
    {"selectattr", SelectAttr},
    {"sort", Sort},
    {"string", String},
    {"title", TitleFilter},
    {"tojson", ToJsonFilter},
    {"trim", Trim},
    {"unique", Unique},
    {"upper", UpperFilter},
});

}  // namespace

const Filter* FindFilter(absl::string_view name) {
  const auto found =
      std::find_if(kFilters.begin(), kFilters.end(), [&](const Filter& filter) { return filter.name == name; });
  return found == kFilters.end() ? nullptr : &*found;
}

}  // namespace holdfast::jinja
