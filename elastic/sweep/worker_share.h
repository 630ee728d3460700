#pragma once
// How the workers of a sweep are shared by the trials that can run, and on which machines they are. Pure.

#include <cstdint>
#include <vector>

namespace holdfast {

/// `most`: of each trial, in order of precedence, how many workers it can use. Each gets one while there are any, the
/// rest goes round, so that nobody has two more than another who could use them. As long as `most`.
std::vector<int64_t> ShareWorkers(const std::vector<int64_t>& most, int64_t workers);

/// By host.
using WorkersByHost = std::vector<int64_t>;

/// Where the workers of each trial are to be. `share`: how many, in order of precedence, together no more than there is
/// room for; `now`: where they are; `room`: how many each host takes. Who is there stays, as far as its trial keeps its
/// share and its host has room; the others go to hosts where their trial is, then to the one with the least room that
/// takes them all, so that trials are on few hosts.
std::vector<WorkersByHost> PlaceWorkers(const std::vector<int64_t>& share, const std::vector<WorkersByHost>& now,
                                        const WorkersByHost& room);

}  // namespace holdfast
