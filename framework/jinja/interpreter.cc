#include "framework/jinja/interpreter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "framework/jinja/functions.h"
#include "framework/jinja/lexer.h"
#include "framework/jinja/loop.h"
#include "framework/jinja/macro.h"
#include "framework/jinja/operators.h"
#include "framework/jinja/python_text.h"

namespace holdfast::jinja {
namespace {

constexpr int kNestingMax = 600;      // of statements and expressions in each other, macros included
constexpr int kContainersMax = 100;   // in each other
constexpr int64_t kScopeBytes = 128;  // of an iteration, roughly

}  // namespace

// Counts what is in each other.
class Interpreter::Nesting {
 public:
  explicit Nesting(int& depth) : depth_(depth) { ++depth_; }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  absl::Status Check() const {
    return depth_ <= kNestingMax
               ? absl::OkStatus()
               : absl::ResourceExhaustedError("macros call each other too deep: do they call themselves without end?");
  }

 private:
  int& depth_;
};

void Scope::Set(absl::string_view name, Value value) {
  for (auto& [known, old] : variables) {
    if (known != name) continue;
    old = std::move(value);
    return;
  }
  variables.emplace_back(name, std::move(value));
}

const Value* Scope::Find(absl::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer.get()) {
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

Interpreter::Interpreter(const TemplateNode& root, const Dict& variables, const RenderOptions& options)
    : root_(root),
      variables_(variables),
      options_(options),
      budget_(options.steps_max, options.bytes_max),
      scope_(std::make_shared<Scope>()),
      out_(&rendered_.text) {
  kept_scopes_.push_back(scope_);
}

Interpreter::~Interpreter() {
  for (const auto& scope : kept_scopes_) scope->variables.clear();
  for (const auto& object : kept_objects_) static_cast<Namespace&>(*object).attributes = Dict();
}

absl::StatusOr<Rendered> Interpreter::Run() {
  const absl::Status status = Execute(root_.body).status();
  if (!status.ok()) return Locate(status, root_.source, failed_at_.value_or(0));
  return std::move(rendered_);
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const Statements& statements) {
  for (const Statement& statement : statements) {
    ASSIGN_OR_RETURN(const Flow flow, At(statement.position, Execute(statement)));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const Statement& statement) {
  const Nesting nesting(depth_);
  RETURN_IF_ERROR(nesting.Check());
  RETURN_IF_ERROR(budget_.Step());
  switch (statement.kind) {
    case Statement::Kind::kText:
      RETURN_IF_ERROR(Write(statement.text));
      break;
    case Statement::Kind::kOutput: {
      ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
      RETURN_IF_ERROR(WriteValue(value));
      break;
    }
    case Statement::Kind::kIf:
      return ExecuteIf(statement);
    case Statement::Kind::kFor:
      return ExecuteFor(statement);
    case Statement::Kind::kSet: {
      ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
      RETURN_IF_ERROR(Assign(statement.target, value));
      break;
    }
    case Statement::Kind::kSetBlock:
      RETURN_IF_ERROR(SetFromBlock(statement));
      break;
    case Statement::Kind::kFilter:
      RETURN_IF_ERROR(ExecuteFilter(statement));
      break;
    case Statement::Kind::kMacro:
      RETURN_IF_ERROR(DefineMacro(statement));
      break;
    case Statement::Kind::kCall:
      RETURN_IF_ERROR(ExecuteCall(statement));
      break;
    case Statement::Kind::kGeneration:
      RETURN_IF_ERROR(ExecuteGeneration(statement));
      break;
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

absl::Status Interpreter::Write(absl::string_view text) {
  RETURN_IF_ERROR(budget_.Take(static_cast<int64_t>(text.size())));
  absl::StrAppend(out_, text);
  return absl::OkStatus();
}

absl::Status Interpreter::WriteValue(const Value& value) {
  if (value.is_string()) return Write(value.string());
  ASSIGN_OR_RETURN(const std::string text, ToText(value, budget_));
  return Write(text);
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteIf(const Statement& statement) {
  for (size_t i = 0; i < statement.conditions.size(); ++i) {
    ASSIGN_OR_RETURN(const Value condition, Evaluate(*statement.conditions[i]));
    if (IsTrue(condition)) return Execute(statement.bodies[i]);
  }
  return statement.bodies.size() > statement.conditions.size() ? Execute(statement.bodies.back()) : Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteFor(const Statement& statement) {
  ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
  ASSIGN_OR_RETURN(const Items items, At(statement.expression->position, ItemsOf(value, budget_)));
  const auto ended = RunLoop(statement, items);
  RETURN_IF_ERROR(ended.status());
  if (*ended || statement.bodies.size() < 2) return Flow::kNext;
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>(Scope{outer});
  auto flow = Execute(statement.bodies[1]);
  scope_ = outer;
  return flow;
}

// Whether the end of the body was reached at least once: only then is the loop's else skipped, as in Jinja2.
absl::StatusOr<bool> Interpreter::RunLoop(const Statement& statement, const Items& items) {
  const std::shared_ptr<Scope> outer = scope_;
  const auto condition = [this, &statement, outer](const Value& item) -> absl::StatusOr<bool> {
    const std::shared_ptr<Scope> before = std::exchange(scope_, std::make_shared<Scope>(Scope{outer}));
    absl::StatusOr<Value> taken = Value();
    const absl::Status assigned = Assign(statement.target, item);
    taken = assigned.ok() ? Evaluate(*statement.condition) : absl::StatusOr<Value>(assigned);
    scope_ = before;
    RETURN_IF_ERROR(taken.status());
    return IsTrue(*taken);
  };
  const auto loop =
      std::make_shared<Loop>(items, statement.condition == nullptr ? nullptr : Loop::Condition(condition));
  bool completed = false;
  absl::Status status;
  while (status.ok()) {
    auto item = loop->Next();
    status = item.status();
    if (!status.ok() || !item->has_value()) break;
    scope_ = std::make_shared<Scope>(Scope{outer});
    scope_->Set("loop", Value(std::shared_ptr<Object>(loop)));
    status = budget_.Take(kScopeBytes);
    if (status.ok()) status = Assign(statement.target, **item);
    if (!status.ok()) break;
    const auto flow = Execute(statement.bodies[0]);
    status = flow.status();
    if (!status.ok() || *flow == Flow::kBreak) break;
    if (*flow == Flow::kNext) completed = true;
  }
  loop->End();
  scope_ = outer;
  RETURN_IF_ERROR(status);
  return completed;
}

absl::StatusOr<std::string> Interpreter::Capture(const Statements& body, std::shared_ptr<Scope> scope) {
  std::string text;
  std::string* const before_out = std::exchange(out_, &text);
  const std::shared_ptr<Scope> before_scope = std::exchange(scope_, std::move(scope));
  const absl::Status status = Execute(body).status();
  scope_ = before_scope;
  out_ = before_out;
  RETURN_IF_ERROR(status);
  return text;
}

absl::Status Interpreter::SetFromBlock(const Statement& statement) {
  ASSIGN_OR_RETURN(std::string text, Capture(statement.bodies[0], std::make_shared<Scope>(Scope{scope_})));
  captured_ = Value(std::move(text));
  if (statement.expression == nullptr) return Assign(statement.target, captured_);
  ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
  return Assign(statement.target, value);
}

absl::Status Interpreter::ExecuteFilter(const Statement& statement) {
  const auto scope = std::make_shared<Scope>(Scope{scope_});
  ASSIGN_OR_RETURN(std::string text, Capture(statement.bodies[0], scope));
  captured_ = Value(std::move(text));
  const std::shared_ptr<Scope> outer = std::exchange(scope_, scope);  // the arguments see what the block has set
  const auto filtered = Evaluate(*statement.expression);
  scope_ = outer;
  RETURN_IF_ERROR(filtered.status());
  ASSIGN_OR_RETURN(const absl::string_view result, StringOf(*filtered, "what the filter gives"));
  return Write(result);
}

absl::StatusOr<Value> Interpreter::MakeMacro(const Statement& statement) {
  kept_scopes_.push_back(scope_);
  RETURN_IF_ERROR(budget_.Take(kScopeBytes));
  return Value(std::shared_ptr<Object>(std::make_shared<Macro>(statement, scope_)));
}

absl::Status Interpreter::DefineMacro(const Statement& statement) {
  ASSIGN_OR_RETURN(Value macro, MakeMacro(statement));
  scope_->Set(statement.text, std::move(macro));
  return absl::OkStatus();
}

absl::Status Interpreter::ExecuteCall(const Statement& statement) {
  const Expression& call = *statement.expression;
  const Nesting nesting(depth_);  // of the call, which Evaluate does not count here
  RETURN_IF_ERROR(At(call.position, nesting.Check()));
  ASSIGN_OR_RETURN(Value caller, MakeMacro(statement));
  ASSIGN_OR_RETURN(const Value callee, Evaluate(*call.operands[0]));
  if (callee.is_undefined()) return At(call.position, UndefinedError(callee));
  const auto* const macro = callee.is_object() ? dynamic_cast<const Macro*>(callee.object().get()) : nullptr;
  if (macro == nullptr) {
    return At(call.position,
              absl::UnimplementedError(absl::StrCat("{% call %} of ", callee.type_text(), " is not supported")));
  }
  ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(call));
  arguments.keywords.emplace_back("caller", std::move(caller));
  ASSIGN_OR_RETURN(const Value text, At(call.position, CallMacro(*macro, std::move(arguments))));
  return Write(text.string());
}

absl::Status Interpreter::ExecuteGeneration(const Statement& statement) {
  const size_t begin = rendered_.text.size();
  const std::shared_ptr<Scope> outer = std::exchange(scope_, std::make_shared<Scope>(Scope{scope_}));
  const absl::Status status = Execute(statement.bodies[0]).status();
  scope_ = outer;
  RETURN_IF_ERROR(status);
  rendered_.generations.push_back({begin, rendered_.text.size()});
  return absl::OkStatus();
}

absl::Status Interpreter::Assign(const Target& target, const Value& value) {
  if (target.parts.empty() && target.attribute.empty()) {
    scope_->Set(target.name, value);
    return absl::OkStatus();
  }
  if (target.parts.empty()) {
    const Value owner = Lookup(target.name);
    auto* const space = owner.is_object() ? dynamic_cast<Namespace*>(owner.object().get()) : nullptr;
    if (space == nullptr) {
      return At(target.position, absl::InvalidArgumentError(absl::StrCat(
                                     "\"", target.name, "\" is no namespace, so its attributes cannot be set")));
    }
    RETURN_IF_ERROR(At(target.position, CheckAttributeName(target.attribute)));
    return SetInDict(space->attributes, Value(target.attribute), value, budget_);
  }
  ASSIGN_OR_RETURN(const Items items, At(target.position, ItemsOf(value, budget_)));
  if (items.size() != target.parts.size()) {
    return At(target.position,
              absl::InvalidArgumentError(absl::StrCat(items.size(), " values for ", target.parts.size(), " names")));
  }
  for (size_t i = 0; i < items.size(); ++i) RETURN_IF_ERROR(Assign(target.parts[i], items[i]));
  return absl::OkStatus();
}

Value Interpreter::Lookup(absl::string_view name) const {
  if (const Value* const found = scope_->Find(name)) return *found;
  if (const Value* const found = variables_.FindName(name)) return *found;
  if (IsFunction(name)) return Value(std::shared_ptr<Object>(std::make_shared<Function>(std::string(name))));
  return Value::MakeUndefined(absl::StrCat("\"", name, "\" is not defined"));
}

absl::StatusOr<Value> Interpreter::Evaluate(const Expression& expression) {
  const Nesting nesting(depth_);
  RETURN_IF_ERROR(At(expression.position, nesting.Check()));
  RETURN_IF_ERROR(At(expression.position, budget_.Step()));
  ASSIGN_OR_RETURN(Value value, At(expression.position, EvaluateKind(expression)));
  if (value.depth() > kContainersMax) {
    return At(expression.position, absl::ResourceExhaustedError("lists and dicts are more than 100 in each other"));
  }
  return value;
}

absl::StatusOr<Value> Interpreter::EvaluateKind(const Expression& expression) {
  using ExpressionKind = Expression::Kind;
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return expression.value;
    case ExpressionKind::kName:
      return Lookup(expression.name);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple:
      return EvaluateItems(expression);
    case ExpressionKind::kDict:
      return EvaluateDict(expression);
    case ExpressionKind::kAttribute:
      return EvaluateAttribute(expression);
    case ExpressionKind::kItem:
      return EvaluateItem(expression);
    case ExpressionKind::kSlice:
      return EvaluateSlice(expression);
    case ExpressionKind::kCall:
      return EvaluateCall(expression);
    case ExpressionKind::kFilter:
      return EvaluateFilter(expression);
    case ExpressionKind::kTest:
      return EvaluateTest(expression);
    case ExpressionKind::kNot:
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
      return EvaluateLogic(expression);
    case ExpressionKind::kCompare:
      return EvaluateCompare(expression);
    case ExpressionKind::kNegative:
    case ExpressionKind::kPositive:
    case ExpressionKind::kArithmetic:
      return EvaluateArithmetic(expression);
    case ExpressionKind::kConcatenate:
      return EvaluateConcatenation(expression);
    case ExpressionKind::kConditional:
      break;
  }
  return EvaluateConditional(expression);
}

}  // namespace holdfast::jinja
