#pragma once
// Reads whole sequences ahead on background threads, many at the same time where each is a request to a server, so that
// a step waits neither for a disk nor for a network. Holds a bounded number of microbatches. What it returns depends on
// (dataset, order, shape, step, index) only, never on its threads.

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
    int64_t first_step = 1;
    std::vector<int64_t> indices =
        {};           // the microbatches of each step that are read here, ascending; empty = all of them
    int threads = 1;  // at least; as many as the dataset wants to be read at the same time. 0 = read in Next
    int64_t microbatches_ahead = 4;  // at least; twice as many sequences as there are threads
  };

  /// `dataset` and `order` must outlive the loader.
  Loader(const Dataset& dataset, const SampleOrder& order, const Options& options);
  /// Ends reads that are under way, too, where the dataset can.
  ~Loader();

  /// Microbatch `index` of `step`. Calls must follow the order step by step, `indices` by `indices`. Cancelled once
  /// `stop` is requested. If it could not be read: the error of the first of its rows that failed, by Dataset::Read;
  /// the loader may not be used any further.
  absl::StatusOr<Microbatch> Next(int64_t step, int64_t index, std::stop_token stop);

 private:
  /// A microbatch on its way.
  struct Pending {
    Microbatch microbatch;
    int64_t rows_left = 0;
    int64_t failed_row = 0;  // the first, of those read so far
    absl::Status status;
  };

  static Options WithDefaults(Options options, const Dataset& dataset);
  void Work(std::stop_token stop);
  int64_t StepOf(int64_t position) const;
  int64_t IndexOf(int64_t position) const;

  const Dataset& dataset_;
  const SampleOrder& order_;
  Options options_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Positions count microbatches from the first one on.
  int64_t next_row_ = 0;  // to be read: position * B + row
  int64_t next_to_return_ = 0;
  std::map<int64_t, Pending> pending_;  // by position
  std::vector<std::jthread> threads_;
};

}  // namespace holdfast
