#pragma once
// Where the state of the last committed step lies, told from what workers claim to hold. Needed when a coordinator
// starts again: it knows which steps were recorded, but not in which world the last of them was done.

#include <cstdint>
#include <vector>

#include "elastic/control/messages.h"
#include "framework/config/config.h"
#include "framework/parallel/placement.h"
#include "framework/parallel/used_cells.h"

namespace holdfast {

/// Of each rank.
std::vector<std::string> NodesOf(const World& world);

/// Who holds what in `world`.
Placement PlacementOf(const World& world, const ParallelConfig& parallel);

/// Whether PlacementOf can be asked, of a world that comes from others.
bool HasSanePlacement(const World& world, const ParallelConfig& parallel);

/// Rank in `world` as whose member `id` holds its part of the state after `step`, at once or by applying a prepared
/// update; -1 if it does not.
int RankHeld(const WorkerId& id, const StateClaim& claim, const World& world, int64_t step);

/// Nothing is held and nothing is prepared.
bool IsEmpty(const StateClaim& claim);

struct ClaimOf {
  WorkerId id;
  const StateClaim* claim = nullptr;
};

struct StateSource {
  World world;            // generation 0: nobody claims the state
  bool covered = false;   // every cell that is used has a holder among the claimants
  bool complete = false;  // all members of `world` are among the claimants
};

/// Of the state after `recorded_step` (> 0): all members had voted for it, so a claim that is prepared for it counts as
/// holding it. Of several worlds that cover the state the one that lacks the fewest members is taken, then the newest:
/// a step's result does not depend on the world it was done in, so any of them would do, but who holds another one
/// gives that up. A world that only some of its members have entered counts, too, if these cover it: each claims it
/// when its own part is whole, and the world before may have lost holders since.
StateSource FindStateSource(const std::vector<ClaimOf>& claims, int64_t recorded_step, const ParallelConfig& parallel,
                            const UsedCells& used = {});

/// Members of `source` that hold cells in use of which nobody alive has a copy. `alive` is by rank.
std::vector<Member> HoldersOfLostState(const World& source, const std::vector<bool>& alive,
                                       const ParallelConfig& parallel, const UsedCells& used = {});

}  // namespace holdfast
