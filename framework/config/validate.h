#pragma once
// Checks that need more than one key, and the values that follow from others. Pure.

#include <string>
#include <vector>

#include "framework/config/config.h"

namespace holdfast {

struct Violation {
  std::vector<std::string> keys;  // "section.key" of all keys involved, the likeliest culprit first
  std::string message;
};

/// Fills in what stands as 0 for a value derived from other keys: num_kv_heads, head_dim, intermediate_size.
/// schedule.decay_steps and train.threads stay 0: they follow a later --set train.steps and the machine.
void ResolveDerived(ModelConfig* model);

/// All violations of an unresolved or resolved config whose keys are each within their own range.
std::vector<Violation> ValidateConfig(const Config& config);

}  // namespace holdfast
