#pragma once
// A macro as a value.

#include <memory>
#include <utility>

#include "framework/jinja/interpreter.h"

namespace holdfast::jinja {

class Interpreter::Macro final : public Object {
 public:
  Macro(const Statement& macro_definition, std::shared_ptr<Scope> defined_in)
      : definition(macro_definition), scope(std::move(defined_in)) {}
  const char* type_name() const override { return "macro"; }

  const Statement& definition;
  std::shared_ptr<Scope> scope;  // whose variables it sees
};

}  // namespace holdfast::jinja
