#include "framework/parallel/transfer_plan.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "framework/base/status.h"

namespace holdfast {

std::vector<ChunkTransfer> PlanTransfer(const ShardMap& source, const std::vector<int>& source_ranks,
                                        const ShardMap& target) {
  const ParameterLayout& layout = target.layout();
  std::vector<ChunkTransfer> transfers;
  std::vector<int64_t> sent(static_cast<size_t>(target.placement().size()));
  std::vector<int> has(sent.size(), -1);  // by rank: the last chunk that it had
  for (int chunk = 0; chunk < static_cast<int>(layout.chunks().size()); ++chunk) {
    std::vector<int> have;
    for (const int r : source.Holders(chunk)) {
      const int rank = source_ranks[static_cast<size_t>(r)];
      if (rank < 0) continue;
      have.push_back(rank);
      has[static_cast<size_t>(rank)] = chunk;
    }
    HOLDFAST_CHECK(!have.empty());
    for (const int to : target.Holders(chunk)) {
      if (has[static_cast<size_t>(to)] == chunk) continue;
      const int from = *std::min_element(have.begin(), have.end(), [&](int a, int b) {
        return sent[static_cast<size_t>(a)] < sent[static_cast<size_t>(b)];
      });
      sent[static_cast<size_t>(from)] += layout.chunks()[static_cast<size_t>(chunk)].elements;
      transfers.push_back({chunk, from, to});
    }
  }
  return transfers;
}

TransfersByUse SplitByUse(const std::vector<ChunkTransfer>& transfers, const ShardMap& target) {
  TransfersByUse split;
  for (const ChunkTransfer& t : transfers) (target.Serves(t.to, t.chunk) ? split.served : split.mirrored).push_back(t);
  return split;
}

std::vector<std::vector<ChunkTransfer>> TransferRounds(const StateLayout& layout,
                                                       const std::vector<ChunkTransfer>& transfers, int size,
                                                       int64_t most_bytes) {
  std::map<std::pair<int, int>, std::deque<ChunkTransfer>> left;  // by pair
  for (const ChunkTransfer& t : transfers) left[{t.from, t.to}].push_back(t);
  std::vector<std::vector<ChunkTransfer>> rounds;
  while (!left.empty()) {
    std::vector<ChunkTransfer>& round = rounds.emplace_back();
    std::vector<int64_t> sent(static_cast<size_t>(size)), received(sent.size());
    bool more = true;
    while (more) {  // from each pair in turn one chunk
      more = false;
      for (auto& [pair, queue] : left) {
        if (queue.empty()) continue;
        const Chunk& chunk = layout.parameters().chunks()[static_cast<size_t>(queue.front().chunk)];
        const auto bytes = static_cast<int64_t>(layout.ChunkBytes(chunk));
        int64_t &out = sent[static_cast<size_t>(pair.first)], &in = received[static_cast<size_t>(pair.second)];
        const auto fits = [&](int64_t used) { return used == 0 || used + bytes <= most_bytes; };
        if (!fits(out) || !fits(in)) continue;
        out += bytes;
        in += bytes;
        round.push_back(queue.front());
        queue.pop_front();
        more = true;
      }
    }
    std::erase_if(left, [](const auto& entry) { return entry.second.empty(); });
  }
  return rounds;
}

}  // namespace holdfast
