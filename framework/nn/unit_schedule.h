#pragma once
// In which order a pass of a model uses its units. It is the same for every microbatch, so whoever moves weights and
// gradients can work ahead of the model, and can take part in the moves without computing.

#include <cstdint>
#include <vector>

namespace holdfast {

/// One call of a UnitStore.
struct StoreCall {
  enum class Kind : uint8_t { kAcquire, kRelease, kBeginGradients, kEndGradients };
  Kind kind = Kind::kAcquire;
  int unit = 0;
  friend bool operator==(const StoreCall&, const StoreCall&) = default;
};

using UnitSchedule = std::vector<StoreCall>;

}  // namespace holdfast
