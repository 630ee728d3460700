#include "framework/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast::jinja {
namespace {

// Equal for keys that Python takes for the same: 1, 1.0 and true are one key.
std::optional<std::string> TextOfKey(const Value& key) {
  if (key.is_string()) return absl::StrCat("s", key.string());
  if (key.is_none()) return "n";
  if (key.is_int() || key.is_bool()) return absl::StrCat("i", key.integer());
  if (!key.is_float()) return std::nullopt;
  const double value = key.real();
  const bool is_whole = std::floor(value) == value && std::abs(value) < 9e18;
  return is_whole ? absl::StrCat("i", static_cast<int64_t>(value)) : absl::StrCat("f", value);
}

}  // namespace

ItemList::ItemList(Items elements) : items(std::move(elements)), depth(1) {
  for (const Value& item : items) depth = std::max(depth, 1 + item.depth());
}

int Value::depth() const {
  if (is_list() || is_tuple()) return list().depth;
  if (is_dict()) return dict().depth();
  return is_object() ? object()->depth() : 0;
}

std::string Value::type_text() const {
  if (is_none()) return "None";
  if (is_undefined()) return "an Undefined";
  if (is_bool()) return "a bool";
  if (is_int()) return "an int";
  if (is_float()) return "a float";
  if (is_string()) return "a str";
  if (is_list()) return "a list";
  if (is_tuple()) return "a tuple";
  return is_dict() ? "a dict" : absl::StrCat("a ", object()->type_name());
}

bool Value::IsSame(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_bool() || is_int()) return integer() == other.integer();
  if (is_float()) return real() == other.real();
  if (is_string()) return string() == other.string();
  if (is_list() || is_tuple()) return &list() == &other.list();
  if (is_dict()) return &dict() == &other.dict();
  return !is_object() || object() == other.object();
}

const Value* Dict::Find(const Value& key) const {
  const auto text = TextOfKey(key);
  if (!text.has_value()) return nullptr;
  const auto found = index_.find(*text);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

const Value* Dict::FindName(absl::string_view key) const {
  const auto found = index_.find(absl::StrCat("s", key));
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

absl::Status Dict::Set(const Value& key, Value value) {
  const auto text = TextOfKey(key);
  if (!text.has_value()) {
    return absl::UnimplementedError(absl::StrCat("a key of a dict that is ", key.type_text(), " is not supported"));
  }
  depth_ = std::max(depth_, 1 + value.depth());
  const auto [found, is_new] = index_.try_emplace(*text, entries_.size());
  if (is_new) {
    entries_.emplace_back(key, std::move(value));
  } else {
    entries_[found->second].second = std::move(value);
  }
  return absl::OkStatus();
}

}  // namespace holdfast::jinja
