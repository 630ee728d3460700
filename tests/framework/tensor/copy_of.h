#pragma once
// What a device's copy would be, of bytes that a test has.

#include <algorithm>

#include "framework/tensor/cpu_bytes.h"

namespace holdfast {

inline CpuBytes CopyOf(absl::Span<const std::byte> bytes) {
  CpuBytes copy(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.data());
  return copy;
}

}  // namespace holdfast
