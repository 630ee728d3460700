#include "framework/data/loader.h"

#include <algorithm>

#include "framework/base/status.h"

namespace holdfast {

Loader::Options Loader::WithDefaults(Options options, const Dataset& dataset) {
  const BatchShape& shape = options.shape;
  if (options.indices.empty()) {
    for (int64_t i = 0; i < shape.microbatches; ++i) options.indices.push_back(i);
  }
  if (options.threads > 0) options.threads = std::max(options.threads, dataset.reads_at_once());
  const int64_t rows = 2 * options.threads;
  options.microbatches_ahead =
      std::max<int64_t>({options.microbatches_ahead, 1,
                         options.threads > 1 ? (rows + shape.microbatch_size - 1) / shape.microbatch_size : 1});
  HOLDFAST_CHECK(options.indices.front() >= 0 && options.indices.back() < shape.microbatches);
  return options;
}

Loader::Loader(const Dataset& dataset, const SampleOrder& order, const Options& options)
    : dataset_(dataset), order_(order), options_(WithDefaults(options, dataset)) {
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this](std::stop_token stop) { Work(std::move(stop)); });
  }
}

Loader::~Loader() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();  // joins before the members they use are gone
}

int64_t Loader::StepOf(int64_t position) const {
  return options_.first_step + position / static_cast<int64_t>(options_.indices.size());
}

int64_t Loader::IndexOf(int64_t position) const {
  return options_.indices[static_cast<size_t>(position) % options_.indices.size()];
}

void Loader::Work(std::stop_token stop) {
  const int64_t rows = options_.shape.microbatch_size;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, stop, [&] { return next_row_ / rows < next_to_return_ + options_.microbatches_ahead; });
    if (stop.stop_requested()) return;
    const int64_t position = next_row_ / rows, row = next_row_ % rows;
    ++next_row_;
    Pending& pending = pending_[position];  // stays where it is until its last row is there
    if (row == 0) {
      pending.microbatch = EmptyMicrobatch(dataset_, rows, StepOf(position), IndexOf(position));
      pending.rows_left = rows;
    }
    const int64_t sample = SampleOf(order_, options_.shape, StepOf(position), IndexOf(position), row);
    lock.unlock();
    const absl::Status status = ReadRow(dataset_, sample, row, pending.microbatch, stop);
    lock.lock();
    if (!status.ok() && (pending.status.ok() || row < pending.failed_row)) {
      pending.status = status;
      pending.failed_row = row;
    }
    if (--pending.rows_left == 0) changed_.notify_all();
  }
}

absl::StatusOr<Microbatch> Loader::Next(int64_t step, int64_t index, std::stop_token stop) {
  std::unique_lock lock(mutex_);
  HOLDFAST_CHECK(step == StepOf(next_to_return_) && index == IndexOf(next_to_return_));
  if (options_.threads > 0) {
    changed_.wait(lock, stop, [this] {
      const auto next = pending_.find(next_to_return_);
      return next != pending_.end() && next->second.rows_left == 0;
    });
  }
  if (stop.stop_requested()) return absl::CancelledError("stopped while reading data");
  const int64_t position = next_to_return_++;
  if (options_.threads <= 0) return ReadMicrobatch(dataset_, order_, options_.shape, step, index, stop);
  Pending next = std::move(pending_.extract(position).mapped());
  changed_.notify_all();
  if (!next.status.ok()) return next.status;
  return std::move(next.microbatch);
}

}  // namespace holdfast
