#pragma once
// Ranks as threads of one process. Bytes are copied straight from the sender's memory to the receiver's; waiting
// threads sleep.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"

namespace holdfast {

class InProcessRendezvous;

/// What the members of one world in one process share. Thread-safe. Members may outlive it.
class InProcessWorld {
 public:
  InProcessWorld(int size, uint64_t generation);
  ~InProcessWorld();

  /// FailedPrecondition if `generation` is another one than the world's, InvalidArgument for a rank outside of it,
  /// AlreadyExists for one that has joined before: a member that left does not come back.
  absl::StatusOr<std::unique_ptr<Communicator>> Join(int rank, uint64_t generation);

 private:
  // Shared by the world and its members: the last of them to be destroyed frees it.
  std::shared_ptr<InProcessRendezvous> rendezvous_;
};

/// All members of a new world, by rank.
std::vector<std::unique_ptr<Communicator>> MakeInProcessWorld(int size, uint64_t generation);

}  // namespace holdfast
