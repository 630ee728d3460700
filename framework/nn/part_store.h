#pragma once
// Units that are cut at parts (the experts of a layer) and computed where their state lies: rows of activations go to
// the rank that serves a part, and what it makes of them comes back (expert parallelism). A pass without a PartStore
// acquires such units whole, like all others; results have the same bits.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/nn/exchange.h"
#include "framework/tensor/tensor.h"

namespace holdfast {

/// One pass of a group of ranks, its members, of which some have a microbatch (homes) and all compute parts. All make
/// the same exchanges in the same order. An error (a peer lost, a stop requested) ends the step. Thread-safety: none.
class PartStore {
 public:
  virtual ~PartStore() = default;

  virtual Exchange& exchange() = 0;
  /// Members with a microbatch, ascending, as the numbers of their microbatches are. Not empty.
  virtual absl::Span<const int> homes() const = 0;
  /// Of each member the node on which it is, numbers from 0: bytes between members of one are cheap.
  virtual absl::Span<const int> nodes() const = 0;
  /// Of each part of `unit`, the member that computes it.
  virtual absl::Span<const int> ServersOf(int unit) const = 0;

  /// Weights of the parts that this rank computes, part after part, each as UnitStore::Acquire has them. They stay as
  /// they are for the whole step.
  virtual absl::StatusOr<absl::Span<const Tensor>> PartWeights(int unit) = 0;
  /// fp32 tensors, of the same parameters and without gaps between them, to overwrite with what the microbatch of
  /// `home` gives. Once for each home, also for one that sent no rows, in any order; then EndPartGradients, once.
  virtual absl::StatusOr<absl::Span<const Tensor>> BeginPartGradients(int unit, int home) = 0;
  virtual absl::Status EndPartGradients(int unit) = 0;

  /// Where a pass would wait for rows: of two passes that a rank has under way, the other one goes on here until it
  /// pauses, too, or ends. Every pass of a model pauses as often and at the same points, also one that only serves. An
  /// error if the other one has failed.
  virtual absl::Status Pause() { return absl::OkStatus(); }

  /// `n` integers of the device, when the pass's stream has written them.
  virtual absl::StatusOr<std::vector<int32_t>> Fetch(const int32_t* device, int64_t n) = 0;
  /// Writes them to the device, when the pass's stream no longer reads what was there.
  virtual absl::Status Put(absl::Span<const int32_t> values, int32_t* device) = 0;
};

}  // namespace holdfast
