#pragma once
// Pieces that several messages share. For the convert_*.cc files only: it names generated classes.

#include <string>

#include "elastic/control/messages.h"
#include "elastic/wire/convert.h"
#include "elastic/wire/field_check.h"
#include "elastic/wire/holdfast.pb.h"

namespace holdfast {

void ToWire(const WorkerId& id, v1::WorkerId* wire);
void ToWire(const World& world, v1::World* wire);
void ToWire(const Member& member, v1::Member* wire);
WorkerId IdFromWire(const v1::WorkerId& wire, FieldCheck* check);
Member MemberFromWire(const v1::Member& wire, FieldCheck* check);
std::vector<uint32_t> PlacementFromWire(const google::protobuf::RepeatedField<uint32_t>& wire, FieldCheck* check);
World WorldFromWire(const v1::World& wire, FieldCheck* check);

/// Both enums count alike; convert_fields.cc asserts it.
v1::Phase ToWire(Phase phase);
Phase PhaseFromWire(v1::Phase wire, FieldCheck* check);

}  // namespace holdfast
