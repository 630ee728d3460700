#pragma once
// Communicators over TCP, by Gloo's transport. Every member is connected to every other, once per communicator and once
// more to say why it ends (gloo_farewells.h). A member listens at one address for all of them (connector.h), so what it
// tells the others takes as many bytes in a world of thousands as in one of two.
//
// Both ends of a connection prove that they are members before its first byte (handshake.h). What follows is encrypted
// where the options say so (tls_stream.h).
//
// Example:
//   const std::vector<int> all = {0, 1, 2, 3};
//   ASSIGN_OR_RETURN(auto comms, ConnectGloo({}, rank, 4, generation, {all, all, {0, 1}}, rendezvous, stop,
//   deadline)); comms[0], comms[1]: two of the whole world, for two threads; comms[2]: null on ranks 2 and 3

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/comm/rendezvous.h"

namespace holdfast {

struct GlooOptions {
  std::string host = "127.0.0.1";  // address or name of this machine to listen at, as the others can reach it
  bool encrypt = false;            // all bytes between members, by TLS; equal on all members
};

/// Connects this rank of a world of `size` to the others, which call this with the same generation and groups. Group i
/// lists the ranks of communicator i, whose own ranks are the positions in the list; null where this rank is not in it.
/// Every communicator works, fails and is aborted on its own.
///
/// Aborted once `stop` is requested (the world has changed), DeadlineExceeded and Unavailable (a member went away),
/// which blame the members concerned, InvalidArgument, and what the rendezvous returns.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> ConnectGloo(const GlooOptions& options, int rank, int size,
                                                                       uint64_t generation,
                                                                       const std::vector<std::vector<int>>& groups,
                                                                       Rendezvous& rendezvous, std::stop_token stop,
                                                                       Deadline deadline);

}  // namespace holdfast
