#pragma once
// Where CPU kernels get threads and scratch memory from. Kernels create neither. How they cut their work into tasks may
// depend on the number of threads only where no bit of the result depends on the cutting.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace holdfast::kernels {

class Executor {
 public:
  using TaskFn = void (*)(void* context, int64_t task, int thread);

  virtual ~Executor() = default;

  virtual int num_threads() const = 0;

  /// Calls fn(context, task, thread) once for each task in [0, num_tasks), in any order, on threads numbered
  /// [0, num_threads()); returns when all are done. Not re-entrant: a task must not call Run.
  virtual void Run(int64_t num_tasks, TaskFn fn, void* context) = 0;

  /// At least `bytes` of 64-byte aligned memory. `slot` is a thread number (private to the task running there) or
  /// kShared (for the caller of Run). Contents are undefined; valid until the next call with the same slot.
  virtual void* Scratch(int slot, size_t bytes) = 0;
  static constexpr int kShared = -1;

  /// What each task of the next Run asks Scratch of its thread for, at most; for who measures what kernels take.
  virtual void ExpectScratch(size_t /*bytes*/) {}
};

/// Calls body(task, thread) for each task in [0, num_tasks).
template <typename Body>
void ParallelFor(Executor& executor, int64_t num_tasks, Body&& body) {
  using Fn = std::remove_reference_t<Body>;
  auto call = [](void* context, int64_t task, int thread) { (*static_cast<Fn*>(context))(task, thread); };
  executor.Run(num_tasks, call, const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

/// Calls body(task, memory), with `bytes` of the scratch memory of the thread that the task runs on.
template <typename Body>
void ParallelForWithScratch(Executor& executor, int64_t num_tasks, size_t bytes, Body&& body) {
  executor.ExpectScratch(bytes);
  ParallelFor(executor, num_tasks, [&](int64_t task, int thread) { body(task, executor.Scratch(thread, bytes)); });
}

}  // namespace holdfast::kernels
