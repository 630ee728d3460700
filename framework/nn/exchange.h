#pragma once
// How a layer sends rows of its activations to other ranks and gets theirs (tokens to experts and back). How many go
// where depends on data, so their numbers are exchanged first:
//
//   ASSIGN_OR_RETURN(auto from, exchange.AllToAllCounts(to_experts, experts_of_rank));  // (ranks, experts here)
//   RETURN_IF_ERROR(exchange.AllToAllRows(rows, sent, received_rows, received, row_bytes));
//
// All members call the same in the same order. An error (a peer lost, a stop requested) ends the step.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/tensor/tensor.h"

namespace holdfast {

/// Thread-safety: none.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Of `counts` rank r gets per_rank[r] numbers, one rank's after the other. Returns (size, per_rank[rank()]): what
  /// each rank has for this one. `per_rank` is the same on all.
  virtual absl::StatusOr<std::vector<int64_t>> AllToAllCounts(absl::Span<const int64_t> counts,
                                                              absl::Span<const int64_t> per_rank) = 0;

  /// Of `rows` (device memory, row_bytes each) rank r gets sent[r], one rank's after the other; received[r] come from
  /// it, in the same order. May queue work on the pass's stream: `rows` and `result` must not change before it has
  /// passed.
  virtual absl::Status AllToAllRows(const void* rows, absl::Span<const int64_t> sent, void* result,
                                    absl::Span<const int64_t> received, int64_t row_bytes) = 0;
};

/// The exchange of a rank with itself.
class LocalExchange final : public Exchange {
 public:
  /// `ops`, of the pass's stream, must outlive it.
  explicit LocalExchange(kernels::Ops& ops) : ops_(ops) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  absl::StatusOr<std::vector<int64_t>> AllToAllCounts(absl::Span<const int64_t> counts,
                                                      absl::Span<const int64_t> per_rank) override;
  absl::Status AllToAllRows(const void* rows, absl::Span<const int64_t> sent, void* result,
                            absl::Span<const int64_t> received, int64_t row_bytes) override;

 private:
  kernels::Ops& ops_;
};

}  // namespace holdfast
