#pragma once
// --dtype of commands that compute with a saved model, and of those that write one.

#include <map>
#include <string>

#include "CLI/CLI.hpp"
#include "checkpoint/safetensors.h"
#include "framework/config/config.h"

namespace holdfast {

inline void AddDTypeOption(CLI::App& command, ComputeDType& dtype) {
  const std::map<std::string, ComputeDType> names = {{"bf16", ComputeDType::kBF16}, {"f32", ComputeDType::kF32}};
  command.add_option("--dtype", dtype, "what matrices and activations are in: bf16 (the default) or f32")
      ->transform(CLI::CheckedTransformer(names));
}

/// `dtype`: a FileDType, or an optional one.
template <typename T>
CLI::Option* AddFileDTypeOption(CLI::App& command, T& dtype, const std::string& help) {
  static const std::map<std::string, FileDType> names = {
      {"f32", FileDType::kF32}, {"bf16", FileDType::kBF16}, {"f16", FileDType::kF16}};
  // Not a CheckedTransformer: of values of one byte its help and errors show the byte.
  const auto set = [&dtype](const std::string& name) { dtype = names.at(name); };
  return command.add_option_function<std::string>("--dtype", set, help)->check(CLI::IsMember({"f32", "bf16", "f16"}));
}

}  // namespace holdfast
