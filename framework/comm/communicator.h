#pragma once
// A communicator moves bytes between the members of one world. It never adds: the order of additions is what makes a
// run repeatable, so arithmetic is ours (framework/parallel/sum_order.h).
//
// Rules for callers:
//   - One thread at a time calls a communicator, except that Abort may be called from any thread at any time. Whoever
//     wants two transfers under way at once (gathering the next layer while computing with this one) uses two
//     communicators of the same members, each with its own thread.
//   - All members call the same collectives in the same order, with sizes that agree.
//   - Messages between two ranks are received in the order in which they were sent, among each other and with respect
//     to collectives: NCCL has nothing else to match them by, tags only catch mistakes.
//   - Spans are memory of the CPU, or all of them of a device (serves_device_memory); framework/parallel/
//     staged_communicator.h makes either kind serve both.
//   - A communicator that failed is finished: every later call fails with the first reason. Recovery is a new world
//     with a new generation, and a new communicator. Only an InvalidArgument about the caller's own arguments leaves it
//     usable.
//
// Codes: DeadlineExceeded (names the ranks waited for), Aborted (somebody called Abort, or another member failed; with
// the reason), Unavailable (a member went away), InvalidArgument.
//
// Example:
//   const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
//   RETURN_IF_ERROR(comm.AllGatherV(mine, {.bytes = all, .counts = counts, .displacements = starts}, deadline));

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace holdfast {

using ConstBytes = absl::Span<const std::byte>;
using Bytes = absl::Span<std::byte>;
using Deadline = std::chrono::steady_clock::time_point;

/// Memory with one slice for each rank: slice r is `bytes[displacements[r], displacements[r] + counts[r])`. Slices may
/// be empty and may leave gaps; slices that are written must not overlap.
template <typename ByteSpan>
struct RankSlices {
  ByteSpan bytes;
  absl::Span<const int64_t> counts;         // (size)
  absl::Span<const int64_t> displacements;  // (size)

  ByteSpan operator[](int rank) const {
    const auto r = static_cast<size_t>(rank);
    return bytes.subspan(static_cast<size_t>(displacements[r]), static_cast<size_t>(counts[r]));
  }
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual uint64_t generation() const = 0;
  /// Whether spans are memory of a device, on which nothing is under way with them when a call starts or returns.
  virtual bool serves_device_memory() const { return false; }

  /// Slice r of `output` = `input` of rank r, on every rank. `input` may be this rank's own slice of `output`.
  virtual absl::Status AllGatherV(ConstBytes input, RankSlices<Bytes> output, Deadline deadline) = 0;

  /// Slice r of `output` = slice rank() of the `input` of rank r. `input` and `output` must not overlap.
  virtual absl::Status AllToAllV(RankSlices<ConstBytes> input, RankSlices<Bytes> output, Deadline deadline) = 0;

  /// `data` of every rank = `data` of rank `root`.
  virtual absl::Status Broadcast(int root, Bytes data, Deadline deadline) = 0;

  /// Returns when every rank has called it.
  virtual absl::Status Barrier(Deadline deadline) = 0;

  /// To another rank, which calls Receive with the same tag and size. Returns when `data` may be changed; that may be
  /// only after the other side has received it, so two ranks that both send first wait for each other.
  virtual absl::Status Send(int to, uint32_t tag, ConstBytes data, Deadline deadline) = 0;
  /// Messages of one sender with one tag arrive in the order they were sent.
  virtual absl::Status Receive(int from, uint32_t tag, Bytes data, Deadline deadline) = 0;

  /// Makes the calls of all members fail with Aborted: those under way promptly (one that is just completing may still
  /// succeed: whoever acts on it checks the generation), later ones at once. The first reason stays. From any thread.
  virtual void Abort(const std::string& reason) = 0;
};

/// `status` with the world ranks that the transport blames for it, for those who decide whom to remove.
absl::Status Blaming(absl::Status status, absl::Span<const int> world_ranks);
/// Those ranks; empty if nobody is blamed.
std::vector<int> BlamedRanks(const absl::Status& status);

/// InvalidArgument unless there is one slice for each of `size` ranks and all lie inside the memory.
absl::Status CheckSlices(RankSlices<ConstBytes> slices, int size, const char* what);
/// And no two of them overlap.
absl::Status CheckOutputSlices(RankSlices<Bytes> slices, int size, const char* what);
/// The arguments of AllGatherV on `rank`.
absl::Status CheckGather(ConstBytes input, RankSlices<Bytes> output, int rank, int size);
/// The arguments of AllToAllV on `rank`.
absl::Status CheckExchange(RankSlices<ConstBytes> input, RankSlices<Bytes> output, int rank, int size);
/// InvalidArgument unless `other` is one of `size` ranks; `what` reads like "broadcast from".
absl::Status CheckRank(int other, int size, const char* what);
/// And another one than `rank`.
absl::Status CheckPeer(int other, int rank, int size, const char* what);
/// InvalidArgument unless all are ranks of a world of `size`, and no group lists one twice.
absl::Status CheckGroups(int rank, int size, const std::vector<std::vector<int>>& groups);

}  // namespace holdfast
