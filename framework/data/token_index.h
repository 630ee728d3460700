#pragma once
// What lies beside a token file, "NAME.index": the digest of its tokens, the largest of them, and a digest of every
// block of 1 MiB, so that a run needs not read terabytes before its first step, and a copy can be compared with what
// was packed. Format and what it can find: framework/data/README.md.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

class TokenFile;

inline constexpr int64_t kTokenBlockBytes = int64_t{1} << 20;

struct TokenIndex {
  int64_t num_tokens = 0;
  int bytes_per_token = 2;
  uint32_t largest = 0;          // of all tokens; 0 if there are none
  uint64_t digest = 0;           // XXH3-64 of all tokens as they are stored
  std::vector<uint64_t> blocks;  // XXH3-64 of each kTokenBlockBytes of them, the last one may be shorter

  friend bool operator==(const TokenIndex&, const TokenIndex&) = default;
};

/// "train.bin" -> "train.bin.index".
std::string TokenIndexPath(const std::string& token_file);

std::string FormatTokenIndex(const TokenIndex& index);
/// DataLoss, naming `path`, if the bytes are damaged; InvalidArgument if they are no index or one of a later version.
absl::StatusOr<TokenIndex> ParseTokenIndex(absl::string_view bytes, const std::string& path);
/// As much as an index of a token file can have.
inline constexpr uint64_t kTokenIndexBytesMax = uint64_t{2} << 20;

/// An index of tokens that come in pieces, each of whole tokens. Thread-safety: none.
class TokenIndexBuilder {
 public:
  /// `token_bits`: what of 4 bytes is the token.
  explicit TokenIndexBuilder(int bytes_per_token, uint32_t token_bits = ~0U);
  ~TokenIndexBuilder();
  TokenIndexBuilder(const TokenIndexBuilder&) = delete;
  TokenIndexBuilder& operator=(const TokenIndexBuilder&) = delete;

  /// Little-endian tokens, aligned as such.
  void Append(absl::string_view tokens);
  TokenIndex Finish();

 private:
  struct Hashes;
  void EndBlock();

  TokenIndex index_;
  uint32_t token_bits_;
  int64_t block_bytes_ = 0;  // of the block that is not complete
  std::unique_ptr<Hashes> hashes_;
};

/// How much of a file has been read, now and then; may be empty.
using ReadProgress = std::function<void(const std::string& path, int64_t done_bytes, int64_t total_bytes)>;

/// The index of what the file holds: reads all of it.
absl::StatusOr<TokenIndex> IndexTokens(const TokenFile& file, const ReadProgress& progress = {});

/// FailedPrecondition, saying what to do, if `index` cannot be of this file: counts differ, or one of a few blocks
/// does: the first, the last, and `samples` chosen by `seed`. That finds another file, and one whose copying stopped,
/// but hardly a single changed token: CompareWithIndex does.
absl::Status CheckSomeBlocks(const TokenFile& file, const TokenIndex& index, int samples, uint64_t seed);

/// The blocks whose tokens are not those that were indexed: reads all of the file. The counts must be equal.
absl::StatusOr<std::vector<int64_t>> CompareWithIndex(const TokenFile& file, const TokenIndex& index,
                                                      const ReadProgress& progress = {});

}  // namespace holdfast
