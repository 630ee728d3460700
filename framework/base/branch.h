#pragma once
// Which part of a run's past still counts. Going back to step s when g is the last generation used leaves a barrier:
// whatever was made in generations up to g (lines of the record, claims of workers, checkpoints) counts up to step s
// only. Generations grow, so what the run does from there on lies beyond the barrier. Barriers are stored durably
// before anything else happens, and never taken away.
//
//   branch.GoBack({.generation = 7, .step = 20});
//   branch.Includes(7, 20);  // true
//   branch.Includes(7, 21);  // false: given up
//   branch.Includes(8, 21);  // true: done again

#include <cstdint>
#include <vector>

namespace holdfast {

struct Barrier {
  uint64_t generation = 0;  // the last one before the run went back
  int64_t step = 0;         // that it went back to
  friend bool operator==(const Barrier&, const Barrier&) = default;
};

/// Thread-safety: none.
class Branch {
 public:
  void GoBack(const Barrier& barrier);
  void GoBack(const Branch& other);
  /// The state after `step`, reached in `generation`, is one that the run still resumes from.
  bool Includes(uint64_t generation, int64_t step) const;

  /// Those that no later one implies, oldest first.
  const std::vector<Barrier>& barriers() const { return barriers_; }
  friend bool operator==(const Branch&, const Branch&) = default;

 private:
  std::vector<Barrier> barriers_;
};

}  // namespace holdfast
