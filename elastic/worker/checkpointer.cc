#include "elastic/worker/checkpointer.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "checkpoint/sharded/checkpoint_reader.h"
#include "checkpoint/sharded/codec.h"
#include "checkpoint/sharded/fence.h"
#include "framework/base/out_of_memory.h"
#include "framework/base/seconds.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRehearsedChunks = 4;  // to see what compression would do
constexpr double kWorthIt = 0.9;     // of the time without it

/// A certificate that is not there, a region that is another one, a clock that is wrong: other hosts may do better, so
/// it is no reason to end the run.
absl::Status OfThisHost(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) ? absl::UnavailableError(status.message()) : status;
}

SavedFile ToSaved(const StoredFile& file) { return {file.name, file.size, file.digest}; }

}  // namespace

Checkpointer::~Checkpointer() {
  stopping_.request_stop();
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Snapshot>& snapshot : unwritten_) snapshot->Abandon();
}

void Checkpointer::Begin(const CheckpointName& name, int rank, int world_size, std::shared_ptr<Snapshot> snapshot) {
  {
    const std::lock_guard lock(mutex_);
    unwritten_.push_back(snapshot);
    if (current_ != nullptr) stall_left_ += current_->stall_seconds() - std::exchange(stall_taken_, 0);
    current_ = snapshot;
  }
  thread_.Post([this, name, rank, world_size, snapshot = std::move(snapshot)] {
    Write(name, rank, world_size, *snapshot);
    const std::lock_guard lock(mutex_);
    unwritten_.pop_front();
    changed_.notify_all();
  });
}

void Checkpointer::Finish(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, stop, [&] { return unwritten_.empty(); });
}

double Checkpointer::TakeStallSeconds() {
  const std::lock_guard lock(mutex_);
  double stall = std::exchange(stall_left_, 0);
  if (current_ != nullptr) {
    const double total = current_->stall_seconds();
    stall += total - std::exchange(stall_taken_, total);
  }
  return stall;
}

// A disk may have been unmounted since it was opened: what was written then would fill the one below.
absl::StatusOr<Storage*> Checkpointer::ClaimedStorage() {
  if (storage_ == nullptr) {
    ASSIGN_OR_RETURN(storage_, deps_.open_storage(stopping_.get_token()));
  }
  RETURN_IF_ERROR(CheckClaimed(*storage_));
  return storage_.get();
}

void Checkpointer::Write(const CheckpointName& name, int rank, int world_size, Snapshot& snapshot) {
  const Clock::time_point start = Clock::now();
  SavedMessage message;
  message.generation = name.generation;
  message.step = name.step;
  const ShardWriterOptions options{.checkpoint = name,
                                   .shard = rank,
                                   .num_shards = world_size,
                                   .compression = ChooseCompression(),
                                   .level = static_cast<int>(deps_.config->compression_level),
                                   .threads = static_cast<int>(deps_.config->threads),
                                   .queue_bytes = staging_bytes()};
  if (!snapshot.chunks().empty()) {  // compute-only ranks answer for nothing
    absl::StatusOr<ShardReport> report;
    try {
      report = WriteShard(options, snapshot);
    } catch (const std::exception& error) {  // no memory for it, or no thread: training has what it needs
      report = OutOfMemoryError(error.what());
    }
    if (report.ok()) {
      message.data = ToSaved(report->shard.data);
      message.index = ToSaved(report->shard.index);
      message.chunks = report->shard.chunks;
      message.raw_bytes = report->raw_bytes;
      message.stored_bytes = report->stored_bytes;
      Learn(*report);
    } else {
      snapshot.Abandon();  // training must not go on copying for nobody
      message.cause = std::string(report.status().message());
      message.no_room = MayPass(report.status());
    }
  }
  message.stall_seconds = snapshot.stall_seconds();
  message.persist_seconds = SecondsSince(start);
  deps_.send(message);
}

absl::StatusOr<ShardReport> Checkpointer::WriteShard(const ShardWriterOptions& options, Snapshot& snapshot) {
  ASSIGN_OR_RETURN(Storage * storage, ClaimedStorage());
  ASSIGN_OR_RETURN(const std::unique_ptr<ShardWriter> writer,
                   ShardWriter::Create(*storage, options, *deps_.layout, snapshot.chunks()));
  int rehearsals = codec_rate_ == 0 && deps_.config->compression == CheckpointCompression::kAuto ? kRehearsedChunks : 0;
  while (std::optional<Snapshot::Captured> chunk = snapshot.Next()) {
    if (rehearsals-- > 0) Rehearse(*chunk);
    RETURN_IF_ERROR(writer->Add({chunk->chunk, std::move(chunk->bytes), chunk->digest}));
    ++deps_.progress->count;
  }
  if (snapshot.lacked_memory()) return OutOfMemoryError("no memory for a copy of its state");
  if (snapshot.abandoned()) return absl::AbortedError("its state was discarded");
  return writer->Commit();
}

// Of `auto`: compression must make the whole faster, or be needed for keep_last checkpoints and one more to fit.
Compression Checkpointer::ChooseCompression() {
  const CheckpointConfig& config = *deps_.config;
  if (config.compression == CheckpointCompression::kNone) return Compression::kNone;
  if (config.compression == CheckpointCompression::kZstd) return Compression::kZstd;
  const double whole = static_cast<double>(deps_.layout->elements()) * sizeof(float);
  const double limit = config.max_gib * static_cast<double>(1 << 30);
  if (limit > 0 && whole * static_cast<double>(config.keep_last + 1) > limit) return Compression::kZstd;
  if (!file_rate_.has_value() || codec_rate_ == 0) return Compression::kNone;
  const double plain = 1 / *file_rate_;  // seconds a byte; encoding and writing overlap
  const double packed = std::max(1 / (codec_rate_ * static_cast<double>(config.threads)), codec_ratio_ / *file_rate_);
  return packed < kWorthIt * plain ? Compression::kZstd : Compression::kNone;
}

void Checkpointer::Learn(const ShardReport& report) {
  const double seconds = report.write_seconds + report.sync_seconds;
  if (seconds > 0 && report.stored_bytes > 0) file_rate_ = static_cast<double>(report.stored_bytes) / seconds;
}

void Checkpointer::Rehearse(const Snapshot::Captured& chunk) {
  PieceEncoder encoder(static_cast<int>(deps_.config->compression_level));
  const Clock::time_point start = Clock::now();
  size_t stored = 0;
  const size_t planes = deps_.layout->NumPlanes(deps_.layout->parameters().chunks()[static_cast<size_t>(chunk.chunk)]);
  const size_t piece = chunk.bytes.size() / planes;
  for (size_t i = 0; i < planes; ++i) {
    const auto values = absl::MakeConstSpan(chunk.bytes.data() + i * piece, piece);
    const size_t packed = encoder.Compress(values).size();
    stored += packed == 0 ? piece : packed;
  }
  const double rate = static_cast<double>(chunk.bytes.size()) / std::max(SecondsSince(start), 1e-9);
  codec_rate_ = codec_rate_ == 0 ? rate : std::max(codec_rate_, rate);  // the first is slowed by cold caches
  codec_ratio_ = static_cast<double>(stored) / static_cast<double>(chunk.bytes.size());
}

absl::Status Checkpointer::Load(const std::string& name, ShardedState& state, const std::stop_token& stop) {
  const std::optional<CheckpointName> parsed = CheckpointName::Parse(name);
  if (!parsed.has_value())
    return absl::InvalidArgumentError(absl::StrCat(name, " is not a checkpoint name; expected step-STEP-gGENERATION"));
  // Its own: with the world ends what it waits for, but not what is being written.
  const absl::StatusOr<std::unique_ptr<Storage>> storage = deps_.open_storage(stop);
  RETURN_IF_ERROR(OfThisHost(storage.status()));
  const auto opened = CheckpointReader::Open(**storage, *parsed);
  RETURN_IF_ERROR(OfThisHost(opened.status()));
  const auto& reader = *opened;
  const ParameterLayout& layout = state.map().layout();
  RETURN_IF_ERROR(reader->CheckState(state.layout()));
  std::vector<int> wanted;
  int64_t bytes_to_load = 0;
  for (int chunk = 0; chunk < static_cast<int>(layout.chunks().size()); ++chunk) {
    if (!state.Holds(chunk)) continue;
    wanted.push_back(chunk);
    bytes_to_load += static_cast<int64_t>(state.layout().ChunkBytes(layout.chunks()[static_cast<size_t>(chunk)]));
  }
  deps_.progress->bytes_to_load = bytes_to_load;
  const absl::Cleanup loaded = [this] { deps_.progress->bytes_loaded = deps_.progress->bytes_to_load = 0; };
  const CheckpointReader::ReadOptions options{.threads = static_cast<int>(deps_.config->threads),
                                              .stop = stop,
                                              .place = [&](int chunk) { return state.ChunkMemory(chunk); }};
  const auto take = [&](int chunk, absl::Span<const std::byte> bytes) {
    if (!bytes.empty()) state.WriteChunk(chunk, bytes.data());
    ++deps_.progress->count;
    deps_.progress->bytes_loaded +=
        static_cast<int64_t>(state.layout().ChunkBytes(layout.chunks()[static_cast<size_t>(chunk)]));
    return absl::OkStatus();
  };
  return OfThisHost(reader->ReadChunks(layout, wanted, options, take));
}

}  // namespace holdfast
