#pragma once
// One thread that runs what it is given, in order.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace holdfast {

/// Thread-safe. Destruction waits for all tasks.
class TaskThread {
 public:
  TaskThread();
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  void Post(std::function<void()> task);
  /// Returns when everything posted before has been run.
  void Drain();

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // the first one is at work
  bool done_ = false;
  std::thread thread_;
};

}  // namespace holdfast
