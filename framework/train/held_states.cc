#include "framework/train/held_states.h"

#include <utility>

#include "framework/base/status.h"

namespace holdfast {

const ShardedState* HeldStates::source() const {
  return source_.placed == nullptr ? nullptr : &source_.placed->state();
}

void HeldStates::AbandonSnapshot(Held& held) {
  if (held.snapshot != nullptr) held.snapshot->Abandon();
  held.snapshot.reset();
}

void HeldStates::CaptureSnapshot(Held& held) {
  if (held.snapshot != nullptr) held.snapshot->CaptureAll();
  held.snapshot.reset();
}

void HeldStates::Drop(Held& held) {
  AbandonSnapshot(held);
  std::unique_ptr<PlacedState> gone;  // which takes its time, so not under the lock
  const std::lock_guard lock(mutex_);
  gone.swap(held.placed);
}

void HeldStates::Leave(NextSource next) {
  // A source has its mirrors. Whoever lacked none may have been ended while it still sent to others.
  if (next == NextSource::kEntered && mirror_bytes_to_come() != 0) {
    const absl::Status complete = AwaitMirrors();
    HOLDFAST_CHECK(complete.ok());
  }
  EndMirrorFill();
  mirrored_ = true;
  const bool keep = stage_ == Stage::kCommitted || (stage_ == Stage::kEntered && next == NextSource::kEntered);
  if (next == NextSource::kNone) {
    Drop(current_);
    Drop(source_);
  } else if (keep) {
    CaptureSnapshot(source_);
    Drop(source_);
    {
      const std::lock_guard lock(mutex_);
      source_ = std::exchange(current_, {});
    }
    source_.placed->KeepStateOnly();
  } else {
    Drop(current_);
  }
  stage_ = Stage::kLeft;
}

void HeldStates::Enter(std::unique_ptr<PlacedState> placed) {
  HOLDFAST_CHECK(stage_ == Stage::kLeft);
  const std::lock_guard lock(mutex_);
  current_.placed = std::move(placed);
  stage_ = Stage::kEntered;
}

void HeldStates::Commit() {
  HOLDFAST_CHECK(stage_ != Stage::kLeft && mirrored_);
  EndMirrorFill();
  CaptureSnapshot(source_);
  Drop(source_);
  current_.snapshot.reset();  // the update has copied what it had not read
  stage_ = Stage::kCommitted;
}

void HeldStates::Forget() {
  EndMirrorFill();
  mirrored_ = true;
  Drop(current_);
  Drop(source_);
  stage_ = Stage::kLeft;
}

void HeldStates::FillMirrors(std::unique_ptr<MirrorFill> fill) {
  HOLDFAST_CHECK(stage_ == Stage::kEntered);
  const std::lock_guard lock(mutex_);
  mirror_fill_ = std::move(fill);
  mirrored_ = false;
}

void HeldStates::StartMirrorFill() {
  if (mirror_fill_ != nullptr) mirror_fill_->Start();
}

absl::Status HeldStates::AwaitMirrors() {
  if (mirrored_) return absl::OkStatus();
  RETURN_IF_ERROR(mirror_fill_->Finish());
  mirrored_ = true;
  return absl::OkStatus();
}

void HeldStates::EndMirrorFill() {
  std::unique_ptr<MirrorFill> ended;  // not under the lock either: it takes until the transfer has ended
  const std::lock_guard lock(mutex_);
  ended.swap(mirror_fill_);
}

std::shared_ptr<Snapshot> HeldStates::StartSnapshot(const Snapshot::Dependencies& dependencies, std::vector<int> chunks,
                                                    size_t staging_bytes) {
  AbandonSnapshot(source_);
  AbandonSnapshot(current_);
  current_.snapshot = std::make_shared<Snapshot>(dependencies, std::move(chunks), staging_bytes);
  return current_.snapshot;
}

void HeldStates::Abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (current_.placed != nullptr) current_.placed->store().Abort(reason);
  if (mirror_fill_ != nullptr) mirror_fill_->Abort(reason);
}

}  // namespace holdfast
