// Interpreter: what each kind of expression gives.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "framework/jinja/filters.h"
#include "framework/jinja/functions.h"
#include "framework/jinja/interpreter.h"
#include "framework/jinja/loop.h"
#include "framework/jinja/macro.h"
#include "framework/jinja/methods.h"
#include "framework/jinja/operators.h"
#include "framework/jinja/python_text.h"
#include "framework/jinja/tests.h"

namespace holdfast::jinja {
namespace {

constexpr absl::string_view kCaller = "caller";  // the parameter of a macro that {% call %} gives

Loop* AsLoop(const Value& value) { return value.is_object() ? dynamic_cast<Loop*>(value.object().get()) : nullptr; }

absl::StatusOr<Value> AttributeOfLoop(const Value& owner, Loop& loop, absl::string_view name) {
  if (name == "cycle") return Value(std::shared_ptr<Object>(std::make_shared<Method>(owner, "cycle")));
  ASSIGN_OR_RETURN(std::optional<Value> found, loop.Attribute(name));
  if (found.has_value()) return *std::move(found);
  return NoElement(owner, name);
}

// What stands behind "**".
absl::Status AppendKeywords(const Value& dict, Arguments& arguments, Budget& budget) {
  if (dict.is_undefined()) return UndefinedError(dict);
  if (!dict.is_dict()) return absl::InvalidArgumentError(absl::StrCat(dict.type_text(), " behind \"**\", not a dict"));
  for (const auto& [name, value] : arguments.keywords) {
    if (dict.dict().FindName(name) != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is given twice"));
    }
  }
  for (const auto& [key, value] : dict.dict().entries()) {
    ASSIGN_OR_RETURN(const absl::string_view name, StringOf(key, "the name of an argument"));
    RETURN_IF_ERROR(budget.Take(static_cast<int64_t>(2 * sizeof(Value) + name.size())));
    arguments.keywords.emplace_back(std::string(name), value);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Value> Interpreter::EvaluateItems(const Expression& expression) {
  RETURN_IF_ERROR(budget_.Take(static_cast<int64_t>(expression.operands.size() * sizeof(Value))));
  Items items;
  for (const ExpressionPtr& operand : expression.operands) {
    ASSIGN_OR_RETURN(Value item, Evaluate(*operand));
    items.push_back(std::move(item));
  }
  return expression.kind == Expression::Kind::kList ? Value(std::move(items)) : Value::MakeTuple(std::move(items));
}

absl::StatusOr<Value> Interpreter::EvaluateDict(const Expression& expression) {
  Dict dict;
  for (size_t i = 0; i < expression.operands.size(); i += 2) {
    ASSIGN_OR_RETURN(const Value key, Evaluate(*expression.operands[i]));
    ASSIGN_OR_RETURN(Value item, Evaluate(*expression.operands[i + 1]));
    RETURN_IF_ERROR(SetInDict(dict, key, std::move(item), budget_));
  }
  return Value(std::move(dict));
}

absl::StatusOr<Value> Interpreter::EvaluateAttribute(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value owner, Evaluate(*expression.operands[0]));
  if (Loop* const loop = AsLoop(owner)) return AttributeOfLoop(owner, *loop, expression.name);
  return AttributeOf(owner, expression.name, budget_);
}

absl::StatusOr<Value> Interpreter::EvaluateItem(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value owner, Evaluate(*expression.operands[0]));
  ASSIGN_OR_RETURN(const Value key, Evaluate(*expression.operands[1]));
  Loop* const loop = AsLoop(owner);
  if (loop != nullptr && key.is_string()) return AttributeOfLoop(owner, *loop, key.string());
  return ItemOf(owner, key, budget_);
}

absl::StatusOr<Value> Interpreter::EvaluateSlice(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value owner, Evaluate(*expression.operands[0]));
  std::optional<Value> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expression.operands[i + 1] == nullptr) continue;
    ASSIGN_OR_RETURN(bounds[i], Evaluate(*expression.operands[i + 1]));
  }
  const auto given = [&](size_t i) { return bounds[i].has_value() ? &*bounds[i] : nullptr; };
  return SliceOf(owner, given(0), given(1), given(2), budget_);
}

absl::StatusOr<Value> Interpreter::EvaluateLogic(const Expression& expression) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*expression.operands[0]));
  if (expression.kind == Expression::Kind::kNot) return Value(!IsTrue(left));
  if (IsTrue(left) == (expression.kind == Expression::Kind::kOr)) return left;
  return Evaluate(*expression.operands[1]);
}

absl::StatusOr<Value> Interpreter::EvaluateCompare(const Expression& expression) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*expression.operands[0]));
  for (size_t i = 0; i < expression.names.size(); ++i) {
    ASSIGN_OR_RETURN(Value right, Evaluate(*expression.operands[i + 1]));
    ASSIGN_OR_RETURN(const bool holds, Compare(expression.names[i], left, right, budget_));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

absl::StatusOr<Value> Interpreter::EvaluateArithmetic(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value left, Evaluate(*expression.operands[0]));
  if (expression.kind == Expression::Kind::kNegative) return Negate(left);
  if (expression.kind == Expression::Kind::kPositive) {
    if (left.is_undefined()) return UndefinedError(left);
    if (left.is_float()) return left;
    ASSIGN_OR_RETURN(const int64_t number, IntegerOf(left, "the value"));
    return Value(number);
  }
  ASSIGN_OR_RETURN(const Value right, Evaluate(*expression.operands[1]));
  return Calculate(expression.name, left, right, budget_);
}

absl::StatusOr<Value> Interpreter::EvaluateConcatenation(const Expression& expression) {
  std::string all;
  for (const ExpressionPtr& operand : expression.operands) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*operand));
    ASSIGN_OR_RETURN(const std::string text, ToText(value, budget_));
    all += text;
  }
  return Value(std::move(all));
}

absl::StatusOr<Value> Interpreter::EvaluateConditional(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value condition, Evaluate(*expression.operands[1]));
  if (IsTrue(condition)) return Evaluate(*expression.operands[0]);
  if (expression.operands[2] != nullptr) return Evaluate(*expression.operands[2]);
  return Value::MakeUndefined("the condition of an if without else does not hold");
}

absl::StatusOr<Value> Interpreter::EvaluateFilter(const Expression& expression) {
  Value input = captured_;
  if (expression.operands[0] != nullptr) {
    ASSIGN_OR_RETURN(input, Evaluate(*expression.operands[0]));
  }
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression));
  return expression.filter->apply(input, arguments, budget_);
}

absl::StatusOr<Value> Interpreter::EvaluateTest(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0]));
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression));
  ASSIGN_OR_RETURN(const bool holds, expression.test->holds(value, arguments, budget_));
  return Value(holds);
}

absl::StatusOr<Arguments> Interpreter::EvaluateArguments(const Expression& call) {
  Arguments arguments;
  for (size_t i = 1; i < call.operands.size(); ++i) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*call.operands[i]));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, expression] : call.keywords) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expression));
    arguments.keywords.emplace_back(name, std::move(value));
  }
  if (call.list != nullptr) {
    ASSIGN_OR_RETURN(const Value list, Evaluate(*call.list));
    ASSIGN_OR_RETURN(const Items items, At(call.list->position, ItemsOf(list, budget_)));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  if (call.dict != nullptr) {
    ASSIGN_OR_RETURN(const Value dict, Evaluate(*call.dict));
    RETURN_IF_ERROR(At(call.dict->position, AppendKeywords(dict, arguments, budget_)));
  }
  return arguments;
}

absl::StatusOr<Value> Interpreter::EvaluateCall(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value callee, Evaluate(*expression.operands[0]));
  ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(expression));
  if (callee.is_undefined()) return UndefinedError(callee);
  const std::shared_ptr<Object> object = callee.is_object() ? callee.object() : nullptr;
  if (const auto* const macro = dynamic_cast<const Macro*>(object.get()))
    return CallMacro(*macro, std::move(arguments));
  if (const auto* const function = dynamic_cast<const Function*>(object.get())) {
    ASSIGN_OR_RETURN(Value result, CallFunction(function->name, arguments, options_.now, budget_));
    if (result.is_object() && dynamic_cast<Namespace*>(result.object().get()) != nullptr) {
      RETURN_IF_ERROR(budget_.Take(sizeof(Namespace)));
      kept_objects_.push_back(result.object());
    }
    return result;
  }
  if (const auto* const method = dynamic_cast<const Method*>(object.get())) {
    if (const Loop* const loop = AsLoop(method->owner)) return loop->Cycle(arguments);
    return CallMethod(*method, arguments, budget_);
  }
  return absl::InvalidArgumentError(absl::StrCat(callee.type_text(), " cannot be called"));
}

absl::StatusOr<Value> Interpreter::CallMacro(const Macro& macro, Arguments arguments) {
  const std::vector<Parameter>& parameters = macro.definition.parameters;
  std::vector<const char*> names;
  for (const Parameter& parameter : parameters) names.push_back(parameter.name.c_str());
  Value caller = Value::MakeUndefined("no caller: the macro is not called by {% call %}");
  const bool takes_caller =
      macro.definition.names_caller && std::find(names.begin(), names.end(), kCaller) == names.end();
  const auto given = std::find_if(arguments.keywords.begin(), arguments.keywords.end(),
                                  [](const auto& argument) { return argument.first == kCaller; });
  if (takes_caller && given != arguments.keywords.end()) {
    caller = given->second;
    arguments.keywords.erase(given);
  }
  ASSIGN_OR_RETURN(const std::vector<const Value*> bound, Bind(arguments, names));
  auto scope = std::make_shared<Scope>(Scope{macro.scope});
  RETURN_IF_ERROR(budget_.Take(static_cast<int64_t>((1 + parameters.size()) * sizeof(Scope))));
  for (size_t i = 0; i < parameters.size(); ++i) {
    Value value = Value::MakeUndefined(absl::StrCat("parameter \"", names[i], "\" was not provided"));
    if (bound[i] != nullptr) {
      value = *bound[i];
    } else if (parameters[i].fallback != nullptr) {  // which sees the parameters before it
      const std::shared_ptr<Scope> before = std::exchange(scope_, scope);
      auto fallback = Evaluate(*parameters[i].fallback);
      scope_ = before;
      ASSIGN_OR_RETURN(value, std::move(fallback));
    }
    scope->Set(parameters[i].name, std::move(value));
  }
  if (takes_caller) scope->Set(kCaller, std::move(caller));
  ASSIGN_OR_RETURN(std::string text, Capture(macro.definition.bodies[0], std::move(scope)));
  return Value(std::move(text));
}

}  // namespace holdfast::jinja
