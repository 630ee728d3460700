#include "framework/base/branch.h"

#include <algorithm>

namespace holdfast {
namespace {

bool Implies(const Barrier& a, const Barrier& b) { return a.generation >= b.generation && a.step <= b.step; }

}  // namespace

void Branch::GoBack(const Barrier& barrier) {
  if (std::any_of(barriers_.begin(), barriers_.end(), [&](const Barrier& b) { return Implies(b, barrier); })) return;
  std::erase_if(barriers_, [&](const Barrier& b) { return Implies(barrier, b); });
  barriers_.insert(std::upper_bound(barriers_.begin(), barriers_.end(), barrier,
                                    [](const Barrier& a, const Barrier& b) { return a.generation < b.generation; }),
                   barrier);
}

void Branch::GoBack(const Branch& other) {
  for (const Barrier& barrier : other.barriers_) GoBack(barrier);
}

bool Branch::Includes(uint64_t generation, int64_t step) const {
  return std::none_of(barriers_.begin(), barriers_.end(),
                      [&](const Barrier& b) { return generation <= b.generation && step > b.step; });
}

}  // namespace holdfast
