#include "framework/data/token_index.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#define XXH_INLINE_ALL
#include "framework/base/status.h"
#include "framework/data/token_file.h"
#include "xxhash.h"

namespace holdfast {
namespace {

constexpr char kMagic[] = "HFTOKIX1";  // 8 bytes
constexpr uint32_t kVersion = 1;

// The beginning of an index, as it is stored; the digests of the blocks and XXH3-64 of everything before follow.
struct Head {
  std::array<char, 8> magic;
  uint32_t version, bytes_per_token;
  uint64_t num_tokens, digest;
  uint32_t largest, block_bytes;
};
static_assert(sizeof(Head) == 40);

int64_t NumBlocks(int64_t num_tokens, int64_t bytes_per_token) {
  return (num_tokens * bytes_per_token + kTokenBlockBytes - 1) / kTokenBlockBytes;
}

template <typename Token>
uint32_t Largest(absl::string_view bytes, Token bits) {
  // An inner loop of fixed length, which the compiler turns into vector instructions.
  constexpr size_t kLanes = 256;
  const auto* tokens = reinterpret_cast<const Token*>(bytes.data());
  const size_t count = bytes.size() / sizeof(Token);
  std::array<Token, kLanes> largest{};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      largest[lane] = std::max<Token>(largest[lane], tokens[i + lane] & bits);
    }
  }
  for (; i < count; ++i) largest[0] = std::max<Token>(largest[0], tokens[i] & bits);
  return *std::max_element(largest.begin(), largest.end());
}

absl::Status Changed(const TokenFile& file, const std::string& how) {
  return absl::FailedPreconditionError(
      absl::StrCat(file.path(), " is not the file that ", TokenIndexPath(file.path()), " describes: ", how,
                   "; copy or pack it again, or if the change is meant: holdfast data index ", file.path()));
}

absl::StatusOr<uint64_t> DigestOfBlock(const TokenFile& file, int64_t block, std::vector<std::byte>& buffer) {
  const int64_t begin = block * kTokenBlockBytes;
  buffer.resize(static_cast<size_t>(std::min(kTokenBlockBytes, file.token_bytes() - begin)));
  RETURN_IF_ERROR(file.ReadStored(begin, absl::MakeSpan(buffer)));
  return XXH3_64bits(buffer.data(), buffer.size());
}

absl::Status CheckCounts(const TokenFile& file, const TokenIndex& index) {
  if (index.num_tokens == file.num_tokens() && index.bytes_per_token == file.bytes_per_token()) {
    return absl::OkStatus();
  }
  return Changed(file, absl::StrCat("it has ", file.num_tokens(), " tokens of ", file.bytes_per_token(),
                                    " bytes, the index ", index.num_tokens, " of ", index.bytes_per_token));
}

}  // namespace

std::string TokenIndexPath(const std::string& token_file) { return token_file + ".index"; }

std::string FormatTokenIndex(const TokenIndex& index) {
  Head head{.magic = {},
            .version = kVersion,
            .bytes_per_token = static_cast<uint32_t>(index.bytes_per_token),
            .num_tokens = static_cast<uint64_t>(index.num_tokens),
            .digest = index.digest,
            .largest = index.largest,
            .block_bytes = kTokenBlockBytes};
  std::copy_n(kMagic, head.magic.size(), head.magic.begin());
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  bytes.append(reinterpret_cast<const char*>(index.blocks.data()), index.blocks.size() * sizeof(uint64_t));
  const uint64_t own = XXH3_64bits(bytes.data(), bytes.size());
  bytes.append(reinterpret_cast<const char*>(&own), sizeof(own));
  return bytes;
}

absl::StatusOr<TokenIndex> ParseTokenIndex(absl::string_view bytes, const std::string& path) {
  Head head{};
  if (bytes.size() < sizeof(head.magic) || std::memcmp(bytes.data(), kMagic, sizeof(head.magic)) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not the index of a token file"));
  }
  uint64_t own = 0;
  if (bytes.size() < sizeof(head) + sizeof(own)) return absl::DataLossError(absl::StrCat(path, ": truncated"));
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": an index of version ", head.version, ", expected ", kVersion));
  }
  const absl::string_view covered = bytes.substr(0, bytes.size() - sizeof(own));
  std::memcpy(&own, bytes.data() + covered.size(), sizeof(own));
  const bool fits = (head.bytes_per_token == 2 || head.bytes_per_token == 4) && head.block_bytes == kTokenBlockBytes &&
                    head.num_tokens <= static_cast<uint64_t>(kTokensMax);
  const auto tokens = static_cast<int64_t>(fits ? head.num_tokens : 0);
  const size_t blocks = static_cast<size_t>(NumBlocks(tokens, head.bytes_per_token));
  if (!fits || covered.size() != sizeof(head) + blocks * sizeof(uint64_t) ||
      own != XXH3_64bits(covered.data(), covered.size())) {
    return absl::DataLossError(absl::StrCat(path, ": damaged; holdfast data index makes it anew"));
  }
  TokenIndex index{.num_tokens = tokens,
                   .bytes_per_token = static_cast<int>(head.bytes_per_token),
                   .largest = head.largest,
                   .digest = head.digest,
                   .blocks = std::vector<uint64_t>(blocks)};
  if (blocks > 0) std::memcpy(index.blocks.data(), bytes.data() + sizeof(head), blocks * sizeof(uint64_t));
  return index;
}

struct TokenIndexBuilder::Hashes {
  XXH3_state_t all, block;
};

TokenIndexBuilder::TokenIndexBuilder(int bytes_per_token, uint32_t token_bits)
    : token_bits_(token_bits), hashes_(std::make_unique<Hashes>()) {
  index_.bytes_per_token = bytes_per_token;
  XXH3_64bits_reset(&hashes_->all);
  XXH3_64bits_reset(&hashes_->block);
}

TokenIndexBuilder::~TokenIndexBuilder() = default;

void TokenIndexBuilder::Append(absl::string_view tokens) {
  HOLDFAST_CHECK(tokens.size() % static_cast<size_t>(index_.bytes_per_token) == 0);
  if (tokens.empty()) return;
  index_.num_tokens += static_cast<int64_t>(tokens.size()) / index_.bytes_per_token;
  const uint32_t largest =
      index_.bytes_per_token == 2 ? Largest<uint16_t>(tokens, 0xffff) : Largest<uint32_t>(tokens, token_bits_);
  index_.largest = std::max(index_.largest, largest);
  XXH3_64bits_update(&hashes_->all, tokens.data(), tokens.size());
  while (!tokens.empty()) {
    const absl::string_view piece = tokens.substr(0, static_cast<size_t>(kTokenBlockBytes - block_bytes_));
    XXH3_64bits_update(&hashes_->block, piece.data(), piece.size());
    block_bytes_ += static_cast<int64_t>(piece.size());
    if (block_bytes_ == kTokenBlockBytes) EndBlock();
    tokens.remove_prefix(piece.size());
  }
}

void TokenIndexBuilder::EndBlock() {
  index_.blocks.push_back(XXH3_64bits_digest(&hashes_->block));
  XXH3_64bits_reset(&hashes_->block);
  block_bytes_ = 0;
}

TokenIndex TokenIndexBuilder::Finish() {
  if (block_bytes_ > 0) EndBlock();
  index_.digest = XXH3_64bits_digest(&hashes_->all);
  return std::move(index_);
}

absl::StatusOr<TokenIndex> IndexTokens(const TokenFile& file, const ReadProgress& progress) {
  constexpr int64_t kPieceBytes = 4 * kTokenBlockBytes;
  TokenIndexBuilder builder(file.bytes_per_token(), file.kind().has_marks ? kTokenBits : ~0U);
  std::vector<std::byte> piece;
  for (int64_t done = 0; done < file.token_bytes();) {
    piece.resize(static_cast<size_t>(std::min(kPieceBytes, file.token_bytes() - done)));
    RETURN_IF_ERROR(file.ReadStored(done, absl::MakeSpan(piece)));
    builder.Append({reinterpret_cast<const char*>(piece.data()), piece.size()});
    done += static_cast<int64_t>(piece.size());
    if (progress) progress(file.path(), done, file.token_bytes());
  }
  return builder.Finish();
}

absl::Status CheckSomeBlocks(const TokenFile& file, const TokenIndex& index, int samples, uint64_t seed) {
  RETURN_IF_ERROR(CheckCounts(file, index));
  if (index.blocks.empty()) return absl::OkStatus();
  const auto last = static_cast<int64_t>(index.blocks.size()) - 1;
  std::vector<int64_t> chosen = {0, last};
  std::mt19937_64 random(seed);
  for (int i = 0; i < samples; ++i) chosen.push_back(static_cast<int64_t>(random() % index.blocks.size()));
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  std::vector<std::byte> buffer;
  for (const int64_t block : chosen) {
    ASSIGN_OR_RETURN(const uint64_t digest, DigestOfBlock(file, block, buffer));
    if (digest == index.blocks[static_cast<size_t>(block)]) continue;
    return Changed(file, absl::StrCat("the tokens of block ", block, " (", buffer.size(), " bytes at byte ",
                                      TokenFile::OffsetOfStored(block * kTokenBlockBytes), ") are others"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> CompareWithIndex(const TokenFile& file, const TokenIndex& index,
                                                      const ReadProgress& progress) {
  RETURN_IF_ERROR(CheckCounts(file, index));
  ASSIGN_OR_RETURN(const TokenIndex now, IndexTokens(file, progress));
  std::vector<int64_t> others;
  for (size_t block = 0; block < index.blocks.size(); ++block) {
    if (now.blocks[block] != index.blocks[block]) others.push_back(static_cast<int64_t>(block));
  }
  if (others.empty() && now != index) return Changed(file, "the digest of all tokens, or their largest, is another");
  return others;
}

}  // namespace holdfast
