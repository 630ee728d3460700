#pragma once
// --dtype of a command that computes with a saved model.

#include <map>
#include <string>

#include "CLI/CLI.hpp"
#include "framework/config/config.h"

namespace holdfast {

inline void AddDTypeOption(CLI::App& command, ComputeDType& dtype) {
  const std::map<std::string, ComputeDType> names = {{"bf16", ComputeDType::kBF16}, {"f32", ComputeDType::kF32}};
  command.add_option("--dtype", dtype, "what matrices and activations are in: bf16 (the default) or f32")
      ->transform(CLI::CheckedTransformer(names));
}

}  // namespace holdfast
