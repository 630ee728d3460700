#pragma once
// What a template computes with: Python's values, as far as templates of chat formats use them. Values are cheap to
// copy and cannot be changed, but for namespaces.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace holdfast::jinja {

class Value;
class Dict;
class Object;

using Items = std::vector<Value>;

struct None {
  friend bool operator==(None, None) { return true; }
};
/// A name, attribute or item that there is not; `what` says which, for messages.
struct Undefined {
  std::shared_ptr<const std::string> what;
};
struct Tuple {
  std::shared_ptr<const Items> items;
};

class Value {
 public:
  Value() : data_(None{}) {}
  Value(bool value) : data_(value) {}     // NOLINT(google-explicit-constructor)
  Value(int64_t value) : data_(value) {}  // NOLINT(google-explicit-constructor)
  Value(double value) : data_(value) {}   // NOLINT(google-explicit-constructor)
  Value(std::string value) : data_(std::make_shared<const std::string>(std::move(value))) {}  // NOLINT
  Value(const char* value) : Value(std::string(value)) {}                                     // NOLINT
  Value(Items items) : data_(std::make_shared<const Items>(std::move(items))) {}              // NOLINT
  Value(Dict dict);                                                                           // NOLINT
  Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}                         // NOLINT
  static Value MakeTuple(Items items) { return Value(Tuple{std::make_shared<const Items>(std::move(items))}); }
  static Value MakeUndefined(std::string what) {
    return Value(Undefined{std::make_shared<const std::string>(std::move(what))});
  }

  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return std::holds_alternative<std::shared_ptr<const std::string>>(data_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<const Items>>(data_); }
  bool is_tuple() const { return std::holds_alternative<Tuple>(data_); }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  bool is_object() const { return std::holds_alternative<std::shared_ptr<Object>>(data_); }

  // Of a value of that kind only.
  bool boolean() const { return std::get<bool>(data_); }
  int64_t integer() const { return std::get<int64_t>(data_); }
  double real() const { return std::get<double>(data_); }
  const std::string& string() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  /// Of a list or a tuple.
  const Items& items() const {
    return is_tuple() ? *std::get<Tuple>(data_).items : *std::get<std::shared_ptr<const Items>>(data_);
  }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Object& object() const { return *std::get<std::shared_ptr<Object>>(data_); }
  const std::string& undefined_what() const { return *std::get<Undefined>(data_).what; }

 private:
  explicit Value(Tuple tuple) : data_(std::move(tuple)) {}
  explicit Value(Undefined undefined) : data_(std::move(undefined)) {}

  std::variant<None, Undefined, bool, int64_t, double, std::shared_ptr<const std::string>, std::shared_ptr<const Items>,
               Tuple, std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      data_;
};

/// In order of insertion, as Python's.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  /// Null if there is none.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  /// Replaces the value of a key that is there. InvalidArgument for a key that Python could not hash.
  absl::Status Set(const Value& key, Value value);

 private:
  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string, size_t> index_;  // by the text of the key
};

inline Value::Value(Dict dict) : data_(std::make_shared<const Dict>(std::move(dict))) {}

}  // namespace holdfast::jinja
