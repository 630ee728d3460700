#pragma once
// What the trainer needs from a model, and what a model needs from whoever holds its weights. The model says when it
// uses a unit and when a unit's gradient is finished; where weights come from and gradients go to (resident, gathered
// from other workers, reduced over them) is decided behind UnitStore.

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/nn/layout.h"
#include "framework/nn/part_store.h"
#include "framework/nn/statistics.h"
#include "framework/tensor/tensor.h"

namespace holdfast {

/// Whether a gradient is to be written, or its parameter is frozen; the same in a planning pass, which has no data.
inline bool Wanted(const Tensor& gradient) { return gradient.shape.rank() > 0; }

/// Thread-safety: none; one step at a time.
class UnitStore {
 public:
  virtual ~UnitStore() = default;

  /// The weights of a unit, in its parameters' order: matrices in the compute dtype, vectors in fp32. Readable until
  /// Release. An error (a peer lost, a stop requested) ends the step; the caller passes it on.
  virtual absl::StatusOr<absl::Span<const Tensor>> Acquire(int unit) = 0;
  virtual void Release(int unit) = 0;

  /// fp32 tensors to overwrite with this microbatch's gradients of the unit; EndGradients when all are written. Those
  /// of frozen parameters have no shape (Wanted): nothing is written there.
  virtual absl::StatusOr<absl::Span<const Tensor>> BeginGradients(int unit) = 0;
  virtual absl::Status EndGradients(int unit) = 0;
};

/// One array of a model's batches.
struct BatchArray {
  const char* name;
  int64_t elements;  // 4-byte values for each of the B * T rows, at most
};

/// Device views of one microbatch: B samples of T positions, and what the model reads of them.
struct Batch {
  static constexpr size_t kMaxArrays = 8;

  int64_t batch = 0, sequence = 0;
  std::array<const void*, kMaxArrays> arrays{};  // as Model::batch_arrays says; null: not there, or a planning pass

  template <typename T>
  const T* array(size_t i) const {
    return static_cast<const T*>(arrays[i]);
  }
};

/// One pass over a microbatch.
struct PassContext {
  kernels::Ops* ops = nullptr;
  Arena* arena = nullptr;
  UnitStore* store = nullptr;
  kernels::RandomKey random;  // seed, step (from 1), microbatch; the model fills in the site
  float loss_scale = 1;       // gradient of each loss: 1 / (rows of the global batch)
  float counted = 1;          // of the rows here, the share whose losses count
  // Where a training pass writes Model::statistics: device memory, laid out as they are, zero before the pass. Null:
  // nobody asks for them.
  void* statistics = nullptr;
  // Null: units that are cut at parts are acquired like all others. Else their parts are computed where they lie.
  PartStore* parts = nullptr;
};

/// A trainable model: forward and backward written out. Stateless but for its config. What its inputs are and what it
/// is good for besides being trained (models/language_model.h) is no concern of a trainer.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ParameterLayout& layout() const = 0;
  virtual DType compute_dtype() const = 0;
  /// The arrays that its batches consist of, at most Batch::kMaxArrays.
  virtual absl::Span<const BatchArray> batch_arrays() const = 0;
  /// What its training passes hand over for each microbatch beside losses. "loss" is taken: their sum.
  virtual const StatisticsLayout& statistics() const {
    static const StatisticsLayout none;
    return none;
  }

  /// What the line of a step in metrics.jsonl says of its statistics.
  virtual std::vector<Figure> Figures(const Statistics& /*step*/) const { return {}; }

  /// Losses of every row into `losses` (B * T, fp32, 0 where not counted) and gradients into the store.
  virtual absl::Status ForwardBackward(const Batch& batch, const PassContext& context, float* losses) = 0;

  /// Losses only; no dropout, no gradients.
  virtual absl::Status Evaluate(const Batch& batch, const PassContext& context, float* losses) = 0;

  /// Takes part in such a pass of others without a microbatch of its own: computes for them the parts of units that it
  /// serves (context.parts is there). `shape`: of their microbatches, without data.
  virtual absl::Status Serve(const Batch& /*shape*/, const PassContext& /*context*/, bool /*training*/) {
    return absl::OkStatus();
  }
};

}  // namespace holdfast
