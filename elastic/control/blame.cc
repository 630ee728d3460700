#include "elastic/control/blame.h"

#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace holdfast {

void Blame::Add(const World& world, int reporter, const FailureMessage& failure) {
  const WorkerId& id = world.members[static_cast<size_t>(reporter)].id;
  if (reporters_.empty() && (cause_.empty() || !failure.secondhand))
    cause_ = absl::StrCat(id.name, ": ", failure.cause);
  if (!failure.secondhand) {
    reporters_.push_back(reporter);
    out_of_memory_ += failure.out_of_memory ? 1 : 0;
    no_room_ += failure.no_room ? 1 : 0;
  }
  const std::set<int> suspects(failure.suspects.begin(), failure.suspects.end());
  for (const int suspect : suspects) {
    if (suspect >= 0 && suspect < world.size() && suspect != reporter) {
      ++named_[world.members[static_cast<size_t>(suspect)].id];
    }
  }
}

Blame::Verdict Blame::Conclude(const World& world) {
  const bool at_home = named_.empty();
  if (IsAtHome()) named_[world.members[static_cast<size_t>(reporters_[0])].id] = 1;
  std::map<WorkerId, int64_t> worlds;
  const auto is_of_all = [this](size_t count) { return count > 0 && count == reporters_.size(); };
  Verdict verdict{.culprit = {},
                  .cause = cause_,
                  .at_home = at_home,
                  .out_of_memory = is_of_all(out_of_memory_),
                  .no_room = is_of_all(no_room_)};
  std::tuple<int64_t, int64_t, int> worst;
  for (const auto& [id, votes] : named_) {
    worlds[id] = worlds_[id] + 1;
    const std::tuple badness{worlds[id], votes, world.RankOf(id)};
    if (worlds[id] >= kWorlds && badness > worst && world.size() > 1) {
      worst = badness;
      verdict.culprit = id;
    }
  }
  worlds_ = std::move(worlds);
  ++failed_worlds_;
  Drop();
  return verdict;
}

void Blame::Drop() {
  cause_.clear();
  reporters_.clear();
  out_of_memory_ = no_room_ = 0;
  named_.clear();
}

void Blame::Clear() {
  Drop();
  worlds_.clear();
  failed_worlds_ = 0;
}

}  // namespace holdfast
