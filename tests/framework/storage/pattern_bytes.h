#pragma once

#include <cstdint>
#include <string>

namespace holdfast {

/// Bytes that differ from place to place and from seed to seed.
inline std::string PatternBytes(size_t size, uint64_t seed) {
  std::string bytes(size, '\0');
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (size_t i = 0; i < size; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    bytes[i] = static_cast<char>(state >> 56);
  }
  return bytes;
}

}  // namespace holdfast
