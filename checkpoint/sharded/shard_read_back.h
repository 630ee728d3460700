#pragma once
// Reads a file that was just written once through: its digest, and whether every piece in it is what was to be written.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace holdfast {

struct ExpectedPiece {
  uint64_t offset = 0, size = 0;
  uint64_t digest = 0;  // XXH3-64
};

struct FileContents {
  uint64_t size = 0;
  std::string digest;  // XXH3-128
};

/// `pieces` without overlap, in any order. DataLoss, with its offset, for the first piece that is something else.
absl::StatusOr<FileContents> ReadBack(int fd, std::vector<ExpectedPiece> pieces);

}  // namespace holdfast
