#pragma once
// An optimizer: which planes of state (framework/nn/state_layout.h) a parameter has, and how a step changes them. It
// knows arithmetic only; where the planes lie and who talks to whom is framework/parallel's business.
//
// A step has two phases. What prepares it changes no state and may need other ranks: an update that is a function of a
// whole matrix (TakesWhole) is made by one rank, its owner, from what the ranks that sum the matrix's gradient
// Contribute of it, and is handed to all that hold a part. Apply, after the commit, needs nobody and cannot fail.
//
//   const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(config.optimizer);
//   const StateLayout state = LayoutOf(*optimizer, model->layout());

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "framework/config/config.h"
#include "framework/nn/state_layout.h"
#include "framework/optim/update.h"
#include "framework/tensor/tensor.h"

namespace holdfast {

/// Neighbouring elements of one parameter, with their gradient.
struct PlaneRange {
  const ParameterSpec* parameter = nullptr;
  int64_t n = 0;
  absl::InlinedVector<float*, kMaxPlanes> planes;  // as Optimizer::PlanesOf lists them
  const float* gradient = nullptr;
  // What was made of the whole parameter, where the optimizer takes it whole, or of a step's counts (BalanceUpdates).
  const float* update = nullptr;
};

/// Immutable. All pointers are of the memory that `ops` works on; calls are queued there.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// The first one is the weight.
  virtual std::vector<Plane> PlanesOf(const ParameterSpec& parameter) const = 0;

  /// Whether the update of the parameter, a matrix, is a function of the whole of it.
  virtual bool TakesWhole(const ParameterSpec&) const { return false; }
  /// Of a parameter that is taken whole: `out` (range.n) becomes what MakeUpdate needs of these elements.
  virtual void Contribute(kernels::Ops&, const PlaneRange& /*range*/, const UpdateScalars&, float* /*out*/) const {}
  /// How many fp32 values MakeUpdate works on beside the matrix itself.
  virtual int64_t WorkspaceElements(const ParameterSpec&) const { return 0; }
  /// `matrix` (all rows and columns of the parameter) holds what was contributed, and becomes the update. The order of
  /// its sums depends on the shape only. May wait for the stream.
  virtual absl::Status MakeUpdate(Device&, Stream&, const ParameterSpec&, float* /*matrix*/,
                                  float* /*workspace*/) const {
    return absl::OkStatus();
  }

  /// The range's planes as they are after the step. `weight_bf16` (range.n), if not null, receives the new weight
  /// rounded.
  virtual void Apply(kernels::Ops& ops, const PlaneRange& range, const UpdateScalars& scalars,
                     uint16_t* weight_bf16) const = 0;
};

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerConfig& config);

/// Of a training state of these parameters. `parameters` must outlive it.
StateLayout LayoutOf(const Optimizer& optimizer, const ParameterLayout& parameters);

}  // namespace holdfast
