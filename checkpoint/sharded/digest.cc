#include "checkpoint/sharded/digest.h"

#include "absl/strings/str_format.h"

#define XXH_INLINE_ALL
#include "xxhash.h"

namespace holdfast {
namespace {

std::string ToHex(const XXH128_hash_t& hash) { return absl::StrFormat("%016x%016x", hash.high64, hash.low64); }

}  // namespace

struct FileDigest::State {
  alignas(64) XXH3_state_t xxh3;
};

FileDigest::FileDigest() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh3); }

FileDigest::~FileDigest() = default;

void FileDigest::Update(absl::Span<const std::byte> block) {
  XXH3_128bits_update(&state_->xxh3, block.data(), block.size());
}

std::string FileDigest::Hex() const { return ToHex(XXH3_128bits_digest(&state_->xxh3)); }

uint64_t DigestBytes(absl::Span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

uint64_t DigestPlaces(absl::Span<const absl::Span<std::byte>> places) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const absl::Span<std::byte> place : places) XXH3_64bits_update(&state, place.data(), place.size());
  return XXH3_64bits_digest(&state);
}

std::string DigestFile(absl::string_view contents) { return ToHex(XXH3_128bits(contents.data(), contents.size())); }

}  // namespace holdfast
