// What ParseTokenIndex does with any bytes. The digest at the end is put right first, else hardly anything would get
// past it.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "framework/data/token_index.h"

#define XXH_INLINE_ALL
#include "xxhash.h"

namespace holdfast {
namespace {

void Check(bool condition) {
  if (!condition) abort();
}

void Parse(const std::string& bytes) {
  const absl::StatusOr<TokenIndex> index = ParseTokenIndex(bytes, "index");
  if (!index.ok()) {
    Check(absl::IsDataLoss(index.status()) || absl::IsInvalidArgument(index.status()));
    return;
  }
  Check(index->num_tokens >= 0 && (index->bytes_per_token == 2 || index->bytes_per_token == 4));
  const int64_t bytes_of_tokens = index->num_tokens * index->bytes_per_token;
  Check(static_cast<int64_t>(index->blocks.size()) == (bytes_of_tokens + kTokenBlockBytes - 1) / kTokenBlockBytes);
  Check(FormatTokenIndex(*index) == bytes);
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  holdfast::Parse(input);
  const std::string body = input.substr(0, size < sizeof(uint64_t) ? size : size - sizeof(uint64_t));
  const uint64_t digest = XXH3_64bits(body.data(), body.size());
  holdfast::Parse(body + std::string(reinterpret_cast<const char*>(&digest), sizeof(digest)));
  return 0;
}
