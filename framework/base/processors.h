#pragma once
// How many processors this process may use.

#include <cstdint>
#include <limits>
#include <string>

namespace holdfast {

/// Those of its affinity mask (taskset, cpusets), but no more than CpuQuota() of it. At least 1.
int AvailableProcessors();

/// "train.threads is 64, more than the 2 processors ..."; empty if `processors` suffice for `processes` of so many
/// `threads`, or these are one or 0, which is all that there are. `key`: what the threads are set by.
std::string TooManyThreadsWarning(const std::string& key, int64_t threads, int64_t processes = 1,
                                  int64_t processors = AvailableProcessors());

inline constexpr double kNoCpuQuota = std::numeric_limits<double>::infinity();

/// Processors' worth of time that control groups (a container's limit) let this process have: the least of its group's
/// and its parents'. Versions 1 and 2; kNoCpuQuota if there is none, or it cannot be read.
/// `membership`: proc(5)'s /proc/self/cgroup; `root`: where the groups are mounted.
double CpuQuota(const std::string& membership = "/proc/self/cgroup", const std::string& root = "/sys/fs/cgroup");

}  // namespace holdfast
