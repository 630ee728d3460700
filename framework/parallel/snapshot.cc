#include "framework/parallel/snapshot.h"

#include <chrono>
#include <new>
#include <utility>

#define XXH_INLINE_ALL
#include "framework/base/seconds.h"
#include "framework/base/status.h"
#include "xxhash.h"

namespace holdfast {

Snapshot::Snapshot(Dependencies dependencies, std::vector<int> chunks, size_t staging_bytes)
    : deps_(std::move(dependencies)),
      chunks_(std::move(chunks)),
      staging_bytes_(staging_bytes),
      index_of_chunk_(deps_.state->map().layout().chunks().size(), -1),
      progress_(chunks_.size(), Progress::kPending) {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    HOLDFAST_CHECK(deps_.state->Holds(chunks_[i]));
    index_of_chunk_[static_cast<size_t>(chunks_[i])] = static_cast<int>(i);
  }
}

const Chunk& Snapshot::ChunkAt(size_t index) const {
  return deps_.state->map().layout().chunks()[static_cast<size_t>(chunks_[index])];
}

// Queued on `stream`, outside the lock, so that the two sides copy at the same time.
// Without memory for it the snapshot is abandoned: training has what it needs.
std::optional<CpuBytes> Snapshot::Copy(std::unique_lock<std::mutex>& lock, size_t index, Stream& stream) {
  progress_[index] = Progress::kCopying;
  ++copying_;
  lock.unlock();
  std::optional<CpuBytes> bytes;
  try {
    bytes = deps_.memory->Take(deps_.state->layout().ChunkBytes(ChunkAt(index)));
  } catch (const std::bad_alloc&) {
  }
  if (bytes.has_value()) deps_.state->QueueReadChunk(chunks_[index], bytes->data(), stream);
  lock.lock();
  if (bytes.has_value()) return bytes;
  --copying_;
  abandoned_ = lacked_memory_ = true;
  changed_.notify_all();
  return std::nullopt;
}

// Waits for the copies queued. A device that failed says so to the next step; what was read from it is of no use.
bool Snapshot::Finish(std::unique_lock<std::mutex>& lock, Stream& stream) {
  lock.unlock();
  const absl::Status status = stream.Synchronize();
  lock.lock();
  if (!status.ok()) abandoned_ = true;
  return status.ok();
}

std::optional<Snapshot::Captured> Snapshot::Next() {
  std::unique_lock lock(mutex_);
  Captured captured;
  while (true) {
    if (abandoned_ || given_ == chunks_.size()) return std::nullopt;
    if (!staged_.empty()) {  // first, for an update may be waiting for the space
      captured = std::move(staged_.front());
      staged_.pop_front();
      staged_bytes_ -= captured.bytes.size();
      changed_.notify_all();
      break;
    }
    while (next_ < chunks_.size() && progress_[next_] != Progress::kPending) ++next_;
    if (next_ < chunks_.size()) {
      const size_t index = next_;
      captured.chunk = chunks_[index];
      std::optional<CpuBytes> bytes = Copy(lock, index, *deps_.reading);
      if (!bytes.has_value()) return std::nullopt;
      captured.bytes = *std::move(bytes);
      const bool copied = Finish(lock, *deps_.reading);
      --copying_;
      progress_[index] = Progress::kTaken;
      changed_.notify_all();
      if (!copied) return std::nullopt;
      break;
    }
    changed_.wait(lock);  // the last ones are just being copied by an update
  }
  ++given_;
  lock.unlock();
  captured.digest = XXH3_64bits(captured.bytes.data(), captured.bytes.size());
  return captured;
}

void Snapshot::CopyFirst(std::unique_lock<std::mutex>& lock, size_t index, std::vector<Captured>* queued) {
  const size_t bytes = deps_.state->layout().ChunkBytes(ChunkAt(index));
  // One chunk always fits; the reader may also take this very chunk while we wait.
  const auto may_go_on = [&] {
    const bool fits = staged_bytes_ == 0 || staged_bytes_ + bytes <= staging_bytes_;
    return abandoned_ || progress_[index] == Progress::kTaken || (progress_[index] == Progress::kPending && fits);
  };
  if (!may_go_on()) Stage(lock, queued);  // so that the reader can make room
  changed_.wait(lock, may_go_on);
  if (abandoned_ || progress_[index] == Progress::kTaken) return;
  staged_bytes_ += bytes;
  std::optional<CpuBytes> copy = Copy(lock, index, *deps_.updating);
  if (copy.has_value()) queued->push_back({.chunk = chunks_[index], .bytes = *std::move(copy), .digest = 0});
}

// What was queued is copied, and the reader may have it.
void Snapshot::Stage(std::unique_lock<std::mutex>& lock, std::vector<Captured>* queued) {
  if (queued->empty()) return;
  Finish(lock, *deps_.updating);
  for (Captured& captured : *queued) {
    progress_[static_cast<size_t>(index_of_chunk_[static_cast<size_t>(captured.chunk)])] = Progress::kTaken;
    --copying_;
    staged_.push_back(std::move(captured));
  }
  queued->clear();
  changed_.notify_all();
}

void Snapshot::BeforeUpdate(int unit, Range range) {
  const auto start = std::chrono::steady_clock::now();
  const ParameterLayout& layout = deps_.state->map().layout();
  const Unit& u = layout.units()[static_cast<size_t>(unit)];
  std::vector<Captured> queued;
  std::unique_lock lock(mutex_);
  for (int c = u.first_chunk; c < u.first_chunk + u.num_chunks && !abandoned_; ++c) {
    const int index = index_of_chunk_[static_cast<size_t>(c)];
    const Chunk& chunk = layout.chunks()[static_cast<size_t>(c)];
    const int64_t first = chunk.offset - u.offset;
    if (index < 0 || first >= range.end || first + chunk.elements <= range.begin) continue;
    if (progress_[static_cast<size_t>(index)] != Progress::kTaken) CopyFirst(lock, static_cast<size_t>(index), &queued);
  }
  Stage(lock, &queued);
  stall_seconds_ += SecondsSince(start);
}

void Snapshot::CaptureAll() {
  const auto units = deps_.state->map().layout().units();
  for (size_t u = 0; u < units.size(); ++u) BeforeUpdate(static_cast<int>(u), {0, units[u].elements});
}

void Snapshot::Abandon() {
  std::unique_lock lock(mutex_);
  abandoned_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return copying_ == 0; });
}

bool Snapshot::abandoned() const {
  const std::lock_guard lock(mutex_);
  return abandoned_;
}

bool Snapshot::lacked_memory() const {
  const std::lock_guard lock(mutex_);
  return lacked_memory_;
}

double Snapshot::stall_seconds() const {
  const std::lock_guard lock(mutex_);
  return stall_seconds_;
}

}  // namespace holdfast
