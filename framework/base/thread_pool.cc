#include "framework/base/thread_pool.h"

#include <immintrin.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "framework/base/aligned_memory.h"

namespace holdfast {
namespace {

constexpr int kSpins = 20000;                       // about 50 us: longer than the gap between two kernels of a step
constexpr size_t kSmallScratch = size_t{64} << 10;  // beyond it a block takes a huge page

// ThreadPool::state_: workers in the job (16 bits), open (1 bit), number of the job.
constexpr uint64_t kWorkers = 0xffff;
constexpr uint64_t kOpen = 0x10000;
constexpr uint64_t kNextJob = 0x20000;

uint64_t JobOf(uint64_t state) { return state / kNextJob; }

void EndThreads(std::mutex& mutex, std::atomic<bool>& stop, std::condition_variable& wake,
                std::vector<std::thread>& threads) {
  {
    std::lock_guard lock(mutex);
    stop = true;
  }
  wake.notify_all();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) : scratch_(static_cast<size_t>(std::max(num_threads, 1)) + 1) {
  try {
    for (int thread = 1; thread < this->num_threads(); ++thread) {
      threads_.emplace_back([this, thread] { WorkerLoop(thread); });
    }
  } catch (...) {  // a thread cannot be started: those that were would end the process
    EndThreads(mutex_, stop_, wake_, threads_);
    throw;
  }
}

ThreadPool::~ThreadPool() {
  EndThreads(mutex_, stop_, wake_, threads_);
  for (ScratchBlock& block : scratch_) std::free(block.data);
}

void ThreadPool::Run(int64_t num_tasks, TaskFn fn, void* context) {
  if (threads_.empty() || num_tasks <= 1) {
    for (int64_t task = 0; task < num_tasks; ++task) fn(context, task, 0);
    return;
  }
  fn_ = fn;
  context_ = context;
  num_tasks_ = num_tasks;
  next_task_.store(0, std::memory_order_relaxed);
  {
    std::lock_guard lock(mutex_);  // a worker about to sleep either sees the new job or is woken
    state_.store((JobOf(state_.load(std::memory_order_relaxed)) + 1) * kNextJob | kOpen, std::memory_order_release);
  }
  wake_.notify_all();
  // An exception (no memory) that left this would take away what the others work on; of theirs, too, none is caught.
  [this]() noexcept { WorkOn(0); }();
  state_.fetch_and(~kOpen, std::memory_order_relaxed);
  // A worker that takes long has been descheduled: give it this processor.
  for (int spins = 0; (state_.load(std::memory_order_acquire) & kWorkers) != 0; ++spins) {
    spins < kSpins ? _mm_pause() : std::this_thread::yield();
  }
}

void ThreadPool::WorkOn(int thread) {
  for (;;) {
    const int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= num_tasks_) return;
    fn_(context_, task, thread);
  }
}

void ThreadPool::WorkerLoop(int thread) {
  uint64_t seen = 0;
  const auto is_new = [&](uint64_t state) { return (state & kOpen) != 0 && JobOf(state) != seen; };
  while (!stop_) {
    uint64_t state = state_.load(std::memory_order_relaxed);
    for (int spins = 0; !is_new(state) && !stop_ && spins < kSpins; ++spins) {
      _mm_pause();
      state = state_.load(std::memory_order_relaxed);
    }
    if (!is_new(state)) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return is_new(state_.load(std::memory_order_relaxed)) || stop_; });
      continue;
    }
    if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire, std::memory_order_relaxed)) continue;
    seen = JobOf(state);
    WorkOn(thread);
    state_.fetch_sub(1, std::memory_order_release);
  }
}

size_t ThreadPool::ScratchBlockBytes(size_t bytes) {
  return bytes < kSmallScratch ? bytes : (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

void* ThreadPool::Scratch(int slot, size_t bytes) {
  ScratchBlock& block = scratch_[static_cast<size_t>(slot + 1)];
  if (block.bytes < bytes) {
    std::free(block.data);
    block = {};
    const size_t wanted = ScratchBlockBytes(bytes);
    block.data = AllocateAligned(wanted);
    if (block.data == nullptr) throw std::bad_alloc();
    block.bytes = wanted;
  }
  return block.data;
}

size_t ThreadPool::scratch_bytes() const {
  size_t total = 0;
  for (const ScratchBlock& block : scratch_) total += block.bytes;
  return total;
}

}  // namespace holdfast
