#include "elastic/control/state_location.h"

#include "elastic/control/worker_history.h"

namespace holdfast {

StateLocation::StateLocation(bool claimed) {
  if (claimed) state_ = Claims();
}

const World& StateLocation::source() const {
  static const World none;
  const auto* world = std::get_if<World>(&state_);
  return world == nullptr ? none : *world;
}

const std::string& StateLocation::checkpoint() const {
  static const std::string none;
  const auto* checkpoint = std::get_if<Checkpoint>(&state_);
  return checkpoint == nullptr ? none : checkpoint->name;
}

void StateLocation::SetWorld(const World& world) {
  if (world.generation == 0) {
    state_ = Nowhere();
  } else {
    state_ = world;
  }
  entered_ = {};
  ended_.clear();
}

void StateLocation::SetCheckpoint(const std::string& name) {
  if (name.empty()) {
    state_ = Nowhere();
  } else {
    state_ = Checkpoint{name};
  }
  entered_ = {};
}

void StateLocation::OnProcessEnded(const std::string& node, const WorkerId& id) {
  for (const Member& member : source().members) {
    const bool is_it = member.id.name == id.name && member.node == node;
    if (is_it && WorkerHistory::SameProcess(id.incarnation, member.id.incarnation)) ended_.insert(member.id);
  }
}

bool StateLocation::Learn(const World& world) {
  auto* claims = std::get_if<Claims>(&state_);
  return claims != nullptr && world.generation != 0 && !world.members.empty() &&
         claims->known.emplace(world.generation, world).second;
}

StateClaim StateLocation::WithMembers(StateClaim claim) const {
  const auto* claims = std::get_if<Claims>(&state_);
  if (claims == nullptr) return claim;
  for (World* world : {&claim.world, &claim.prepared_world, &claim.entered_world}) {
    const auto known = claims->known.find(world->generation);
    if (known != claims->known.end()) *world = known->second;
  }
  return claim;
}

uint64_t& StateLocation::AskedFor(uint64_t generation) { return std::get<Claims>(state_).asked[generation]; }

bool StateLocation::WasAsked(uint64_t connection, uint64_t generation) const {
  const auto* claims = std::get_if<Claims>(&state_);
  if (claims == nullptr) return false;
  const auto asked = claims->asked.find(generation);
  return asked != claims->asked.end() && asked->second == connection;
}

}  // namespace holdfast
