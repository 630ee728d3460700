#include "elastic/control/world.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace holdfast {

struct MemberList::Shared {
  explicit Shared(std::vector<Member> list) : members(std::move(list)) {}

  const std::vector<Member> members;
  mutable std::once_flag indexed;  // when it is first asked for: most lists that arrive in a message never are
  mutable absl::flat_hash_map<absl::string_view, int> ranks;
};

MemberList::MemberList(std::vector<Member> members) {
  static const auto nobody = std::make_shared<const Shared>(std::vector<Member>());
  shared_ = members.empty() ? nobody : std::make_shared<const Shared>(std::move(members));
}

const std::vector<Member>& MemberList::members() const { return shared_->members; }

int MemberList::RankOf(const WorkerId& id) const {
  std::call_once(shared_->indexed, [&] {
    shared_->ranks.reserve(size());
    for (size_t rank = 0; rank < size(); ++rank)
      shared_->ranks.emplace(members()[rank].id.name, static_cast<int>(rank));
  });
  const auto found = shared_->ranks.find(id.name);
  if (found == shared_->ranks.end()) return -1;
  return members()[static_cast<size_t>(found->second)].id == id ? found->second : -1;
}

PlacementTable::PlacementTable(std::vector<uint32_t> numbers) {
  if (!numbers.empty()) numbers_ = std::make_shared<const std::vector<uint32_t>>(std::move(numbers));
}

int World::num_leaving() const {
  return static_cast<int>(std::count_if(members.begin(), members.end(), [](const Member& m) { return m.leaves; }));
}

double World::peak_flops() const {
  double sum = 0;
  for (const Member& member : members) {
    if (member.peak_flops == 0) return 0;
    sum += member.peak_flops;
  }
  return sum;
}

}  // namespace holdfast
