#pragma once
// The threads kernels run on. One pool per stream; the calling thread works too, so a pool of one starts no thread.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/executor.h"

namespace holdfast {

/// Thread-safety: Run and Scratch(kShared) from one thread at a time.
class ThreadPool final : public kernels::Executor {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const override { return static_cast<int>(scratch_.size()) - 1; }
  void Run(int64_t num_tasks, TaskFn fn, void* context) override;
  void* Scratch(int slot, size_t bytes) override;

  /// Bytes of scratch memory held now, all slots together.
  size_t scratch_bytes() const;
  /// Held for a slot of which `bytes` are asked.
  static size_t ScratchBlockBytes(size_t bytes);

 private:
  struct ScratchBlock {
    void* data = nullptr;
    size_t bytes = 0;
  };

  void WorkerLoop(int thread);
  void WorkOn(int thread);

  std::vector<ScratchBlock> scratch_;  // [0] = shared, [1 + thread]
  std::vector<std::thread> threads_;

  // The job in flight: its number, whether it is open, and how many workers are in it, in one word. The caller closes
  // the job when no task is left to take and waits for the workers that are in it, not for one that never came: on a
  // busy machine that one may come milliseconds later, and finds a closed door. Workers spin briefly before they sleep:
  // kernels follow each other within microseconds.
  TaskFn fn_ = nullptr;
  void* context_ = nullptr;
  int64_t num_tasks_ = 0;
  std::atomic<int64_t> next_task_{0};
  std::atomic<uint64_t> state_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace holdfast
