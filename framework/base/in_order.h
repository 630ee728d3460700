#pragma once
// Tasks that run at the same time, whose results are taken in the order in which the tasks were begun.

#include <deque>
#include <functional>
#include <future>
#include <utility>

#include "absl/status/status.h"
#include "framework/base/status.h"

namespace holdfast {

/// Of tasks that `threads` threads have, so that all have work while the oldest one is waited for.
inline int TasksMax(int threads) { return threads > 1 ? 2 * threads : 1; }

/// An error of `take` ends it: nothing more is begun or taken, and Begin and Finish return that error. The destructor
/// waits for what runs. Thread-safety: none; `take` is called by the thread that calls Begin and Finish.
template <typename Result>
class InOrder {
 public:
  /// `tasks_max`: so many tasks have begun and have not been taken. With 1 each runs when it is taken.
  InOrder(int tasks_max, std::function<absl::Status(Result)> take)
      : tasks_max_(static_cast<size_t>(tasks_max)), take_(std::move(take)) {}

  /// Where as many have begun as may, the oldest is taken first.
  template <typename Task>
  absl::Status Begin(Task task) {
    RETURN_IF_ERROR(TakeUntil(tasks_max_ - 1));
    // Where the system gives no further thread, the task runs when it is taken.
    const auto how = tasks_max_ > 1 ? std::launch::async | std::launch::deferred : std::launch::deferred;
    begun_.push_back(std::async(how, std::move(task)));
    return absl::OkStatus();
  }

  /// Takes what is left.
  absl::Status Finish() { return TakeUntil(0); }

 private:
  /// Until `left` are left.
  absl::Status TakeUntil(size_t left) {
    while (failure_.ok() && begun_.size() > left) {
      std::future<Result> oldest = std::move(begun_.front());
      begun_.pop_front();
      failure_ = take_(oldest.get());
    }
    return failure_;
  }

  size_t tasks_max_;
  std::function<absl::Status(Result)> take_;
  std::deque<std::future<Result>> begun_;
  absl::Status failure_;
};

}  // namespace holdfast
