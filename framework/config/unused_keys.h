#pragma once
// Keys that nothing reads, because of the value of another key. Pure.

#include <vector>

#include "framework/config/config.h"
#include "framework/config/validate.h"

namespace holdfast {

/// One violation for each such key that is neither at its default nor at what its family presets, which is in `preset`:
/// whoever sets it expects it to do something. A resolved config has all keys, so these pass. experts_per_token,
/// router_normalize and shared_expert_gate are not looked at.
std::vector<Violation> UnusedKeys(const Config& config, const ModelConfig& preset);

}  // namespace holdfast
