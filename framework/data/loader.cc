#include "framework/data/loader.h"

#include <algorithm>

#include "framework/base/status.h"

namespace holdfast {
namespace {

Loader::Options Normalised(Loader::Options options) {
  if (options.num_indices <= 0) options.num_indices = options.shape.microbatches - options.first_index;
  options.microbatches_ahead = std::max<int64_t>(options.microbatches_ahead, 1);
  HF_CHECK(options.first_index >= 0 && options.num_indices >= 1);
  HF_CHECK(options.first_index + options.num_indices <= options.shape.microbatches);
  return options;
}

}  // namespace

Loader::Loader(const Dataset& dataset, const SampleOrder& order, const Options& options)
    : dataset_(dataset), order_(order), options_(Normalised(options)) {
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this](std::stop_token stop) { Work(std::move(stop)); });
  }
}

Loader::~Loader() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();  // joins before the members they use are gone
}

void Loader::Work(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto may_read = [this] { return next_to_read_ < next_to_return_ + options_.microbatches_ahead; };
    changed_.wait(lock, stop, may_read);
    if (stop.stop_requested()) return;
    const int64_t position = next_to_read_++;
    lock.unlock();
    Microbatch microbatch =
        ReadMicrobatch(dataset_, order_, options_.shape, options_.first_step + position / options_.num_indices,
                       options_.first_index + position % options_.num_indices);
    lock.lock();
    ready_.emplace(position, std::move(microbatch));
    changed_.notify_all();
  }
}

absl::StatusOr<Microbatch> Loader::Next(int64_t step, int64_t index, std::stop_token stop) {
  std::unique_lock lock(mutex_);
  HF_CHECK(step == options_.first_step + next_to_return_ / options_.num_indices);
  HF_CHECK(index == options_.first_index + next_to_return_ % options_.num_indices);
  if (options_.threads > 0) {
    changed_.wait(lock, stop, [this] { return ready_.contains(next_to_return_); });
  }
  if (stop.stop_requested()) return absl::CancelledError("stopped while reading data");
  if (options_.threads <= 0) {
    ++next_to_return_;
    return ReadMicrobatch(dataset_, order_, options_.shape, step, index);
  }
  Microbatch microbatch = std::move(ready_.extract(next_to_return_).mapped());
  ++next_to_return_;
  changed_.notify_all();
  return microbatch;
}

}  // namespace holdfast
