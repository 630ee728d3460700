// What the readers of a safetensors header and of an index do with any bytes. Tensors that are accepted lie one after
// the other and have the size that their shape says.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "checkpoint/safetensors_header.h"
#include "checkpoint/safetensors_json.h"

namespace holdfast {
namespace {

void Check(bool condition) {
  if (!condition) abort();
}

void Parse(const std::string& text) {
  ParseWeightMap(text).IgnoreError();
  const auto unchecked = ParseSafetensorsJson(text);
  if (!unchecked.ok()) return;
  uint64_t end = 0;
  for (const auto& [name, entry] : unchecked->entries) end = std::max(end, entry.end);
  const auto header = ParseSafetensorsHeader(text, end);
  if (!header.ok()) return;
  uint64_t bytes = 0;
  for (const auto& [name, entry] : header->entries) {
    bytes += entry.end - entry.begin;
    if (entry.dtype == FileDType::kOther) continue;
    const uint64_t each = entry.dtype == FileDType::kF32 ? 4 : 2;
    Check(static_cast<uint64_t>(CheckedElements(entry.shape).value()) * each == entry.end - entry.begin);
  }
  Check(bytes == end);
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::Parse(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
