#pragma once
// What Python does with values: truth, comparisons, arithmetic, elements. Errors say what could not be done with what.

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/jinja/budget.h"
#include "framework/jinja/value.h"

namespace holdfast::jinja {

/// The error of using what is not defined.
absl::Status UndefinedError(const Value& value);

bool IsTrue(const Value& value);

absl::StatusOr<bool> AreEqual(const Value& left, const Value& right, Budget& budget);
/// `comparison`: == != < <= > >= in, "not in".
absl::StatusOr<bool> Compare(absl::string_view comparison, const Value& left, const Value& right, Budget& budget);

/// `operation`: + - * / // % **.
absl::StatusOr<Value> Calculate(absl::string_view operation, const Value& left, const Value& right, Budget& budget);
absl::StatusOr<Value> Negate(const Value& value);

/// len().
absl::StatusOr<int64_t> LengthOf(const Value& value);

/// Null if it has no such key.
absl::StatusOr<const Value*> FindInDict(const Dict& dict, const Value& key, Budget& budget);
/// dict[key] = value; the dict holds the text of the key a second time.
absl::Status SetInDict(Dict& dict, const Value& key, Value value, Budget& budget);

/// list(): what a loop goes through. A generator is empty then.
absl::StatusOr<Items> ItemsOf(const Value& value, Budget& budget);

/// Undefined, as `owner` has no element or attribute `name`.
Value NoElement(const Value& owner, absl::string_view name);

/// owner[key] and owner.name: undefined if there is none.
absl::StatusOr<Value> ItemOf(const Value& owner, const Value& key, Budget& budget);
absl::StatusOr<Value> AttributeOf(const Value& owner, absl::string_view name, Budget& budget);
/// owner[start:stop:step]; null: not given.
absl::StatusOr<Value> SliceOf(const Value& owner, const Value* start, const Value* stop, const Value* step,
                              Budget& budget);

/// An integer, or a bool as one; InvalidArgument for anything else.
absl::StatusOr<int64_t> IntegerOf(const Value& value, absl::string_view what);
/// A string; InvalidArgument for anything else.
absl::StatusOr<absl::string_view> StringOf(const Value& value, absl::string_view what);

}  // namespace holdfast::jinja
