#pragma once
// Communicators on device memory, by NCCL. One GPU for each rank.
//
// What differs from the other backends:
//   - Spans are device memory; the work that produced them is complete when a call starts (calls run on a stream of
//     their own), and what a call received is complete when it returns.
//   - NCCL does not say whom it waits for: a deadline names all other members.
//   - An abort ends the calls of this member; the others notice by NCCL's own error or at their deadlines.
//   - Messages between two ranks are matched by their order; tags are not looked at.
//   - NCCL may fail to let go of memory after a failure. It gets a second; then the call returns Internal, and the
//     process is to end.

#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/comm/rendezvous.h"

namespace holdfast {

struct NcclOptions {
  int device = 0;  // CUDA's number of the GPU
};

/// As ConnectGloo: communicator i for the ranks of groups[i], null where this rank is not in it.
///
/// Unimplemented in a build without CUDA, FailedPrecondition if there is no such device, Aborted once `stop` is
/// requested, DeadlineExceeded, Unavailable, InvalidArgument, and what the rendezvous returns.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> ConnectNccl(const NcclOptions& options, int rank, int size,
                                                                       uint64_t generation,
                                                                       const std::vector<std::vector<int>>& groups,
                                                                       Rendezvous& rendezvous, std::stop_token stop,
                                                                       Deadline deadline);

}  // namespace holdfast
