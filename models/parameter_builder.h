#pragma once
// Collects parameters while modules are constructed. Every module describes its own parameters here and keeps their
// indices, so names, shapes and use stand in one place.
//
//   ParameterBuilder builder;
//   builder.BeginUnit("blocks.0");
//   Linear up(builder, "blocks.0.mlp.up", {.in = 768, .out = 3072, .bias = true, .init_std = 0.02f});
//   ParameterLayout layout = std::move(builder).Build();

#include <string>
#include <utility>
#include <vector>

#include "framework/nn/layout.h"

namespace holdfast {

class ParameterBuilder {
 public:
  void BeginUnit(std::string name) {
    unit_names_.push_back(std::move(name));
    index_in_unit_ = 0;
    part_ = -1;
  }

  /// What follows, until the next one or the end of the unit, is part `part` of it (ParameterSpec::part).
  void BeginPart(int part) { part_ = part; }

  /// A matrix, normally distributed and decayed. Returns its index in the unit.
  int AddMatrix(const std::string& name, int64_t rows, int64_t cols, float init_std, bool hidden = false) {
    return Add({.name = name,
                .shape = {rows, cols},
                .init = InitKind::kNormal,
                .init_std = init_std,
                .decay = true,
                .hidden = hidden});
  }

  /// One that forward and backward read in fp32 always.
  int AddFp32Matrix(const std::string& name, int64_t rows, int64_t cols, float init_std) {
    const int index = AddMatrix(name, rows, cols, init_std);
    parameters_.back().fp32 = true;
    return index;
  }

  /// A bias or a norm's weight, not decayed. Returns its index in the unit.
  int AddVector(const std::string& name, int64_t elements, InitKind init) {
    return Add({.name = name, .shape = {elements}, .init = init});
  }

  /// One of zeros that counts of a step change, instead of a gradient.
  int AddBalanced(const std::string& name, int64_t elements, Balance balance) {
    return Add({.name = name, .shape = {elements}, .init = InitKind::kZeros, .balance = std::move(balance)});
  }

  ParameterLayout Build() && { return ParameterLayout(std::move(parameters_), std::move(unit_names_)); }

 private:
  int Add(ParameterSpec spec) {
    spec.unit = static_cast<int>(unit_names_.size()) - 1;
    spec.part = part_;
    parameters_.push_back(std::move(spec));
    return index_in_unit_++;
  }

  std::vector<ParameterSpec> parameters_;
  std::vector<std::string> unit_names_;
  int index_in_unit_ = 0;
  int part_ = -1;
};

}  // namespace holdfast
