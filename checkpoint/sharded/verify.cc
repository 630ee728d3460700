// CheckpointReader::Verify: every byte is read once, by several threads. Each takes the next segment, reads it, waits
// for its turn to add it to the file's digest, which is taken in order, and then checks the chunks inside it while
// others read on. Segments are handed out in order, so the one that all wait for is always at work.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/sharded/batch_reader.h"
#include "checkpoint/sharded/checkpoint_reader.h"
#include "checkpoint/sharded/digest.h"
#include "checkpoint/sharded/stored_files.h"
#include "checkpoint/sharded/verify_plan.h"
#include "framework/base/status.h"
#include "framework/base/thread_pool.h"

namespace holdfast {
namespace {

constexpr uint64_t kSegmentBytes = 4 << 20;
constexpr size_t kMaxProblems = 100;  // more are of no use

class Verifier {
 public:
  Verifier(Storage& storage, const Manifest& manifest, const StoredChunks& chunks,
           const CheckpointReader::ReadOptions& options)
      : storage_(storage),
        manifest_(manifest),
        chunks_(chunks),
        options_(options),
        plan_(PlanVerify(manifest, chunks, kSegmentBytes)),
        files_(plan_.files.size()) {}

  absl::StatusOr<std::vector<std::string>> Run() {
    ASSIGN_OR_RETURN(const std::vector<StoredObject> objects, storage_.List(manifest_.name.ToString() + "/"));
    for (const FileProblem& problem : FindSizeProblems(manifest_, objects)) {
      broken_.insert(problem.file);
      Report(absl::StrCat(manifest_.name.ToString(), "/", problem.ToString()));
    }
    ThreadPool pool(std::max(options_.threads, 1));
    kernels::ParallelFor(pool, pool.num_threads(), [&](int64_t, int) { Work(); });
    RETURN_IF_ERROR(failure_);
    for (size_t i = 0; i < files_.size(); ++i) {
      if (broken_.contains(plan_.files[i].name) || files_[i].digest.Hex() == plan_.files[i].digest) continue;
      Report(absl::StrCat(Name(i), ": its contents do not have the manifest's digest"));
    }
    return std::move(problems_);
  }

 private:
  struct FileState {
    FileDigest digest;
    int next = 0;  // segment
  };

  std::string Name(size_t file) const { return ObjectName(manifest_.name, plan_.files[file].name); }

  void Work() {
    ScratchBytes buffer;
    ChunkDecoder decoder(manifest_);
    for (;;) {
      const size_t i = next_segment_.fetch_add(1);
      if (i >= plan_.segments.size()) break;
      const VerifySegment& segment = plan_.segments[i];
      std::byte* const data = buffer.Get(segment.size, segment.offset);
      const absl::Span<std::byte> bytes(data, segment.size);
      const bool read = Read(segment, bytes);
      AddToDigest(segment, bytes, read);
      if (!read) continue;
      for (const ChunkRef ref : segment.chunks) CheckChunk(ref, bytes, segment.offset, &decoder);
    }
    CheckScattered();
  }

  bool Read(const VerifySegment& segment, absl::Span<std::byte> bytes) {
    const auto file = static_cast<size_t>(segment.file);
    if (options_.stop.stop_requested()) Fail(absl::CancelledError("verification was stopped"));
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.ok() || broken_.contains(plan_.files[file].name)) return false;
    }
    const absl::Status status = bytes.empty() ? absl::OkStatus() : storage_.ReadAt(Name(file), segment.offset, bytes);
    if (status.ok()) {
      Progress(bytes.size());
      return true;
    }
    Unreadable(plan_.files[file].name, DamagedUnlessPassing(status, Name(file)));
    return false;
  }

  void AddToDigest(const VerifySegment& segment, absl::Span<const std::byte> bytes, bool read) {
    FileState& file = files_[static_cast<size_t>(segment.file)];
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return file.next == segment.number; });
    lock.unlock();
    if (read) file.digest.Update(bytes);
    lock.lock();
    ++file.next;
    turn_.notify_all();
  }

  void CheckChunk(ChunkRef ref, absl::Span<const std::byte> bytes, uint64_t offset, ChunkDecoder* decoder) {
    const StoredChunk& chunk = chunks_[static_cast<size_t>(ref.shard)][static_cast<size_t>(ref.chunk)];
    absl::InlinedVector<absl::Span<const std::byte>, kMaxPlanes> pieces;
    for (const StoredPiece& piece : chunk.pieces) pieces.push_back(bytes.subspan(piece.offset - offset, piece.size));
    const auto values = decoder->Decode(ref.shard, chunk, pieces);
    if (!values.ok()) Report(std::string(values.status().message()));
  }

  // One by one: our writer leaves none of these.
  void CheckScattered() {
    BatchReader reader(storage_, manifest_, chunks_);
    for (size_t i = next_scattered_.fetch_add(1); i < plan_.scattered.size(); i = next_scattered_.fetch_add(1)) {
      const ChunkRef ref = plan_.scattered[i];
      const StoredChunk& chunk = chunks_[static_cast<size_t>(ref.shard)][static_cast<size_t>(ref.chunk)];
      const std::string& file = manifest_.shards[static_cast<size_t>(ref.shard)].data.name;
      {
        const std::lock_guard lock(mutex_);
        if (!failure_.ok()) return;
        if (broken_.contains(file)) continue;
      }
      ReadBatch batch{.wanted = {{.tensor = chunk.tensor, .first_row = chunk.first_row, .rows = chunk.rows}},
                      .reads = {{.stored = ref, .copies = {{.rows = chunk.rows}}}},
                      .ranges = {}};
      for (const StoredPiece& piece : chunk.pieces) batch.ranges.push_back({ref.shard, piece.offset, piece.size});
      batch.ranges = JoinRanges(std::move(batch.ranges), 0);
      const absl::Status status = reader.Run(batch, [](const auto&, auto) { return absl::OkStatus(); });
      if (absl::IsDataLoss(status)) Report(std::string(status.message()));
      if (!status.ok() && !absl::IsDataLoss(status)) Fail(status);
    }
  }

  void Progress(uint64_t bytes) {
    const uint64_t read = bytes_ += bytes;
    if (options_.on_progress) options_.on_progress(read);
  }

  void Unreadable(const std::string& file, const absl::Status& status) {
    if (!absl::IsDataLoss(status)) return Fail(status);
    Report(std::string(status.message()));
    const std::lock_guard lock(mutex_);
    broken_.insert(file);
  }

  void Report(std::string problem) {
    const std::lock_guard lock(mutex_);
    if (problems_.size() < kMaxProblems) problems_.push_back(std::move(problem));
  }

  void Fail(const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = status;
  }

  Storage& storage_;
  const Manifest& manifest_;
  const StoredChunks& chunks_;
  const CheckpointReader::ReadOptions& options_;
  const VerifyPlan plan_;
  std::deque<FileState> files_;
  std::atomic<size_t> next_segment_{0}, next_scattered_{0};
  std::atomic<uint64_t> bytes_{0};

  std::mutex mutex_;
  std::condition_variable turn_;
  std::vector<std::string> problems_;
  absl::flat_hash_set<std::string> broken_;  // files that are not there, or not of their size
  absl::Status failure_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> CheckpointReader::Verify(const ReadOptions& options) const {
  return Verifier(storage_, manifest_, chunks_, options).Run();
}

}  // namespace holdfast
