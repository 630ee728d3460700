#pragma once
// --dtype of commands that compute with a saved model, and of those that write one.

#include <string>

#include "CLI/CLI.hpp"
#include "checkpoint/safetensors.h"
#include "framework/config/config.h"
#include "tools/cli/command.h"

namespace holdfast {

inline void AddDTypeOption(CLI::App& command, ComputeDType& dtype) {
  const Choices<ComputeDType> names = {{"bf16", ComputeDType::kBF16}, {"f32", ComputeDType::kF32}};
  AddChoice(command, "--dtype", dtype, names, "what matrices and activations are in: bf16 (the default) or f32");
}

/// `dtype`: a FileDType, or an optional one.
template <typename T>
CLI::Option* AddFileDTypeOption(CLI::App& command, T& dtype, const std::string& help) {
  const Choices<FileDType> names = {{"f32", FileDType::kF32}, {"bf16", FileDType::kBF16}, {"f16", FileDType::kF16}};
  return AddChoice(command, "--dtype", dtype, names, help);
}

}  // namespace holdfast
