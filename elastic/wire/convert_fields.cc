#include "elastic/wire/convert_fields.h"

#include <cmath>
#include <utility>
#include <vector>

#include "framework/base/limits.h"

namespace holdfast {

static_assert(static_cast<int>(Phase::kStarting) == v1::PHASE_STARTING);
static_assert(static_cast<int>(Phase::kRendezvous) == v1::PHASE_RENDEZVOUS);
static_assert(static_cast<int>(Phase::kTransfer) == v1::PHASE_TRANSFER);
static_assert(static_cast<int>(Phase::kData) == v1::PHASE_DATA);
static_assert(static_cast<int>(Phase::kForwardBackward) == v1::PHASE_FORWARD_BACKWARD);
static_assert(static_cast<int>(Phase::kReduce) == v1::PHASE_REDUCE);
static_assert(static_cast<int>(Phase::kVote) == v1::PHASE_VOTE);
static_assert(static_cast<int>(Phase::kUpdate) == v1::PHASE_UPDATE);
static_assert(static_cast<int>(Phase::kValidation) == v1::PHASE_VALIDATION);
static_assert(static_cast<int>(Phase::kSave) == v1::PHASE_SAVE);
static_assert(static_cast<int>(Phase::kIdle) == v1::PHASE_IDLE &&
              static_cast<int>(Phase::kIdle) + 1 == v1::Phase_ARRAYSIZE);

void ToWire(const WorkerId& id, v1::WorkerId* wire) {
  wire->set_name(id.name);
  wire->set_incarnation(id.incarnation);
}

void ToWire(const Member& member, v1::Member* wire) {
  ToWire(member.id, wire->mutable_id());
  wire->set_node(member.node);
  wire->set_host(member.host);
  wire->set_pid(member.pid);
  wire->set_leaves(member.leaves);
  wire->set_peak_flops(member.peak_flops);
  wire->set_probe_address(member.probe_address);
}

void ToWire(const World& world, v1::World* wire) {
  wire->set_generation(world.generation);
  wire->mutable_members()->Reserve(world.size());
  for (const Member& member : world.members) ToWire(member, wire->add_members());
  wire->mutable_placement()->Add(world.placement.numbers().begin(), world.placement.numbers().end());
}

WorkerId IdFromWire(const v1::WorkerId& wire, FieldCheck* check) {
  return {check->Text(wire.name(), kMaxNameBytes, "id.name"), wire.incarnation()};
}

Member MemberFromWire(const v1::Member& wire, FieldCheck* check) {
  Member member;
  member.id = IdFromWire(wire.id(), check);
  member.node = check->Text(wire.node(), kMaxNameBytes, "node");
  member.host = check->Text(wire.host(), kMaxNameBytes, "host");
  member.pid = check->Count(wire.pid(), "pid");
  member.leaves = wire.leaves();
  member.peak_flops = wire.peak_flops();
  member.probe_address = check->Text(wire.probe_address(), kMaxAddressBytes, "probe_address");
  check->Require(std::isfinite(member.peak_flops) && member.peak_flops >= 0, "peak_flops", "not a rate");
  return member;
}

std::vector<uint32_t> PlacementFromWire(const google::protobuf::RepeatedField<uint32_t>& wire, FieldCheck* check) {
  if (!check->Length(wire, kMaxPlacement, "placement")) return {};
  return {wire.begin(), wire.end()};
}

World WorldFromWire(const v1::World& wire, FieldCheck* check) {
  World world;
  world.generation = wire.generation();
  if (!check->Length(wire.members(), kMaxWorkers, "members")) return world;
  std::vector<Member> members;
  members.reserve(static_cast<size_t>(wire.members_size()));
  for (const v1::Member& member : wire.members()) members.push_back(MemberFromWire(member, check));
  world.members = std::move(members);
  world.placement = PlacementFromWire(wire.placement(), check);
  check->Require(world.members.empty() || world.num_leaving() < world.size(), "members", "all of them leave");
  return world;
}

v1::Phase ToWire(Phase phase) { return static_cast<v1::Phase>(phase); }

Phase PhaseFromWire(v1::Phase wire, FieldCheck* check) { return check->Value(wire, Phase::kIdle, "phase"); }

}  // namespace holdfast
