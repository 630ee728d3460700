#pragma once
// The most memory that this process has held so far.

#include <sys/resource.h>

#include <cstdint>

namespace holdfast {

inline int64_t PeakKiB() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  return used.ru_maxrss;
}

}  // namespace holdfast
