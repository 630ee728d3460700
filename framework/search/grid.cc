#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/search/history.h"
#include "framework/search/strategies.h"

namespace holdfast::search {
namespace {

class Grid : public SearchStrategy {
 public:
  explicit Grid(SearchSpace space) : space_(std::move(space)) {}

  std::optional<Suggestion> Next(absl::Span<const Observation> history) const override {
    const int64_t count = *space_.GridCount();
    const auto suggest = [&](int64_t i) {
      return Suggestion{.point = space_.GridAt(i), .why = absl::StrCat("point ", i + 1, " of a grid of ", count)};
    };
    const auto known = static_cast<int64_t>(history.size());
    if (known > 0 && known <= count && IsAt(history.back(), known - 1)) {  // all of its own: thousands may be refused
      return known < count ? std::optional(suggest(known)) : std::nullopt;
    }
    const std::set<std::string> tried = Tried(space_, history);
    for (int64_t i = 0; i < count; ++i) {
      if (!tried.contains(PointText(space_.GridAt(i)))) return suggest(i);
    }
    return std::nullopt;
  }

 private:
  bool IsAt(const Observation& observation, int64_t index) const {
    return PointText(observation.point) == PointText(space_.GridAt(index));
  }

  SearchSpace space_;
};

}  // namespace

std::unique_ptr<SearchStrategy> MakeGrid(const SearchSpace& space) { return std::make_unique<Grid>(space); }

}  // namespace holdfast::search
