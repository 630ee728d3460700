#include "checkpoint/sharded/checkpoint_reader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/sharded/batch_reader.h"
#include "checkpoint/sharded/codec.h"
#include "checkpoint/sharded/stored_files.h"
#include "framework/base/status.h"
#include "framework/base/thread_pool.h"

namespace holdfast {
namespace {

std::vector<WantedRows> WantedOf(const ParameterLayout& layout, absl::Span<const int> wanted) {
  std::vector<WantedRows> rows;
  rows.reserve(wanted.size());
  for (const int index : wanted) {
    HOLDFAST_CHECK(index >= 0 && static_cast<size_t>(index) < layout.chunks().size());
    const Chunk& chunk = layout.chunks()[static_cast<size_t>(index)];
    rows.push_back({.id = index, .tensor = chunk.parameter, .first_row = chunk.first_row, .rows = chunk.num_rows});
  }
  return rows;
}

// The first error of several threads.
class FirstError {
 public:
  bool ok() const { return !failed_; }
  void Set(const absl::Status& status) {
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = status;
    failed_ = true;
  }
  const absl::Status& status() const { return status_; }  // when the threads are done

 private:
  std::mutex mutex_;
  absl::Status status_;
  std::atomic<bool> failed_{false};
};

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(Storage& storage, const CheckpointName& name) {
  absl::StatusOr<Manifest> read = ReadManifest(storage, name);
  if (absl::IsNotFound(read.status())) return read.status();
  if (!read.ok()) return DamagedUnlessPassing(read.status(), ObjectName(name, kManifestName));
  Manifest manifest = *std::move(read);
  ASSIGN_OR_RETURN(const std::vector<StoredObject> objects, storage.List(name.ToString() + "/"));
  const std::vector<FileProblem> problems = FindSizeProblemsOfShards(manifest, objects);
  if (!problems.empty()) return absl::DataLossError(absl::StrCat(name.ToString(), ": ", problems.front().ToString()));
  ASSIGN_OR_RETURN(StoredChunks chunks, ReadIndexes(storage, manifest));
  std::unique_ptr<CheckpointReader> reader(
      new CheckpointReader(storage, std::move(manifest), std::move(chunks)));  // not make_unique: a private constructor
  const uint64_t digest = StateDigestOf(reader->chunks_, reader->by_row_);
  if (digest != reader->manifest_.state_digest) {
    return absl::DataLossError(
        absl::StrFormat("%s: the chunks' digests make the state digest %016x, the manifest says %016x", name.ToString(),
                        digest, reader->manifest_.state_digest));
  }
  return reader;
}

absl::Status CheckpointReader::CheckLayout(const ParameterLayout& layout) const {
  return CheckModel(manifest_, StoredTensorsOf(layout));
}

absl::Status CheckpointReader::CheckState(const StateLayout& layout) const {
  RETURN_IF_ERROR(CheckLayout(layout.parameters()));
  return CheckPlanes(manifest_, StoredTensorsOf(layout));
}

absl::Status CheckpointReader::ReadChunks(const ParameterLayout& layout, absl::Span<const int> wanted,
                                          const ReadOptions& options, Sink sink) const {
  RETURN_IF_ERROR(CheckLayout(layout));
  const std::vector<ReadBatch> batches =
      PlanReads(manifest_.tensors, chunks_, by_row_, WantedOf(layout, wanted), ReadLimits{});
  const int threads = static_cast<int>(
      std::min<size_t>(static_cast<size_t>(std::max(options.threads, 1)), std::max<size_t>(batches.size(), 1)));
  std::deque<BatchReader> readers;  // they do not move
  for (int t = 0; t < threads; ++t) readers.emplace_back(storage_, manifest_, chunks_, options.place);
  std::atomic<uint64_t> bytes{0};
  FirstError error;
  ThreadPool pool(threads);
  kernels::ParallelFor(pool, static_cast<int64_t>(batches.size()), [&](int64_t i, int thread) {
    if (options.stop.stop_requested()) error.Set(absl::CancelledError("loading was stopped"));
    if (!error.ok()) return;
    const ReadBatch& batch = batches[static_cast<size_t>(i)];
    error.Set(readers[static_cast<size_t>(thread)].Run(
        batch, [&](const WantedRows& rows, absl::Span<const std::byte> values) { return sink(rows.id, values); }));
    uint64_t read = 0;
    for (const FileRange& range : batch.ranges) read += range.size;
    if (options.on_progress) options.on_progress(bytes += read);
  });
  return error.status();
}

absl::Status CheckpointReader::ReadRows(int tensor, int plane, int64_t first_row, absl::Span<float> out) const {
  HOLDFAST_CHECK(tensor >= 0 && static_cast<size_t>(tensor) < manifest_.tensors.size());
  const StoredTensor& stored = manifest_.tensors[static_cast<size_t>(tensor)];
  HOLDFAST_CHECK(plane >= 0 && static_cast<size_t>(plane) < stored.planes.size());
  const int64_t cols = stored.cols();
  const auto rows = static_cast<int64_t>(out.size()) / cols;
  if (rows * cols != static_cast<int64_t>(out.size()) || first_row < 0 || rows > stored.rows() - first_row) {
    return absl::InvalidArgumentError(
        absl::StrCat(stored.name, ": ", out.size(), " values from row ", first_row, " on are not rows of it"));
  }
  if (rows == 0) return absl::OkStatus();
  const WantedRows wanted{.tensor = tensor, .first_row = first_row, .rows = rows};
  for (const ChunkRef ref : FindChunks(chunks_, by_row_, wanted)) {
    const StoredChunk& chunk = chunks_[static_cast<size_t>(ref.shard)][static_cast<size_t>(ref.chunk)];
    const int64_t begin = std::max(first_row, chunk.first_row);
    const int64_t end = std::min(first_row + rows, chunk.first_row + chunk.rows);
    RETURN_IF_ERROR(ReadPieceRows(
        ref, static_cast<size_t>(plane), begin,
        out.subspan(static_cast<size_t>((begin - first_row) * cols), static_cast<size_t>((end - begin) * cols))));
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadPieceRows(ChunkRef ref, size_t plane, int64_t first_row,
                                             absl::Span<float> out) const {
  const StoredChunk& chunk = chunks_[static_cast<size_t>(ref.shard)][static_cast<size_t>(ref.chunk)];
  const StoredPiece& piece = chunk.pieces[plane];
  const StoredTensor& tensor = manifest_.tensors[static_cast<size_t>(chunk.tensor)];
  const std::string name = ObjectName(manifest_.name, manifest_.shards[static_cast<size_t>(ref.shard)].data.name);
  const size_t skipped = static_cast<size_t>((first_row - chunk.first_row) * tensor.cols()) * sizeof(float);
  const absl::Span<std::byte> bytes(reinterpret_cast<std::byte*>(out.data()), out.size() * sizeof(float));
  if (!piece.compressed) {
    return DamagedUnlessPassing(storage_.ReadAt(name, piece.offset + skipped, bytes), name);
  }
  std::vector<std::byte> stored(piece.size);
  std::vector<std::byte> values(skipped + bytes.size());
  RETURN_IF_ERROR(DamagedUnlessPassing(storage_.ReadAt(name, piece.offset, absl::MakeSpan(stored)), name));
  RETURN_IF_ERROR(Annotate(
      PieceDecoder().Decode(stored, true, static_cast<size_t>(PieceBytes(tensor, chunk)), absl::MakeSpan(values)),
      absl::StrCat(name, ": ", tensor.name)));
  std::memcpy(bytes.data(), values.data() + skipped, bytes.size());
  return absl::OkStatus();
}

}  // namespace holdfast
