#include "elastic/control/state_source.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "framework/base/status.h"

namespace holdfast {
namespace {

// The world of a prepared step. A claim without one prepared its step where its state lies.
const World& PreparedWorld(const StateClaim& claim) {
  return claim.prepared_world.generation != 0 ? claim.prepared_world : claim.world;
}

// The worlds in which the claim has the state after `step`.
std::vector<const World*> WorldsAt(const StateClaim& claim, int64_t step) {
  std::vector<const World*> worlds;
  if (claim.committed_step == step) worlds = {&claim.world, &claim.entered_world};
  if (claim.prepared_step == step) worlds.push_back(&PreparedWorld(claim));
  std::erase_if(worlds, [](const World* world) { return world->generation == 0; });
  return worlds;
}

}  // namespace

std::vector<std::string> NodesOf(const World& world) {
  std::vector<std::string> nodes;
  nodes.reserve(world.members.size());
  for (const Member& member : world.members) nodes.push_back(member.node);
  return nodes;
}

Placement PlacementOf(const World& world, const ParallelConfig& parallel) {
  absl::StatusOr<Placement> placement =
      Placement::FromTable(NodesOf(world), parallel, world.num_leaving(), world.placement.numbers());
  HOLDFAST_CHECK(placement.ok());  // looked at when it came in
  return *std::move(placement);
}

bool HasSanePlacement(const World& world, const ParallelConfig& parallel) {
  return world.placement.empty() ||
         (world.num_leaving() < world.size() &&
          Placement::FromTable(NodesOf(world), parallel, world.num_leaving(), world.placement.numbers()).ok());
}

int RankHeld(const WorkerId& id, const StateClaim& claim, const World& world, int64_t step) {
  const std::vector<const World*> held = WorldsAt(claim, step);
  const bool holds =
      std::any_of(held.begin(), held.end(), [&](const World* other) { return other->generation == world.generation; });
  return holds ? world.RankOf(id) : -1;
}

bool IsEmpty(const StateClaim& claim) {
  return claim.world.generation == 0 && claim.prepared_step == 0 && claim.entered_world.generation == 0;
}

StateSource FindStateSource(const std::vector<ClaimOf>& claims, int64_t recorded_step, const ParallelConfig& parallel,
                            const UsedCells& used) {
  StateSource best;
  int64_t best_missing = 0;
  std::map<uint64_t, const World*, std::greater<>> worlds;  // newest first
  for (const ClaimOf& c : claims) {
    for (const World* world : WorldsAt(*c.claim, recorded_step)) {
      if (!world->members.empty()) worlds.emplace(world->generation, world);
    }
  }
  for (const auto& [generation, world] : worlds) {
    std::vector<bool> alive(world->members.size(), false);
    for (const ClaimOf& c : claims) {
      const int rank = RankHeld(c.id, *c.claim, *world, recorded_step);
      if (rank >= 0) alive[static_cast<size_t>(rank)] = true;
    }
    const int64_t missing = std::count(alive.begin(), alive.end(), false);
    const bool covered = missing == 0 || PlacementOf(*world, parallel).LostCells(alive, used).empty();
    if (best.world.generation != 0 && (!covered || (best.covered && missing >= best_missing))) continue;
    best = {*world, covered, missing == 0};
    best_missing = missing;
    if (best.complete) break;
  }
  return best;
}

std::vector<Member> HoldersOfLostState(const World& source, const std::vector<bool>& alive,
                                       const ParallelConfig& parallel, const UsedCells& used) {
  if (std::find(alive.begin(), alive.end(), false) == alive.end()) return {};
  const Placement placement = PlacementOf(source, parallel);
  std::vector<bool> wanted(alive.size(), false);
  for (const int cell : placement.LostCells(alive, used)) {
    for (const int rank : placement.Holders(cell)) wanted[static_cast<size_t>(rank)] = true;
  }
  std::vector<Member> holders;
  for (size_t rank = 0; rank < wanted.size(); ++rank) {
    if (wanted[rank]) holders.push_back(source.members[rank]);
  }
  return holders;
}

}  // namespace holdfast
