#include "elastic/sweep/worker_share.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace holdfast {

std::vector<int64_t> ShareWorkers(const std::vector<int64_t>& most, int64_t workers) {
  std::vector<int64_t> share(most.size(), 0);
  for (bool given = true; given && workers > 0;) {
    given = false;
    for (size_t i = 0; i < most.size() && workers > 0; ++i) {
      if (share[i] >= most[i]) continue;
      ++share[i];
      --workers;
      given = true;
    }
  }
  return share;
}

namespace {

int64_t Sum(const WorkersByHost& workers) { return std::accumulate(workers.begin(), workers.end(), int64_t{0}); }

/// Of the hosts with room: one where the trial is, with the most room; else the one with the least room that takes all
/// that are missing; else the one with the most. -1: there is none.
int BestHost(const WorkersByHost& there, int64_t missing, const WorkersByHost& left) {
  int best = -1;
  const auto better = [&](size_t a, size_t b) {
    if ((there[a] > 0) != (there[b] > 0)) return there[a] > 0;
    const bool a_takes = left[a] >= missing, b_takes = left[b] >= missing;
    if (a_takes != b_takes) return a_takes;
    return a_takes && there[a] == 0 ? left[a] < left[b] : left[a] > left[b];
  };
  for (size_t host = 0; host < left.size(); ++host) {
    if (left[host] > 0 && (best < 0 || better(host, static_cast<size_t>(best)))) best = static_cast<int>(host);
  }
  return best;
}

}  // namespace

std::vector<WorkersByHost> PlaceWorkers(const std::vector<int64_t>& share, const std::vector<WorkersByHost>& now,
                                        const WorkersByHost& room) {
  std::vector<WorkersByHost> placed = now;
  WorkersByHost left = room;
  for (size_t trial = 0; trial < share.size(); ++trial) {
    WorkersByHost& there = placed[trial];
    for (size_t host = 0; host < room.size(); ++host) there[host] = std::min(there[host], left[host]);
    while (Sum(there) > share[trial]) {  // where it has the fewest
      size_t fewest = there.size();
      for (size_t host = 0; host < there.size(); ++host) {
        if (there[host] > 0 && (fewest == there.size() || there[host] <= there[fewest])) fewest = host;
      }
      --there[fewest];
    }
    for (size_t host = 0; host < room.size(); ++host) left[host] -= there[host];
  }
  for (size_t trial = 0; trial < share.size(); ++trial) {
    WorkersByHost& there = placed[trial];
    for (int64_t missing = share[trial] - Sum(there); missing > 0; --missing) {
      const int host = BestHost(there, missing, left);
      if (host < 0) break;
      ++there[static_cast<size_t>(host)];
      --left[static_cast<size_t>(host)];
    }
  }
  return placed;
}

}  // namespace holdfast
