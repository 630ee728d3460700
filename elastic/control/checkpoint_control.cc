#include "elastic/control/checkpoint_control.h"

#include <algorithm>

namespace holdfast {
namespace {

// Each of them takes staging memory of every worker, and its update may wait until those before it are written.
constexpr int64_t kMaxBeingWritten = 2;

}  // namespace

bool CheckpointControl::Has(int64_t step) const {
  return std::any_of(usable_.begin(), usable_.end(), [&](const CheckpointChoice& c) { return c.step == step; });
}

void CheckpointControl::SetUsable(std::vector<CheckpointChoice> usable, int64_t committed_step, const Branch& branch) {
  std::erase_if(usable, [&](const CheckpointChoice& c) {
    return c.step > committed_step || !branch.Includes(c.generation, c.step);
  });
  usable_ = std::move(usable);
}

void CheckpointControl::Reject(const std::string& name) {
  std::erase_if(usable_, [&](const CheckpointChoice& c) { return c.name == name; });
}

bool CheckpointControl::MaySave(Instant now, int64_t step, bool wanted, bool last) {
  if (!enabled()) return false;
  if (!schedule_.IsDue(now, step) && !wanted && !last) return false;
  const bool has_room = wanted ? saves_.being_written() < kMaxBeingWritten : saves_.empty();
  if (!last && !has_room) {
    ++skipped_;
    return false;
  }
  return true;
}

void CheckpointControl::Begin(Instant now, int64_t step, const World& world, bool at_end,
                              std::optional<double> validation_loss) {
  saves_.Begin(step, world, at_end);
  PendingSaves::Save& save = saves_.saves().back();
  save.validation_loss = validation_loss;
  if (digest_.has_value() && digest_->first == step) save.state_digest = digest_->second;
  save.begun = now;
  schedule_.OnBegun(now);
}

CheckpointControl::Done CheckpointControl::OnDone(Instant now, Instant begun, int64_t step, double stall_seconds) {
  if (failure_.has_value() && failure_->first <= step) failure_.reset();
  has_saved_ = true;
  const double seconds = std::chrono::duration<double>(now - begun).count();
  schedule_.OnSaved(stall_seconds, seconds);
  return {.seconds = seconds, .skipped = std::exchange(skipped_, 0), .interval = schedule_.TakeNewInterval(now)};
}

void CheckpointControl::OnValidation(const ValidationResult& result) {
  for (PendingSaves::Save& save : saves_.saves()) {
    if (save.step == result.step) save.validation_loss = result.loss;
  }
}

void CheckpointControl::GoBack(int64_t step, const Branch& branch) {
  SetUsable(usable_, step, branch);
  if (digest_.has_value() && digest_->first > step) digest_.reset();
  doubt_.reset();
  saves_.Clear();
  whole_.clear();
}

}  // namespace holdfast
