#include "framework/base/aligned_memory.h"

#include <sys/mman.h>

#include <cstdlib>

namespace holdfast {

void* AllocateAligned(size_t bytes) {
  constexpr size_t kSmallAlignment = 64;
  const bool large = bytes >= kHugePage;
  const size_t alignment = large ? kHugePage : kSmallAlignment;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (rounded < bytes) return nullptr;  // overflow
  void* data = std::aligned_alloc(alignment, rounded);
  if (data != nullptr && large) madvise(data, rounded, MADV_HUGEPAGE);  // best effort
  return data;
}

}  // namespace holdfast
