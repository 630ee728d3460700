#include "elastic/sweep/worker_share.h"

#include <cstddef>

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

}  // namespace holdfast
