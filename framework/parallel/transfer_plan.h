#pragma once
// Which chunks have to move when the world changes: a pure function of where they are and where the new placement wants
// them. Nothing moves that is there already, and the load is spread over the holders.

#include <cstdint>
#include <vector>

#include "framework/nn/state_layout.h"
#include "framework/parallel/shard_map.h"

namespace holdfast {

/// Ranks are of the new world.
struct ChunkTransfer {
  int chunk = 0;
  int from = 0, to = 0;
  friend bool operator==(const ChunkTransfer&, const ChunkTransfer&) = default;
};

/// `source_ranks[r]`: the rank in the new world of rank r of the source world, or -1 if it is not there. Every chunk
/// must have a holder left (Placement::LostCells). The same on every rank; in order of chunks.
std::vector<ChunkTransfer> PlanTransfer(const ShardMap& source, const std::vector<int>& source_ranks,
                                        const ShardMap& target);

/// The transfers to ranks that serve their chunk, and those to its mirrors.
struct TransfersByUse {
  std::vector<ChunkTransfer> served, mirrored;
};
TransfersByUse SplitByUse(const std::vector<ChunkTransfer>& transfers, const ShardMap& target);

/// Cuts the transfers of a world of `size` into rounds, in each of which no rank sends or receives more than
/// `most_bytes` (but for a chunk that is larger). All pairs of ranks that have something to transfer take part in a
/// round as far as that allows, so they transfer at the same time.
std::vector<std::vector<ChunkTransfer>> TransferRounds(const StateLayout& layout,
                                                       const std::vector<ChunkTransfer>& transfers, int size,
                                                       int64_t most_bytes);

}  // namespace holdfast
