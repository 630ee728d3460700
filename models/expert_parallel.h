#pragma once
// The experts of a layer, each computed by the rank that serves its state (framework/nn/part_store.h): tokens travel to
// their experts and back. Every row gets the bits that it gets where the experts are acquired whole: an expert's rows
// of a microbatch lie in token order, products of rows do not depend on how many there are, and gradients are written
// microbatch by microbatch.
//
// Servers keep nothing between forward and backward: x comes again with the gradient, and what the forward pass made of
// it is computed again. So the memory that a layer needs is fixed, whatever the router does: there is room for twice
// as many rows as a microbatch sends; where more come to one rank, they come in rounds, home (PartStore) after home.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "models/pass.h"

namespace holdfast {

/// Which rows of a layer go from whom to whom, and in which rounds. Slots: see kernels/experts.h.
struct ExpertTraffic {
  struct Run {
    int64_t slot = 0, place = 0, count = 0;  // rows from `slot` on are sent from `place` on
  };
  std::vector<Run> order;                      // of what is sent: by member, then expert; empty: that of slots
  std::vector<int64_t> sent, places;           // by member: rows, and the place of the first
  std::vector<int64_t> sent_round;             // by member: in which they go
  std::vector<std::vector<int64_t>> received;  // by member: rows for each of the experts here
  std::vector<int64_t> received_round;         // by member
  int64_t rounds = 1;
};

class ExpertParallel {
 public:
  ExpertParallel(int64_t num_experts, int64_t chosen, int64_t hidden_size, int64_t width)
      : num_experts_(num_experts), chosen_(chosen), hidden_size_(hidden_size), width_(width) {}

  /// What this rank has of its microbatch.
  struct Rows {
    kernels::ExpertRows slots;
    const float* weights = nullptr;  // (R, k)
    kernels::ConstMatrix x;          // (R, C)
  };

  /// y (S, C) by slot. Without `rows` this rank has no microbatch, and y is not used. Fills `traffic`.
  absl::Status Forward(const Pass& pass, int unit, const Rows* rows, kernels::Matrix y, ExpertTraffic* traffic) const;
  /// d_x (S, C) by slot and d_weights (R, k), of d_y (R, C). `traffic`: of the forward pass.
  absl::Status Backward(const Pass& pass, int unit, const Rows* rows, kernels::ConstMatrix d_y,
                        const ExpertTraffic& traffic, kernels::Matrix d_x, float* d_weights) const;

 private:
  struct Here;   // the rows that have come in a round
  struct Array;  // one value or vector of each row, on both sides

  int64_t slots(const Pass& pass) const { return pass.rows() * chosen_; }
  absl::Status PlanTraffic(const Pass& pass, int unit, const Rows* rows, ExpertTraffic* traffic) const;
  absl::Status PlanRounds(const Pass& pass, absl::Span<const int64_t> experts_of, ExpertTraffic* traffic) const;
  Here Allocate(const Pass& pass, bool backward) const;
  Array Outgoing(const Pass& pass, const ExpertTraffic& traffic, const Tensor& by_slot, const Tensor& here) const;
  /// Calls serve(home, first row here, rows, offsets of the experts here) for each home, in order.
  template <typename Serve>
  absl::Status RunRounds(const Pass& pass, const ExpertTraffic& traffic, const Here& here,
                         absl::Span<const Array> there, absl::Span<const Array> back, Serve&& serve) const;
  void ServeForward(const Pass& pass, UnitTensors weights, const Here& here, int64_t first,
                    const kernels::ExpertRows& rows) const;
  void ServeBackward(const Pass& pass, UnitTensors weights, UnitTensors gradients, const Here& here, int64_t first,
                     const kernels::ExpertRows& rows) const;

  int64_t num_experts_, chosen_, hidden_size_, width_;
};

/// Elements from one expert's matrix to the next one's, of tensors with two for each expert.
int64_t ExpertStep(UnitTensors of_experts);

}  // namespace holdfast
