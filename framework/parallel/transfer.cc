#include "framework/parallel/transfer.h"

#include <utility>
#include <vector>

#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int64_t kRoundBytes = int64_t{64} << 20;  // of all ranks together: bounds the memory a transfer needs

void CopyWhatIsHere(const ShardedState& from, ShardedState& to) {
  for (int chunk = 0; chunk < static_cast<int>(to.map().layout().chunks().size()); ++chunk) {
    if (to.Holds(chunk) && from.Holds(chunk)) to.CopyChunk(chunk, from);
  }
}

/// One rank's side of a round: what goes out to and what comes in from each rank, one after the other.
struct Side {
  explicit Side(int size) : counts(static_cast<size_t>(size)), displacements(counts.size()) {}

  void Add(int rank, size_t size) { counts[static_cast<size_t>(rank)] += static_cast<int64_t>(size); }
  void Place() {
    int64_t end = 0;
    for (size_t r = 0; r < counts.size(); ++r) {
      displacements[r] = end;
      end += counts[r];
    }
    bytes.resize(static_cast<size_t>(end));
    next = displacements;
  }
  std::byte* Next(int rank, size_t size) {
    std::byte* at = bytes.data() + next[static_cast<size_t>(rank)];
    next[static_cast<size_t>(rank)] += static_cast<int64_t>(size);
    return at;
  }

  std::vector<int64_t> counts, displacements, next;
  std::vector<std::byte> bytes;
};

absl::StatusOr<int64_t> RunRound(const TransferArguments& a, absl::Span<const ChunkTransfer> transfers) {
  const auto chunks = a.target.map->layout().chunks();
  const int me = a.world->rank();
  const auto size_of = [&](const ChunkTransfer& t) {
    return ShardedState::ChunkBytes(chunks[static_cast<size_t>(t.chunk)]);
  };
  Side out(a.world->size()), in(a.world->size());
  for (const ChunkTransfer& t : transfers) {
    if (t.from == me) out.Add(t.to, size_of(t));
    if (t.to == me) in.Add(t.from, size_of(t));
  }
  out.Place();
  in.Place();
  for (const ChunkTransfer& t : transfers) {
    if (t.from == me) a.old_state->ReadChunk(t.chunk, out.Next(t.to, size_of(t)));
  }
  HF_RETURN_IF_ERROR(a.world->AllToAllV({out.bytes, out.counts, out.displacements},
                                        {absl::MakeSpan(in.bytes), in.counts, in.displacements},
                                        std::chrono::steady_clock::now() + a.timeout));
  for (const ChunkTransfer& t : transfers) {
    if (t.to == me) a.new_state->WriteChunk(t.chunk, in.Next(t.from, size_of(t)));
  }
  return static_cast<int64_t>(in.bytes.size());
}

}  // namespace

absl::StatusOr<int64_t> TransferState(const TransferArguments& a) {
  if (a.old_state != nullptr) CopyWhatIsHere(*a.old_state, *a.new_state);
  const std::vector<ChunkTransfer> transfers = PlanTransfer(a.source, a.source_ranks, a.target);
  int64_t received = 0;
  for (const Range& round : TransferRounds(a.target.map->layout(), transfers, kRoundBytes)) {
    HF_ASSIGN_OR_RETURN(const int64_t bytes,
                        RunRound(a, absl::MakeConstSpan(transfers).subspan(static_cast<size_t>(round.begin),
                                                                           static_cast<size_t>(round.size()))));
    received += bytes;
  }
  a.new_state->RefreshImages();
  return received;
}

}  // namespace holdfast
