#include "framework/data/loader.h"

#include <algorithm>

#include "framework/base/status.h"

namespace holdfast {
namespace {

Loader::Options Normalised(Loader::Options options) {
  if (options.indices.empty()) {
    for (int64_t i = 0; i < options.shape.microbatches; ++i) options.indices.push_back(i);
  }
  options.microbatches_ahead = std::max<int64_t>(options.microbatches_ahead, 1);
  HF_CHECK(options.indices.front() >= 0 && options.indices.back() < options.shape.microbatches);
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

int64_t Loader::StepOf(int64_t position) const {
  return options_.first_step + position / static_cast<int64_t>(options_.indices.size());
}

int64_t Loader::IndexOf(int64_t position) const {
  return options_.indices[static_cast<size_t>(position) % options_.indices.size()];
}

void Loader::Work(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto may_read = [this] { return next_to_read_ < next_to_return_ + options_.microbatches_ahead; };
    changed_.wait(lock, stop, may_read);
    if (stop.stop_requested()) return;
    const int64_t position = next_to_read_++;
    lock.unlock();
    Microbatch microbatch = ReadMicrobatch(dataset_, order_, options_.shape, StepOf(position), IndexOf(position));
    lock.lock();
    ready_.emplace(position, std::move(microbatch));
    changed_.notify_all();
  }
}

absl::StatusOr<Microbatch> Loader::Next(int64_t step, int64_t index, std::stop_token stop) {
  std::unique_lock lock(mutex_);
  HF_CHECK(step == StepOf(next_to_return_) && index == IndexOf(next_to_return_));
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
