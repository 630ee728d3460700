#pragma once

#include <cstdint>

namespace holdfast {

/// Mean loss on the validation set, with the state after a step.
struct ValidationResult {
  int64_t step = 0;
  double loss = 0;
  friend bool operator==(const ValidationResult&, const ValidationResult&) = default;
};

}  // namespace holdfast
