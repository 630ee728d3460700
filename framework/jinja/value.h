#pragma once
// What a template computes with: Python's values, as far as templates of chat formats use them. Values are cheap to
// copy and cannot be changed, but for namespaces.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast::jinja {

class Value;
class Dict;
class Object;

using Items = std::vector<Value>;

/// The elements of a list or a tuple.
struct ItemList {
  explicit ItemList(Items elements);

  Items items;
  int depth;  // of containers in containers: 1 + that of the deepest element
};

struct None {};
/// A name, attribute or item that there is not; `what` says which, for messages.
struct Undefined {
  std::shared_ptr<const std::string> what;
};
struct Tuple {
  std::shared_ptr<const ItemList> list;
};

class Value {
 public:
  Value() : data_(None{}) {}
  Value(bool value) : data_(value) {}                                                         // NOLINT
  Value(int64_t value) : data_(value) {}                                                      // NOLINT
  Value(double value) : data_(value) {}                                                       // NOLINT
  Value(std::string value) : data_(std::make_shared<const std::string>(std::move(value))) {}  // NOLINT
  Value(absl::string_view value) : Value(std::string(value)) {}                               // NOLINT
  Value(const char* value) : Value(std::string(value)) {}                                     // NOLINT
  Value(Items items) : data_(std::make_shared<const ItemList>(std::move(items))) {}           // NOLINT
  Value(Dict dict);                                                                           // NOLINT
  Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}                         // NOLINT
  static Value MakeTuple(Items items) { return Value(Tuple{std::make_shared<const ItemList>(std::move(items))}); }
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
  bool is_list() const { return std::holds_alternative<std::shared_ptr<const ItemList>>(data_); }
  bool is_tuple() const { return std::holds_alternative<Tuple>(data_); }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  bool is_object() const { return std::holds_alternative<std::shared_ptr<Object>>(data_); }

  // Of a value of that kind only.
  bool boolean() const { return std::get<bool>(data_); }
  int64_t integer() const { return is_bool() ? int64_t{boolean()} : std::get<int64_t>(data_); }          // or a bool
  double real() const { return is_float() ? std::get<double>(data_) : static_cast<double>(integer()); }  // any number
  const std::string& string() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  const Items& items() const { return list().items; }  // or a tuple
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  const std::shared_ptr<Object>& object() const { return std::get<std::shared_ptr<Object>>(data_); }
  const std::string& undefined_what() const { return *std::get<Undefined>(data_).what; }

  /// Of containers in containers; 0 for what holds nothing.
  int depth() const;
  /// Python's name of the type, for messages: "a str", "an int".
  std::string type_text() const;
  /// Whether it is the very same value (`sameas`): equal if it is no container.
  bool IsSame(const Value& other) const;

 private:
  explicit Value(Tuple tuple) : data_(std::move(tuple)) {}
  explicit Value(Undefined undefined) : data_(std::move(undefined)) {}
  const ItemList& list() const {
    return is_tuple() ? *std::get<Tuple>(data_).list : *std::get<std::shared_ptr<const ItemList>>(data_);
  }

  std::variant<None, Undefined, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const ItemList>, Tuple, std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      data_;
};

/// In order of insertion, as Python's.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  /// Null if there is none, also for a key that cannot be one.
  const Value* Find(const Value& key) const;
  const Value* FindName(absl::string_view key) const;
  /// Replaces the value of a key that is there. Unimplemented for a key that is no string, number or none.
  absl::Status Set(const Value& key, Value value);
  int depth() const { return depth_; }

 private:
  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string, size_t> index_;  // by the text of the key
  int depth_ = 1;
};

inline Value::Value(Dict dict) : data_(std::make_shared<const Dict>(std::move(dict))) {}

/// What is neither text, number nor container: functions, namespaces, loops.
class Object {
 public:
  virtual ~Object() = default;
  virtual const char* type_name() const = 0;
  virtual int depth() const { return 0; }
};

}  // namespace holdfast::jinja
