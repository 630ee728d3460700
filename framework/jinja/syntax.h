#pragma once
// A template as a tree.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/jinja/value.h"

namespace holdfast::jinja {

struct Filter;
struct Test;
struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Expression {
  enum class Kind {
    kConstant,     // value
    kName,         // name
    kList,         // operands
    kTuple,        // operands
    kDict,         // operands: key, value, key, value
    kAttribute,    // operands[0] . name
    kItem,         // operands[0] [ operands[1] ]
    kSlice,        // operands[0] [ operands[1] : operands[2] : operands[3] ], each of which may be null
    kCall,         // operands[0] ( the others, keywords, list, dict )
    kFilter,       // operands[0] | filter ( as a call ); operands[0] is null for a block's
    kTest,         // operands[0] is test ( as a call )
    kNot,          // operands[0]
    kNegative,     // - operands[0]
    kPositive,     // + operands[0]
    kAnd,          // operands[0], operands[1]
    kOr,           //
    kCompare,      // operands[0] names[0] operands[1] names[1] ...
    kArithmetic,   // operands[0] name operands[1]
    kConcatenate,  // operands, "~" between them
    kConditional,  // operands[0] if operands[1] else operands[2], which may be null
  };

  Kind kind = Kind::kConstant;
  size_t position = 0;  // in the source
  int depth = 1;        // of the tree below
  Value value = {};
  std::string name = {};
  std::vector<std::string> names = {};
  std::vector<ExpressionPtr> operands = {};
  std::vector<std::pair<std::string, ExpressionPtr>> keywords = {};
  ExpressionPtr list = {}, dict = {};  // what a call has behind "*" and "**", or null
  const Filter* filter = nullptr;
  const Test* test = nullptr;
};

/// What is assigned to: a name, an attribute of a namespace, or a tuple of these.
struct Target {
  size_t position = 0;
  std::string name = {};
  std::string attribute = {};      // empty: the name itself
  std::vector<Target> parts = {};  // of a tuple, which has no name
};

struct Statement;
using Statements = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  // null: undefined
};

struct Statement {
  enum class Kind {
    kText,        // text
    kOutput,      // expression
    kIf,          // conditions[i]: bodies[i]; one body more is that of else
    kFor,         // target in expression if condition (or null): bodies[0], else bodies[1]
    kSet,         // target = expression
    kSetBlock,    // target = bodies[0], through expression, a filter (or null)
    kFilter,      // bodies[0] through expression, a filter
    kMacro,       // text: its name; parameters; bodies[0]
    kCall,        // expression, a call of a macro whose caller() is a macro of parameters and bodies[0]
    kGeneration,  // bodies[0]
    kBreak,
    kContinue,
  };

  Kind kind = Kind::kText;
  size_t position = 0;
  std::string text = {};
  Target target = {};
  ExpressionPtr expression = {};
  ExpressionPtr condition = {};
  std::vector<ExpressionPtr> conditions = {};
  std::vector<Statements> bodies = {};
  std::vector<Parameter> parameters = {};
  bool names_caller = false;  // kMacro, kCall: whether the body has the name "caller"
};

struct TemplateNode {
  std::string source;  // normalized
  Statements body;
  bool marks_generation = false;
};

}  // namespace holdfast::jinja
