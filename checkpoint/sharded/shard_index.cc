#include "checkpoint/sharded/shard_index.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/codec.h"
#include "checkpoint/sharded/digest.h"
#include "framework/base/status.h"
#include "framework/nn/state_layout.h"

namespace holdfast {
namespace {

constexpr absl::string_view kMagic("HFSHARD\n", 8);
constexpr uint32_t kVersion = 2;
constexpr size_t kHeaderBytes = 24;
constexpr size_t kRecordBytes = 40, kPieceBytes = 16;  // a record is followed by its pieces
constexpr size_t kDigestBytes = 32;
constexpr uint32_t kPiecesShift = 16;  // of the flags: below it which pieces are compressed, from it on how many

// Version 1: the pieces were part of the record, always three, and not counted.
constexpr uint32_t kOldVersion = 1;
constexpr size_t kOldPieces = 3, kOldRecordBytes = kRecordBytes + kOldPieces * kPieceBytes;
constexpr int64_t kMaxRow = std::numeric_limits<int64_t>::max() / 2;  // first_row + rows cannot overflow

template <typename T>
void Append(T value, std::string* out) {
  for (size_t i = 0; i < sizeof value; ++i) {
    out->push_back(static_cast<char>(static_cast<std::make_unsigned_t<T>>(value) >> (8 * i)));
  }
}

// Whoever calls has checked that there are enough bytes.
template <typename T>
T Take(absl::string_view* bytes) {
  std::make_unsigned_t<T> value = 0;
  for (size_t i = 0; i < sizeof value; ++i) {
    value |=
        static_cast<std::make_unsigned_t<T>>(std::make_unsigned_t<T>{static_cast<uint8_t>((*bytes)[i])} << (8 * i));
  }
  bytes->remove_prefix(sizeof value);
  return static_cast<T>(value);
}

absl::Status Invalid(size_t chunk, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("shard index: chunk ", chunk, ": ", what));
}

void AppendChunk(const StoredChunk& chunk, std::string* out) {
  auto flags = static_cast<uint32_t>(chunk.pieces.size() << kPiecesShift);
  for (size_t k = 0; k < chunk.pieces.size(); ++k) flags |= uint32_t{chunk.pieces[k].compressed} << k;
  Append(chunk.tensor, out);
  Append(flags, out);
  Append(chunk.first_row, out);
  Append(chunk.rows, out);
  Append(chunk.padding_rows, out);
  Append(chunk.digest, out);
  for (const StoredPiece& piece : chunk.pieces) {
    Append(piece.offset, out);
    Append(piece.size, out);
  }
}

absl::StatusOr<StoredChunk> TakeChunk(absl::string_view* bytes, uint32_t version, size_t number) {
  if (bytes->size() < kRecordBytes) return Invalid(number, "it is cut off");
  StoredChunk chunk;
  chunk.tensor = Take<int32_t>(bytes);
  const auto flags = Take<uint32_t>(bytes);
  chunk.first_row = Take<int64_t>(bytes);
  chunk.rows = Take<int64_t>(bytes);
  chunk.padding_rows = Take<int64_t>(bytes);
  chunk.digest = Take<uint64_t>(bytes);
  const size_t pieces = version == kOldVersion ? kOldPieces : flags >> kPiecesShift;
  if (pieces < 1 || pieces > kMaxPlanes) return Invalid(number, "the number of its pieces cannot be");
  const uint32_t compressed = version == kOldVersion ? flags : flags & ((1u << kPiecesShift) - 1);
  if (compressed >> pieces != 0) return Invalid(number, "unknown flags");
  if (bytes->size() < pieces * kPieceBytes) return Invalid(number, "it is cut off");
  for (size_t k = 0; k < pieces; ++k) {
    StoredPiece& piece = chunk.pieces.emplace_back();
    piece.offset = Take<uint64_t>(bytes);
    piece.size = Take<uint64_t>(bytes);
    piece.compressed = (compressed >> k & 1u) != 0;
  }
  return chunk;
}

absl::Status CheckRows(const StoredChunk& chunk, const StoredChunk* before, size_t number) {
  constexpr auto kMaxRows = static_cast<int64_t>(kMaxPieceBytes / sizeof(float));
  if (chunk.tensor < 0) return Invalid(number, "a negative tensor number");
  if (chunk.first_row < 0 || chunk.first_row > kMaxRow) return Invalid(number, "its first row cannot be");
  if (chunk.rows <= 0 || chunk.rows > kMaxRows) return Invalid(number, "its number of rows cannot be");
  if (chunk.padding_rows < 0 || chunk.padding_rows > kMaxRows) return Invalid(number, "its padding cannot be");
  if (before == nullptr || chunk.tensor > before->tensor) return absl::OkStatus();
  if (chunk.tensor < before->tensor || chunk.first_row < before->first_row + before->rows) {
    return Invalid(number, "it does not follow the chunk before it");
  }
  return absl::OkStatus();
}

absl::Status CheckPieces(const StoredChunk& chunk, uint64_t file_size, size_t number) {
  uint64_t plain_size = 0;  // of those stored plain: all of a chunk have the same
  for (const StoredPiece& piece : chunk.pieces) {
    if (piece.size == 0 || piece.size > kMaxPieceBytes) return Invalid(number, "the size of a piece cannot be");
    if (piece.offset > file_size || piece.size > file_size - piece.offset) {
      return Invalid(number, "a piece lies outside the shard file");
    }
    if (piece.compressed) continue;
    const uint64_t rows = static_cast<uint64_t>(chunk.rows) + static_cast<uint64_t>(chunk.padding_rows);
    if (piece.size % (rows * sizeof(float)) != 0) return Invalid(number, "the size of a piece does not fit its rows");
    if (plain_size != 0 && piece.size != plain_size) return Invalid(number, "its pieces differ in size");
    plain_size = piece.size;
  }
  return absl::OkStatus();
}

absl::Status CheckOverlap(const std::vector<StoredChunk>& chunks) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;  // begin, end
  ranges.reserve(chunks.size() * 3);
  for (const StoredChunk& chunk : chunks) {
    for (const StoredPiece& piece : chunk.pieces) ranges.emplace_back(piece.offset, piece.offset + piece.size);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard index: two pieces overlap at byte ", ranges[i].first, " of the shard file"));
    }
  }
  return absl::OkStatus();
}

// Magic, digest, version: in this order in every version there will ever be. Returns the version.
absl::StatusOr<uint32_t> CheckEnvelope(absl::string_view bytes) {
  if (bytes.size() < kHeaderBytes + kDigestBytes) {
    return absl::DataLossError(absl::StrCat("shard index: only ", bytes.size(), " bytes long"));
  }
  if (bytes.substr(0, kMagic.size()) != kMagic) return absl::InvalidArgumentError("not a shard index");
  const absl::string_view contents = bytes.substr(0, bytes.size() - kDigestBytes);
  if (DigestFile(contents) != bytes.substr(contents.size())) {
    return absl::DataLossError("shard index: the digest does not match the contents");
  }
  absl::string_view version_bytes = bytes.substr(kMagic.size());
  const auto version = Take<uint32_t>(&version_bytes);
  if (version < kOldVersion || version > kVersion) {
    return absl::InvalidArgumentError(absl::StrCat("shard index: version ", version, "; this program knows versions ",
                                                   kOldVersion, " to ", kVersion));
  }
  return version;
}

}  // namespace

std::string FormatShardIndex(const std::vector<StoredChunk>& chunks) {
  std::string out(kMagic);
  const size_t pieces = chunks.empty() ? 0 : chunks.front().pieces.size();
  out.reserve(kHeaderBytes + chunks.size() * (kRecordBytes + pieces * kPieceBytes) + kDigestBytes);
  Append(kVersion, &out);
  Append(uint32_t{kRecordBytes}, &out);
  Append(uint64_t{chunks.size()}, &out);
  for (const StoredChunk& chunk : chunks) AppendChunk(chunk, &out);
  return out + DigestFile(out);
}

absl::StatusOr<std::vector<StoredChunk>> ParseShardIndex(absl::string_view bytes, uint64_t file_size) {
  ASSIGN_OR_RETURN(const uint32_t version, CheckEnvelope(bytes));
  bytes.remove_suffix(kDigestBytes);
  bytes.remove_prefix(kMagic.size() + sizeof kVersion);
  const auto record_bytes = Take<uint32_t>(&bytes);
  const auto count = Take<uint64_t>(&bytes);
  const size_t fixed_bytes = version == kOldVersion ? kOldRecordBytes : kRecordBytes;
  const size_t least_bytes = kRecordBytes + (version == kOldVersion ? kOldPieces : 1) * kPieceBytes;
  if (record_bytes != fixed_bytes || count > bytes.size() / least_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard index: ", bytes.size(), " bytes are not ", count, " chunks of ", record_bytes));
  }
  std::vector<StoredChunk> chunks;
  chunks.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(StoredChunk chunk, TakeChunk(&bytes, version, i));
    RETURN_IF_ERROR(CheckRows(chunk, i == 0 ? nullptr : &chunks.back(), i));
    RETURN_IF_ERROR(CheckPieces(chunk, file_size, i));
    chunks.push_back(std::move(chunk));
  }
  if (!bytes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard index: ", bytes.size(), " bytes behind the last of ", count, " chunks"));
  }
  RETURN_IF_ERROR(CheckOverlap(chunks));
  return chunks;
}

}  // namespace holdfast
