#pragma once
// The checkpoints of a run: those that can be used, those that are being written, and the one that a worker could not
// load, which is read as a whole before anybody is blamed.
//
// Thread-safety: none.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elastic/control/checkpoint_schedule.h"
#include "elastic/control/pending_saves.h"
#include "elastic/control/world.h"
#include "framework/base/branch.h"
#include "framework/base/validation_result.h"
#include "framework/config/config.h"

namespace holdfast {

/// A checkpoint that can be used, as far as its manifest tells.
struct CheckpointChoice {
  std::string name;
  int64_t step = 0;
  uint64_t data_digest = 0;    // RunDigests::data of the run that wrote it
  uint64_t generation = 0;     // of the world that wrote it
  uint64_t kernel_digest = 0;  // RunDigests::kernels
  friend bool operator==(const CheckpointChoice&, const CheckpointChoice&) = default;
};

class CheckpointControl {
 public:
  using Instant = std::chrono::nanoseconds;

  /// `usable`: newest first.
  CheckpointControl(const CheckpointConfig& config, std::vector<CheckpointChoice> usable)
      : schedule_(config), usable_(std::move(usable)) {}

  /// The run writes checkpoints.
  bool enabled() const { return schedule_.enabled(); }

  // --- those that can be used
  const std::vector<CheckpointChoice>& usable() const { return usable_; }
  /// Null: there is none.
  const CheckpointChoice* newest() const { return usable_.empty() ? nullptr : &usable_.front(); }
  bool Has(int64_t step) const;
  /// What the storage holds, without what was given up, which is there until it is deleted, and without what was
  /// written of steps whose record was lost.
  void SetUsable(std::vector<CheckpointChoice> usable, int64_t committed_step, const Branch& branch);
  /// It is damaged.
  void Reject(const std::string& name);

  // --- those that are being written
  /// Whether the step that has just been committed is to be saved: when it is due, unless another one is being written;
  /// if it is `wanted`, also behind another one; and if it is the `last`.
  bool MaySave(Instant now, int64_t step, bool wanted, bool last);
  /// `validation_loss`: of this very step, if it has been validated already.
  void Begin(Instant now, int64_t step, const World& world, bool at_end, std::optional<double> validation_loss);
  PendingSaves& pending() { return saves_; }
  const PendingSaves& pending() const { return saves_; }
  struct Done {
    double seconds = 0;                                    // since it was begun
    int64_t skipped = 0;                                   // that were due or wanted meanwhile
    std::optional<CheckpointSchedule::Interval> interval;  // from here on, if it has changed
  };
  /// `begun`: when the save was.
  Done OnDone(Instant now, Instant begun, int64_t step, double stall_seconds);
  struct Failure {
    std::string cause;
    bool no_room = false;  // as in SavedMessage
  };
  /// One has been written since the start.
  bool has_saved() const { return has_saved_; }
  void OnFailed(int64_t step, Failure failure) { failure_ = {step, std::move(failure)}; }
  /// Why the last one that failed did; null if a later one has been written since.
  const Failure* failure() const { return failure_.has_value() ? &failure_->second : nullptr; }
  /// A worker was lost: what makes checkpoints worth their time.
  void OnWorkerLost() { schedule_.OnFailure(); }

  // --- what is known of a step that is saved
  void OnValidation(const ValidationResult& result);
  void OnDigest(int64_t step, uint64_t state_digest) { digest_ = {step, state_digest}; }
  /// The run goes back to the state after `step`: what was begun or written of later ones is given up, and what was
  /// whole may be so no more.
  void GoBack(int64_t step, const Branch& branch);

  // --- the one that a worker could not load
  struct Doubt {
    WorkerId worker;
    std::string cause;
    Instant since{0};
    bool reported_slow = false;
  };
  void BeginToVerify(Doubt doubt) { doubt_ = std::move(doubt); }
  bool verifying() const { return doubt_.has_value(); }
  /// Null: none is verified.
  Doubt* doubt() { return doubt_.has_value() ? &*doubt_ : nullptr; }
  Doubt EndOfVerifying() { return *std::exchange(doubt_, std::nullopt); }
  /// It was verified last.
  bool IsWhole(const std::string& name) const { return whole_ == name; }
  void SetWhole(const std::string& name) { whole_ = name; }

 private:
  CheckpointSchedule schedule_;
  std::vector<CheckpointChoice> usable_;
  PendingSaves saves_;
  int64_t skipped_ = 0;  // since the last was written
  bool has_saved_ = false;
  std::optional<std::pair<int64_t, Failure>> failure_;  // the last, and its step
  std::optional<std::pair<int64_t, uint64_t>> digest_;  // of the last digest step: step, StateDigest
  std::optional<Doubt> doubt_;                          // while the checkpoint that is loaded is verified
  std::string whole_;
};

}  // namespace holdfast
