#include "framework/base/random_id.h"

#include <random>

namespace holdfast {

uint64_t RandomId() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) >> 1 | 1;
}

}  // namespace holdfast
