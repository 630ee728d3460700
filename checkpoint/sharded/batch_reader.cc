#include "checkpoint/sharded/batch_reader.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/stored_files.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr size_t kAlignment = 64;

bool IsAligned(const std::byte* p) { return reinterpret_cast<uintptr_t>(p) % alignof(float) == 0; }

bool IsPlain(const StoredChunk& chunk) {
  return std::none_of(chunk.pieces.begin(), chunk.pieces.end(), [](const StoredPiece& p) { return p.compressed; });
}

// Whether stored and wanted rows are the same, so that nothing has to be put together.
bool IsWhole(const RowCopy& copy, const StoredChunk& chunk, const WantedRows& wanted) {
  return copy.rows == chunk.rows && copy.rows == wanted.rows;
}

}  // namespace

std::byte* ScratchBytes::Get(size_t bytes, size_t remainder) {
  if (bytes_.size() < bytes + 2 * kAlignment) {
    bytes_ = {};  // before the new ones: both at once could be twice what is allowed
    bytes_.resize(bytes + 2 * kAlignment);
  }
  const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
  return bytes_.data() + (kAlignment - address % kAlignment) % kAlignment + remainder % kAlignment;
}

absl::StatusOr<absl::Span<const std::byte>> ChunkDecoder::Decode(int shard, const StoredChunk& chunk,
                                                                 absl::Span<const absl::Span<const std::byte>> pieces) {
  const StoredTensor& tensor = manifest_.tensors[static_cast<size_t>(chunk.tensor)];
  const auto stored_bytes = static_cast<size_t>(PieceBytes(tensor, chunk));
  const auto bytes = static_cast<size_t>(chunk.rows * tensor.cols()) * sizeof(float);
  absl::Span<const std::byte> values(pieces[0].data(), bytes * pieces.size());
  bool in_place = IsPlain(chunk) && IsAligned(values.data());
  for (size_t k = 1; k < pieces.size(); ++k) in_place = in_place && pieces[k].data() == values.data() + k * bytes;
  if (!in_place) {
    std::byte* const out = scratch_.Get(bytes * pieces.size());
    for (size_t k = 0; k < pieces.size(); ++k) {
      RETURN_IF_ERROR(Annotate(
          decoder_.Decode(pieces[k], chunk.pieces[k].compressed, stored_bytes, absl::MakeSpan(out + k * bytes, bytes)),
          Where(shard, chunk)));
    }
    values = absl::MakeConstSpan(out, bytes * pieces.size());
  }
  RETURN_IF_ERROR(Compare(DigestBytes(values), shard, chunk));
  return values;
}

absl::Status ChunkDecoder::Check(int shard, const StoredChunk& chunk, const ChunkPlaces& places) const {
  return Compare(DigestPlaces(places), shard, chunk);
}

absl::Status ChunkDecoder::Compare(uint64_t digest, int shard, const StoredChunk& chunk) const {
  if (digest == chunk.digest) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(Where(shard, chunk), ": the values do not have the digest taken when they were captured"));
}

std::string ChunkDecoder::Where(int shard, const StoredChunk& chunk) const {
  return absl::StrCat(ObjectName(manifest_.name, manifest_.shards[static_cast<size_t>(shard)].data.name), ": ",
                      manifest_.tensors[static_cast<size_t>(chunk.tensor)].name, ", rows ", chunk.first_row, " to ",
                      chunk.first_row + chunk.rows - 1);
}

size_t BatchReader::NumPlanes(const WantedRows& wanted) const {
  return manifest_.tensors[static_cast<size_t>(wanted.tensor)].planes.size();
}

size_t BatchReader::PlaneBytes(const WantedRows& wanted) const {
  return static_cast<size_t>(wanted.rows * manifest_.tensors[static_cast<size_t>(wanted.tensor)].cols()) *
         sizeof(float);
}

// A stored chunk that is just what somebody wants, uncompressed, is read to where it belongs.
void BatchReader::FindPlaces(const ReadBatch& batch) {
  direct_places_.assign(batch.reads.size(), {});
  direct_.clear();
  if (place_of_ == nullptr) return;
  for (size_t r = 0; r < batch.reads.size(); ++r) {
    const ChunkRead& read = batch.reads[r];
    const StoredChunk& chunk = At(chunks_, read.stored);
    const WantedRows& wanted = batch.wanted[static_cast<size_t>(read.copies.front().wanted)];
    if (read.copies.size() != 1 || !IsWhole(read.copies.front(), chunk, wanted) || !IsPlain(chunk)) continue;
    direct_places_[r] = place_of_(wanted.id);
    HOLDFAST_CHECK(direct_places_[r].empty() || direct_places_[r].size() == chunk.pieces.size());
    for (size_t k = 0; k < direct_places_[r].size(); ++k) {
      const absl::Span<std::byte> to = direct_places_[r][k];
      HOLDFAST_CHECK(to.size() == PlaneBytes(wanted));
      direct_.push_back({read.stored.shard, chunk.pieces[k].offset, to});
    }
  }
  std::sort(direct_.begin(), direct_.end(),
            [](const Direct& a, const Direct& b) { return std::tie(a.shard, a.offset) < std::tie(b.shard, b.offset); });
}

absl::Status BatchReader::Run(const ReadBatch& batch, Sink sink) {
  FindPlaces(batch);
  RETURN_IF_ERROR(ReadRanges(batch));
  // Places for the wanted rows that no stored chunk is alone.
  place_.assign(batch.wanted.size(), nullptr);
  std::vector<bool> whole(batch.wanted.size());
  for (const ChunkRead& read : batch.reads) {
    for (const RowCopy& copy : read.copies) {
      const auto w = static_cast<size_t>(copy.wanted);
      whole[w] = IsWhole(copy, At(chunks_, read.stored), batch.wanted[w]);
    }
  }
  size_t bytes = 0;
  for (size_t w = 0; w < whole.size(); ++w)
    bytes += whole[w] ? 0 : NumPlanes(batch.wanted[w]) * PlaneBytes(batch.wanted[w]);
  std::byte* next = assembled_.Get(bytes);
  for (size_t w = 0; w < whole.size(); ++w) {
    if (whole[w]) continue;
    place_[w] = next;
    next += NumPlanes(batch.wanted[w]) * PlaneBytes(batch.wanted[w]);
  }
  for (size_t r = 0; r < batch.reads.size(); ++r) RETURN_IF_ERROR(Use(batch, r, sink));
  for (size_t w = 0; w < whole.size(); ++w) {
    if (whole[w]) continue;
    RETURN_IF_ERROR(sink(batch.wanted[w], {place_[w], NumPlanes(batch.wanted[w]) * PlaneBytes(batch.wanted[w])}));
  }
  return absl::OkStatus();
}

// Addresses in memory keep the alignment of offsets in the file, so that plain values can be used where they lie.
absl::Status BatchReader::ReadRanges(const ReadBatch& batch) {
  size_t bytes = 0;
  for (const FileRange& range : batch.ranges) bytes += range.size + 2 * kAlignment;
  std::byte* next = read_.Get(bytes);
  range_data_.clear();
  for (const FileRange& range : batch.ranges) {
    std::byte* const data = next + range.offset % kAlignment;
    const std::string name = ObjectName(manifest_.name, manifest_.shards[static_cast<size_t>(range.shard)].data.name);
    RETURN_IF_ERROR(DamagedUnlessPassing(storage_.ReadInto(name, range.offset, Scatter(range, data)), name));
    range_data_.push_back(data);
    next += (range.offset % kAlignment + range.size + kAlignment - 1) / kAlignment * kAlignment;
  }
  return absl::OkStatus();
}

std::vector<absl::Span<std::byte>> BatchReader::Scatter(const FileRange& range, std::byte* scratch) const {
  std::vector<absl::Span<std::byte>> places;
  const uint64_t end = range.offset + range.size;
  uint64_t at = range.offset;
  const auto take_to = [&](uint64_t next) {
    if (next > at) places.emplace_back(scratch + (at - range.offset), next - at);
    at = next;
  };
  auto direct = std::lower_bound(direct_.begin(), direct_.end(), std::tuple(range.shard, range.offset),
                                 [](const Direct& d, const auto& key) { return std::tuple(d.shard, d.offset) < key; });
  for (; direct != direct_.end() && direct->shard == range.shard && direct->offset < end; ++direct) {
    take_to(direct->offset);
    places.push_back(direct->to);
    at += direct->to.size();
  }
  take_to(end);
  return places;
}

absl::Span<const std::byte> BatchReader::Piece(const ReadBatch& batch, int shard, const StoredPiece& piece) const {
  const auto after = std::upper_bound(
      batch.ranges.begin(), batch.ranges.end(), std::tuple(shard, piece.offset),
      [](const auto& key, const FileRange& range) { return key < std::tuple(range.shard, range.offset); });
  HOLDFAST_CHECK(after != batch.ranges.begin());
  const FileRange& range = *(after - 1);
  HOLDFAST_CHECK(range.shard == shard && piece.offset - range.offset + piece.size <= range.size);
  const std::byte* const data = range_data_[static_cast<size_t>(after - 1 - batch.ranges.begin())];
  return {data + (piece.offset - range.offset), piece.size};
}

absl::Status BatchReader::Use(const ReadBatch& batch, size_t read_index, Sink sink) {
  const ChunkRead& read = batch.reads[read_index];
  const StoredChunk& chunk = At(chunks_, read.stored);
  if (const ChunkPlaces& places = direct_places_[read_index]; !places.empty()) {
    RETURN_IF_ERROR(decoder_.Check(read.stored.shard, chunk, places));
    return sink(batch.wanted[static_cast<size_t>(read.copies.front().wanted)], {});
  }
  absl::InlinedVector<absl::Span<const std::byte>, kMaxPlanes> pieces;
  for (const StoredPiece& piece : chunk.pieces) pieces.push_back(Piece(batch, read.stored.shard, piece));
  ASSIGN_OR_RETURN(const absl::Span<const std::byte> values, decoder_.Decode(read.stored.shard, chunk, pieces));
  const size_t row_bytes =
      static_cast<size_t>(manifest_.tensors[static_cast<size_t>(chunk.tensor)].cols()) * sizeof(float);
  const size_t chunk_bytes = static_cast<size_t>(chunk.rows) * row_bytes;
  for (const RowCopy& copy : read.copies) {
    const auto w = static_cast<size_t>(copy.wanted);
    if (place_[w] == nullptr) {
      RETURN_IF_ERROR(sink(batch.wanted[w], values));
      continue;
    }
    for (size_t k = 0; k < pieces.size(); ++k) {
      std::memcpy(place_[w] + k * PlaneBytes(batch.wanted[w]) + static_cast<size_t>(copy.to_row) * row_bytes,
                  values.data() + k * chunk_bytes + static_cast<size_t>(copy.from_row) * row_bytes,
                  static_cast<size_t>(copy.rows) * row_bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace holdfast
