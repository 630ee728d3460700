#include "framework/parallel/snapshot.h"

#include <chrono>
#include <utility>

#define XXH_INLINE_ALL
#include "framework/base/status.h"
#include "xxhash.h"

namespace holdfast {

Snapshot::Snapshot(const ShardedState& state, std::vector<int> chunks, size_t staging_bytes)
    : state_(state),
      chunks_(std::move(chunks)),
      staging_bytes_(staging_bytes),
      index_of_chunk_(state.map().layout().chunks().size(), -1),
      progress_(chunks_.size(), Progress::kPending) {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    HF_CHECK(state.Holds(chunks_[i]));
    index_of_chunk_[static_cast<size_t>(chunks_[i])] = static_cast<int>(i);
  }
}

// Outside the lock, so that the two sides copy at the same time.
std::vector<std::byte> Snapshot::Copy(std::unique_lock<std::mutex>& lock, size_t index) {
  progress_[index] = Progress::kCopying;
  ++copying_;
  lock.unlock();
  const int chunk = chunks_[index];
  std::vector<std::byte> bytes(ShardedState::ChunkBytes(state_.map().layout().chunks()[static_cast<size_t>(chunk)]));
  state_.ReadChunk(chunk, bytes.data());
  lock.lock();
  --copying_;
  progress_[index] = Progress::kTaken;
  changed_.notify_all();
  return bytes;
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
      captured.chunk = chunks_[next_];
      captured.bytes = Copy(lock, next_);
      break;
    }
    changed_.wait(lock);  // the last ones are just being copied by an update
  }
  ++given_;
  lock.unlock();
  captured.digest = XXH3_64bits(captured.bytes.data(), captured.bytes.size());
  return captured;
}

void Snapshot::CopyFirst(std::unique_lock<std::mutex>& lock, size_t index) {
  const size_t bytes = ShardedState::ChunkBytes(state_.map().layout().chunks()[static_cast<size_t>(chunks_[index])]);
  // One chunk always fits; the reader may also take this very chunk while we wait.
  changed_.wait(lock, [&] {
    return abandoned_ || progress_[index] == Progress::kTaken ||
           (progress_[index] == Progress::kPending && (staged_.empty() || staged_bytes_ + bytes <= staging_bytes_));
  });
  if (abandoned_ || progress_[index] == Progress::kTaken) return;
  staged_bytes_ += bytes;
  std::vector<std::byte> copy = Copy(lock, index);
  staged_.push_back({.chunk = chunks_[index], .bytes = std::move(copy), .digest = 0});
  changed_.notify_all();
}

void Snapshot::BeforeUpdate(int unit, Range range) {
  const auto start = std::chrono::steady_clock::now();
  const ParameterLayout& layout = state_.map().layout();
  const Unit& u = layout.units()[static_cast<size_t>(unit)];
  std::unique_lock lock(mutex_);
  for (int c = u.first_chunk; c < u.first_chunk + u.num_chunks && !abandoned_; ++c) {
    const int index = index_of_chunk_[static_cast<size_t>(c)];
    const Chunk& chunk = layout.chunks()[static_cast<size_t>(c)];
    const int64_t first = chunk.offset - u.offset;
    if (index < 0 || first >= range.end || first + chunk.elements <= range.begin) continue;
    if (progress_[static_cast<size_t>(index)] != Progress::kTaken) CopyFirst(lock, static_cast<size_t>(index));
  }
  stall_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Snapshot::CaptureAll() {
  const auto units = state_.map().layout().units();
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

double Snapshot::stall_seconds() const {
  const std::lock_guard lock(mutex_);
  return stall_seconds_;
}

}  // namespace holdfast
