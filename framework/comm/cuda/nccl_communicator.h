#pragma once
// Communicators on device memory, by NCCL. One GPU for each rank.
//
// What differs from the other backends:
//   - Spans are device memory; the work that produced them is complete when a call starts (calls run on a stream of
//     their own), and what a call received is complete when it returns. StagedCommunicator adds the CPU's.
//   - NCCL does not say whom it waits for: a deadline names all other members.
//   - An abort ends the calls of this member; the others notice by NCCL's own error or at their deadlines.
//   - Messages between two ranks are matched by their order; tags are not looked at.
//   - NCCL may fail to release the memory of a call that failed. After five seconds on_stuck is called.
//
// Two communicators work at the same time on one GPU, each with a thread of its own. NCCL's guide ("Using multiple NCCL
// communicators concurrently") promises that this ends only if all ranks begin all calls in one order, and two threads
// have none. What makes calls wait for each other in a circle is kept from happening instead:
//   - A call waits for blocks of the GPU that another one holds: calls are of so few blocks that those of all
//     communicators fit beside each other.
//   - NCCL connects to a peer at the first message to it, which may wait for all that runs on the GPU: ConnectNccl
//     sends that message on one communicator after the other, while nothing else runs.
//   - Streams that share one of the process's queues to the GPU wait for each other. CUDA makes 8, which is fewer than
//     there are streams: a worker is started with CUDA_DEVICE_MAX_CONNECTIONS=32.
//   - A kernel's first launch loads it, which may wait for the GPU: a worker is started with CUDA_MODULE_LOADING=EAGER.
//   - Freeing GPU memory waits for all that runs on it. A world's communicators are freed before those of the next are
//     made. Else only the first step of a world frees; if the worst comes to the worst, its calls end at their
//     deadlines.

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/comm/rendezvous.h"

namespace holdfast {

struct NcclOptions {
  int device = 0;  // CUDA's number of the GPU
  /// The process has to end, and `why`: the GPU may go on reading and writing the memory of a call that failed, or
  /// fails in every call that this process makes. May be null; the call then returns Internal.
  std::function<void(const std::string& why)> on_stuck = nullptr;
  /// For tests: what a rank gives itself goes through NCCL, too, so that a world of one uses it.
  bool sends_to_self = false;
};

/// As ConnectGloo: communicator i for the ranks of groups[i], null where this rank is not in it.
///
/// Unimplemented in a build without CUDA, FailedPrecondition if there is no such device, if it is too small or another
/// rank's as well, or if ranks have different versions of NCCL; Aborted once `stop` is requested, DeadlineExceeded,
/// Unavailable, InvalidArgument, and what the rendezvous returns.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> ConnectNccl(const NcclOptions& options, int rank, int size,
                                                                       uint64_t generation,
                                                                       const std::vector<std::vector<int>>& groups,
                                                                       Rendezvous& rendezvous, std::stop_token stop,
                                                                       Deadline deadline);

}  // namespace holdfast
