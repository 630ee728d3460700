#pragma once
// Tasks that run at the same time, whose results are taken in the order in which the tasks were begun.

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "framework/base/status.h"

namespace holdfast {

/// An error of `take` ends it: nothing more is begun or taken, and Begin and Finish return that error. The destructor
/// waits for what runs. Thread-safety: none; `take` is called by the thread that calls Begin and Finish.
template <typename Result>
class InOrder {
 public:
  /// `threads`: so many tasks run at the same time. With 1 each runs when it is taken.
  InOrder(int threads, std::function<absl::Status(Result)> take)
      : threads_(threads), tasks_max_(threads > 1 ? 2 * static_cast<size_t>(threads) : 1), take_(std::move(take)) {}

  /// Where as many have begun as may, the oldest is taken first.
  template <typename Task>
  absl::Status Begin(Task task) {
    RETURN_IF_ERROR(TakeUntil(tasks_max_ - 1));
    // Where the system gives no further thread, the task runs when it is taken.
    const auto how = tasks_max_ > 1 ? std::launch::async | std::launch::deferred : std::launch::deferred;
    begun_.push_back(std::async(how, [this, task = std::move(task)]() mutable {
      const Running running(*this);
      Task own = std::move(task);  // what it holds goes when it ends, not when its result is taken
      return own();
    }));
    return absl::OkStatus();
  }

  /// Takes what is left.
  absl::Status Finish() { return TakeUntil(0); }

 private:
  /// One of the tasks that run, from when it may.
  class Running {
   public:
    explicit Running(InOrder& tasks) : tasks_(tasks) {
      std::unique_lock lock(tasks_.mutex_);
      tasks_.one_has_ended_.wait(lock, [this] { return tasks_.running_ < tasks_.threads_; });
      ++tasks_.running_;
    }
    ~Running() {
      const std::lock_guard lock(tasks_.mutex_);
      --tasks_.running_;
      tasks_.one_has_ended_.notify_one();
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    InOrder& tasks_;
  };

  /// Until `left` are left.
  absl::Status TakeUntil(size_t left) {
    while (failure_.ok() && begun_.size() > left) {
      std::future<Result> oldest = std::move(begun_.front());
      begun_.pop_front();
      failure_ = take_(oldest.get());
    }
    return failure_;
  }

  const int threads_;
  const size_t tasks_max_;  // begun and not taken, so that all threads have work while the oldest is waited for
  std::function<absl::Status(Result)> take_;
  absl::Status failure_;
  std::mutex mutex_;
  std::condition_variable one_has_ended_;
  int running_ = 0;
  std::deque<std::future<Result>> begun_;  // last: it waits for those that use the others
};

}  // namespace holdfast
