#pragma once
// The state of one step, read by another thread while training goes on. Between a commit and the next update nothing
// changes the state, so a reader takes chunk after chunk at its leisure; the update of a chunk that has not been taken
// yet copies it first, into staging memory of bounded size. Only where that is full does training wait.
//
//   std::shared_ptr<Snapshot> snapshot = trainer.StartSnapshot(staging_bytes);  // after Commit; copies nothing
//   while (auto chunk = snapshot->Next()) ...                                   // on a thread of its own
//
// Thread-safety: Next from one thread; BeforeUpdate and CaptureAll from the one that updates; the rest from any.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "framework/parallel/sharded_state.h"
#include "framework/tensor/cpu_bytes.h"

namespace holdfast {

class Snapshot {
 public:
  /// Must outlive the snapshot; the streams and the state, until CaptureAll has returned or Abandon was called.
  struct Dependencies {
    const ShardedState* state = nullptr;
    Stream* reading = nullptr;   // of the reader alone
    Stream* updating = nullptr;  // on which the state is updated
    std::shared_ptr<CpuBlocks> memory;
  };

  /// Of `chunks`, all held by the state.
  Snapshot(Dependencies dependencies, std::vector<int> chunks, size_t staging_bytes);

  const std::vector<int>& chunks() const { return chunks_; }

  /// A chunk's planes (ShardedState::ReadChunk) as they were when the snapshot was made.
  struct Captured {
    int chunk = 0;
    CpuBytes bytes;
    uint64_t digest = 0;  // XXH3-64 of bytes
  };
  /// The next one, in any order; nothing when all were given, or the snapshot was abandoned.
  std::optional<Captured> Next();

  /// To be called before elements `range` of a unit change.
  void BeforeUpdate(int unit, Range range);
  /// To be called before the whole state changes or goes away.
  void CaptureAll();
  /// The reader gets nothing any more, updates copy nothing any more. Returns when nobody reads the state.
  void Abandon();
  bool abandoned() const;
  /// It was abandoned because there was no memory for a copy.
  bool lacked_memory() const;

  /// For how long updates were held up.
  double stall_seconds() const;

 private:
  enum class Progress : uint8_t { kPending, kCopying, kTaken };

  const Chunk& ChunkAt(size_t index) const;
  std::optional<CpuBytes> Copy(std::unique_lock<std::mutex>& lock, size_t index, Stream& stream);
  bool Finish(std::unique_lock<std::mutex>& lock, Stream& stream);
  void CopyFirst(std::unique_lock<std::mutex>& lock, size_t index, std::vector<Captured>* queued);
  void Stage(std::unique_lock<std::mutex>& lock, std::vector<Captured>* queued);

  const Dependencies deps_;
  const std::vector<int> chunks_;
  const size_t staging_bytes_;
  std::vector<int> index_of_chunk_;  // in chunks_, or -1

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_:
  std::vector<Progress> progress_;
  std::deque<Captured> staged_;  // copied by updates, not yet given to the reader
  size_t staged_bytes_ = 0, given_ = 0, next_ = 0;
  int copying_ = 0;
  bool abandoned_ = false, lacked_memory_ = false;
  double stall_seconds_ = 0;
};

}  // namespace holdfast
