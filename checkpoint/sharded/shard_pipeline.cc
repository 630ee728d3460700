#include "checkpoint/sharded/shard_pipeline.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "absl/types/span.h"
#include "checkpoint/sharded/digest.h"
#include "framework/base/out_of_memory.h"
#include "framework/base/seconds.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

// Views of the captured bytes where they are stored as they are; copies where they are compressed.
void Encode(Compression compression, PieceEncoder* encoder, ChunkInFlight* chunk) {
  const size_t piece_bytes = chunk->bytes.size() / chunk->num_pieces;
  chunk->pieces.resize(chunk->num_pieces);
  chunk->copies.resize(chunk->num_pieces);
  chunk->piece_digests.resize(chunk->num_pieces);
  bool in_use = false;
  for (size_t k = 0; k < chunk->num_pieces; ++k) {
    std::vector<std::byte>& copy = chunk->copies[k];
    EncodedPiece& piece = chunk->pieces[k];
    piece.bytes = absl::MakeConstSpan(chunk->bytes.data() + k * piece_bytes, piece_bytes);
    const absl::Span<const std::byte> small =
        compression == Compression::kZstd ? encoder->Compress(piece.bytes) : absl::Span<const std::byte>();
    if (!small.empty()) {
      copy.assign(small.begin(), small.end());
      piece = {.bytes = copy, .compressed = true};
    }
    in_use = in_use || copy.empty();
    chunk->piece_digests[k] = DigestBytes(piece.bytes);
  }
  if (!in_use) chunk->bytes = CpuBytes();
}

}  // namespace

ShardPipeline::ShardPipeline(const PipelineOptions& options, WriteFn write)
    : options_(options), write_(std::move(write)) {
  try {
    for (int i = 0; i < std::max(1, options_.threads); ++i) {
      threads_.emplace_back([this] { Guard(&ShardPipeline::EncodeLoop); });
    }
    threads_.emplace_back([this] { Guard(&ShardPipeline::WriteLoop); });
  } catch (...) {  // a thread cannot be started: those that were would end the process
    Abandon();
    throw;
  }
}

ShardPipeline::~ShardPipeline() { Abandon(); }

void ShardPipeline::Abandon() {
  {
    const std::scoped_lock lock(mutex_);
    abandon_ = true;
  }
  Join();
}

void ShardPipeline::Join() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void ShardPipeline::Fail(const absl::Status& status) {
  if (status_.ok()) status_ = status;
  abandon_ = true;
}

absl::Status ShardPipeline::Add(ChunkInFlight chunk) {
  chunk.captured_bytes = chunk.bytes.size();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return abandon_ || queued_bytes_ == 0 || queued_bytes_ + chunk.captured_bytes <= options_.queue_bytes;
  });
  if (!status_.ok()) return status_;
  queued_bytes_ += chunk.captured_bytes;
  to_encode_.push_back(std::move(chunk));
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status ShardPipeline::Finish() {
  Join();
  return status_;
}

void ShardPipeline::Guard(void (ShardPipeline::*loop)()) {
  try {
    (this->*loop)();
  } catch (const std::exception& error) {
    const std::scoped_lock lock(mutex_);
    Fail(OutOfMemoryError(error.what()));
    changed_.notify_all();
  }
}

void ShardPipeline::EncodeLoop() {
  PieceEncoder encoder(options_.level);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return abandon_ || ending_ || !to_encode_.empty(); });
    if (abandon_ || to_encode_.empty()) return;
    ChunkInFlight chunk = std::move(to_encode_.front());
    to_encode_.pop_front();
    ++encoding_;
    lock.unlock();
    const Clock::time_point start = Clock::now();
    Encode(options_.compression, &encoder, &chunk);
    const double seconds = SecondsSince(start);
    lock.lock();
    encode_seconds_ += seconds;
    --encoding_;
    to_write_.push_back(std::move(chunk));
    changed_.notify_all();
  }
}

void ShardPipeline::WriteLoop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock,
                  [&] { return abandon_ || !to_write_.empty() || (ending_ && to_encode_.empty() && encoding_ == 0); });
    if (abandon_ || to_write_.empty()) return;
    absl::Status status;
    {
      const ChunkInFlight chunk = std::move(to_write_.front());
      to_write_.pop_front();
      lock.unlock();
      const Clock::time_point start = Clock::now();
      status = write_(chunk);
      const double seconds = SecondsSince(start);
      lock.lock();
      write_seconds_ += seconds;
      queued_bytes_ -= chunk.captured_bytes;
    }
    if (!status.ok()) Fail(status);
    changed_.notify_all();
  }
}

}  // namespace holdfast
