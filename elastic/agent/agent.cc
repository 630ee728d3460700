#include "elastic/agent/agent.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/log.h"
#include "framework/base/random_id.h"

namespace holdfast {
namespace {

constexpr int kUsageExit = 2;
constexpr std::chrono::milliseconds kPoll{50};  // bounds the wait for what has no descriptor

/// Ends that were meant: done, a config that no restart mends, stopped by a signal it caught.
bool IsFinal(int wait_status) {
  return WIFEXITED(wait_status) && (WEXITSTATUS(wait_status) == 0 || WEXITSTATUS(wait_status) == kUsageExit ||
                                    WEXITSTATUS(wait_status) == kRunFailedExit || WEXITSTATUS(wait_status) > 128);
}

}  // namespace

Agent::Agent(const Options& options, std::vector<ChildCommand> workers, std::function<void(const WorkerExit&)> on_exit)
    : options_(options), on_exit_(std::move(on_exit)), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (ChildCommand& command : workers) {
    Worker& worker = workers_.emplace_back();
    worker.command = std::move(command);
    worker.restart_at = Clock::now();
  }
  thread_ = std::thread([this] { Supervise(); });
}

Agent::~Agent() {
  Stop(SIGKILL, std::chrono::milliseconds(0));
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  Wake();
  thread_.join();
  close(wake_fd_);
}

void Agent::Wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

void Agent::Supervise() {
  std::unique_lock lock(mutex_);
  while (!done_) {
    for (Worker& worker : workers_) {
      if (worker.restart_at.has_value() && !stopping_ && *worker.restart_at <= Clock::now()) StartWorker(worker);
      if (stopping_) worker.restart_at.reset();
      if (worker.awaits_run && worker.process.has_value()) TellRun(worker);
      Reap(worker);
    }
    changed_.notify_all();
    lock.unlock();
    WaitForSomething();
    lock.lock();
  }
}

// Until a worker ends, a restart is due, the run may be known, or somebody calls Wake. workers_ is changed by this
// thread alone.
void Agent::WaitForSomething() {
  std::vector<pollfd> fds{{.fd = wake_fd_, .events = POLLIN, .revents = 0}};
  std::chrono::milliseconds timeout = options_.max_backoff;
  for (const Worker& worker : workers_) {
    if (worker.process.has_value() && worker.process->exit_fd() >= 0) {
      fds.push_back({.fd = worker.process->exit_fd(), .events = POLLIN, .revents = 0});
    } else if (worker.process.has_value()) {
      timeout = std::min(timeout, kPoll);
    }
    if (worker.process.has_value() && worker.awaits_run) timeout = std::min(timeout, kPoll);
    if (worker.restart_at.has_value()) {
      const auto until = std::chrono::ceil<std::chrono::milliseconds>(*worker.restart_at - Clock::now());
      timeout = std::clamp(until, std::chrono::milliseconds(0), timeout);
    }
  }
  poll(fds.data(), fds.size(), static_cast<int>(timeout.count()));
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t cleared = read(wake_fd_, &count, sizeof(count));
}

void Agent::StartWorker(Worker& worker) {
  worker.restart_at.reset();
  worker.started = Clock::now();
  worker.incarnation = RandomId();
  ChildCommand command = worker.command;
  command.environment.emplace_back(kIncarnationVariable, absl::StrCat(worker.incarnation));
  const uint64_t run = options_.run == nullptr ? 0 : options_.run();
  worker.awaits_run = options_.run != nullptr && run == 0;
  command.input = worker.awaits_run;
  if (worker.awaits_run) command.environment.emplace_back(kRunVariable, kRunOnInput);
  if (run != 0) command.environment.emplace_back(kRunVariable, absl::StrCat(run));
  absl::StatusOr<ChildProcess> process = ChildProcess::Start(command);
  if (process.ok()) {
    worker.process.emplace(std::move(*process));
    return;
  }
  // No processes or no disk: later there may be some. Who coordinates knows nothing yet of such a worker.
  LogWarning("worker ", worker.command.name, " cannot be started, and is tried again: ", process.status().message());
  worker.restart_at = Clock::now() + options_.max_backoff;
  on_exit_({.name = worker.command.name,
            .incarnation = worker.incarnation,
            .cause = std::string(process.status().message()),
            .exit_code = 1,
            .restarting = true});
}

void Agent::TellRun(Worker& worker) {
  const uint64_t run = options_.run();
  if (run == 0) return;
  worker.process->WriteInput(absl::StrCat(run, "\n"));
  worker.process->CloseInput();
  worker.awaits_run = false;
}

void Agent::Reap(Worker& worker) {
  if (!worker.process.has_value()) return;
  const std::optional<int> wait_status = worker.process->TryWait();
  if (wait_status.has_value()) HandleExit(worker, *wait_status);
}

void Agent::HandleExit(Worker& worker, int wait_status) {
  WorkerExit exit{
      .name = worker.command.name, .incarnation = worker.incarnation, .cause = worker.process->CauseOfEnd(wait_status)};
  exit.exit_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
  exit.killed = WIFSIGNALED(wait_status);
  exit.stopped = stopping_ && exit.killed &&
                 (WTERMSIG(wait_status) == stop_signal_ || WTERMSIG(wait_status) == kEndsBeforeJoining);
  worker.process.reset();
  exit.restarting = !stopping_ && !IsFinal(wait_status) && worker.restarts < options_.max_restarts;
  if (exit.restarting) {
    ++worker.restarts;
    worker.restart_at = Clock::now() + Backoff(worker);
  }
  on_exit_(exit);
}

std::chrono::milliseconds Agent::Backoff(Worker& worker) const {
  constexpr int64_t kMaxDoublings = 20;
  if (Clock::now() - worker.started >= options_.short_life) worker.short_lives = 0;
  const int64_t doublings = std::min(worker.short_lives++, kMaxDoublings);
  if (doublings == 0) return std::chrono::milliseconds(0);
  return std::min(options_.max_backoff, options_.first_backoff * (int64_t{1} << (doublings - 1)));
}

bool Agent::AllEnded() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& w) { return !w.process.has_value() && !w.restart_at.has_value(); });
}

bool Agent::WaitUntilAllEnded(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return AllEnded(); });
}

void Agent::SignalAll(int signal, bool wakes) {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_signal_ = signal;
    for (Worker& worker : workers_) {
      if (!worker.process.has_value()) continue;
      if (!wakes && worker.process->IsFrozen()) {
        worker.process->KillGroup();
        continue;
      }
      worker.process->Signal(signal);
      worker.process->Signal(SIGCONT);
    }
  }
  Wake();
}

void Agent::Ask(int signal) { SignalAll(signal, /*wakes=*/true); }

// Who is frozen stays so: Stop kills it.
void Agent::EndThoseNotJoined() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  for (const Worker& worker : workers_) {
    if (worker.process.has_value()) worker.process->Signal(kEndsBeforeJoining);
  }
}

void Agent::Stop(int signal, std::chrono::milliseconds grace) {
  SignalAll(signal, /*wakes=*/false);
  if (WaitUntilAllEnded(grace)) return;
  {
    const std::lock_guard lock(mutex_);
    for (Worker& worker : workers_) {
      if (worker.process.has_value()) worker.process->KillGroup();
    }
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return AllEnded(); });
}

}  // namespace holdfast
