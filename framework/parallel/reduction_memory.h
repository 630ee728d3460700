#pragma once
// What a rank holds of gradients at most, worked out without data from the calls that ShardedStore, Reducer and
// GradientSum make: kernels and communication may be late, so what waits for being reduced is as much as may wait.

#include <cstdint>

#include "framework/nn/unit_schedule.h"
#include "framework/parallel/reduction_plan.h"
#include "framework/parallel/shard_map.h"
#include "framework/parallel/sum_order.h"

namespace holdfast {

/// Elements, by what holds them.
struct ReductionMemory {
  int64_t computed = 0;  // gradients of passes and their sums, until they are reduced; in a world of one all
  int64_t sums = 0;      // over microbatches, of what this rank sums
  int64_t received = 0;  // of other ranks
  int64_t packed = 0;    // put in order to be sent
  int64_t mirrored = 0;  // what others sum and this rank holds
  int64_t total() const { return computed + sums + received + packed + mirrored; }
};

/// Of `rank`. `schedule`: of a training pass; `in_parts`: units that are cut at parts are computed where they lie, in
/// passes that may be under way `two_at_a_time`.
ReductionMemory PlanReductionMemory(const ShardMap& map, int rank, const SumOrder& order, const ReductionPlan& plan,
                                    const UnitSchedule& schedule, bool in_parts, bool two_at_a_time = false);

}  // namespace holdfast
