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
    const std::set<std::string> tried = Tried(space_, history);
    const int64_t count = *space_.GridCount();
    for (int64_t i = 0; i < count; ++i) {
      Point point = space_.GridAt(i);
      if (tried.contains(PointText(point))) continue;
      return Suggestion{.point = std::move(point), .why = absl::StrCat("point ", i + 1, " of a grid of ", count)};
    }
    return std::nullopt;
  }

 private:
  SearchSpace space_;
};

}  // namespace

std::unique_ptr<SearchStrategy> MakeGrid(const SearchSpace& space) { return std::make_unique<Grid>(space); }

}  // namespace holdfast::search
