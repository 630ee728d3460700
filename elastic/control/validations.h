#pragma once
// The validation losses of a run, each of the state after a step, and whether they say that it is to end early: the
// loss has not fallen for as many validations as the config allows. As the losses have the same bits in every world,
// and each is recorded before the next step is, so has the step at which that happens.
//
// Thread-safety: none.

#include <cstdint>
#include <optional>
#include <vector>

#include "framework/base/validation_result.h"

namespace holdfast {

/// When a run ends early: the last `patience` validations all had a loss of no less than that of the last fall minus
/// `min_delta`. The first is a fall, and so is each that is lower than that of the last one minus `min_delta`.
struct EarlyStopRule {
  int64_t patience = 0;  // 0 = never
  double min_delta = 0;
};

class Validations {
 public:
  /// `known`: those up to the step that the run resumes from, in ascending steps.
  Validations(const EarlyStopRule& rule, const std::vector<ValidationResult>& known);

  /// False if that of its step or of a later one is known.
  bool Add(const ValidationResult& result);
  bool Has(int64_t step) const { return !known_.empty() && known_.back().result.step >= step; }
  /// Nothing if there was none after this very step.
  std::optional<ValidationResult> Of(int64_t step) const;
  /// The run goes back to `step`.
  void GoBackTo(int64_t step);

  struct EarlyStop {
    ValidationResult lowest;
    ValidationResult last_fall;  // by more than min_delta: what the later ones were compared with
    int64_t later = 0;           // validations since then
  };
  /// Why the run is to end after `step`, its last one; nothing if it is not.
  std::optional<EarlyStop> EndAfter(int64_t step) const;

 private:
  /// A validation, and what those up to it say: a run may have ten thousands of them, and goes back at times.
  struct Known {
    ValidationResult result;
    EarlyStop so_far;
  };

  EarlyStop StandAfter(const ValidationResult& result) const;

  const EarlyStopRule rule_;
  std::vector<Known> known_;
};

}  // namespace holdfast
