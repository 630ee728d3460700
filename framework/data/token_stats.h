#pragma once
// What is in a token file, in numbers.

#include <cstdint>
#include <vector>

#include "framework/data/token_file.h"
#include "framework/data/token_index.h"

namespace holdfast {

struct TokenStats {
  int64_t count = 0;
  uint32_t smallest = 0, largest = 0;
  int64_t distinct = 0;
  int64_t uncounted = 0;        // tokens with ids of 2^24 and up: no vocabulary is that large, so they are only counted
  double entropy_bits = 0;      // of the distribution of single tokens, in bits per token
  std::vector<int64_t> counts;  // by id, of the ids below 2^24
};

/// Reads the whole file.
absl::StatusOr<TokenStats> ComputeTokenStats(const TokenFile& file, const ReadProgress& progress = {});

}  // namespace holdfast
