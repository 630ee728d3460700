#include "checkpoint/sharded/reshard_plan.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/codec.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

const StoredTensor& TensorOf(const std::vector<StoredTensor>& tensors, const StoredChunk& chunk) {
  return tensors[static_cast<size_t>(chunk.tensor)];
}

std::string Rows(int64_t begin, int64_t end) { return absl::StrCat("rows ", begin, " to ", end - 1); }

absl::Status CheckChunk(const std::vector<StoredTensor>& tensors, const StoredChunk& chunk) {
  if (chunk.tensor < 0 || static_cast<size_t>(chunk.tensor) >= tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no tensor ", chunk.tensor));
  }
  const StoredTensor& tensor = TensorOf(tensors, chunk);
  const int64_t rows = tensor.rows();
  if (chunk.first_row < 0 || chunk.first_row >= rows || chunk.rows < 1 || chunk.rows > rows - chunk.first_row) {
    return absl::InvalidArgumentError(absl::StrCat(tensor.name, ": ", chunk.rows, " rows from ", chunk.first_row,
                                                   " on are not inside its ", rows, " rows"));
  }
  constexpr auto kMaxBytes = static_cast<int64_t>(kMaxPieceBytes);
  if (chunk.padding_rows < 0 || chunk.padding_rows > kMaxBytes || chunk.rows > kMaxBytes ||
      PieceBytes(tensor, chunk) > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.name, ": the chunk at row ", chunk.first_row, " is too large"));
  }
  if (chunk.pieces.size() != tensor.planes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(tensor.name, ": the chunk at row ", chunk.first_row, " has ",
                                                   chunk.pieces.size(), " planes instead of ", tensor.planes.size()));
  }
  for (const StoredPiece& piece : chunk.pieces) {
    const auto plain = static_cast<uint64_t>(PieceBytes(tensor, chunk));
    if (piece.compressed ? piece.size > plain : piece.size != plain) {
      return absl::InvalidArgumentError(absl::StrCat(tensor.name, ": the chunk at row ", chunk.first_row, " has ",
                                                     piece.size, " bytes instead of ", PieceBytes(tensor, chunk)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRows(const std::vector<StoredTensor>& tensors, const StoredChunks& chunks) {
  const std::vector<ChunkRef> by_row = OrderByRow(chunks);
  auto next = by_row.begin();
  for (size_t t = 0; t < tensors.size(); ++t) {
    int64_t row = 0;
    for (; next != by_row.end() && static_cast<size_t>(At(chunks, *next).tensor) == t; ++next) {
      const StoredChunk& chunk = At(chunks, *next);
      if (chunk.first_row > row) {
        return absl::InvalidArgumentError(
            absl::StrCat(tensors[t].name, ": ", Rows(row, chunk.first_row), " are stored nowhere"));
      }
      if (chunk.first_row < row) {
        return absl::InvalidArgumentError(
            absl::StrCat(tensors[t].name, ": ", Rows(chunk.first_row, std::min(row, chunk.first_row + chunk.rows)),
                         " are stored twice, in shards ", (next - 1)->shard, " and ", next->shard));
      }
      row += chunk.rows;
    }
    if (row < tensors[t].rows()) {
      return absl::InvalidArgumentError(
          absl::StrCat(tensors[t].name, ": ", Rows(row, tensors[t].rows()), " are stored nowhere"));
    }
  }
  return absl::OkStatus();
}

uint64_t FirstByte(const StoredChunk& chunk) {
  uint64_t first = chunk.pieces[0].offset;
  for (const StoredPiece& piece : chunk.pieces) first = std::min(first, piece.offset);
  return first;
}

// One wanted run of rows and the stored chunks that hold it: by_row[begin, end).
struct Need {
  WantedRows wanted;
  size_t begin = 0, end = 0;
};

// Puts needs together to batches.
class BatchPlanner {
 public:
  BatchPlanner(const std::vector<StoredTensor>& tensors, const StoredChunks& chunks, absl::Span<const ChunkRef> by_row,
               const ReadLimits& limits)
      : tensors_(tensors), chunks_(chunks), by_row_(by_row), limits_(limits), read_in_(by_row.size(), -1) {}

  void Add(const Need& need) {
    int64_t added = 0;
    for (size_t i = need.begin; i < need.end; ++i) added += IsRead(i) ? 0 : DecodedBytes(i);
    if (added > 0 && !batch_.wanted.empty() && bytes_ + added > limits_.batch_bytes) Finish();
    for (size_t i = need.begin; i < need.end; ++i) Take(i, need.wanted);
    batch_.wanted.push_back(need.wanted);
  }

  std::vector<ReadBatch> Result() {
    if (!batch_.wanted.empty()) Finish();
    return std::move(batches_);
  }

 private:
  bool IsRead(size_t i) const { return read_in_[i] >= first_read_; }

  int64_t DecodedBytes(size_t i) const {
    const StoredChunk& chunk = At(chunks_, by_row_[i]);
    return static_cast<int64_t>(chunk.pieces.size()) * PieceBytes(TensorOf(tensors_, chunk), chunk);
  }

  void Take(size_t i, const WantedRows& wanted) {
    const StoredChunk& chunk = At(chunks_, by_row_[i]);
    if (!IsRead(i)) {
      read_in_[i] = first_read_ + static_cast<int64_t>(batch_.reads.size());
      batch_.reads.push_back({.stored = by_row_[i], .copies = {}});
      bytes_ += DecodedBytes(i);
    }
    const int64_t begin = std::max(chunk.first_row, wanted.first_row);
    const int64_t end = std::min(chunk.first_row + chunk.rows, wanted.first_row + wanted.rows);
    batch_.reads[static_cast<size_t>(read_in_[i] - first_read_)].copies.push_back(
        {.wanted = static_cast<int>(batch_.wanted.size()),
         .from_row = begin - chunk.first_row,
         .to_row = begin - wanted.first_row,
         .rows = end - begin});
  }

  void Finish() {
    first_read_ += static_cast<int64_t>(batch_.reads.size());
    std::sort(batch_.reads.begin(), batch_.reads.end(), [&](const ChunkRead& a, const ChunkRead& b) {
      return std::pair(a.stored.shard, FirstByte(At(chunks_, a.stored))) <
             std::pair(b.stored.shard, FirstByte(At(chunks_, b.stored)));
    });
    std::vector<FileRange> pieces;
    for (const ChunkRead& read : batch_.reads) {
      for (const StoredPiece& piece : At(chunks_, read.stored).pieces) {
        pieces.push_back({.shard = read.stored.shard, .offset = piece.offset, .size = piece.size});
      }
    }
    batch_.ranges = JoinRanges(std::move(pieces), limits_.gap_bytes);
    batches_.push_back(std::exchange(batch_, {}));
    bytes_ = 0;
  }

  const std::vector<StoredTensor>& tensors_;
  const StoredChunks& chunks_;
  absl::Span<const ChunkRef> by_row_;
  ReadLimits limits_;
  std::vector<ReadBatch> batches_;
  ReadBatch batch_;               // being filled
  int64_t bytes_ = 0;             // decoded, in batch_
  int64_t first_read_ = 0;        // number, over all batches, of the first of batch_.reads
  std::vector<int64_t> read_in_;  // number, over all batches, of the last read of by_row_[i]
};

}  // namespace

int64_t PieceBytes(const StoredTensor& tensor, const StoredChunk& chunk) {
  return (chunk.rows + chunk.padding_rows) * tensor.cols() * static_cast<int64_t>(sizeof(float));
}

absl::Status CheckCoverage(const std::vector<StoredTensor>& tensors, const StoredChunks& chunks) {
  for (size_t s = 0; s < chunks.size(); ++s) {
    for (const StoredChunk& chunk : chunks[s]) {
      RETURN_IF_ERROR(Annotate(CheckChunk(tensors, chunk), absl::StrCat("shard ", s)));
    }
  }
  return CheckRows(tensors, chunks);
}

std::vector<ChunkRef> OrderByRow(const StoredChunks& chunks) {
  std::vector<ChunkRef> refs;
  for (size_t s = 0; s < chunks.size(); ++s) {
    for (size_t c = 0; c < chunks[s].size(); ++c) {
      refs.push_back({.shard = static_cast<int>(s), .chunk = static_cast<int>(c)});
    }
  }
  const auto key = [&](ChunkRef ref) {
    const StoredChunk& chunk = At(chunks, ref);
    return std::tuple(chunk.tensor, chunk.first_row, ref.shard, ref.chunk);
  };
  std::sort(refs.begin(), refs.end(), [&](ChunkRef a, ChunkRef b) { return key(a) < key(b); });
  return refs;
}

absl::Span<const ChunkRef> FindChunks(const StoredChunks& chunks, absl::Span<const ChunkRef> by_row,
                                      const WantedRows& wanted) {
  const auto ends_before = [&](ChunkRef ref, int64_t row) {
    const StoredChunk& chunk = At(chunks, ref);
    return std::pair(chunk.tensor, chunk.first_row + chunk.rows) <= std::pair(wanted.tensor, row);
  };
  const auto begins_before = [&](ChunkRef ref, int64_t row) {
    const StoredChunk& chunk = At(chunks, ref);
    return std::pair(chunk.tensor, chunk.first_row) < std::pair(wanted.tensor, row);
  };
  const auto begin = std::lower_bound(by_row.begin(), by_row.end(), wanted.first_row, ends_before);
  const auto end = std::lower_bound(begin, by_row.end(), wanted.first_row + wanted.rows, begins_before);
  return by_row.subspan(static_cast<size_t>(begin - by_row.begin()), static_cast<size_t>(end - begin));
}

std::vector<FileRange> JoinRanges(std::vector<FileRange> pieces, uint64_t gap_bytes) {
  std::sort(pieces.begin(), pieces.end(), [](const FileRange& a, const FileRange& b) {
    return std::tuple(a.shard, a.offset, a.size) < std::tuple(b.shard, b.offset, b.size);
  });
  std::vector<FileRange> ranges;
  uint64_t used = 0;  // of the last range; gaps never take more than that, however small the pieces are
  for (const FileRange& piece : pieces) {
    FileRange* const last = ranges.empty() ? nullptr : &ranges.back();
    const uint64_t end = last == nullptr ? 0 : last->offset + last->size;
    const bool near = last != nullptr && last->shard == piece.shard && piece.offset <= end + gap_bytes &&
                      piece.offset + piece.size <= last->offset + 2 * (used + piece.size);
    if (!near) {
      ranges.push_back(piece);
      used = piece.size;
      continue;
    }
    last->size = std::max(end, piece.offset + piece.size) - last->offset;
    used += piece.size;
  }
  return ranges;
}

std::vector<ReadBatch> PlanReads(const std::vector<StoredTensor>& tensors, const StoredChunks& chunks,
                                 absl::Span<const ChunkRef> by_row, absl::Span<const WantedRows> wanted,
                                 const ReadLimits& limits) {
  std::vector<Need> needs;
  for (const WantedRows& rows : wanted) {
    const absl::Span<const ChunkRef> found = FindChunks(chunks, by_row, rows);
    HOLDFAST_CHECK(!found.empty());
    const auto begin = static_cast<size_t>(found.data() - by_row.data());
    needs.push_back({.wanted = rows, .begin = begin, .end = begin + found.size()});
  }
  std::stable_sort(needs.begin(), needs.end(), [&](const Need& a, const Need& b) {
    const ChunkRef x = by_row[a.begin];
    const ChunkRef y = by_row[b.begin];
    return std::tuple(x.shard, FirstByte(At(chunks, x)), a.wanted.first_row) <
           std::tuple(y.shard, FirstByte(At(chunks, y)), b.wanted.first_row);
  });
  BatchPlanner planner(tensors, chunks, by_row, limits);
  for (const Need& need : needs) planner.Add(need);
  return planner.Result();
}

}  // namespace holdfast
