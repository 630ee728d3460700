#pragma once
// The experts of a layer, each computed by the rank that serves its state (framework/nn/part_store.h): tokens travel to
// their experts and back. Every row gets the bits that it gets where the experts are acquired whole: an expert's rows
// of a microbatch lie in token order, products of rows do not depend on how many there are, and gradients are written
// microbatch by microbatch.
//
// Servers keep nothing between forward and backward: x comes again with the gradient, and what the forward pass made of
// it is computed again. So the memory that a layer needs is fixed, whatever the router does: there is room for twice
// as many rows as a microbatch sends; where more come to one rank, they come in rounds, home (PartStore) after home.
//
// A row travels once to each member that serves experts of its, and once to each node (expert_routes.h); there it is
// copied for each expert. What is made of it comes back for each expert.
//
// Rows travel turn by turn (ExpertRoutes), and beside computing: the rows of all turns are on their way while those of
// the first one are computed, whose results return while the next ones' are. A home has other work for the time until
// its first rows are there, and for that after its last ones are computed (Beside).

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "models/expert_mlp.h"
#include "models/expert_traffic.h"
#include "models/pass.h"

namespace holdfast {

class ExpertParallel {
 public:
  ExpertParallel(const ModelConfig& config, const ExpertMlp& mlp)
      : num_experts_(config.num_experts),
        chosen_(config.experts_per_token),
        hidden_size_(config.hidden_size),
        width_(config.expert_intermediate_size),
        mlp_(mlp) {}

  /// What this rank has of its microbatch.
  struct Rows {
    kernels::ExpertRows slots;
    const float* weights = nullptr;  // (R, k)
    kernels::ConstMatrix x;          // (R, C)
  };

  /// What is computed, once each, while rows travel: on their way to the experts, and back. Neither changes rows nor
  /// looks at results. Null: nothing.
  struct Beside {
    std::function<void()> there, back;
  };

  /// y (S, C) by slot. Without `rows` this rank has no microbatch, and y is not used. Fills `traffic`.
  absl::Status Forward(const Pass& pass, int unit, const Rows* rows, kernels::Matrix y, ExpertTraffic* traffic,
                       const Beside& beside) const;
  /// d_x (S, C) by slot and d_weights (R, k), of d_y (R, C). `traffic`: of the forward pass.
  absl::Status Backward(const Pass& pass, int unit, const Rows* rows, kernels::ConstMatrix d_y,
                        const ExpertTraffic& traffic, kernels::Matrix d_x, float* d_weights,
                        const Beside& beside) const;

 private:
  struct Memory;  // of one call
  struct Array;   // one value or vector of each choice, at home and where experts are
  struct Vector;  // one vector of each row, likewise
  struct Round;   // what goes and comes in it
  struct Call;    // what all steps of one share

  int64_t slots(const Pass& pass) const { return pass.rows() * chosen_; }
  static Round RoundOf(const ExpertTraffic& traffic, int64_t number);
  Memory Allocate(const Pass& pass, bool backward) const;
  absl::Status PutNumbers(const Pass& pass, const ExpertTraffic& traffic, const Memory& memory) const;
  Array Returning(const Pass& pass, const ExpertTraffic& traffic, const Tensor& by_slot, const Tensor& here) const;
  Array Outgoing(const Pass& pass, const ExpertTraffic& traffic, const Tensor& by_slot, const Tensor& here) const;
  absl::Status SendChoices(const Call& call, const Round& round) const;
  absl::Status SendRows(const Call& call, const Round& round, int turn, kernels::Ops& ops) const;
  absl::Status HandOn(const Call& call, const Round& round, int turn, const Vector& vector, kernels::Ops& ops) const;
  absl::Status ReturnResults(const Call& call, const Round& round, int turn) const;
  void CopyForExperts(const Pass& pass, const ExpertTraffic::Home& home, int64_t first, const Memory& memory,
                      const Vector& vector) const;
  /// Offsets of the experts here for each home of the round, and 0 .. S - 1, in memory.numbers.
  absl::Status PutOffsets(const Call& call, const Round& round) const;
  /// serve(home, first row here, rows) for each home, which has the rows of the experts here.
  using Serve = std::function<absl::Status(int home, int64_t first, const kernels::ExpertRows& rows)>;
  absl::Status RunRounds(const Call& call, const Serve& serve, const Beside& beside) const;
  absl::Status RunRound(const Call& call, const Round& round, const Serve& serve, const Beside& beside) const;
  absl::Status ServeHome(const Call& call, const Round& round, int home, int64_t number, const Serve& serve) const;
  ExpertSlots SlotsOf(const Memory& memory, int64_t first, const kernels::ExpertRows& rows) const;
  void ServeForward(const Pass& pass, UnitTensors weights, const Memory& memory, int64_t first,
                    const kernels::ExpertRows& rows) const;
  void ServeBackward(const Pass& pass, UnitTensors weights, UnitTensors gradients, const Memory& memory, int64_t first,
                     const kernels::ExpertRows& rows) const;

  int64_t num_experts_, chosen_, hidden_size_, width_;
  ExpertMlp mlp_;
};

}  // namespace holdfast
