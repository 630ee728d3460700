#pragma once
// A simulation's messages as they travel in production: through the bytes of elastic/wire and under its limits, with
// the addresses that Gloo's backend tells.

#include <arpa/inet.h>
#include <google/protobuf/arena.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "elastic/wire/convert.h"
#include "elastic/wire/holdfast.pb.h"
#include "framework/base/limits.h"
#include "framework/comm/gloo/member_address.h"
#include "tests/elastic/control/sim_network.h"

namespace holdfast::sim {

/// The message that arrives, and its bytes; null if it is too large or refused.
template <typename Wire, typename Message>
std::pair<std::unique_ptr<Message>, size_t> ThroughWire(const Message& message, size_t most_bytes) {
  google::protobuf::Arena arena;
  auto* wire = google::protobuf::Arena::CreateMessage<Wire>(&arena);
  ToWire(message, wire);
  const std::string bytes = wire->SerializeAsString();
  auto* parsed = google::protobuf::Arena::CreateMessage<Wire>(&arena);
  if (bytes.size() > most_bytes || !parsed->ParseFromString(bytes)) return {nullptr, bytes.size()};
  absl::StatusOr<Message> arrived = FromWire(*parsed);
  if (!arrived.ok()) return {nullptr, bytes.size()};
  return {std::make_unique<Message>(*std::move(arrived)), bytes.size()};
}

inline Codec WireCodec() {
  Codec codec;
  codec.down = [](const CoordinatorMessage& message) -> std::pair<Shared, size_t> {
    auto [arrived, bytes] = ThroughWire<v1::FromCoordinator>(message, kMaxOutgoingBytes);
    return {std::move(arrived), bytes};
  };
  codec.up = [](const WorkerMessage& message) { return ThroughWire<v1::ToCoordinator>(message, kMaxIncomingBytes); };
  codec.most_bytes_queued = kMaxQueuedBytes;
  codec.most_messages_queued = kMaxQueuedMessages;
  return codec;
}

/// What worker `index` tells at a rendezvous.
inline std::string GlooBlob(int index) {
  MemberAddress address{.generation = 1, .key = 0x9e3779b97f4a7c15u * static_cast<uint64_t>(index + 1), .groups = 7};
  sockaddr_in listener = {};
  listener.sin_family = AF_INET;
  listener.sin_port = htons(static_cast<uint16_t>(30'000 + index % 8));
  listener.sin_addr.s_addr = htonl(0x0a000000u + static_cast<uint32_t>(index / 8));
  std::memcpy(&address.listener.storage, &listener, sizeof(listener));
  return EncodeMemberAddress(address);
}

}  // namespace holdfast::sim
