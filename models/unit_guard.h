#pragma once
// Holds the weights of a unit and releases them, also when a pass ends early.

#include "absl/status/statusor.h"
#include "framework/base/status.h"
#include "framework/nn/model.h"
#include "models/pass.h"

namespace holdfast {

class AcquiredUnit {
 public:
  static absl::StatusOr<AcquiredUnit> Acquire(UnitStore& store, int unit) {
    ASSIGN_OR_RETURN(const UnitTensors weights, store.Acquire(unit));
    return AcquiredUnit(store, unit, weights);
  }
  AcquiredUnit(AcquiredUnit&& other) noexcept { *this = std::move(other); }
  AcquiredUnit& operator=(AcquiredUnit&& other) noexcept {
    std::swap(store_, other.store_);
    std::swap(unit_, other.unit_);
    std::swap(weights_, other.weights_);
    return *this;
  }
  ~AcquiredUnit() {
    if (store_ != nullptr) store_->Release(unit_);
  }

  UnitTensors weights() const { return weights_; }

 private:
  AcquiredUnit(UnitStore& store, int unit, UnitTensors weights) : store_(&store), unit_(unit), weights_(weights) {}

  UnitStore* store_ = nullptr;
  int unit_ = 0;
  UnitTensors weights_;
};

}  // namespace holdfast
