#pragma once
// What to try next. A strategy has no state: Next is a pure function of the history, the space, the options and the
// seed, with the same result on any processor and in any process. A sweep resumes by handing in its record.
//
//   ASSIGN_OR_RETURN(auto strategy, MakeStrategy(space, {.name = "bayes", .seed = 1}));
//   while (auto next = strategy->Next(history)) history.push_back(Run(*next));

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/search/space.h"
#include "framework/search/trial.h"

namespace holdfast::search {

class SearchStrategy {
 public:
  virtual ~SearchStrategy() = default;

  /// What to try after all that has ended or runs. history: by number of trial; trials whose point the space does not
  /// have are passed over. Nothing: wait for a trial that runs or, where none does, there is no more to try.
  virtual std::optional<Suggestion> Next(absl::Span<const Observation> history) const = 0;
};

struct StrategyOptions {
  std::string name = "random";  // grid, random, asha, bayes
  uint64_t seed = 0;
  int64_t rungs = 1;     // of asha: 2 or more; a trial of the next rung costs `reduction` times as much
  double reduction = 3;  // of asha: of so many trials of a rung one is continued at the next
  int64_t initial = 0;   // of bayes: measured trials before there is a model; 0: 4 + dimensions, 12 at most
};

/// InvalidArgument says everything that is wrong, a line each.
absl::StatusOr<std::unique_ptr<SearchStrategy>> MakeStrategy(const SearchSpace& space, const StrategyOptions& options);

/// How many trials a strategy with rungs takes at least until one is at the last rung, that one included: with 3 rungs
/// and reduction 3, nine at rung 0, three at rung 1 and one at rung 2. 1 without rungs.
double FewestTrialsToTheLastRung(const StrategyOptions& options);

}  // namespace holdfast::search
