#pragma once
// Which chunks have to move when the world changes: a pure function of where they are and where the new placement wants
// them. Nothing moves that is there already, and the load is spread over the holders.

#include <cstdint>
#include <vector>

#include "framework/parallel/placement.h"
#include "framework/parallel/shard_map.h"

namespace holdfast {

/// Ranks are of the new world.
struct ChunkTransfer {
  int chunk = 0;
  int from = 0, to = 0;
  friend bool operator==(const ChunkTransfer&, const ChunkTransfer&) = default;
};

/// A placement with its map.
struct PlacedModel {
  const Placement* placement = nullptr;
  const ShardMap* map = nullptr;
};

/// `source_ranks[r]`: the rank in the new world of rank r of the source world, or -1 if it is not there. Every chunk
/// must have a holder left (Placement::LostShards). The same on every rank; in order of chunks.
std::vector<ChunkTransfer> PlanTransfer(const PlacedModel& source, const std::vector<int>& source_ranks,
                                        const PlacedModel& target);

/// Cuts the transfers into runs [begin, end) of at most `most_bytes` each (at least one transfer).
std::vector<Range> TransferRounds(const ParameterLayout& layout, const std::vector<ChunkTransfer>& transfers,
                                  int64_t most_bytes);

}  // namespace holdfast
