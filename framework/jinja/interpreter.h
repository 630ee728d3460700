#pragma once
// Runs a template's tree.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/jinja/budget.h"
#include "framework/jinja/objects.h"
#include "framework/jinja/syntax.h"
#include "framework/jinja/template.h"

namespace holdfast::jinja {

/// Variables by name, and those of the scope around. A loop's body, a macro and a block that is captured have their
/// own.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<absl::string_view, Value>> variables = {};  // names live in the tree

  void Set(absl::string_view name, Value value);
  const Value* Find(absl::string_view name) const;
};

/// One rendering.
class Interpreter {
 public:
  Interpreter(const TemplateNode& root, const Dict& variables, const RenderOptions& options);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  absl::StatusOr<Rendered> Run();

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Nesting;
  class Macro;

  absl::StatusOr<Flow> Execute(const Statements& statements);
  absl::StatusOr<Flow> Execute(const Statement& statement);
  absl::StatusOr<Flow> ExecuteIf(const Statement& statement);
  absl::StatusOr<Flow> ExecuteFor(const Statement& statement);
  absl::StatusOr<bool> RunLoop(const Statement& statement, const Items& items);
  absl::Status SetFromBlock(const Statement& statement);
  absl::Status ExecuteFilter(const Statement& statement);
  absl::Status DefineMacro(const Statement& statement);
  absl::Status ExecuteCall(const Statement& statement);
  /// Sees the variables of where it is made.
  absl::StatusOr<Value> MakeMacro(const Statement& statement);
  absl::Status ExecuteGeneration(const Statement& statement);
  absl::Status Write(absl::string_view text);
  absl::Status WriteValue(const Value& value);
  /// What `body` writes in a scope of its own inside `outer`.
  absl::StatusOr<std::string> Capture(const Statements& body, std::shared_ptr<Scope> scope);
  absl::Status Assign(const Target& target, const Value& value);

  absl::StatusOr<Value> Evaluate(const Expression& expression);
  absl::StatusOr<Value> EvaluateKind(const Expression& expression);
  absl::StatusOr<Value> EvaluateItems(const Expression& expression);
  absl::StatusOr<Value> EvaluateDict(const Expression& expression);
  absl::StatusOr<Value> EvaluateAttribute(const Expression& expression);
  absl::StatusOr<Value> EvaluateItem(const Expression& expression);
  absl::StatusOr<Value> EvaluateSlice(const Expression& expression);
  absl::StatusOr<Value> EvaluateLogic(const Expression& expression);
  absl::StatusOr<Value> EvaluateCompare(const Expression& expression);
  absl::StatusOr<Value> EvaluateArithmetic(const Expression& expression);
  absl::StatusOr<Value> EvaluateConcatenation(const Expression& expression);
  absl::StatusOr<Value> EvaluateConditional(const Expression& expression);
  absl::StatusOr<Value> EvaluateFilter(const Expression& expression);
  absl::StatusOr<Value> EvaluateTest(const Expression& expression);
  absl::StatusOr<Value> EvaluateCall(const Expression& expression);
  absl::StatusOr<Value> CallMacro(const Macro& macro, Arguments arguments);
  absl::StatusOr<Arguments> EvaluateArguments(const Expression& call);
  Value Lookup(absl::string_view name) const;
  /// Remembers where the first error came from.
  template <typename Result>
  Result At(size_t position, Result result) {
    if (!result.ok() && !failed_at_.has_value()) failed_at_ = position;
    return result;
  }

  const TemplateNode& root_;
  const Dict& variables_;
  const RenderOptions& options_;
  Budget budget_;
  std::shared_ptr<Scope> scope_;
  Rendered rendered_;
  std::string* out_;  // where text goes
  Value captured_;    // what the filters of a block are applied to
  std::optional<size_t> failed_at_;
  int depth_ = 0;
  // What values may hold that hold those values in turn; emptied at the end.
  std::vector<std::shared_ptr<Scope>> kept_scopes_;
  std::vector<std::shared_ptr<Object>> kept_objects_;
};

}  // namespace holdfast::jinja
