#pragma once
// How the two ends of a connection prove to each other that they are members of one world, before any of its bytes
// pass. Messages only; connector.h has the sockets.
//
//   dialer                       listener
//   mesh, its rank, nonce   ->                 40 bytes
//                           <-   nonce         32 bytes
//   proof                   ->                 32 bytes
//                           <-   proof         32 bytes
//
// A proof is HMAC-SHA256 over the side that proves, both ranks, the mesh and both nonces. Its key follows from all that
// the members have told each other at the rendezvous: random bytes of each, addresses, groups, generation. So nothing
// recorded, sent back or of another generation is a proof. The listener proves last: a stranger gets nothing but a
// nonce from it, and a dialer with its proof has been let in.
//
// Example:
//   Handshake handshake = Handshake::Dial(KeyOf(members), mesh, rank, peer);
//   ... send handshake.First(), then until handshake.done(): read handshake.awaited() bytes, send what Take returns ...

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/comm/gloo/member_address.h"

namespace holdfast {

using WorldKey = std::array<unsigned char, 32>;

/// Of the members of a world, by rank. Never logged.
WorldKey KeyOf(const std::vector<MemberAddress>& members);

/// Random bytes for keys and nonces.
void FillRandomly(void* bytes, size_t size);

/// One end of one connection. Thread-safety: that of its members.
class Handshake {
 public:
  static constexpr size_t kMaxMessageBytes = 40;

  static Handshake Dial(const WorldKey& key, uint32_t mesh, uint32_t dialer, uint32_t listener);
  static Handshake Answer(const WorldKey& key, uint32_t listener);

  /// What a dialer sends at first.
  std::string First() const;
  /// Bytes of the peer's next message; at most kMaxMessageBytes.
  size_t awaited() const;
  /// Takes the peer's message, of awaited() bytes, and returns the answer to send, or nothing. PermissionDenied: the
  /// peer is not of this world.
  absl::StatusOr<std::string> Take(absl::string_view message);

  /// Whether the peer has proven that it is `dialer()` in `mesh()`, or the listener that was dialled.
  bool done() const { return step_ == Step::kDone; }
  uint32_t mesh() const { return link_.mesh; }
  uint32_t dialer() const { return link_.dialer; }
  /// Of this connection alone, the same for both ends. Once done.
  WorldKey ConnectionKey() const;

 private:
  enum class Step : uint8_t { kHello, kChallenge, kDialersProof, kListenersProof, kDone };  // what comes next
  struct Link {
    uint32_t mesh = 0, dialer = 0, listener = 0;
  };
  using Nonce = std::array<unsigned char, 32>;

  Handshake(const WorldKey& key, const Link& link, Step step) : key_(key), link_(link), step_(step) {}
  /// HMAC of a text, what is connected, and both nonces.
  WorldKey Keyed(absl::string_view text) const;
  std::string Proof(absl::string_view side) const;

  WorldKey key_;
  Link link_;
  Nonce dialers_ = {}, listeners_ = {};
  Step step_;
};

}  // namespace holdfast
