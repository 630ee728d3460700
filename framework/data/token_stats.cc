#include "framework/data/token_stats.h"

#include <algorithm>
#include <cmath>

#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr uint32_t kCountedIds = 1 << 24;
constexpr int64_t kBlock = 1 << 18;

void Count(uint32_t token, TokenStats& stats) {
  stats.smallest = std::min(stats.smallest, token);
  stats.largest = std::max(stats.largest, token);
  if (token >= kCountedIds) {
    ++stats.uncounted;
    return;
  }
  if (token >= stats.counts.size()) stats.counts.resize(std::max<size_t>(token + 1, stats.counts.size() * 2));
  ++stats.counts[token];
}

}  // namespace

absl::StatusOr<TokenStats> ComputeTokenStats(const TokenFile& file, const ReadProgress& progress) {
  TokenStats stats;
  stats.count = file.num_tokens();
  if (stats.count == 0) return stats;
  stats.smallest = UINT32_MAX;
  std::vector<int32_t> block;
  for (int64_t first = 0; first < stats.count; first += kBlock) {
    block.resize(std::min(kBlock, stats.count - first));
    RETURN_IF_ERROR(file.Read(first, absl::MakeSpan(block)));
    for (const int32_t token : block) Count(static_cast<uint32_t>(token), stats);
    const int64_t done = first + static_cast<int64_t>(block.size());
    if (progress) progress(file.path(), done * file.bytes_per_token(), file.token_bytes());
  }
  for (const int64_t count : stats.counts) {
    if (count == 0) continue;
    ++stats.distinct;
    const double share = static_cast<double>(count) / static_cast<double>(stats.count);
    stats.entropy_bits -= share * std::log2(share);
  }
  return stats;
}

}  // namespace holdfast
