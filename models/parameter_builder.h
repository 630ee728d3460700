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
#include "models/parametrization.h"

namespace holdfast {

/// Adapters that modules are to have beside their parameters (models/adapter.h); of rank 0: none.
struct LoraOptions {
  int64_t rank = 0;
  float scale = 1, dropout = 0;
  bool query = false, key = false, value = false, output = false;  // of attention
  bool gate = false, up = false, down = false;                     // of dense MLPs
  bool experts = false, router = false;                            // of layers with experts
  bool shared_expert = false, shared_expert_gate = false;
  // One layer in the files of the model, with one adapter: query, key and value; gate and up of dense MLPs and
  // of a shared expert.
  bool one_qkv = false, one_gate_up = false;
};

class ParameterBuilder {
 public:
  explicit ParameterBuilder(const LoraOptions& lora = {}) : lora_(lora) {}
  const LoraOptions& lora() const { return lora_; }

  void BeginUnit(std::string name) {
    unit_names_.push_back(std::move(name));
    index_in_unit_ = 0;
    part_ = -1;
  }

  /// What follows, until the next one or the end of the unit, is part `part` of it (ParameterSpec::part).
  void BeginPart(int part) { part_ = part; }

  /// A matrix, normally distributed and decayed; a standard deviation of 0 stands for zeros. `fused`: see
  /// ParameterSpec. Returns its index in the unit.
  int AddMatrix(const std::string& name, int64_t rows, int64_t cols, float init_std, ParameterRole role,
                std::vector<int64_t> fused = {}) {
    return Add({.name = name,
                .shape = {rows, cols},
                .init = init_std == 0 ? InitKind::kZeros : InitKind::kNormal,
                .init_std = init_std,
                .decay = true,
                .hidden = IsHidden(role),
                .fused = std::move(fused)},
               role);
  }

  /// One whose few outputs choose or weigh experts: forward and backward read it in fp32 always.
  int AddRouter(const std::string& name, int64_t rows, int64_t cols, float init_std) {
    const int index = AddMatrix(name, rows, cols, init_std, ParameterRole::kRouter);
    parameters_.back().fp32 = true;
    return index;
  }

  /// A matrix of an adapter. `fp32`: see AddRouter.
  int AddAdapter(const std::string& name, int64_t rows, int64_t cols, float init_std, bool fp32 = false) {
    const int index = AddMatrix(name, rows, cols, init_std, ParameterRole::kAdapter);
    parameters_.back().adapter = true;
    parameters_.back().fp32 = fp32;
    return index;
  }
  /// Numbers adapters as they are made, from 0.
  int CountAdapter() { return num_adapters_++; }

  /// A bias, a norm's weight or sinks, not decayed. Returns its index in the unit.
  int AddVector(const std::string& name, int64_t elements, InitKind init, ParameterRole role) {
    return Add({.name = name, .shape = {elements}, .init = init}, role);
  }

  /// One of zeros that counts of a step change, instead of a gradient.
  int AddBalanced(const std::string& name, int64_t elements, Balance balance) {
    return Add({.name = name, .shape = {elements}, .init = InitKind::kZeros, .balance = std::move(balance)},
               ParameterRole::kVector);
  }

  /// Calls change(spec, role) with each, whose unit and name are known.
  template <typename Change>
  void ChangeEach(Change&& change) {
    for (size_t i = 0; i < parameters_.size(); ++i) change(parameters_[i], roles_[i]);
  }

  ParameterLayout Build() && { return ParameterLayout(std::move(parameters_), std::move(unit_names_)); }

 private:
  int Add(ParameterSpec spec, ParameterRole role) {
    spec.unit = static_cast<int>(unit_names_.size()) - 1;
    spec.part = part_;
    parameters_.push_back(std::move(spec));
    roles_.push_back(role);
    return index_in_unit_++;
  }

  LoraOptions lora_;
  int num_adapters_ = 0;
  std::vector<ParameterSpec> parameters_;
  std::vector<ParameterRole> roles_;  // of each
  std::vector<std::string> unit_names_;
  int index_in_unit_ = 0;
  int part_ = -1;
};

}  // namespace holdfast
