#pragma once
// The way that rows of tokens take to their experts (expert_parallel.h). A row goes from its home to another node once,
// whatever the number of its experts there: to one member there, its relay, which hands it on to the members that serve
// those experts, each of which gets it once. On its own node a home hands its rows on itself. The relays of a home are
// the members with its own place on their nodes, so that the members of two nodes exchange in pairs.
//
// What comes back is a row for each expert of a token, by the straight way: their sum goes by ascending expert, and a
// sum by node would have other bits.

#include <vector>

#include "absl/types/span.h"

namespace holdfast {

/// Thread-safety: immutable.
class ExpertRoutes {
 public:
  /// `nodes`: of each member of a group, a number from 0; `homes`: members with a microbatch, ascending.
  ExpertRoutes(absl::Span<const int> nodes, absl::Span<const int> homes);

  int num_nodes() const { return static_cast<int>(members_.size()); }
  int NodeOf(int member) const { return nodes_[static_cast<size_t>(member)]; }
  /// Ascending.
  absl::Span<const int> Members(int node) const { return members_[static_cast<size_t>(node)]; }
  /// The member of `node` that hands on what comes from `home`.
  int RelayOf(int home, int node) const;

  /// A member hands on rows of one home in a turn. In each, nodes receive from different nodes.
  int num_turns() const { return num_turns_; }
  /// The home whose rows `member` hands on in a turn; -1: none.
  int HomeOf(int member, int turn) const;
  /// When `home`'s rows are handed on to the members of `node`.
  int TurnOf(int home, int node) const { return turns_[static_cast<size_t>(node)][static_cast<size_t>(home)]; }
  /// Whether rows go from node to node in a turn.
  bool Crosses(int turn) const { return crosses_[static_cast<size_t>(turn)]; }

 private:
  std::vector<int> nodes_, place_;         // by member; its place among those of its node
  std::vector<std::vector<int>> members_;  // by node
  std::vector<std::vector<int>> homes_;    // by member, by turn
  std::vector<std::vector<int>> turns_;    // by node, by member; -1 of one that is no home
  int num_turns_ = 0;
  std::vector<bool> crosses_;  // by turn
};

}  // namespace holdfast
