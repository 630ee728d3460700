#include "checkpoint/sharded/shard_read_back.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "checkpoint/sharded/digest.h"
#include "framework/base/status.h"

#define XXH_INLINE_ALL
#include "xxhash.h"

namespace holdfast {
namespace {

constexpr size_t kBlockBytes = size_t{256} << 10;  // stays in the cache between the two hashes

// Gets the file in blocks, and hashes the pieces, sorted, as they pass.
class PieceChecker {
 public:
  explicit PieceChecker(std::vector<ExpectedPiece> pieces) : pieces_(std::move(pieces)) {
    std::sort(pieces_.begin(), pieces_.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
    XXH3_64bits_reset(&state_);
  }

  absl::Status Update(uint64_t offset, absl::Span<const std::byte> block) {
    while (next_ < pieces_.size() && pieces_[next_].offset < offset + block.size()) {
      const ExpectedPiece& piece = pieces_[next_];
      const uint64_t begin = std::max(piece.offset, offset);
      const uint64_t end = std::min(piece.offset + piece.size, offset + block.size());
      XXH3_64bits_update(&state_, block.data() + (begin - offset), end - begin);
      if (end < piece.offset + piece.size) return absl::OkStatus();  // goes on in the next block
      if (XXH3_64bits_digest(&state_) != piece.digest) return Damaged(piece);
      XXH3_64bits_reset(&state_);
      ++next_;
    }
    return absl::OkStatus();
  }

  absl::Status End() const { return next_ == pieces_.size() ? absl::OkStatus() : Damaged(pieces_[next_]); }

 private:
  static absl::Status Damaged(const ExpectedPiece& piece) {
    return absl::DataLossError(
        absl::StrCat("what was read back is not what was written: ", piece.size, " bytes at ", piece.offset));
  }

  std::vector<ExpectedPiece> pieces_;
  size_t next_ = 0;
  XXH3_state_t state_;
};

// Bytes read: fewer than asked for only at the end of the file.
absl::StatusOr<size_t> ReadBlock(int fd, uint64_t offset, absl::Span<std::byte> block) {
  size_t got = 0;
  while (got < block.size()) {
    const ssize_t n = pread(fd, block.data() + got, block.size() - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoToStatus(errno, "reading back");
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  return got;
}

}  // namespace

absl::StatusOr<FileContents> ReadBack(int fd, std::vector<ExpectedPiece> pieces) {
  PieceChecker checker(std::move(pieces));
  FileDigest digest;
  std::vector<std::byte> block(kBlockBytes);
  uint64_t offset = 0;
  while (true) {
    ASSIGN_OR_RETURN(const size_t got, ReadBlock(fd, offset, absl::MakeSpan(block)));
    if (got == 0) break;
    const absl::Span<const std::byte> part = absl::MakeConstSpan(block).first(got);
    digest.Update(part);
    RETURN_IF_ERROR(checker.Update(offset, part));
    offset += got;
  }
  RETURN_IF_ERROR(checker.End());
  return FileContents{.size = offset, .digest = digest.Hex()};
}

}  // namespace holdfast
