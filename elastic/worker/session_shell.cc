#include "elastic/worker/session_shell.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "framework/base/freeze_watch.h"
#include "framework/base/log.h"
#include "framework/base/seconds.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;
// Of lines that say the same: at first, and after some. It asks again each second.
constexpr std::chrono::minutes kRefusalInterval{1}, kLongestRefusalInterval{60};

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

/// An UpdateTask is not: its step is committed, whatever becomes of the world.
bool IsOfAWorld(const WorkerTask& task) {
  return std::holds_alternative<RecoverTask>(task) || std::holds_alternative<StepTask>(task) ||
         std::holds_alternative<EndingTask>(task);
}

}  // namespace

SessionShell::SessionShell(const Options& options, ControlLink& link, const StepProgress& progress,
                           std::unique_ptr<PeerProbe> probe)
    : options_(options),
      link_(link),
      progress_(progress),
      session_(options.member, options.digests, options.total_steps, options.run),
      refusals_(kRefusalInterval, std::chrono::minutes(0), kLongestRefusalInterval),
      probe_(std::move(probe)) {
  link_.Start(*this);
  absl::Cleanup stop = [this] { link_.Stop(); };  // if there is no thread: it would call what is gone
  heartbeats_ = std::jthread([this](const std::stop_token& stop_beats) { Beat(stop_beats); });
  std::move(stop).Cancel();
}

SessionShell::~SessionShell() {
  heartbeats_ = {};
  link_.Stop();
  probe_.reset();
}

Phase SessionShell::phase() const {
  const std::lock_guard lock(mutex_);
  return progress_.waiting ? Phase::kReduce : phase_;
}

Member SessionShell::member() const {
  const std::lock_guard lock(mutex_);
  return session_.member();
}

void SessionShell::OnMessage(const CoordinatorMessage& message) {
  if (const auto* peers = std::get_if<PeersMessage>(&message)) {
    const std::lock_guard lock(mutex_);
    peers_ = *peers;
    changed_.notify_all();
    return;
  }
  if (const auto* probe = std::get_if<ProbeMessage>(&message)) {
    if (probe_ == nullptr) return;
    probe_->Start(probe->addresses, [this, round = probe->round](std::vector<double> seconds) {
      link_.Send(ReachMessage{round, std::move(seconds)});
    });
    return;
  }
  if (const auto* refusal = std::get_if<RefusedMessage>(&message); refusal != nullptr && !refusal->rejoin) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(refusal_, refusal->reason) != refusal->reason) refusals_.Reset();
    const auto line = refusals_.Line(Clock::now().time_since_epoch(), refusal->reason);
    if (line.has_value()) LogError("refused by the coordinator: ", *line);
  } else if (std::holds_alternative<WorldMessage>(message) || std::holds_alternative<WelcomeMessage>(message)) {
    const std::lock_guard lock(mutex_);
    refusal_.clear();
    alone_since_.reset();
  }
  Feed(SessionMessage{message});
}

void SessionShell::OnDisconnected(const std::string&) {
  const std::lock_guard lock(mutex_);
  if (!alone_since_.has_value()) {
    alone_since_ = Clock::now();
    SayIfItWaits();
  }
  FeedLocked(SessionDisconnected{});
}

void SessionShell::SayIfItWaits() const {
  if (!options_.is_alone || !alone_since_.has_value() || !session_.was_taken_in() || session_.exited()) return;
  LogWarning("this worker has lost its coordinator, and waits for it, as it may hold what no other has: start the ",
             "coordinator again; without one this worker ends after ",
             std::chrono::duration_cast<std::chrono::seconds>(options_.coordinator_timeout).count(),
             " s (elastic.coordinator_timeout_ms), or at once on a second SIGINT");
}

void SessionShell::AskForStop(int signal) {
  const std::lock_guard lock(mutex_);
  FeedLocked(SessionStopAsked{signal, options_.is_alone});
  SayIfItWaits();
}

void SessionShell::Answer(const SessionEvent& event) {
  {
    const std::lock_guard lock(mutex_);
    working_since_.reset();
  }
  Feed(event);
}

void SessionShell::Feed(const SessionEvent& event) {
  const std::lock_guard lock(mutex_);
  FeedLocked(event);
}

// Messages are sent under the lock: the coordinator has to see them in the order in which the machine made them.
void SessionShell::FeedLocked(const SessionEvent& event) {
  for (SessionAction& action : session_.OnEvent(event)) {
    std::visit(Overloaded{[&](SendToCoordinator& send) { link_.Send(send.message); },
                          [&](AbortTask&) {
                            stop_.request_stop();
                            if (!abort_since_.has_value()) abort_since_ = Clock::now();
                            std::erase_if(tasks_, IsOfAWorld);
                          },
                          [&](auto& task) { tasks_.push_back(std::move(task)); }},
               action);
  }
  changed_.notify_all();
}

SessionShell::Next SessionShell::NextTask() {
  std::unique_lock lock(mutex_);
  working_since_.reset();
  changed_.wait(lock, [&] { return !tasks_.empty(); });
  WorkerTask task = std::move(tasks_.front());
  tasks_.pop_front();
  double abort_seconds = 0;
  if (const auto* recover = std::get_if<RecoverTask>(&task)) {
    recovering_ = recover->world.world.generation;
    stop_ = std::stop_source();
    if (abort_since_.has_value()) abort_seconds = SecondsSince(*abort_since_);
    abort_since_.reset();
  }
  working_since_ = Clock::now();
  return {std::move(task), stop_.get_token(), abort_seconds};
}

void SessionShell::SetPhase(Phase phase, int64_t step) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  step_ = step;
  ++phase_changes_;
}

absl::StatusOr<std::vector<std::string>> SessionShell::Exchange(const std::string& mine, Deadline deadline) {
  std::unique_lock lock(mutex_);
  // Of the task at work: the session may have heard of the next world already, where these addresses are worth nothing.
  const uint64_t generation = recovering_;
  if (generation != session_.generation()) return absl::AbortedError("the world has changed");
  const std::stop_token stop = stop_.get_token();
  link_.Send(RendezvousMessage{generation, mine});
  const bool there = changed_.wait_until(lock, stop, deadline, [&] { return peers_.generation == generation; });
  if (stop.stop_requested()) return absl::AbortedError("the world has changed");
  if (!there) {
    return absl::DeadlineExceededError(
        absl::StrCat("the addresses of the members of generation ", generation, " did not arrive in time"));
  }
  return peers_.blobs;
}

bool SessionShell::IsOverdue() const {
  return abort_since_.has_value() && working_since_.has_value() &&
         Clock::now() - std::max(*abort_since_, *working_since_) > options_.kill_timeout;
}

// Carries where the main thread is, so that a worker whose side threads live on is not taken for a healthy one. Also
// the last resort: a main thread that cannot be brought back, inside a transport say, is of no use to anybody. One that
// was frozen with the whole process has had no time to come back, and its coordinator none to answer.
void SessionShell::Beat(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  FreezeWatch freezes(Clock::now(), options_.heartbeat_interval);
  while (!stop.stop_requested()) {
    freezes.Look(Clock::now(), {&alone_since_, &working_since_, &abort_since_});
    link_.Send(HeartbeatMessage{.generation = session_.generation(),
                                .step = step_,
                                .phase = progress_.waiting ? Phase::kReduce : phase_,
                                .progress = progress_.count + phase_changes_,
                                .bytes_loaded = progress_.bytes_loaded,
                                .bytes_to_load = progress_.bytes_to_load});
    if (options_.is_alone && alone_since_.has_value() && Clock::now() - *alone_since_ >= options_.coordinator_timeout) {
      FeedLocked(SessionDeserted{});
    }
    if (IsOverdue()) {
      LogError("the ", PhaseName(phase_), " phase did not end within ", options_.kill_timeout.count() / 1000,
               " s of its abort; this worker exits");
      std::abort();
    }
    changed_.wait_for(lock, stop, options_.heartbeat_interval, [] { return false; });
  }
}

}  // namespace holdfast
