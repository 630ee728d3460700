#pragma once
// Which rows of a layer with experts go from whom to whom, and in which rounds: what the members of a group work out
// from their routers' choices before anything travels (expert_parallel.h, which says how it does).

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/nn/part_store.h"
#include "kernels/experts.h"
#include "models/expert_routes.h"

namespace holdfast {

/// Rows that fit where experts are computed: as many as the choices of so many microbatches.
inline constexpr int64_t kExpertRoom = 2;
/// Homes whose rows come in one round, at most.
inline constexpr int64_t kMaxHomesOfRound = 64;

/// One layer, one microbatch of each home. Choices and slots: see kernels/experts.h. What is sent of choices lies in
/// the order of their members and, of a member, in that of its experts.
struct ExpertTraffic {
  struct Range {
    int64_t slot = 0, place = 0, count = 0;  // choices from `slot` on are sent from `place` on
  };
  /// Rows of this rank's microbatch that go to a node.
  struct ToNode {
    std::vector<int32_t> rows;       // those that travel to its relay; none to this rank's own node
    std::vector<int32_t> handed_on;  // what the relay hands on, one member's after the other: numbers in `rows`; on the
                                     // own node rows themselves
  };
  /// What comes of a home.
  struct Home {
    std::vector<int64_t> choices;  // for each of the experts here
    int64_t num_choices = 0;       // for all of them
    int64_t rows = 0;              // for this rank
    std::vector<int64_t> rows_of;  // for each member of its node
    int64_t rows_to_node = 0;      // that travel to the node
    int64_t round = 0;
  };

  ExpertRoutes routes{{0}, {}};
  std::vector<Range> order;           // empty: that of slots
  std::vector<int64_t> sent, places;  // by member: choices, and the place of the first
  std::vector<int64_t> sent_round;    // by member: in which they go
  std::vector<int32_t> which;         // of each choice that is sent: the number of its row among those for its member
  std::vector<ToNode> to_nodes;       // by node
  std::vector<Home> received;         // by member
  int64_t rounds = 1;
};

/// `choices`: of this rank's microbatch of `rows` rows, null if it has none. All members call it alike, with as many
/// rows.
absl::StatusOr<ExpertTraffic> PlanExpertTraffic(PartStore& parts, int unit, const kernels::ExpertRows* choices,
                                                int64_t rows, int64_t chosen);

}  // namespace holdfast
