#pragma once
// What the members of a world tell each other before they connect: as many bytes whatever the size of the world.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "framework/net/socket_address.h"

namespace holdfast {

/// One listening socket of a member, for its connections to all others.
struct MemberAddress {
  uint64_t generation = 0;
  uint64_t key = 0;     // random: its part of the key of the world (handshake.h)
  uint32_t groups = 0;  // digest of the groups to connect; equal on all members
  SocketAddress listener = {};
};

/// 26 bytes (IPv4) or 38 (IPv6).
std::string EncodeMemberAddress(const MemberAddress& member);
/// InvalidArgument if `bytes` are none.
absl::StatusOr<MemberAddress> DecodeMemberAddress(const std::string& bytes);

}  // namespace holdfast
