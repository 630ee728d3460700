#include "elastic/sweep/trial_run.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "elastic/agent/worker_commands.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/config/load.h"
#include "framework/storage/atomic_file.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kGrace{3'000};          // for agents of a run that has ended
constexpr milliseconds kAgentInterval{1'000};  // between two starts of agents that do not stay
constexpr milliseconds kLookInterval{500};     // between two looks at how workers have ended, and at who may be frozen
constexpr int64_t kMostLostCoordinators = 20;  // killed from outside
constexpr int64_t kMostEnds = 5;               // of each worker, without a step that is committed
constexpr milliseconds kShortLife{20'000};     // of an agent here that ends by itself: it could not begin
constexpr int64_t kMostShortLives = 5;         // one after the other
constexpr size_t kMaxAddressFileBytes = 256;

/// `argv` as it is started on a host: by the host's command, which may hand it to a shell, in this directory.
absl::StatusOr<std::vector<std::string>> ThroughCommand(const SweepHost& host, std::vector<std::string> argv) {
  constexpr char kOrdinary[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:+,=@%[]";
  std::error_code error;
  argv[0] = host.binary.empty() ? fs::read_symlink(argv[0], error).string() : host.binary;
  if (error) return ErrnoToStatus(error.value(), "cannot find the path of this program");
  argv.emplace_back("--while-stdin-open");
  const std::string here = fs::current_path(error).string();
  if (error) return ErrnoToStatus(error.value(), "cannot find the current directory");
  argv.insert(argv.begin(), {"env", "-C", here});
  for (const std::string& word : argv) {
    if (word.find_first_not_of(kOrdinary) == std::string::npos) continue;
    return absl::InvalidArgumentError(absl::StrCat("'", word, "' cannot be handed to host ", host.name,
                                                   ", whose shell may take its characters for something else"));
  }
  std::vector<std::string> all = absl::StrSplit(absl::StrCat("/usr/bin/env ", host.command), ' ', absl::SkipEmpty());
  all.insert(all.end(), std::make_move_iterator(argv.begin()), std::make_move_iterator(argv.end()));
  return all;
}

}  // namespace

TrialRun::TrialRun(const Config& config, RunDirectory directory, Options options)
    : config_(config), directory_(std::move(directory)), options_(std::move(options)), ends_(directory_) {
  config_.run.name = fs::path(directory_.root()).filename();
  config_.checkpoint.directory.clear();                                                  // of every trial its own
  if (!config_.checkpoint.enabled()) config_.checkpoint.every = CheckpointEvery::kAuto;  // it may be stopped any time
  config_.elastic.min_workers = 1;
  int64_t all = 0;
  for (const SweepHost& host : options_.hosts) all += host.workers;
  config_.elastic.max_workers = std::max(all, config_.elastic.min_workers);
}

ChildCommand TrialRun::CommandOf(const char* command, const std::string& log) const {
  return {.name = command,
          .argv = {options_.binary, command, directory_.root() + ".yaml", "--run-dir", directory_.root()},
          .environment = {},
          .log_path = absl::StrCat(directory_.root(), ".", log, ".log")};
}

absl::Status TrialRun::Start(const WorkersByHost& workers) {
  wanted_ = workers;
  config_.elastic.workers = std::accumulate(workers.begin(), workers.end(), int64_t{0});  // the first world waits for
  RETURN_IF_ERROR(WriteFileAtomically(directory_.root() + ".yaml", PrintConfig(config_)));
  return StartCoordinator();
}

// Where its agents know it, or, if there are none yet, anywhere.
absl::Status TrialRun::StartCoordinator() {
  ChildCommand command = CommandOf("coordinator", "coordinator");
  command.argv.insert(command.argv.end(), {"--resume", "auto", "--listen"});
  if (address_.empty()) {
    std::error_code error;
    fs::remove(directory_.coordinator_address(), error);  // of one that was killed
    command.argv.insert(command.argv.end(), {options_.listen + ":0", "--new-workers"});
  } else {
    command.argv.push_back(address_);
  }
  ASSIGN_OR_RETURN(coordinator_, ChildProcess::Start(command));
  return absl::OkStatus();
}

absl::StatusOr<ChildProcess> TrialRun::StartOn(const SweepHost& host, ChildCommand command, int64_t slot) {
  command.argv.insert(command.argv.end(),
                      {"--first-of-host", absl::StrCat(slot), "--workers-of-host", absl::StrCat(host.workers)});
  if (!host.command.empty()) {
    ASSIGN_OR_RETURN(command.argv, ThroughCommand(host, std::move(command.argv)));
    command.input = true;
  }
  return ChildProcess::Start(command);
}

absl::Status TrialRun::StartAgent(size_t host) {
  const SweepHost& on = options_.hosts[host];
  std::string node;
  const auto has_it = [&](const Agent& agent) { return agent.node == node; };
  for (int64_t number = 0; node.empty() || std::any_of(agents_.begin(), agents_.end(), has_it); ++number) {
    node = absl::StrCat(on.name, "-", number);
  }
  ChildCommand command = CommandOf("agent", "agent-" + node);
  command.argv.insert(command.argv.end(), {"--coordinator", address_, "--token-file", directory_.token(), "--node",
                                           node, "--workers", "1"});
  const int64_t slot = options_.slots->Take(host);
  absl::StatusOr<ChildProcess> process = StartOn(on, std::move(command), slot);
  if (!process.ok()) {
    options_.slots->Free(host, slot);
    return process.status();
  }
  agents_.push_back({.host = host,
                     .node = node,
                     .slot = slot,
                     .process = *std::move(process),
                     .began = Clock::now(),
                     .leaves_since = std::nullopt});
  next_look_ = {};  // one that does not live long might not be there at the next
  return absl::OkStatus();
}

void TrialRun::TellToLeave(Agent& agent) const {
  agent.leaves_since = Clock::now();
  if (options_.hosts[agent.host].command.empty()) {
    agent.process.Signal(SIGTERM);
  } else {
    agent.process.CloseInput();
  }
}

void TrialRun::Stop() {
  if (stopping_ || end_.has_value()) return;
  stopping_ = true;
  if (coordinator_.has_value()) coordinator_->Signal(SIGTERM);
}

void TrialRun::Tick() {
  LookAfterCoordinator();
  LookAfterAgents();
  LookAtEvents();
}

void TrialRun::LookAfterCoordinator() {
  if (!coordinator_.has_value()) return;
  if (const std::optional<int> wait_status = coordinator_->TryWait(); wait_status.has_value()) {
    return TakeEnd(*wait_status);
  }
  KillFrozenCoordinator();
  if (!address_.empty()) return;
  const absl::StatusOr<std::string> address = ReadFile(directory_.coordinator_address(), kMaxAddressFileBytes);
  if (address.ok()) address_ = std::string(absl::StripSuffix(*address, "\n"));
}

// Looks are counted and not time, as this process may have been frozen, too.
bool TrialRun::FrozenWatch::IsFrozenFor(const ChildProcess& process, milliseconds duration) {
  if (Clock::now() < next_) return false;
  next_ = Clock::now() + kLookInterval;
  looks_ = process.IsFrozen() ? looks_ + 1 : 0;
  if (looks_ * kLookInterval < duration) return false;
  looks_ = 0;
  return true;
}

// Nobody stands by for it, and it would not hear that it is to stop.
void TrialRun::KillFrozenCoordinator() {
  const milliseconds duration(config_.elastic.coordinator_lease_ms);
  if (!coordinator_watch_.IsFrozenFor(*coordinator_, duration)) return;
  LogWarning("the coordinator of ", directory_.root(), " is frozen (by SIGSTOP or its like), and is killed");
  coordinator_->Signal(SIGKILL);
}

// Who is killed from outside comes back where it was, and its agents find it there; who says why it ends has ended.
void TrialRun::TakeEnd(int wait_status) {
  const std::string last_words = coordinator_->LastLogLine();
  coordinator_.reset();
  if (given_up_.has_value()) {
    end_ = End{EXIT_FAILURE, *given_up_};
  } else if (WIFSIGNALED(wait_status) && !stopping_ && ++lost_coordinators_ < kMostLostCoordinators) {
    LogWarning("the coordinator of ", directory_.root(), " was killed by signal ", WTERMSIG(wait_status),
               " and is started again");
    const absl::Status started = StartCoordinator();
    if (started.ok()) return;
    end_ = End{EXIT_FAILURE, std::string(started.message())};
  } else if (WIFSIGNALED(wait_status)) {
    end_ = End{stopping_ ? 128 + WTERMSIG(wait_status) : EXIT_FAILURE,
               absl::StrCat("coordinator killed by signal ", WTERMSIG(wait_status))};
  } else {
    end_ = End{WEXITSTATUS(wait_status), std::string(absl::StripPrefix(last_words, "error: "))};
  }
  ended_at_ = Clock::now();
}

void TrialRun::LookAtEvents() {
  if (end_.has_value() || stopping_ || given_up_.has_value() || agents_.empty() || Clock::now() < next_look_) return;
  next_look_ = Clock::now() + kLookInterval;
  ends_.Look();
  SayPause();
  GiveUpIfWorkersCannotLive();
}

// Once: a run tries again every few seconds, and pauses anew.
void TrialRun::SayPause() {
  if (said_pause_ || ends_.pause().empty()) return;
  said_pause_ = true;
  LogWarning(directory_.root(), " has paused, and tries again: ", ends_.pause());
}

// A single worker that ends while others live is a world that shrinks, and gets on. One that has not ended since the
// last step may be what the run waits for.
void TrialRun::GiveUpIfWorkersCannotLive() {
  const auto cannot_live = [this](const Agent& agent) {
    return !agent.leaves_since.has_value() && ends_.Of(WorkerName(agent.node, 0)).count >= kMostEnds;
  };
  if (!std::all_of(agents_.begin(), agents_.end(), cannot_live)) return;
  const std::string worker = WorkerName(agents_.front().node, 0);
  const WorkerEnds::Ends ends = ends_.Of(worker);
  GiveUp(absl::StrCat("workers end again and again, and no step is committed between; ", worker, " did ", ends.count,
                      " times, at last: ", ends.cause));
}

void TrialRun::GiveUp(const std::string& why) {
  if (given_up_.has_value()) return;
  given_up_ = why;
  if (coordinator_.has_value()) coordinator_->Signal(SIGKILL);  // it waits for workers
}

void TrialRun::OnAgentEnd(const Agent& agent, int wait_status) {
  const SweepHost& host = options_.hosts[agent.host];
  if (host.command.empty()) {
    why_agent_ended_ = agent.process.CauseOfEnd(wait_status);
    const bool could_not_begin =
        WIFEXITED(wait_status) && WEXITSTATUS(wait_status) != 0 && Clock::now() - agent.began < kShortLife;
    short_lives_ = could_not_begin ? short_lives_ + 1 : 0;
    if (short_lives_ >= kMostShortLives) GiveUp(absl::StrCat("agents end when they are started: ", why_agent_ended_));
    return;
  }
  const auto lived = std::chrono::duration_cast<milliseconds>(Clock::now() - agent.began);
  const auto out = options_.health->OnEnd(agent.host, lived, Clock::now());
  if (!out.has_value()) return;
  LogWarning("host ", host.name, " is left out for ", out->count(),
             " s, as agents do not stay there: ", agent.process.CauseOfEnd(wait_status));
}

// One that is to leave would stay, and hold its worker, until the run ends. Through a host's command nobody here sees
// it.
void TrialRun::KillIfFrozen(Agent& agent) const {
  if (!agent.leaves_since.has_value() || !options_.hosts[agent.host].command.empty()) return;
  if (!agent.watch.IsFrozenFor(agent.process, milliseconds(config_.elastic.coordinator_lease_ms))) return;
  LogWarning("agent ", agent.node, " of ", directory_.root(),
             " is to leave and is frozen (by SIGSTOP or its like), and is killed");
  agent.process.KillGroup();
}

void TrialRun::LookAfterAgents() {
  const auto now = Clock::now();
  for (auto agent = agents_.begin(); agent != agents_.end();) {
    // One that came shortly before the end may have found nobody who would tell it of that.
    const bool new_at_end = ended_at_.has_value() && *ended_at_ - agent->began < kGrace;
    if (new_at_end || (ended_at_.has_value() && now - *ended_at_ >= kGrace)) agent->process.KillGroup();
    KillIfFrozen(*agent);
    const std::optional<int> wait_status = agent->process.TryWait();
    if (!wait_status.has_value()) {
      ++agent;
      continue;
    }
    if (!agent->leaves_since.has_value() && !end_.has_value()) {
      next_agent_at_ = now + kAgentInterval;
      OnAgentEnd(*agent, *wait_status);
    }
    options_.slots->Free(agent->host, agent->slot);
    agent = agents_.erase(agent);
  }
  if (end_.has_value() || stopping_ || address_.empty()) return;
  for (size_t host = 0; host < wanted_.size(); ++host) {
    const auto stays = [host](const Agent& agent) { return agent.host == host && !agent.leaves_since.has_value(); };
    const auto staying = std::count_if(agents_.begin(), agents_.end(), stays);
    if (staying < wanted_[host] && (!next_agent_at_.has_value() || now >= *next_agent_at_)) {
      if (const absl::Status started = StartAgent(host); !started.ok()) {
        LogWarning(started.message());
        if (absl::IsInvalidArgument(started)) GiveUp(std::string(started.message()));
        next_agent_at_ = now + kAgentInterval;
      } else if (!why_agent_ended_.empty()) {  // else the run had ended, and the agent was the first to hear of it
        LogWarning("an agent of ", directory_.root(), " had ended, and is started again: ", why_agent_ended_);
        why_agent_ended_.clear();
      }
    } else if (staying > wanted_[host]) {
      // The one that came last has the least to hand on.
      TellToLeave(*std::find_if(agents_.rbegin(), agents_.rend(), stays));
    }
  }
}

}  // namespace holdfast
