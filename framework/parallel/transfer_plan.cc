#include "framework/parallel/transfer_plan.h"

#include <algorithm>

#include "framework/base/status.h"
#include "framework/parallel/sharded_state.h"

namespace holdfast {

std::vector<ChunkTransfer> PlanTransfer(const PlacedModel& source, const std::vector<int>& source_ranks,
                                        const PlacedModel& target) {
  const ParameterLayout& layout = target.map->layout();
  std::vector<ChunkTransfer> transfers;
  std::vector<int64_t> sent(static_cast<size_t>(target.placement->size()));
  for (int chunk = 0; chunk < static_cast<int>(layout.chunks().size()); ++chunk) {
    std::vector<int> have;
    for (const int r : source.placement->Holders(source.map->ShardOfChunk(chunk))) {
      if (source_ranks[static_cast<size_t>(r)] >= 0) have.push_back(source_ranks[static_cast<size_t>(r)]);
    }
    HF_CHECK(!have.empty());
    for (const int to : target.placement->Holders(target.map->ShardOfChunk(chunk))) {
      if (std::find(have.begin(), have.end(), to) != have.end()) continue;
      const int from = *std::min_element(have.begin(), have.end(), [&](int a, int b) {
        return sent[static_cast<size_t>(a)] < sent[static_cast<size_t>(b)];
      });
      sent[static_cast<size_t>(from)] += layout.chunks()[static_cast<size_t>(chunk)].elements;
      transfers.push_back({chunk, from, to});
    }
  }
  return transfers;
}

std::vector<Range> TransferRounds(const ParameterLayout& layout, const std::vector<ChunkTransfer>& transfers,
                                  int64_t most_bytes) {
  std::vector<Range> rounds;
  int64_t bytes = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(transfers.size()); ++i) {
    const Chunk& chunk = layout.chunks()[static_cast<size_t>(transfers[static_cast<size_t>(i)].chunk)];
    const auto size = static_cast<int64_t>(ShardedState::ChunkBytes(chunk));
    if (rounds.empty() || bytes + size > most_bytes) {
      rounds.push_back({i, i});
      bytes = 0;
    }
    bytes += size;
    rounds.back().end = i + 1;
  }
  return rounds;
}

}  // namespace holdfast
