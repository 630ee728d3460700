#pragma once
// The updates that an optimizer makes of whole matrices (Optimizer::TakesWhole), in a world of any size. Each such
// matrix has an owner, balanced over the ranks by work: the ranks that sum the matrix's gradient send it what they
// contribute, it makes the update, and every holder of a part of the matrix, mirrors included, receives its part. So
// all apply the same bits, on whichever device, and whoever was the owner. No state is changed.

#include <chrono>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/comm/communicator.h"
#include "framework/parallel/reducer.h"
#include "framework/parallel/sharded_state.h"
#include "framework/parallel/step_progress.h"

namespace holdfast {

/// By parameter: the rank of `size` that makes its update, or -1 where the optimizer does not take it whole. The
/// largest first, each to the rank that has the least work so far.
std::vector<int> OwnersOfMatrices(const ParameterLayout& layout, const Optimizer& optimizer, int size);

/// Bytes that this takes on one of `size` ranks that holds `held` of the state and sums 1 / `size` of it.
double WholeUpdateBytes(const ParameterLayout& layout, const Optimizer& optimizer, int size, double held);

/// Thread-safety: none. Uses the world's communicator, which nobody else may use at the same time.
class WholeUpdates {
 public:
  struct Dependencies {
    const Optimizer* optimizer = nullptr;
    const ShardedState* state = nullptr;
    int rank = 0;
    Communicator* world = nullptr;  // null in a world of one
    Device* device = nullptr;
    Stream* stream = nullptr;
    StepProgress* progress = nullptr;
    std::chrono::milliseconds timeout{0};  // of one exchange
  };

  /// Everything in `dependencies` must outlive it. Takes no memory if the optimizer takes nothing whole.
  static absl::StatusOr<std::unique_ptr<WholeUpdates>> Create(const Dependencies& dependencies);

  /// Makes the updates of a step whose finished gradients are `gradients` (of all chunks held here). Every rank calls
  /// it alike. Cancelled soon after `stop` is requested.
  absl::Status Prepare(absl::Span<const GradientPiece> gradients, const UpdateScalars& scalars,
                       const std::stop_token& stop);

  /// After Prepare, until the next one: by chunk, as UpdateArguments has it.
  absl::Span<const float* const> updates() const { return updates_; }

 private:
  /// Neighbouring chunks of one matrix, in a buffer.
  struct BufferRange {
    int first = 0, end = 0;  // chunks
    int64_t at = 0;          // element of the buffer
    int64_t elements = 0;
  };
  /// A buffer of ranges: those of rank 0, then those of rank 1, ... Ranks and matrices begin aligned.
  struct Side {
    std::vector<BufferRange> ranges;
    std::vector<int64_t> counts, starts;  // bytes, by rank
    int64_t elements = 0;
    int64_t first_of_rank = 0;
    size_t first_range = 0;

    void Add(int chunk, const Chunk& what);
    void EndRank();
  };

  explicit WholeUpdates(const Dependencies& dependencies);
  void Plan();
  bool TakesNothing() const;
  absl::Status Allocate();
  absl::Status Exchange(const Side& out, float* from, const Side& in, float* to);
  absl::Status MakeMine(const std::stop_token& stop);
  void Copy(float* to, const float* from, int64_t elements) const;
  /// Where a chunk of a matrix that is owned here lies in matrices_.
  int64_t PlaceOf(int chunk) const;

  const Dependencies deps_;
  const ShardMap& map_;
  const ParameterLayout& layout_;
  std::vector<int> owner_;        // by parameter
  std::vector<int64_t> place_;    // by parameter: of the matrices owned here, element of matrices_
  std::vector<int> mine_;         // parameters owned here
  Side contributed_, collected_;  // to owners; from those that sum
  Side shipped_, updated_;        // to holders; from owners
  int64_t owned_elements_ = 0;
  Buffer sent_, received_, matrices_, update_, workspace_;
  std::vector<const float*> updates_;  // by chunk
};

}  // namespace holdfast
