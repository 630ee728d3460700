#include "framework/jinja/methods.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "framework/jinja/letter_case.h"
#include "framework/jinja/operators.h"
#include "framework/jinja/search.h"
#include "framework/jinja/unicode.h"

namespace holdfast::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// Of a call: the string, its arguments, what may still be made.
struct StringCall {
  const std::string& text;
  const Arguments& arguments;
  Budget& budget;
};

Result Strip(const StringCall& call, bool left, bool right) {
  ASSIGN_OR_RETURN(const auto bound, Bind(call.arguments, {"chars"}));
  absl::string_view text = call.text;
  if (bound[0] == nullptr || bound[0]->is_none()) {
    if (left) text = StripLeft(text);
    if (right) text = StripRight(text);
    return Value(text);
  }
  ASSIGN_OR_RETURN(const absl::string_view characters, StringOf(*bound[0], "what is stripped"));
  RETURN_IF_ERROR(call.budget.Step(static_cast<int64_t>(characters.size())));
  if (left) text = StripLeft(text, characters);
  if (right) text = StripRight(text, characters);
  return Value(text);
}
Result StripBoth(const StringCall& call) { return Strip(call, true, true); }
Result StripOnlyLeft(const StringCall& call) { return Strip(call, true, false); }
Result StripOnlyRight(const StringCall& call) { return Strip(call, false, true); }

// At white space, from the left; the rest after `count` cuts is one part.
std::vector<absl::string_view> SplitAtSpace(absl::string_view text, int64_t count) {
  std::vector<absl::string_view> parts;
  text = StripLeft(text);
  while (!text.empty() && count-- != 0) {
    size_t end = 0;
    while (end < text.size() && !IsSpace(FirstCharacter(text.substr(end)).code)) {
      end += FirstCharacter(text.substr(end)).bytes;
    }
    parts.push_back(text.substr(0, end));
    text = StripLeft(text.substr(end));
  }
  if (!text.empty()) parts.push_back(text);
  return parts;
}

std::vector<absl::string_view> SplitAt(absl::string_view text, absl::string_view separator, int64_t count) {
  std::vector<absl::string_view> parts;
  size_t begin = 0;
  while (count-- != 0) {
    const size_t end = FindIn(text, separator, begin);
    if (end == absl::string_view::npos) break;
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<absl::string_view> SplitAtFromRight(absl::string_view text, absl::string_view separator, int64_t count) {
  std::vector<absl::string_view> parts;
  while (count-- != 0) {
    const size_t at = text.rfind(separator);
    if (at == absl::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Result ListOf(const std::vector<absl::string_view>& parts, Budget& budget) {
  RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(parts.size() * 2 * sizeof(Value))));
  Items items;
  for (const absl::string_view part : parts) items.emplace_back(part);
  return Value(std::move(items));
}

Result Split(const StringCall& call, bool from_right) {
  ASSIGN_OR_RETURN(const auto bound, Bind(call.arguments, {"sep", "maxsplit"}));
  int64_t count = -1;
  if (bound[1] != nullptr) {
    ASSIGN_OR_RETURN(count, IntegerOf(*bound[1], "maxsplit"));
  }
  if (bound[0] == nullptr || bound[0]->is_none()) {
    if (from_right && count >= 0)
      return absl::UnimplementedError("rsplit at white space with maxsplit is not supported");
    return ListOf(SplitAtSpace(call.text, count), call.budget);
  }
  ASSIGN_OR_RETURN(const absl::string_view separator, StringOf(*bound[0], "what a string is split at"));
  if (separator.empty()) return absl::InvalidArgumentError("a string cannot be split at an empty one");
  const SearchFrom from = from_right ? SearchFrom::kRight : SearchFrom::kLeft;
  RETURN_IF_ERROR(StepForSearch(call.text, separator, from, call.budget));
  return ListOf(from_right ? SplitAtFromRight(call.text, separator, count) : SplitAt(call.text, separator, count),
                call.budget);
}
Result SplitFromLeft(const StringCall& call) { return Split(call, false); }
Result SplitFromRight(const StringCall& call) { return Split(call, true); }

Result Lines(const StringCall& call) {
  RETURN_IF_ERROR(Bind(call.arguments, {}).status());
  return ListOf(SplitLines(call.text), call.budget);
}

Result HasAffix(const StringCall& call, bool at_start) {
  ASSIGN_OR_RETURN(const auto bound, Bind(call.arguments, {"affix"}, 1));
  const Items candidates = bound[0]->is_tuple() ? bound[0]->items() : Items{*bound[0]};
  RETURN_IF_ERROR(call.budget.Step(static_cast<int64_t>(candidates.size())));
  for (const Value& candidate : candidates) {
    ASSIGN_OR_RETURN(const absl::string_view affix, StringOf(candidate, "the beginning or end that is looked for"));
    RETURN_IF_ERROR(call.budget.Compare(affix.size()));
    if (at_start ? absl::StartsWith(call.text, affix) : absl::EndsWith(call.text, affix)) return Value(true);
  }
  return Value(false);
}
Result HasPrefix(const StringCall& call) { return HasAffix(call, true); }
Result HasSuffix(const StringCall& call) { return HasAffix(call, false); }

Result RemoveAffix(const StringCall& call, bool at_start) {
  ASSIGN_OR_RETURN(const auto bound, Bind(call.arguments, {"affix"}, 1));
  ASSIGN_OR_RETURN(const absl::string_view affix, StringOf(*bound[0], "what is removed"));
  absl::string_view text = call.text;
  if (at_start && absl::StartsWith(text, affix)) text.remove_prefix(affix.size());
  if (!at_start && absl::EndsWith(text, affix)) text.remove_suffix(affix.size());
  return Value(text);
}
Result RemovePrefix(const StringCall& call) { return RemoveAffix(call, true); }
Result RemoveSuffix(const StringCall& call) { return RemoveAffix(call, false); }

Result ChangeCase(const StringCall& call, Case wanted) {
  RETURN_IF_ERROR(Bind(call.arguments, {}).status());
  return Value(ToCase(call.text, wanted));
}
Result Upper(const StringCall& call) { return ChangeCase(call, Case::kUpper); }
Result Lower(const StringCall& call) { return ChangeCase(call, Case::kLower); }

Result CapitalizeMethod(const StringCall& call) {
  RETURN_IF_ERROR(Bind(call.arguments, {}).status());
  return Value(Capitalize(call.text));
}

Result TitleMethod(const StringCall& call) {
  RETURN_IF_ERROR(Bind(call.arguments, {}).status());
  return Value(Title(call.text));
}

Result Replace(const StringCall& call) {
  ASSIGN_OR_RETURN(const auto bound, Bind(call.arguments, {"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const absl::string_view from, StringOf(*bound[0], "what is replaced"));
  ASSIGN_OR_RETURN(const absl::string_view to, StringOf(*bound[1], "the replacement"));
  int64_t count = -1;
  if (bound[2] != nullptr) {
    ASSIGN_OR_RETURN(count, IntegerOf(*bound[2], "count"));
  }
  ASSIGN_OR_RETURN(std::string text, ReplaceAll(call.text, from, to, count, call.budget));
  return Value(std::move(text));
}

Result JoinMethod(const StringCall& call) {
  ASSIGN_OR_RETURN(const auto bound, Bind(call.arguments, {"iterable"}, 1));
  ASSIGN_OR_RETURN(const Items items, ItemsOf(*bound[0], call.budget));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const absl::string_view part, StringOf(items[i], "an element that is joined"));
    RETURN_IF_ERROR(call.budget.Take(static_cast<int64_t>(part.size() + call.text.size())));
    absl::StrAppend(&out, i == 0 ? "" : call.text, part);
  }
  return Value(std::move(out));
}

Result FindPart(const StringCall& call, bool from_right) {
  ASSIGN_OR_RETURN(const auto bound, Bind(call.arguments, {"sub"}, 1));
  ASSIGN_OR_RETURN(const absl::string_view part, StringOf(*bound[0], "what is looked for"));
  const absl::string_view text = call.text;
  RETURN_IF_ERROR(StepForSearch(text, part, from_right ? SearchFrom::kRight : SearchFrom::kLeft, call.budget));
  const size_t at = from_right ? text.rfind(part) : FindIn(text, part);
  return Value(at == absl::string_view::npos ? int64_t{-1} : CountCharacters(text.substr(0, at)));
}
Result Find(const StringCall& call) { return FindPart(call, false); }
Result FindFromRight(const StringCall& call) { return FindPart(call, true); }

Result CountParts(const StringCall& call) {
  ASSIGN_OR_RETURN(const auto bound, Bind(call.arguments, {"sub"}, 1));
  ASSIGN_OR_RETURN(const absl::string_view part, StringOf(*bound[0], "what is counted"));
  if (part.empty()) return Value(CountCharacters(call.text) + 1);
  RETURN_IF_ERROR(StepForSearch(call.text, part, SearchFrom::kLeft, call.budget));
  return Value(static_cast<int64_t>(SplitAt(call.text, part, -1).size()) - 1);
}

Result IsDigits(const StringCall& call) {
  RETURN_IF_ERROR(Bind(call.arguments, {}).status());
  for (const char c : call.text) {
    if (!absl::ascii_isascii(static_cast<unsigned char>(c))) {
      return absl::UnimplementedError("isdigit of characters beyond ASCII is not supported");
    }
  }
  return Value(!call.text.empty() && std::all_of(call.text.begin(), call.text.end(), absl::ascii_isdigit));
}

struct StringMethod {
  absl::string_view name;
  Result (*call)(const StringCall&);  // null: Python has it, we do not
};

constexpr auto kStringMethods = std::to_array<StringMethod>({
    {"strip", StripBoth},
    {"lstrip", StripOnlyLeft},
    {"rstrip", StripOnlyRight},
    {"split", SplitFromLeft},
    {"rsplit", SplitFromRight},
    {"splitlines", Lines},
    {"startswith", HasPrefix},
    {"endswith", HasSuffix},
    {"removeprefix", RemovePrefix},
    {"removesuffix", RemoveSuffix},
    {"upper", Upper},
    {"lower", Lower},
    {"capitalize", CapitalizeMethod},
    {"title", TitleMethod},
    {"replace", Replace},
    {"join", JoinMethod},
    {"find", Find},
    {"rfind", FindFromRight},
    {"count", CountParts},
    {"isdigit", IsDigits},
    {"casefold", nullptr},
    {"center", nullptr},
    {"encode", nullptr},
    {"expandtabs", nullptr},
    {"format", nullptr},
    {"format_map", nullptr},
    {"index", nullptr},
    {"isalnum", nullptr},
    {"isalpha", nullptr},
    {"isascii", nullptr},
    {"isdecimal", nullptr},
    {"isidentifier", nullptr},
    {"islower", nullptr},
    {"isnumeric", nullptr},
    {"isprintable", nullptr},
    {"isspace", nullptr},
    {"istitle", nullptr},
    {"isupper", nullptr},
    {"ljust", nullptr},
    {"maketrans", nullptr},
    {"partition", nullptr},
    {"rindex", nullptr},
    {"rjust", nullptr},
    {"rpartition", nullptr},
    {"swapcase", nullptr},
    {"translate", nullptr},
    {"zfill", nullptr},
});

const StringMethod* FindStringMethod(absl::string_view name) {
  const auto found = std::find_if(kStringMethods.begin(), kStringMethods.end(),
                                  [&](const StringMethod& method) { return method.name == name; });
  return found == kStringMethods.end() ? nullptr : &*found;
}

constexpr auto kDictMethods = std::to_array<absl::string_view>(
    {"get", "items", "keys", "values", "copy", "clear", "pop", "popitem", "setdefault", "update", "fromkeys"});
constexpr auto kListMethods = std::to_array<absl::string_view>(
    {"index", "count", "copy", "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
constexpr auto kTupleMethods = std::to_array<absl::string_view>({"index", "count"});
constexpr auto kChanging = std::to_array<absl::string_view>(
    {"clear", "pop", "popitem", "setdefault", "update", "append", "reverse", "insert", "sort", "extend", "remove"});

template <size_t kCount>
bool IsOneOf(absl::string_view name, const std::array<absl::string_view, kCount>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result CallDictMethod(const Value& owner, absl::string_view name, const Arguments& arguments, Budget& budget) {
  const Dict& dict = owner.dict();
  if (name == "get") {
    ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"key", "default"}, 1));
    ASSIGN_OR_RETURN(const Value* const found, FindInDict(dict, *bound[0], budget));
    if (found != nullptr) return *found;
    return bound[1] == nullptr ? Value() : *bound[1];
  }
  RETURN_IF_ERROR(Bind(arguments, {}).status());
  if (name == "copy") return owner;
  Items items;
  for (const auto& [key, value] : dict.entries()) {
    items.push_back(name == "keys" ? key : name == "values" ? value : Value::MakeTuple({key, value}));
  }
  return MakeSeries(Series::Kind::kView, std::move(items));
}

Result CallListMethod(const Value& owner, absl::string_view name, const Arguments& arguments, Budget& budget) {
  if (name == "copy") {
    RETURN_IF_ERROR(Bind(arguments, {}).status());
    return owner;
  }
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, {"value"}, 1));
  int64_t count = 0;
  for (size_t i = 0; i < owner.items().size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, AreEqual(owner.items()[i], *bound[0], budget));
    if (equal && name == "index") return Value(static_cast<int64_t>(i));
    count += equal ? 1 : 0;
  }
  if (name == "index") return absl::InvalidArgumentError("the value is not in the list");
  return Value(count);
}

}  // namespace

bool HasMethod(const Value& owner, absl::string_view name) {
  if (owner.is_string()) return FindStringMethod(name) != nullptr;
  if (owner.is_dict()) return IsOneOf(name, kDictMethods);
  if (owner.is_list()) return IsOneOf(name, kListMethods);
  return owner.is_tuple() && IsOneOf(name, kTupleMethods);
}

absl::StatusOr<Value> CallMethod(const Method& method, const Arguments& arguments, Budget& budget) {
  const Value& owner = method.owner;
  if (owner.is_string()) {
    const StringMethod* const found = FindStringMethod(method.name);
    if (found->call != nullptr) {
      RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(owner.string().size())));
      return found->call({owner.string(), arguments, budget});
    }
  } else if (IsOneOf(method.name, kChanging)) {
    return absl::InvalidArgumentError(
        absl::StrCat(method.name, " would change ", owner.type_text(), ", which a template may not"));
  } else if (owner.is_dict() && method.name != "fromkeys") {
    RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(owner.dict().size() * 4 * sizeof(Value))));
    return CallDictMethod(owner, method.name, arguments, budget);
  } else if (!owner.is_dict()) {
    return CallListMethod(owner, method.name, arguments, budget);
  }
  return absl::UnimplementedError(
      absl::StrCat("the method ", method.name, " is not in the subset of Jinja2 that is supported"));
}

absl::StatusOr<std::string> ReplaceAll(absl::string_view text, absl::string_view from, absl::string_view to,
                                       int64_t count, Budget& budget) {
  std::string out;
  if (count < 0) count = std::numeric_limits<int64_t>::max();
  RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(text.size())));
  RETURN_IF_ERROR(StepForSearch(text, from, SearchFrom::kLeft, budget));
  while (count > 0) {
    const size_t at = FindIn(text, from);
    if (at == absl::string_view::npos) break;
    RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(to.size() + 1)));
    absl::StrAppend(&out, text.substr(0, at), to);
    text.remove_prefix(at + from.size());
    --count;
    if (!from.empty()) continue;
    if (text.empty()) break;  // an empty string is found once before every character, and at the end
    const size_t bytes = FirstCharacter(text).bytes;
    absl::StrAppend(&out, text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  absl::StrAppend(&out, text);
  return out;
}

}  // namespace holdfast::jinja
