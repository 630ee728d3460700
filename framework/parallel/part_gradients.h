#pragma once
// Brings gradients of units that are computed in parts (framework/nn/part_store.h) to the ranks that sum them. A rank
// has those of the parts that it serves, of every microbatch of its group; what it sums comes, for a microbatch of
// another group, from the ranks that serve it there. In a world of one group every rank sums what it serves, and
// nothing moves.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/comm/communicator.h"
#include "framework/parallel/gradient_sum.h"
#include "framework/parallel/reduction_plan.h"
#include "framework/parallel/shard_map.h"

namespace holdfast {

/// Thread-safety: none.
class PartGradients {
 public:
  /// All must outlive it; `stream`: of the thread that uses it.
  static absl::StatusOr<PartGradients> Create(const ShardMap& map, Communicator& world, Device& device, Stream& stream);

  static bool Covers(const Unit& unit) { return !unit.parts.empty(); }
  /// Ranks of this rank's group that have a microbatch in the wave, ascending.
  std::vector<int> Homes(const ReductionPlan& plan, int wave) const { return HomesOf(plan, wave, group_); }
  bool moves() const { return map_->placement().num_groups() > 1; }

  /// `pieces`: of each of Homes, what is served here, part after part. Part r of `received` (size, elements summed
  /// here) becomes the gradient of rank r's microbatch, where it has one in the wave. To be called where moves(), by
  /// all ranks.
  absl::Status Exchange(const ReductionPlan& plan, int wave, int unit, absl::Span<const GradientSum::Piece> pieces,
                        float* received, Deadline deadline);

 private:
  /// Of one unit.
  struct Routes {
    std::vector<Ranges> to;    // by rank: elements of what is served here that it sums
    std::vector<Ranges> from;  // by rank: elements of what is summed here that it serves
    int64_t served = 0, summed = 0;
  };

  PartGradients(const ShardMap& map, Communicator& world, Stream& stream)
      : map_(&map), world_(&world), stream_(&stream), group_(map.placement().GroupOf(world.rank())) {}
  Routes RoutesOf(int unit) const;
  std::vector<int> HomesOf(const ReductionPlan& plan, int wave, int group) const;
  void Copy(float* out, const Ranges& out_ranges, const float* in, const Ranges& in_ranges) const;

  const ShardMap* map_;
  Communicator* world_;
  Stream* stream_;
  int group_;
  std::vector<Routes> routes_;  // by unit; empty where it is not computed in parts
  Buffer sent_, arrived_;
};

}  // namespace holdfast
