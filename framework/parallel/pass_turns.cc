#include "framework/parallel/pass_turns.h"

namespace holdfast {

absl::Status PassTurns::Run(Pass pass0, Pass pass1) {
  {
    const std::lock_guard lock(mutex_);
    turn_ = 0;
    ended_ = {};
    failure_ = absl::OkStatus();
  }
  thread_.Post([this, pass1] { RunLane(1, pass1); });
  RunLane(0, pass0);
  thread_.Drain();
  const std::lock_guard lock(mutex_);
  return failure_;
}

void PassTurns::RunLane(int lane, Pass pass) {
  absl::Status status;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == lane; });
    status = failure_;
  }
  if (status.ok()) status = pass();
  const std::lock_guard lock(mutex_);
  failure_.Update(status);  // keeps the first one
  ended_[static_cast<size_t>(lane)] = true;
  GiveTurn(lane);
}

void PassTurns::GiveTurn(int lane) {
  const int other = kMaxLanes - 1 - lane;
  if (ended_[static_cast<size_t>(other)]) return;
  turn_ = other;
  changed_.notify_all();
}

absl::Status PassTurns::Pause(int lane) {
  std::unique_lock lock(mutex_);
  GiveTurn(lane);
  changed_.wait(lock, [&] { return turn_ == lane; });
  return failure_;
}

}  // namespace holdfast
