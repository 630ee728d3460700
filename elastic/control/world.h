#pragma once
// Who is in a world. A world of thousands is handed from one part to the other and remembered in many places; its list
// of members is made once and shared.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/types/span.h"

namespace holdfast {

/// `name` is stable over restarts ("node-0/2": the third worker of an agent); `incarnation` is new with every process,
/// so a process that comes back from the dead is not mistaken for the one that took its place. 0 = nobody.
struct WorkerId {
  std::string name;
  uint64_t incarnation = 0;
  friend bool operator==(const WorkerId&, const WorkerId&) = default;
  friend bool operator<(const WorkerId& a, const WorkerId& b) {
    return std::tie(a.name, a.incarnation) < std::tie(b.name, b.incarnation);
  }
};

/// A member of a world; its rank is its place in the list.
struct Member {
  WorkerId id;
  std::string node;  // failure domain: what dies together
  std::string host;
  int64_t pid = 0;
  bool leaves = false;             // with its node, soon: it works, but is given nothing to hold
  double peak_flops = 0;           // FLOP/s of its device at most, in the run's compute dtype; 0 = unknown
  std::string probe_address = {};  // where it can be tried whether it can be reached (ProbeMessage); empty: nowhere
  friend bool operator==(const Member&, const Member&) = default;
};

/// The members of a world, by rank; never changed once made. A copy costs nothing, whatever the number of members, and
/// finding one by its name takes no search. Names are different. Thread-safe.
class MemberList {
 public:
  using const_iterator = std::vector<Member>::const_iterator;

  MemberList() : MemberList(std::vector<Member>()) {}
  // Implicit: a list of members is what it is made of.
  MemberList(std::vector<Member> members);  // NOLINT(google-explicit-constructor)
  MemberList(std::initializer_list<Member> members) : MemberList(std::vector<Member>(members)) {}
  MemberList(const MemberList&) = default;  // and no moves, which would leave one without a list
  MemberList& operator=(const MemberList&) = default;

  size_t size() const { return members().size(); }
  bool empty() const { return members().empty(); }
  const Member& operator[](size_t rank) const { return members()[rank]; }
  const_iterator begin() const { return members().begin(); }
  const_iterator end() const { return members().end(); }
  const std::vector<Member>& members() const;

  /// Rank of a worker, or -1.
  int RankOf(const WorkerId& id) const;
  friend bool operator==(const MemberList& a, const MemberList& b) {
    return a.shared_ == b.shared_ || a.members() == b.members();
  }

 private:
  struct Shared;
  std::shared_ptr<const Shared> shared_;  // by all copies
};

/// Placement::Table of a world; never changed once made. A copy costs nothing. Thread-safe.
class PlacementTable {
 public:
  PlacementTable() = default;
  // Implicit: a table is its numbers.
  PlacementTable(std::vector<uint32_t> numbers);  // NOLINT(google-explicit-constructor)
  PlacementTable(std::initializer_list<uint32_t> numbers) : PlacementTable(std::vector<uint32_t>(numbers)) {}

  bool empty() const { return numbers_ == nullptr; }
  absl::Span<const uint32_t> numbers() const {
    return empty() ? absl::Span<const uint32_t>() : absl::MakeConstSpan(*numbers_);
  }
  friend bool operator==(const PlacementTable& a, const PlacementTable& b) {
    return a.numbers_ == b.numbers_ || a.numbers() == b.numbers();
  }

 private:
  std::shared_ptr<const std::vector<uint32_t>> numbers_;  // by all copies; null if there are none
};

/// One immutable view. Members of one node stand together, those that leave come last. Generation 0 = no world.
struct World {
  uint64_t generation = 0;
  MemberList members;
  PlacementTable placement = {};  // empty: the first one of its members

  int size() const { return static_cast<int>(members.size()); }
  int RankOf(const WorkerId& id) const { return members.RankOf(id); }
  int num_leaving() const;
  /// Of all members together; 0 if that of one is unknown.
  double peak_flops() const;
  friend bool operator==(const World&, const World&) = default;
};

}  // namespace holdfast
