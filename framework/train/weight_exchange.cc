#include "framework/train/weight_exchange.h"

#include <algorithm>
#include <vector>

#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int64_t kEnd = -1;

class WeightReader {
 public:
  WeightReader(PlacedState& placed, std::chrono::milliseconds timeout) : placed_(placed), timeout_(timeout) {}

  absl::Status Read(int64_t first, absl::Span<float> out) {
    const auto chunks = placed_.map().layout().chunks();
    while (!out.empty()) {
      const auto chunk = std::upper_bound(chunks.begin(), chunks.end(), first,
                                          [](int64_t at, const Chunk& c) { return at < c.offset; }) -
                         1;
      RETURN_IF_ERROR(Fetch(static_cast<int>(chunk - chunks.begin())));
      const int64_t skip = first - chunk->offset;
      const auto n = std::min(out.size(), static_cast<size_t>(chunk->elements - skip));
      std::copy_n(values_.begin() + skip, n, out.begin());
      first += static_cast<int64_t>(n);
      out.remove_prefix(n);
    }
    return absl::OkStatus();
  }

  /// Rank 0 asks for a chunk, or says that it is done.
  absl::StatusOr<int64_t> Ask(int64_t chunk) {
    if (placed_.world() == nullptr) return chunk;
    const Bytes question(reinterpret_cast<std::byte*>(&chunk), sizeof(chunk));
    RETURN_IF_ERROR(placed_.world()->Broadcast(0, question, NextDeadline()));
    return chunk;
  }

  /// Every rank, for a chunk that was asked for: its holder sends it, rank 0 keeps it.
  absl::Status Answer(int chunk) {
    const int holder = placed_.map().PrimaryOf(chunk);
    values_.resize(static_cast<size_t>(placed_.map().layout().chunks()[static_cast<size_t>(chunk)].elements));
    if (placed_.rank() == holder) placed_.state().ReadWeights(chunk, values_.data());
    if (holder == 0) return absl::OkStatus();
    const Bytes bytes(reinterpret_cast<std::byte*>(values_.data()), values_.size() * sizeof(float));
    if (placed_.rank() == holder) return placed_.world()->Send(0, 0, bytes, NextDeadline());
    if (placed_.rank() == 0) return placed_.world()->Receive(holder, 0, bytes, NextDeadline());
    return absl::OkStatus();
  }

 private:
  absl::Status Fetch(int chunk) {
    if (chunk == here_) return absl::OkStatus();
    here_ = -1;
    RETURN_IF_ERROR(Ask(chunk).status());
    RETURN_IF_ERROR(Answer(chunk));
    here_ = chunk;
    return absl::OkStatus();
  }

  Deadline NextDeadline() const { return std::chrono::steady_clock::now() + timeout_; }

  PlacedState& placed_;
  std::chrono::milliseconds timeout_;
  int here_ = -1;  // the chunk in values_
  std::vector<float> values_;
};

}  // namespace

absl::Status WithWeights(PlacedState& placed, std::chrono::milliseconds timeout,
                         absl::FunctionRef<absl::Status(const ReadWeightsFn& read)> use) {
  WeightReader reader(placed, timeout);
  if (placed.rank() == 0) {
    absl::Status used = use([&](int64_t first, absl::Span<float> out) { return reader.Read(first, out); });
    RETURN_IF_ERROR(reader.Ask(kEnd).status());  // also after an error: the others wait
    return used;
  }
  while (true) {
    ASSIGN_OR_RETURN(const int64_t chunk, reader.Ask(0));
    if (chunk == kEnd) return absl::OkStatus();
    RETURN_IF_ERROR(reader.Answer(static_cast<int>(chunk)));
  }
}

}  // namespace holdfast
