#include "checkpoint/sharded/shard_writer.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/codec.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/hdf5_shard_file.h"
#include "checkpoint/sharded/shard_index.h"
#include "checkpoint/sharded/shard_pipeline.h"
#include "checkpoint/sharded/shard_ranges.h"
#include "checkpoint/sharded/shard_read_back.h"
#include "framework/base/format_bytes.h"
#include "framework/base/out_of_memory.h"
#include "framework/base/seconds.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

// What the shard is to hold, without places in the file as yet.
absl::StatusOr<std::vector<StoredChunk>> PlanChunks(const StateLayout& state, const std::vector<int>& chunks) {
  const ParameterLayout& layout = state.parameters();
  std::vector<StoredChunk> planned;
  planned.reserve(chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    const int c = chunks[i];
    if (c < 0 || static_cast<size_t>(c) >= layout.chunks().size() || (i > 0 && c <= chunks[i - 1])) {
      return absl::InvalidArgumentError(absl::StrCat("chunk ", c, " is not in the layout, or out of order"));
    }
    const Chunk& chunk = layout.chunks()[static_cast<size_t>(c)];
    const std::string& name = layout.parameters()[static_cast<size_t>(chunk.parameter)].name;
    RETURN_IF_ERROR(CheckTensorName(name));
    if (static_cast<uint64_t>(chunk.elements) > kMaxPieceBytes / sizeof(float)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": a row of more than ", kMaxPieceBytes, " bytes cannot be stored"));
    }
    planned.push_back({.tensor = chunk.parameter,
                       .first_row = chunk.first_row,
                       .rows = chunk.num_rows,
                       .pieces = StoredPieces(state.NumPlanes(chunk))});
  }
  return planned;
}

class PipelinedShardWriter final : public ShardWriter {
 public:
  PipelinedShardWriter(Storage& storage, const ShardWriterOptions& options, std::vector<int> chunks)
      : storage_(storage), options_(options), chunks_(std::move(chunks)), added_(chunks_.size()) {}

  absl::Status Open(const StateLayout& layout);
  absl::Status Add(CapturedChunk chunk) override;
  absl::StatusOr<ShardReport> Commit() override;

 private:
  /// Its position in the shard.
  absl::StatusOr<size_t> CheckChunk(const CapturedChunk& chunk) const;
  absl::Status WriteChunk(const ChunkInFlight& chunk);
  absl::StatusOr<ShardReport> CommitFiles();
  absl::Status ReadBackData();
  absl::Status CommitData();
  absl::Status CommitIndex(const std::vector<StoredChunk>& written);
  struct FileBytes {
    uint64_t values = 0, structures = 0;
  };
  FileBytes MaxFileBytes(const std::vector<StoredChunk>& planned) const;
  absl::Status Stage(const FileBytes& bytes);
  std::string FileName(absl::string_view extension) const {
    return ShardFileName(options_.shard, options_.num_shards, extension);
  }
  std::string ObjectName(const std::string& file) const {
    return absl::StrCat(options_.checkpoint.ToString(), "/", file);
  }

  Storage& storage_;
  const ShardWriterOptions options_;
  const std::vector<int> chunks_;  // of the layout; in the following, by position in it
  std::vector<bool> added_;
  std::vector<size_t> row_bytes_;  // of one plane
  std::vector<uint64_t> digests_;
  size_t num_added_ = 0;
  absl::Status status_;
  ShardReport report_;

  // From the last to the first: the pipeline writes into the HDF5 file, which lies in the staged file.
  std::unique_ptr<StagedFile> staged_;
  std::unique_ptr<Hdf5ShardFile> file_;
  std::vector<ExpectedPiece> pieces_;  // as written; the pipeline's until Finish
  std::unique_ptr<ShardPipeline> pipeline_;
};

// Upper bounds: what does not shrink is stored plain.
PipelinedShardWriter::FileBytes PipelinedShardWriter::MaxFileBytes(const std::vector<StoredChunk>& planned) const {
  constexpr uint64_t kPerFile = 2 << 20, kPerDataset = 4096, kPerPiece = 64;
  FileBytes bytes{.structures = kPerFile};
  for (const ShardRange& range : PlanRanges(planned)) {
    bytes.structures += planned[range.first_chunk].pieces.size() * kPerDataset;
  }
  for (size_t i = 0; i < planned.size(); ++i) {
    bytes.values += planned[i].pieces.size() * static_cast<uint64_t>(planned[i].rows) * row_bytes_[i];
    bytes.structures += planned[i].pieces.size() * kPerPiece;
  }
  return bytes;
}

// Of a small model most of what is wanted is not the model's.
absl::Status PipelinedShardWriter::Stage(const FileBytes& bytes) {
  auto staged = storage_.Stage(ObjectName(FileName(".h5")), bytes.values + bytes.structures);
  if (IsOutOfRoom(staged.status())) {
    return absl::Status(
        staged.status().code(),
        absl::StrCat(staged.status().message(), "; this shard is ", FormatBytes(static_cast<double>(bytes.values)),
                     " of weights and optimizer state, "
                     "and structures of the file, for which ",
                     FormatBytes(static_cast<double>(bytes.structures)), " are set aside"));
  }
  RETURN_IF_ERROR(staged.status());
  staged_ = *std::move(staged);
  return absl::OkStatus();
}

absl::Status PipelinedShardWriter::Open(const StateLayout& layout) {
  if (options_.shard < 0 || options_.shard >= options_.num_shards) {
    return absl::InvalidArgumentError(absl::StrCat("shard ", options_.shard, " of ", options_.num_shards));
  }
  ASSIGN_OR_RETURN(std::vector<StoredChunk> planned, PlanChunks(layout, chunks_));
  for (const int c : chunks_) {
    const Chunk& chunk = layout.parameters().chunks()[static_cast<size_t>(c)];
    row_bytes_.push_back(static_cast<size_t>(chunk.elements / chunk.num_rows) * sizeof(float));
  }
  digests_.resize(chunks_.size());
  RETURN_IF_ERROR(Stage(MaxFileBytes(planned)));
  const ShardFileHeader header{.checkpoint = options_.checkpoint,
                               .shard = options_.shard,
                               .num_shards = options_.num_shards,
                               .compressed = options_.compression == Compression::kZstd,
                               .level = options_.level};
  ASSIGN_OR_RETURN(file_, Hdf5ShardFile::Create(staged_->path(), header, StoredTensorsOf(layout), std::move(planned)));
  const PipelineOptions pipeline{.compression = options_.compression,
                                 .level = options_.level,
                                 .threads = options_.threads,
                                 .queue_bytes = options_.queue_bytes};
  pipeline_ = std::make_unique<ShardPipeline>(pipeline, [this](const ChunkInFlight& c) { return WriteChunk(c); });
  return absl::OkStatus();
}

absl::StatusOr<size_t> PipelinedShardWriter::CheckChunk(const CapturedChunk& chunk) const {
  const auto found = std::lower_bound(chunks_.begin(), chunks_.end(), chunk.chunk);
  if (found == chunks_.end() || *found != chunk.chunk) {
    return absl::InvalidArgumentError(absl::StrCat("chunk ", chunk.chunk, " does not belong to this shard"));
  }
  const auto position = static_cast<size_t>(found - chunks_.begin());
  if (added_[position]) return absl::InvalidArgumentError(absl::StrCat("chunk ", chunk.chunk, " was added before"));
  const StoredChunk& planned = file_->chunks()[position];
  const size_t bytes = row_bytes_[position] * static_cast<size_t>(planned.rows) * planned.pieces.size();
  if (chunk.bytes.size() != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk ", chunk.chunk, " has ", chunk.bytes.size(), " bytes instead of ", bytes));
  }
  if (DigestBytes(chunk.bytes) != chunk.digest) {
    return absl::DataLossError(
        absl::StrCat("chunk ", chunk.chunk, " has changed since it was captured: its digest does not match"));
  }
  return position;
}

absl::Status PipelinedShardWriter::Add(CapturedChunk chunk) {
  RETURN_IF_ERROR(status_);
  const absl::StatusOr<size_t> position = CheckChunk(chunk);
  if (!position.ok()) return status_ = Annotate(position.status(), ObjectName(FileName(".h5")));
  digests_[*position] = chunk.digest;
  added_[*position] = true;
  ++num_added_;
  return status_ = pipeline_->Add({.position = *position,
                                   .num_pieces = file_->chunks()[*position].pieces.size(),
                                   .bytes = std::move(chunk.bytes)});
}

// On the pipeline's writing thread.
absl::Status PipelinedShardWriter::WriteChunk(const ChunkInFlight& chunk) {
  RETURN_IF_ERROR(file_->WriteChunk(chunk.position, chunk.pieces));
  const StoredChunk& written = file_->chunks()[chunk.position];
  for (size_t k = 0; k < written.pieces.size(); ++k) {
    const StoredPiece& piece = written.pieces[k];
    pieces_.push_back({.offset = piece.offset, .size = piece.size, .digest = chunk.piece_digests[k]});
    report_.stored_bytes += static_cast<int64_t>(piece.size);
  }
  report_.raw_bytes += static_cast<int64_t>(chunk.captured_bytes);
  return absl::OkStatus();
}

absl::StatusOr<ShardReport> PipelinedShardWriter::Commit() {
  RETURN_IF_ERROR(status_);
  if (num_added_ != chunks_.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(FileName(".h5"), ": ", chunks_.size() - num_added_, " chunks were not added"));
  }
  absl::StatusOr<ShardReport> report = CommitFiles();
  pipeline_.reset();
  file_.reset();
  staged_.reset();
  status_ =
      report.ok() ? absl::FailedPreconditionError(absl::StrCat(FileName(".h5"), " was committed")) : report.status();
  return report;
}

absl::StatusOr<ShardReport> PipelinedShardWriter::CommitFiles() {
  RETURN_IF_ERROR(pipeline_->Finish());
  report_.compress_seconds = pipeline_->encode_seconds();
  report_.write_seconds = pipeline_->write_seconds();
  std::vector<StoredChunk> written = file_->chunks();
  for (size_t i = 0; i < written.size(); ++i) written[i].digest = digests_[i];
  RETURN_IF_ERROR(ReadBackData());
  RETURN_IF_ERROR(CommitData());
  RETURN_IF_ERROR(CommitIndex(written));
  return report_;
}

// Before the sync: that one runs behind it, as write-back has been started.
absl::Status PipelinedShardWriter::ReadBackData() {
  RETURN_IF_ERROR(file_->Close());
  const Clock::time_point start = Clock::now();
  absl::StatusOr<FileContents> contents = ReadBack(file_->fd(), std::move(pieces_));
  if (!contents.ok()) return Annotate(contents.status(), ObjectName(FileName(".h5")));
  report_.verify_seconds = SecondsSince(start);
  report_.shard.data = {.name = FileName(".h5"), .size = contents->size, .digest = std::move(contents->digest)};
  report_.shard.chunks = static_cast<int64_t>(chunks_.size());
  return absl::OkStatus();
}

absl::Status PipelinedShardWriter::CommitData() {
  file_.reset();
  const Clock::time_point start = Clock::now();
  RETURN_IF_ERROR(staged_->Commit());
  report_.sync_seconds = SecondsSince(start);
  return absl::OkStatus();
}

absl::Status PipelinedShardWriter::CommitIndex(const std::vector<StoredChunk>& written) {
  const std::string contents = FormatShardIndex(written);
  StoredFile index{.name = FileName(".index"), .size = contents.size(), .digest = DigestFile(contents)};
  absl::Status created = storage_.Create(ObjectName(index.name), contents);
  if (!created.ok()) {  // the data is of no use without it
    storage_.Delete(ObjectName(report_.shard.data.name)).IgnoreError();
    return created;
  }
  report_.shard.index = std::move(index);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardWriter>> ShardWriter::Create(Storage& storage, const ShardWriterOptions& options,
                                                                 const StateLayout& layout, std::vector<int> chunks) {
  auto writer = std::make_unique<PipelinedShardWriter>(storage, options, std::move(chunks));
  RETURN_IF_ERROR(writer->Open(layout));
  return writer;
}

}  // namespace holdfast
