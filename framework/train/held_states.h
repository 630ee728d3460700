#pragma once
// The states that a rank holds while worlds change, and who reads them: the current one, of the world entered last; the
// source, of the last world that committed a step, where the others may still fetch from until this world commits one
// too; the mirror fill that copies from source to current beside the first step; and the snapshot of one of the two.
//
//   stage        current   source      next
//   kLeft        no        maybe       Enter
//   kEntered     yes       maybe       Commit -> kCommitted, Leave -> kLeft with the source as it was, or, if the next
//                                      world's source is this one, with the current state
//   kCommitted   yes       no          Leave -> kLeft with the current state as source
//
// A state that goes takes its snapshot with it: abandoned where the state counts for nothing any more, else copied
// first.
//
// Thread-safety: Abort from any thread, everything else from one.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/parallel/placed_state.h"
#include "framework/parallel/snapshot.h"
#include "framework/train/mirror_fill.h"

namespace holdfast {

class HeldStates {
 public:
  /// Where the next world has its state from.
  enum class NextSource : uint8_t {
    kNone,           // it begins anew: what is held counts for nothing
    kLastCommitted,  // from the last world that committed a step
    kEntered,        // from the world entered last, though it may have committed none
  };

  HeldStates() = default;
  /// Ends the mirror fill and abandons the snapshot.
  ~HeldStates() { Forget(); }

  /// From Enter until Leave or Forget.
  PlacedState& current() const { return *current_.placed; }
  /// The source's state; null = there is none.
  const ShardedState* source() const;

  /// The current state becomes the source, of which nothing but the state stays, or goes. Again, it changes nothing.
  void Leave(NextSource next);
  /// After Leave, or first.
  void Enter(std::unique_ptr<PlacedState> placed);
  /// The step of the current state has been updated: the source goes. All mirrors are there.
  void Commit();
  /// Everything goes.
  void Forget();

  /// The mirrors of the current state are to be filled from the source; `fill` is started later.
  void FillMirrors(std::unique_ptr<MirrorFill> fill);
  void StartMirrorFill();
  bool mirrored() const { return mirrored_; }
  /// Of the fill under way, when it was made.
  int64_t mirror_bytes_to_come() const { return mirror_fill_ == nullptr ? 0 : mirror_fill_->bytes(); }
  /// Waits for the end of the fill.
  absl::Status AwaitMirrors();
  /// Gives the fill up, if it is under way.
  void EndMirrorFill();

  /// Of `chunks` of the current state; the one before is abandoned.
  std::shared_ptr<Snapshot> StartSnapshot(const Snapshot::Dependencies& dependencies, std::vector<int> chunks,
                                          size_t staging_bytes);
  /// That has to be told before the current state changes; null = nobody reads it.
  Snapshot* snapshot_of_current() const { return current_.snapshot.get(); }

  /// Makes what is under way with other ranks fail soon.
  void Abort(const std::string& reason);

 private:
  struct Held {
    std::unique_ptr<PlacedState> placed;
    std::shared_ptr<Snapshot> snapshot;  // null = none that still reads the state
  };
  void Drop(Held& held);
  static void CaptureSnapshot(Held& held);
  static void AbandonSnapshot(Held& held);

  enum class Stage : uint8_t { kLeft, kEntered, kCommitted };
  Stage stage_ = Stage::kLeft;
  std::mutex mutex_;  // guards the pointers to what Abort uses
  Held current_, source_;
  std::unique_ptr<MirrorFill> mirror_fill_;  // from source_ to current_
  bool mirrored_ = true;                     // no fill, or its result was looked at
};

}  // namespace holdfast
