#include "framework/train/weight_exchange.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int64_t kEnd = -1, kStillBusy = -2;

class WeightReader {
 public:
  WeightReader(PlacedState& placed, std::chrono::milliseconds timeout, StepProgress& progress)
      : placed_(placed), timeout_(timeout), progress_(progress) {}

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

  /// Rank 0 asks for a chunk, or says that it is done or busy.
  absl::StatusOr<int64_t> Ask(int64_t chunk) {
    const Bytes question(reinterpret_cast<std::byte*>(&chunk), sizeof(chunk));
    RETURN_IF_ERROR(placed_.world()->Broadcast(0, question, NextDeadline()));
    return chunk;
  }

  /// Every rank, for a chunk that was asked for: its holder sends it, rank 0 keeps it.
  absl::Status Answer(int64_t asked) {
    const auto chunks = static_cast<int64_t>(placed_.map().layout().chunks().size());
    if (asked < 0 || asked >= chunks) {
      return absl::InternalError(absl::StrCat("rank 0 asks for chunk ", asked, " of a model of ", chunks, " chunks"));
    }
    const int chunk = static_cast<int>(asked);
    ++progress_.count;
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
    if (placed_.world() != nullptr) RETURN_IF_ERROR(Ask(chunk).status());
    RETURN_IF_ERROR(Answer(chunk));
    here_ = chunk;
    return absl::OkStatus();
  }

  Deadline NextDeadline() const { return std::chrono::steady_clock::now() + timeout_; }

  PlacedState& placed_;
  std::chrono::milliseconds timeout_;
  StepProgress& progress_;
  int here_ = -1;  // the chunk in values_
  std::vector<float> values_;
};

/// Rank 0. Reads where this is called, so that questions and words go out one after the other.
absl::Status UseElsewhere(WeightReader& reader, std::chrono::milliseconds word_interval,
                          absl::FunctionRef<absl::Status(const ReadWeightsFn& read)> use) {
  struct Question {
    int64_t first;
    absl::Span<float> out;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Question> question;
  std::optional<absl::Status> answer, used;
  std::jthread user([&] {
    absl::Status status = use([&](int64_t first, absl::Span<float> out) {
      std::unique_lock lock(mutex);
      question = {first, out};
      changed.notify_all();
      changed.wait(lock, [&] { return answer.has_value(); });
      return *std::exchange(answer, std::nullopt);
    });
    const std::lock_guard lock(mutex);
    used = std::move(status);
    changed.notify_all();
  });
  absl::Status said;  // once it fails, nobody is there any more
  std::unique_lock lock(mutex);
  while (!used.has_value()) {
    if (!changed.wait_for(lock, word_interval, [&] { return used.has_value() || question.has_value(); })) {
      if (said.ok()) said = reader.Ask(kStillBusy).status();
    } else if (question.has_value()) {
      const Question asked = *std::exchange(question, std::nullopt);
      answer = said.ok() ? reader.Read(asked.first, asked.out) : said;
      changed.notify_all();
    }
  }
  RETURN_IF_ERROR(said);
  RETURN_IF_ERROR(reader.Ask(kEnd).status());  // also after an error: the others wait
  return *used;
}

}  // namespace

absl::Status WithWeights(PlacedState& placed, std::chrono::milliseconds timeout, StepProgress& progress,
                         absl::FunctionRef<absl::Status(const ReadWeightsFn& read)> use) {
  WeightReader reader(placed, timeout, progress);
  if (placed.world() == nullptr) {
    return use([&](int64_t first, absl::Span<float> out) { return reader.Read(first, out); });
  }
  if (placed.rank() == 0) {
    return UseElsewhere(reader, std::min(timeout / 4, std::chrono::milliseconds(1000)), use);
  }
  while (true) {
    ASSIGN_OR_RETURN(const int64_t chunk, reader.Ask(0));
    if (chunk == kEnd) return absl::OkStatus();
    if (chunk == kStillBusy) {
      ++progress.count;
    } else {
      RETURN_IF_ERROR(reader.Answer(chunk));
    }
  }
}

}  // namespace holdfast
