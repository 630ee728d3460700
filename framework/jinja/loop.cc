#include "framework/jinja/loop.h"

#include <utility>

#include "framework/base/status.h"

namespace holdfast::jinja {

Loop::Loop(Items items, Condition condition) : list_(std::move(items)), condition_(std::move(condition)) {}

absl::StatusOr<std::optional<Value>> Loop::Advance() {
  if (asks_) return absl::InvalidArgumentError("the condition of a loop asks the loop for its elements");
  while (next_ < list_.items.size()) {
    const Value& item = list_.items[next_++];
    bool taken = true;
    if (condition_ != nullptr) {
      asks_ = true;
      const auto answer = condition_(item);
      asks_ = false;
      ASSIGN_OR_RETURN(taken, answer);
    }
    if (taken) return item;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<Value>> Loop::Next() {
  ASSIGN_OR_RETURN(std::optional<Value> item, Peek());
  after_.reset();
  if (!item.has_value()) return item;
  ++index0_;
  before_ = std::exchange(current_, item);
  return item;
}

absl::StatusOr<std::optional<Value>> Loop::Peek() {
  if (!after_.has_value()) {
    ASSIGN_OR_RETURN(std::optional<Value> next, Advance());
    after_ = std::move(next);
  }
  return *after_;
}

absl::StatusOr<int64_t> Loop::Length() {
  if (length_.has_value()) return *length_;
  if (condition_ != nullptr) {  // all of them are asked now
    Items rest;
    while (true) {
      ASSIGN_OR_RETURN(std::optional<Value> item, Advance());
      if (!item.has_value()) break;
      rest.push_back(*std::move(item));
    }
    const bool peeked = after_.has_value() && after_->has_value();
    length_ = static_cast<int64_t>(rest.size()) + index0_ + 1 + (peeked ? 1 : 0);
    if (after_.has_value() && !peeked) after_.reset();
    list_ = ItemList(std::move(rest));
    next_ = 0;
    condition_ = nullptr;
  } else {
    length_ = static_cast<int64_t>(list_.items.size());
  }
  return *length_;
}

absl::StatusOr<std::optional<Value>> Loop::Attribute(absl::string_view name) {
  if (name == "index") return Value(index0_ + 1);
  if (name == "index0") return Value(index0_);
  if (name == "first") return Value(index0_ == 0);
  if (name == "depth") return Value(int64_t{1});  // of recursive loops, which are refused
  if (name == "depth0") return Value(int64_t{0});
  if (name == "previtem") return before_.value_or(Value::MakeUndefined("there is no previous item"));
  if (name == "last" || name == "nextitem") {
    ASSIGN_OR_RETURN(const std::optional<Value> next, Peek());
    if (name == "last") return Value(!next.has_value());
    return next.value_or(Value::MakeUndefined("there is no next item"));
  }
  if (name != "length" && name != "revindex" && name != "revindex0") return std::nullopt;
  ASSIGN_OR_RETURN(const int64_t length, Length());
  if (name == "length") return Value(length);
  return Value(length - index0_ - (name == "revindex" ? 0 : 1));
}

absl::StatusOr<Value> Loop::Cycle(const Arguments& arguments) const {
  if (arguments.positional.empty() || !arguments.keywords.empty()) {
    return absl::InvalidArgumentError("loop.cycle has one or more arguments without names");
  }
  return arguments.positional[static_cast<size_t>(index0_) % arguments.positional.size()];
}

}  // namespace holdfast::jinja
