#pragma once
// Safetensors files made by hand, so that they can be wrong.

#include <cstdint>
#include <fstream>
#include <string>

namespace holdfast {

inline std::string LittleEndian(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

inline void WriteRawFile(const std::string& path, const std::string& json, const std::string& data) {
  std::ofstream(path, std::ios::binary) << LittleEndian(json.size()) << json << data;
}

}  // namespace holdfast
