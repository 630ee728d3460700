#pragma once
// How a layer sends rows of its activations to other ranks and gets theirs (tokens to experts and back). How many go
// where depends on data, so their numbers are exchanged first:
//
//   ASSIGN_OR_RETURN(auto from, exchange.AllToAllCounts(to_experts, experts_of_rank));  // (ranks, experts here)
//   RETURN_IF_ERROR(exchange.AllToAllRows({rows, sent, starts}, {here, received, starts_here}, row_bytes));
//
// All members call the same in the same order. An error (a peer lost, a stop requested) ends the step.
//
// What a pass can compute without the rows it waits for, it computes beside their exchange:
//
//   const int64_t there = exchange.Begin([&](kernels::Ops& ops) { return exchange.AllToAllRows(...); });
//   ...                                     // neither changes what is sent nor looks at what comes
//   RETURN_IF_ERROR(exchange.Wait(there));

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/tensor/tensor.h"

namespace holdfast {

/// Rows of device memory with one slice for each rank: slice r is rows [starts[r], starts[r] + counts[r]).
template <typename Pointer>
struct RowSlices {
  Pointer rows = nullptr;
  absl::Span<const int64_t> counts, starts;  // (size)
};

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

  /// Slice r of `result` = slice rank() of the `rows` of rank r. Slices must not overlap, nor may the two memories. May
  /// queue work on the pass's stream: neither may be changed before it has passed. InvalidArgument if a number of rows
  /// is negative.
  virtual absl::Status AllToAllRows(RowSlices<const void*> rows, RowSlices<void*> result, int64_t row_bytes) = 0;

  /// Exchanges, and the operations between them, which go to the `ops` that it is given.
  using Work = std::function<absl::Status(kernels::Ops& ops)>;
  /// Has `work` done after what was begun before it, and returns its number, from 1. It finds what the pass's stream
  /// has written until now. Until all that was begun is waited for or abandoned, only it exchanges rows; numbers may be
  /// exchanged, and are after it.
  virtual int64_t Begin(Work work) = 0;
  /// Until the work of that number is done, and what was begun before it; the first error of these.
  virtual absl::Status Wait(int64_t number) = 0;
  /// Ends what is under way, with the others', if there is any: the pass has failed, and its memory is taken back.
  virtual void Abandon() = 0;
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
  absl::Status AllToAllRows(RowSlices<const void*> rows, RowSlices<void*> result, int64_t row_bytes) override;
  /// Does it at once.
  int64_t Begin(Work work) override;
  absl::Status Wait(int64_t number) override;
  void Abandon() override {}

 private:
  kernels::Ops& ops_;
  absl::Status failure_;
};

}  // namespace holdfast
