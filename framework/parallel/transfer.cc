#include "framework/parallel/transfer.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "framework/base/task_thread.h"

namespace holdfast {
namespace {

// That one rank sends, and receives, in a round: bounds the memory of a transfer.
constexpr int64_t kRoundBytes = int64_t{16} << 20;

void CopyWhatIsHere(const ShardedState& from, ShardedState& to) {
  for (int chunk = 0; chunk < static_cast<int>(to.map().layout().chunks().size()); ++chunk) {
    if (to.Holds(chunk) && from.Holds(chunk)) to.CopyChunk(chunk, from);
  }
}

/// One rank's side of a round: what goes out to or comes in from each rank, one after the other.
class Side {
 public:
  /// Of transfers of which peer(t) is the other rank.
  template <typename Peer>
  void Place(absl::Span<const ChunkTransfer> transfers, int size, const StateLayout& layout, Peer&& peer) {
    counts.assign(static_cast<size_t>(size), 0);
    displacements.assign(counts.size(), 0);
    const auto bytes_of = [&](const ChunkTransfer& t) {
      return static_cast<int64_t>(layout.ChunkBytes(layout.parameters().chunks()[static_cast<size_t>(t.chunk)]));
    };
    for (const ChunkTransfer& t : transfers) counts[static_cast<size_t>(peer(t))] += bytes_of(t);
    int64_t end = 0;
    for (size_t r = 0; r < counts.size(); ++r) {
      displacements[r] = end;
      end += counts[r];
    }
    if (memory_size_ < end) {
      memory_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(end));
      memory_size_ = end;
    }
    bytes = absl::MakeSpan(memory_.get(), static_cast<size_t>(end));
    places.clear();
    std::vector<int64_t> next = displacements;
    for (const ChunkTransfer& t : transfers) {
      int64_t& at = next[static_cast<size_t>(peer(t))];
      places.emplace_back(t.chunk, bytes.data() + at);
      at += bytes_of(t);
    }
  }

  std::vector<int64_t> counts, displacements;  // bytes, by rank
  Bytes bytes;
  std::vector<std::pair<int, std::byte*>> places;  // of chunks

 private:
  std::unique_ptr<std::byte[]> memory_;
  int64_t memory_size_ = 0;
};

/// Rounds overlap: while one is under way, the one before is unpacked and the next one packed.
class Transfer {
 public:
  /// `progress`, which may be null, grows with every round.
  Transfer(const TransferArguments& a, StepProgress* progress) : a_(a), progress_(progress) {}

  absl::StatusOr<int64_t> Run(const std::vector<ChunkTransfer>& transfers) {
    if (transfers.empty()) return 0;
    const std::vector<std::vector<ChunkTransfer>> rounds =
        TransferRounds(a_.new_state->layout(), transfers, a_.world->size(), kRoundBytes);
    int64_t received = 0;
    Pack(rounds, 0);
    for (size_t i = 0; i < rounds.size(); ++i) {
      Round& round = rounds_[i % 2];
      helper_.Post([this, &rounds, i] {
        if (i > 0) Unpack(rounds_[(i + 1) % 2]);
        Pack(rounds, i + 1);
      });
      const absl::Status status = a_.world->AllToAllV({round.out.bytes, round.out.counts, round.out.displacements},
                                                      {round.in.bytes, round.in.counts, round.in.displacements},
                                                      std::chrono::steady_clock::now() + a_.timeout);
      helper_.Drain();
      RETURN_IF_ERROR(status);
      received += static_cast<int64_t>(round.in.bytes.size());
      if (progress_ != nullptr) ++progress_->count;
    }
    Unpack(rounds_[(rounds.size() - 1) % 2]);
    return received;
  }

 private:
  struct Round {
    Side out, in;
  };

  void Pack(const std::vector<std::vector<ChunkTransfer>>& rounds, size_t index) {
    if (index >= rounds.size()) return;
    const int me = a_.world->rank(), size = a_.world->size();
    std::vector<ChunkTransfer> out, in;
    for (const ChunkTransfer& t : rounds[index]) {
      if (t.from == me) out.push_back(t);
      if (t.to == me) in.push_back(t);
    }
    Round& round = rounds_[index % 2];
    round.out.Place(out, size, a_.new_state->layout(), [](const ChunkTransfer& t) { return t.to; });
    round.in.Place(in, size, a_.new_state->layout(), [](const ChunkTransfer& t) { return t.from; });
    for (const auto& [chunk, place] : round.out.places) a_.old_state->ReadChunk(chunk, place);
  }

  void Unpack(const Round& round) const {
    for (const auto& [chunk, place] : round.in.places) a_.new_state->WriteChunk(chunk, place);
  }

  const TransferArguments& a_;
  StepProgress* progress_;
  std::array<Round, 2> rounds_;
  TaskThread helper_;  // last: its tasks use all of the above
};

}  // namespace

absl::StatusOr<int64_t> TransferServed(const TransferArguments& a, const std::vector<ChunkTransfer>& served) {
  absl::StatusOr<int64_t> received;
  {
    TaskThread copying;  // other chunks than those that come, so that nobody waits for the memory of another rank
    if (a.old_state != nullptr) copying.Post([&] { CopyWhatIsHere(*a.old_state, *a.new_state); });
    received = Transfer(a, nullptr).Run(served);
  }
  if (received.ok()) a.new_state->RefreshComputeWeights();
  return received;
}

absl::StatusOr<int64_t> TransferMirrors(const TransferArguments& a, const std::vector<ChunkTransfer>& mirrored,
                                        StepProgress& progress) {
  return Transfer(a, &progress).Run(mirrored);
}

int64_t ReceivedBytes(const StateLayout& layout, const std::vector<ChunkTransfer>& transfers, int rank) {
  int64_t bytes = 0;
  for (const ChunkTransfer& t : transfers) {
    if (t.to != rank) continue;
    bytes += static_cast<int64_t>(layout.ChunkBytes(layout.parameters().chunks()[static_cast<size_t>(t.chunk)]));
  }
  return bytes;
}

}  // namespace holdfast
