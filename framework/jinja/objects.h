#pragma once
// Values of a template that are neither text, number nor container.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/jinja/value.h"

namespace holdfast::jinja {

/// What {{ namespace() }} makes: the one thing that can be changed.
class Namespace final : public Object {
 public:
  const char* type_name() const override { return "Namespace"; }
  Dict attributes;
};

/// Elements without being a list: Python's generators, which are read once, its views of dicts, and its ranges.
class Series final : public Object {
 public:
  enum class Kind { kGenerator, kView, kRange };

  Series(Kind series_kind, Items elements) : kind(series_kind), list(std::move(elements)) {}
  const char* type_name() const override {
    return kind == Kind::kGenerator ? "generator" : kind == Kind::kView ? "view of a dict" : "range";
  }
  int depth() const override { return list.depth; }

  Kind kind;
  ItemList list;
  size_t next = 0;  // kGenerator: the first that was not read
};

inline Value MakeSeries(Series::Kind kind, Items items) {
  return Value(std::make_shared<Series>(kind, std::move(items)));
}

/// A method with what it belongs to.
class Method final : public Object {
 public:
  Method(Value method_owner, std::string method_name) : owner(std::move(method_owner)), name(std::move(method_name)) {}
  const char* type_name() const override { return "method"; }
  int depth() const override { return 1 + owner.depth(); }

  Value owner;
  std::string name;
};

/// A function that every template has.
class Function final : public Object {
 public:
  explicit Function(std::string function_name) : name(std::move(function_name)) {}
  const char* type_name() const override { return "function"; }

  std::string name;
};

/// What a call is given.
struct Arguments {
  Items positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

/// The arguments by the names of parameters; null where none is given. InvalidArgument for too many, unknown ones, or
/// if one of the first `required` is missing.
absl::StatusOr<std::vector<const Value*>> Bind(const Arguments& arguments, const std::vector<const char*>& parameters,
                                               size_t required = 0);

}  // namespace holdfast::jinja
