#include "elastic/agent/agent_shell.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "framework/base/host.h"
#include "framework/base/log.h"
#include "framework/base/random_id.h"
#include "framework/base/signal_text.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kGrace{10'000};  // for workers that know of the end
constexpr milliseconds kNotice{2'000};  // for a stop of the whole run to show
constexpr milliseconds kLongNotice{30'000};
constexpr milliseconds kLookInterval{100};
constexpr int kRetryExit = 75;  // EX_TEMPFAIL: the same command may succeed later

}  // namespace

std::string DefaultNode() {
  const char* slurm = std::getenv("SLURM_NODEID");
  return slurm != nullptr ? absl::StrCat("node-", slurm) : HostName();
}

AgentShell::AgentShell(const Config& config, const RunDirectory& directory, const AgentSettings& settings,
                       ControlLink& link, LookFn look)
    : coordinator_timeout_(config.elastic.coordinator_timeout_ms),
      progress_timeout_(std::max<int64_t>(kLongNotice.count(), config.elastic.progress_timeout_ms)),
      run_saves_(config.checkpoint.enabled()),
      settings_(settings),
      instance_(RandomId()),
      link_(link),
      look_(std::move(look)),
      running_(settings.num_workers),
      freezes_(Clock::now(), kLookInterval) {
  link_.Start(*this);
  absl::Cleanup stop = [this] { link_.Stop(); };  // if there is no thread: it would call what is gone
  const Agent::Options options{.max_restarts = config.elastic.max_restarts, .run = [this] {
                                 const std::lock_guard lock(mutex_);
                                 return run_;
                               }};
  agent_ = std::make_unique<Agent>(options, WorkerCommands(config, directory, settings_),
                                   [this](const WorkerExit& e) { OnExit(e); });
  std::move(stop).Cancel();
}

AgentShell::~AgentShell() {
  agent_.reset();
  link_.Stop();
}

void AgentShell::OnConnected() {
  bool leaving = false;
  int signal = 0;
  uint64_t run = 0;
  {
    const std::lock_guard lock(mutex_);
    if (refused_) return;
    was_connected_ = true;
    ++connections_;
    if (other_run_.empty()) alone_since_.reset();
    leaving = leaving_;
    signal = stop_signal_;
    run = run_;
  }
  link_.Send(AgentHelloMessage{.node = settings_.node,
                               .host = HostName(),
                               .pid = getpid(),
                               .num_workers = static_cast<int>(settings_.num_workers),
                               .instance = instance_,
                               .run = run});
  if (leaving) link_.Send(LeaveMessage{signal});  // whoever is there now may not have heard of it
}

void AgentShell::OnDisconnected(const std::string&) {
  const std::lock_guard lock(mutex_);
  if (!alone_since_.has_value()) alone_since_ = Clock::now();
}

bool AgentShell::LostCoordinator() {
  const Clock::time_point now = Clock::now();
  freezes_.Look(now, {&alone_since_});
  return alone_since_.has_value() && now - *alone_since_ >= coordinator_timeout_;
}

void AgentShell::OnMessage(const CoordinatorMessage& message) {
  const std::lock_guard lock(mutex_);
  if (const auto* end = std::get_if<EndMessage>(&message); end != nullptr && !end_.has_value()) end_ = *end;
  if (const auto* welcome = std::get_if<WelcomeMessage>(&message); welcome != nullptr) {
    run_ = welcome->run;
    other_run_.clear();
    alone_since_.reset();
  }
  const auto* refused = std::get_if<RefusedMessage>(&message);
  if (refused != nullptr && refused->other_run && !end_.has_value()) {
    if (other_run_.empty()) {
      LogWarning(refused->reason, ": waiting for its own coordinator, for ",
                 std::chrono::duration_cast<std::chrono::seconds>(coordinator_timeout_).count(),
                 " s (elastic.coordinator_timeout_ms); SIGTERM ends this agent and its workers at once");
    }
    other_run_ = refused->reason;
    if (!alone_since_.has_value()) alone_since_ = Clock::now();
  } else if (refused != nullptr && !end_.has_value()) {
    refused_ = true;
    end_ = EndMessage{kRetryExit, refused->reason};
  }
  changed_.notify_all();
}

void AgentShell::OnExit(const WorkerExit& exit) {
  link_.Send(
      WorkerExitMessage{.id = {exit.name, exit.incarnation}, .cause = exit.cause, .restarting = exit.restarting});
  if (exit.restarting) return;
  const bool told = !exit.killed && (exit.exit_code == 0 || exit.exit_code == kRunFailedExit || exit.exit_code > 128);
  const std::lock_guard lock(mutex_);
  if (!told && !refused_ && !exit.stopped) LogError("worker ", exit.name, ": ", exit.cause);
  last_exit_code_ = exit.exit_code;
  told_by_worker_ = told;
  --running_;
  changed_.notify_all();
}

EndMessage AgentShell::Wait() {
  std::unique_lock lock(mutex_);
  const auto something = [&] { return end_.has_value() || running_ == 0 || stop_signal_ != 0; };
  while (!LostCoordinator() && !changed_.wait_for(lock, kLookInterval, something)) {
  }
  if (!something()) {
    EndMessage end = Alone();
    lock.unlock();
    agent_->Stop(SIGKILL, milliseconds(0));  // there is nobody to save anything with
    return end;
  }
  const int stop_signal = stop_signal_;
  if (stop_signal != 0 && !end_.has_value() && running_ > 0) {
    const bool was_connected = was_connected_;
    lock.unlock();
    if (was_connected) {
      Depart(stop_signal);
    } else {  // there is no run to leave
      agent_->Stop(SIGKILL, milliseconds(0));
    }
    lock.lock();
  }
  // Workers hear of the end as well, and may be gone first; give the coordinator's word to us the time it needs.
  if (running_ == 0) changed_.wait_for(lock, kNotice, [&] { return end_.has_value(); });
  EndMessage end{last_exit_code_ == kRunFailedExit ? 1 : last_exit_code_, "all workers have failed"};
  if (end_.has_value()) {
    end = *end_;
  } else if (leaving_) {
    end = {128 + stop_signal, absl::StrCat("node ", settings_.node, " has left the run")};
  } else if (stop_signal != 0 && !told_by_worker_) {
    end = {128 + stop_signal, absl::StrCat("stopped by ", SignalText(stop_signal),
                                           was_connected_ ? ", and no coordinator has said how the run ended"
                                                          : ": it reached no coordinator")};
  } else if (told_by_worker_) {  // the line to the coordinator broke at the wrong moment
    end.reason = "the run has ended, as the workers of this node report";
  }
  const bool nobody_hears = refused_ || !other_run_.empty(), leaving = leaving_;
  lock.unlock();
  // On a signal workers would ask for a stop of the run, which goes on if we were refused or have left. Those that had
  // joined have heard that they may go.
  agent_->EndThoseNotJoined();
  agent_->Stop(nobody_hears ? SIGKILL : leaving ? 0 : SIGTERM, nobody_hears ? milliseconds(0) : kGrace);
  return end;
}

EndMessage AgentShell::Alone() const {
  return {kRetryExit,
          absl::StrCat("no connection to the coordinator at ", settings_.coordinator, " for ",
                       std::chrono::duration_cast<std::chrono::seconds>(coordinator_timeout_).count(),
                       " s (elastic.coordinator_timeout_ms)",
                       other_run_.empty() ? "" : absl::StrCat(", but to one of another run (", other_run_, ")"),
                       ": start it and this agent again; the run resumes from its newest checkpoint")};
}

milliseconds AgentShell::AloneFor() {
  const std::lock_guard lock(mutex_);
  if (!alone_since_.has_value()) return milliseconds(0);
  return std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(Clock::now() - *alone_since_));
}

int64_t AgentShell::NumRunning() {
  const std::lock_guard lock(mutex_);
  return running_;
}

void AgentShell::Stop(int signal) {
  const std::lock_guard lock(mutex_);
  stop_signal_ = signal;
  changed_.notify_all();
}

/// Of the run, or of all workers here; or another run has come in its place, so that there is nobody to leave.
bool AgentShell::Ended(std::unique_lock<std::mutex>& lock, milliseconds timeout) {
  return changed_.wait_for(lock, timeout, [&] { return end_.has_value() || running_ == 0 || !other_run_.empty(); });
}

/// Waits for the end, or until no coordinator is expected any more. False: the line was connected anew, after so many
/// `connections`.
bool AgentShell::AwaitEnd(int64_t connections) {
  std::unique_lock lock(mutex_);
  while (connections_ == connections) {
    if (Ended(lock, kLookInterval) || LostCoordinator()) return true;
  }
  return false;
}

// A second SIGINT ends this process, and with it the workers, at once. A scheduler's signal comes to thousands of
// agents in one moment, and each look holds up the coordinator that is to stop: so none comes before it could decide
// anything.
void AgentShell::Depart(int signal) {
  for (SinceSignal since(Clock::now(), kNotice);;) {
    {
      std::unique_lock lock(mutex_);
      if (Ended(lock, kNotice)) return;
    }
    const int64_t connections = connections_;
    const auto run = look_();
    const Departure decision = DecideDeparture(run, settings_.node, run_saves_, since.At(Clock::now()));
    if (decision == Departure::kLeave) return Leave(signal);
    if (decision == Departure::kWait) continue;
    if (decision == Departure::kStopRun) {
      agent_->Ask(signal);  // workers ask the coordinator for a stop by it; saving takes as long as it takes
      while (!AwaitEnd(connections_)) {
      }
      return;
    }
    if (AwaitEnd(connections)) return;
    since.Restart(Clock::now());  // a coordinator that was started again may not know that the run is to end
  }
}

// The coordinator makes a world without us, and says when our workers are not needed any more. That takes as long as
// the steps and the moving of state take; we wait while the run gets on.
void AgentShell::Leave(int signal) {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  LogInfo(
      "leaving the run: workers here end once others have taken over what they hold, or when nothing has got on for ",
      std::chrono::duration_cast<std::chrono::seconds>(progress_timeout_).count(), " s; SIGINT ends them at once");
  link_.Send(LeaveMessage{signal});
  LeaveWatch watch(Clock::now(), progress_timeout_, kNotice);
  for (auto run = look_(); watch.GetsOn(Clock::now(), run); run = look_()) {
    std::unique_lock lock(mutex_);
    if (Ended(lock, kNotice)) return;
  }
  agent_->Stop(SIGKILL, milliseconds(0));
}

bool LeaveWatch::GetsOn(Clock::time_point now, const absl::StatusOr<RunStatus>& run) {
  freezes_.Look(now, {&since_});
  const bool has_got_on = run.ok() && (run->state == RunState::kFinishing || run->committed_step != committed_step_ ||
                                       run->generation != generation_);
  if (has_got_on) {
    committed_step_ = run->committed_step;
    generation_ = run->generation;
    since_ = now;
  }
  return now - *since_ < limit_;
}

Departure DecideDeparture(const absl::StatusOr<RunStatus>& run, const std::string& node, bool saves,
                          milliseconds since_signal) {
  const bool patient = since_signal < kNotice;
  // Where all are told at once all look at once, and a coordinator may not get to every answer in time: it takes two.
  if (!run.ok()) return since_signal < 2 * kNotice ? Departure::kWait : Departure::kLeave;
  if (run->state == RunState::kFinishing || run->state == RunState::kEnded) return Departure::kStay;
  if (patient) return Departure::kWait;
  const bool others = std::any_of(run->workers.begin(), run->workers.end(),
                                  [&](const WorkerStatus& worker) { return worker.node != node; }) ||
                      (saves && std::any_of(run->nodes.begin(), run->nodes.end(),
                                            [&](const std::string& other) { return other != node; }));
  if (!others) {
    // A new coordinator may not have heard of the others yet.
    const bool are_known = run->state != RunState::kRecovering || run->world_size > 0;
    return are_known || since_signal >= kLongNotice ? Departure::kStopRun : Departure::kWait;
  }
  // While a world is being made, it may be the last one.
  return run->state == RunState::kTraining || since_signal >= kLongNotice ? Departure::kLeave : Departure::kWait;
}

}  // namespace holdfast
