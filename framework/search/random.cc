#include <utility>

#include "framework/search/history.h"
#include "framework/search/strategies.h"

namespace holdfast::search {
namespace {

class Random : public SearchStrategy {
 public:
  Random(SearchSpace space, uint64_t seed) : space_(std::move(space)), seed_(seed) {}

  std::optional<Suggestion> Next(absl::Span<const Observation> history) const override {
    std::optional<Point> point = NextSpread(space_, seed_, history);
    if (!point.has_value()) return std::nullopt;
    return Suggestion{.point = *std::move(point), .why = "the next of an even random spread"};
  }

 private:
  SearchSpace space_;
  uint64_t seed_;
};

}  // namespace

std::unique_ptr<SearchStrategy> MakeRandom(const SearchSpace& space, uint64_t seed) {
  return std::make_unique<Random>(space, seed);
}

}  // namespace holdfast::search
