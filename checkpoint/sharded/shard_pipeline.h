#pragma once
// The threads of a shard writer: chunks are encoded by several, then written by one.
//
//   Add -> [queue] -> encode (threads) -> [queue] -> write (one thread)
//
// Both queues together hold at most `queue_bytes` of captured values, or one chunk; compressed copies come on top until
// they are written, at most as much again. The first error stops everything and comes out of every later call.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "checkpoint/sharded/codec.h"
#include "checkpoint/sharded/hdf5_shard_file.h"
#include "checkpoint/sharded/shard_writer.h"

namespace holdfast {

/// A chunk on its way into the file.
struct ChunkInFlight {
  size_t position = 0;  // in the shard
  size_t num_pieces = 0;
  CpuBytes bytes;  // as captured
  size_t captured_bytes = 0;

  // From encoding:
  EncodedPieces pieces = {};                        // views of `bytes` or `copies`
  std::vector<std::vector<std::byte>> copies = {};  // compressed
  std::vector<uint64_t> piece_digests = {};         // XXH3-64 of what is to be stored
};

struct PipelineOptions {
  Compression compression = Compression::kNone;
  int level = 1;
  int threads = 1;
  size_t queue_bytes = 0;
};

/// Thread-safety: Add and Finish from one thread.
class ShardPipeline {
 public:
  using WriteFn = std::function<absl::Status(const ChunkInFlight&)>;  // called by one thread

  ShardPipeline(const PipelineOptions& options, WriteFn write);
  /// Drops what has not been written.
  ~ShardPipeline();
  ShardPipeline(const ShardPipeline&) = delete;
  ShardPipeline& operator=(const ShardPipeline&) = delete;

  /// Waits while the queues are full.
  absl::Status Add(ChunkInFlight chunk);
  /// Waits until everything has been written, and ends the threads.
  absl::Status Finish();

  // After Finish. Seconds of all threads together.
  double encode_seconds() const { return encode_seconds_; }
  double write_seconds() const { return write_seconds_; }

 private:
  /// One of the loops, in a thread: what is thrown in it (no memory) would end the process.
  void Guard(void (ShardPipeline::*loop)());
  void EncodeLoop();
  void WriteLoop();
  void Fail(const absl::Status& status);  // with mutex_ held
  void Join();
  void Abandon();

  PipelineOptions options_;
  WriteFn write_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ChunkInFlight> to_encode_, to_write_;
  size_t queued_bytes_ = 0;
  int encoding_ = 0;      // chunks that are being encoded
  bool ending_ = false;   // nothing more will be added
  bool abandon_ = false;  // what is queued is of no use any more
  absl::Status status_;
  double encode_seconds_ = 0, write_seconds_ = 0;

  std::vector<std::thread> threads_;
};

}  // namespace holdfast
