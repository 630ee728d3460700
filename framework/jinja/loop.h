#pragma once
// The variable `loop`: what a loop goes through, one element after the other.

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/jinja/objects.h"

namespace holdfast::jinja {

class Loop final : public Object {
 public:
  /// Whether the loop's condition takes an element; asked as late as Python's generators ask.
  using Condition = std::function<absl::StatusOr<bool>(const Value& item)>;

  Loop(Items items, Condition condition);
  const char* type_name() const override { return "loop"; }
  int depth() const override { return list_.depth; }

  /// The next element; nothing at the end.
  absl::StatusOr<std::optional<Value>> Next();
  /// `loop.NAME`; nothing if it has none such.
  absl::StatusOr<std::optional<Value>> Attribute(absl::string_view name);
  /// `loop.cycle(...)`.
  absl::StatusOr<Value> Cycle(const Arguments& arguments) const;
  /// When the loop has ended, its condition cannot be asked any more.
  void End() { condition_ = nullptr; }

 private:
  absl::StatusOr<std::optional<Value>> Advance();
  absl::StatusOr<std::optional<Value>> Peek();
  absl::StatusOr<int64_t> Length();

  ItemList list_;
  Condition condition_;  // null: all
  size_t next_ = 0;
  int64_t index0_ = -1;
  bool asks_ = false;  // the condition is at work
  std::optional<Value> before_, current_;
  std::optional<std::optional<Value>> after_;  // what Peek has found
  std::optional<int64_t> length_;
};

}  // namespace holdfast::jinja
