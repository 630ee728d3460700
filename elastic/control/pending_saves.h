#pragma once
// Checkpoints that are being written: who has still to say that its part is durable. A checkpoint is written by the
// members of one world, each process for itself, so it goes on through changes of the world that cost none of them.
//
// Thread-safety: none.

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "elastic/control/messages.h"

namespace holdfast {

class PendingSaves {
 public:
  struct Save {
    int64_t step = 0;
    World world;                                      // whose members write it
    std::vector<std::optional<SavedMessage>> shards;  // by rank
    int missing = 0;
    bool at_end = false;      // written by the ending of its world, and gone with it
    bool committing = false;  // all shards are durable
    bool reported_slow = false;
    std::chrono::nanoseconds begun{0};
    std::optional<double> validation_loss = {};  // of its step
    uint64_t state_digest = 0;                   // as CommitCheckpointAction has it
  };

  void Begin(int64_t step, const World& world, bool at_end);
  bool empty() const { return saves_.empty(); }
  bool Has(int64_t step) const;
  /// Those that members still work at.
  int64_t being_written() const;
  std::vector<Save>& saves() { return saves_; }

  /// A member's report. Returns the save it belongs to; null if there is none that waits for it.
  Save* OnSaved(const WorkerId& id, const SavedMessage& message);
  /// Nothing if there was no such save.
  std::optional<Save> Remove(int64_t step, uint64_t generation);
  /// A world is closed.
  void RemoveEndOf(uint64_t generation);
  /// Takes out the saves that wait for somebody who is gone.
  std::vector<Save> TakeThoseOf(const WorkerId& id);
  void Clear() { saves_.clear(); }

 private:
  std::vector<Save> saves_;
};

}  // namespace holdfast
