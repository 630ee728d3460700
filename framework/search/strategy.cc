#include "framework/search/strategy.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/search/strategies.h"

namespace holdfast::search {
namespace {

void CheckGrid(const SearchSpace& space, std::vector<std::string>* errors) {
  for (const Dimension& dimension : space.dimensions()) {
    if (dimension.scale == Scale::kChoice || dimension.integer || dimension.low == dimension.high) continue;
    if (dimension.steps == 0) {
      errors->push_back(absl::StrCat(dimension.name, ": a grid needs its `points`, as its values have no number"));
    }
  }
  if (errors->empty() && !space.GridCount().has_value()) errors->emplace_back("the grid has more than 2^62 points");
}

}  // namespace

absl::StatusOr<std::unique_ptr<SearchStrategy>> MakeStrategy(const SearchSpace& space, const StrategyOptions& options) {
  std::vector<std::string> errors;
  const bool halving = options.name == "asha";
  if (options.name != "grid" && options.name != "random" && options.name != "bayes" && !halving) {
    errors.push_back(absl::StrCat("there is no strategy ", options.name, "; there are grid, random, asha and bayes"));
  }
  if (halving ? options.rungs < 2 || options.rungs > 30 : options.rungs != 1) {
    errors.push_back(
        absl::StrCat("rungs have to be ", halving ? "2 to 30" : "1, but with asha", ", not ", options.rungs));
  }
  if (!(options.reduction > 1 && options.reduction <= 100)) {
    errors.push_back(absl::StrCat("reduction has to be in (1, 100], not ", options.reduction));
  }
  if (options.initial < 0 || options.initial > 1000) {
    errors.push_back(absl::StrCat("initial has to be 0 to 1000, not ", options.initial));
  }
  if (options.name == "grid") CheckGrid(space, &errors);
  if (!errors.empty()) return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
  if (options.name == "grid") return MakeGrid(space);
  if (halving) return MakeHalving(space, options);
  if (options.name == "bayes") return MakeBayes(space, options);
  return MakeRandom(space, options.seed);
}

double FewestTrialsToTheLastRung(const StrategyOptions& options) {
  double at_rung = 1, all = 1;
  for (int64_t rung = 1; rung < options.rungs; ++rung) {
    at_rung = std::ceil(at_rung * options.reduction);
    all += at_rung;
  }
  return all;
}

}  // namespace holdfast::search
