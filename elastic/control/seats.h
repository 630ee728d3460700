#pragma once
// Who held what among the same workers before: a worker that is back within moments takes its old seat, and the others
// what they had, so that only what it has lost moves.
//
// Thread-safety: none.

#include <deque>

#include "elastic/control/world.h"
#include "framework/config/config.h"

namespace holdfast {

class Seats {
 public:
  /// A step was committed in `world`.
  void Remember(const World& world);

  /// World::placement for the members of `world`, when the state lies in `source`: the one that these workers had, if
  /// only what was lost moves, or no other moves less.
  PlacementTable PlacementFor(const World& world, const World& source, const ParallelConfig& parallel) const;

 private:
  std::deque<World> worlds_;  // newest first, none with the workers of another
};

}  // namespace holdfast
