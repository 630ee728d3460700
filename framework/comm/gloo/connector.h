#pragma once
// Connects every two members of a world, once for each mesh that both are in, through one listening socket per member.
//
// Of two members one dials (Dials), half of its peers each. Both prove that they belong to this world (handshake.h) by
// a key that follows from what the rendezvous has told them, and only then is the connection used: no byte of a
// stranger, or of a world gone by, gets further. Strangers are dropped, at any number, and reported in one line of the
// log at the end. Nothing listens once a world is connected.
//
// Example:
//   ASSIGN_OR_RETURN(Connector connector, Connector::Listen("10.0.0.7"));
//   ... exchange connector.address() and connector.key() ...
//   ASSIGN_OR_RETURN(auto connections, connector.Connect(rank, members, meshes, stop, deadline));

#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/comm/gloo/connection.h"
#include "framework/comm/gloo/member_address.h"

namespace holdfast {

class Connector {
 public:
  /// At a numeric address of this machine, any free port. `encrypt`: connections are TLS after the handshake; equal on
  /// all members.
  static absl::StatusOr<Connector> Listen(const std::string& numeric_host, bool encrypt = false);

  const SocketAddress& address() const { return listener_.address; }
  uint64_t key() const { return key_; }

  /// `members` by world rank; meshes[m] lists the world ranks of mesh m. Returns connections
  /// [mesh][position in meshes[m]], of non-blocking sockets; none where this rank is not a member and for itself.
  /// Aborted once `stop` is requested, DeadlineExceeded, Unavailable; the last two blame the ranks concerned.
  absl::StatusOr<std::vector<std::vector<Connection>>> Connect(int rank, const std::vector<MemberAddress>& members,
                                                               const std::vector<std::vector<int>>& meshes,
                                                               const std::stop_token& stop, Deadline deadline) const;

 private:
  Connector() = default;

  Listener listener_;
  uint64_t key_ = 0;
  bool encrypt_ = false;
};

/// Which of two ranks dials: everybody dials half of the others, those that follow.
bool Dials(int rank, int peer, int size);

}  // namespace holdfast
