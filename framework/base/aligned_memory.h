#pragma once
// CPU memory for tensors and scratch: aligned to cache lines, on huge pages where it is large.

#include <cstddef>

namespace holdfast {

inline constexpr size_t kHugePage = size_t{2} << 20;

/// At least `bytes`, aligned to 64 bytes; from kHugePage on to huge pages, which the kernel is asked for: matrices are
/// read in columns of rows that are pages apart, and with small pages most of that time goes into address translation.
/// Null if there is no memory. To be freed by std::free.
void* AllocateAligned(size_t bytes);

}  // namespace holdfast
