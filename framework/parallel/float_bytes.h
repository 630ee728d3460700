#pragma once
// fp32 values as the bytes that a communicator moves.

#include <cstdint>

#include "framework/comm/communicator.h"

namespace holdfast {

inline constexpr int64_t kFloatBytes = sizeof(float);

inline ConstBytes AsBytes(const float* data, int64_t elements) {
  return {reinterpret_cast<const std::byte*>(data), static_cast<size_t>(elements * kFloatBytes)};
}
inline Bytes AsBytes(float* data, int64_t elements) {
  return {reinterpret_cast<std::byte*>(data), static_cast<size_t>(elements * kFloatBytes)};
}

}  // namespace holdfast
