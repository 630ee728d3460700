#pragma once
// Reads microbatches ahead on background threads, so that a step never waits for a page fault. What it returns depends
// on (dataset, order, shape, step, index) only, never on its threads.

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/data/dataset.h"

namespace holdfast {

/// Thread-safety: Next from one thread.
class Loader {
 public:
  struct Options {
    BatchShape shape;
    int64_t first_step = 0;
    std::vector<int64_t> indices =
        {};           // the microbatches of each step that are read here, ascending; empty = all of them
    int threads = 1;  // 0 = read in Next
    int64_t microbatches_ahead = 4;
  };

  /// `dataset` and `order` must outlive the loader.
  Loader(const Dataset& dataset, const SampleOrder& order, const Options& options);
  ~Loader();

  /// Microbatch `index` of `step`. Calls must follow the order step by step, `indices` by `indices`. Cancelled once
  /// `stop` is requested.
  absl::StatusOr<Microbatch> Next(int64_t step, int64_t index, std::stop_token stop);

 private:
  void Work(std::stop_token stop);
  int64_t StepOf(int64_t position) const;
  int64_t IndexOf(int64_t position) const;

  const Dataset& dataset_;
  const SampleOrder& order_;
  Options options_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int64_t next_to_read_ = 0;  // positions count microbatches from the first one on
  int64_t next_to_return_ = 0;
  std::map<int64_t, Microbatch> ready_;
  std::vector<std::jthread> threads_;
};

}  // namespace holdfast
