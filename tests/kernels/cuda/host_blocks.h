#pragma once
// The blocks of memory that this program got from operator new, which host_blocks.cc replaces to know them.
// Thread-safe.

#include <cstddef>

namespace holdfast::kernels {

struct HostBlock {
  char* begin = nullptr;
  size_t bytes = 0;
};

/// The block that `at` lies in, or at the end of; null if there is none.
HostBlock FindHostBlock(const void* at);

}  // namespace holdfast::kernels
