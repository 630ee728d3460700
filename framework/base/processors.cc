#include "framework/base/processors.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/counted.h"

namespace holdfast {
namespace {

/// The words of a file's first line, if there is one.
std::vector<std::string> FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return absl::StrSplit(line, ' ', absl::SkipEmpty());
}

double Quota(const std::string& quota, const std::string& period) {
  double time = 0, of = 0;  // "max", or -1, where there is none
  const bool limited = absl::SimpleAtod(quota, &time) && absl::SimpleAtod(period, &of) && time > 0 && of > 0;
  return limited ? time / of : kNoCpuQuota;
}

double QuotaOfVersion1(const std::string& group) {
  const std::vector<std::string> quota = FirstLine(group + "/cpu.cfs_quota_us");
  const std::vector<std::string> period = FirstLine(group + "/cpu.cfs_period_us");
  return quota.size() == 1 && period.size() == 1 ? Quota(quota[0], period[0]) : kNoCpuQuota;
}

double QuotaOfVersion2(const std::string& group) {
  const std::vector<std::string> words = FirstLine(group + "/cpu.max");
  return words.size() == 2 ? Quota(words[0], words[1]) : kNoCpuQuota;
}

/// 1 if it cannot be read. The kernel refuses memory that is shorter than its own mask, whose length it does not say.
int ProcessorsInMask() {
  constexpr size_t kMaxSets = 1024;  // of 1024 processors each
  for (size_t sets = 1; sets <= kMaxSets; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    const size_t bytes = sets * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) == 0) return CPU_COUNT_S(bytes, mask.data());
    if (errno != EINVAL) break;
  }
  return 1;
}

}  // namespace

double CpuQuota(const std::string& membership, const std::string& root) {
  double least = kNoCpuQuota;
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {  // "4:cpu,cpuacct:/a/b", of version 2 "0::/a/b"
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    const bool version1 = std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end();
    if (!version1 && !fields[1].empty()) continue;
    const std::string mount = version1 ? root + "/cpu" : root;
    std::string group = fields[2] == "/" ? "" : fields[2];
    while (true) {
      least = std::min(least, version1 ? QuotaOfVersion1(mount + group) : QuotaOfVersion2(mount + group));
      if (group.empty()) break;
      group.resize(std::min(group.rfind('/'), group.size() - 1));
    }
  }
  return least;
}

int AvailableProcessors() {
  return std::max(static_cast<int>(std::min<double>(ProcessorsInMask(), std::ceil(CpuQuota()))), 1);
}

std::string TooManyThreadsWarning(const std::string& key, int64_t threads, int64_t processes, int64_t processors) {
  if (threads <= 1 || threads * processes <= processors) return "";
  return absl::StrCat(key, " is ", threads, processes > 1 ? absl::StrCat(" for each of ", processes, " workers") : "",
                      ", more than the ", Counted(processors, "processor"),
                      " here: threads that wait for each other make it slower, many threads far slower");
}

}  // namespace holdfast
