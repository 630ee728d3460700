#include "elastic/coordinator/coordinator_shell.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <utility>

#include "elastic/coordinator/event_json.h"
#include "elastic/coordinator/run_digests.h"
#include "framework/base/files.h"
#include "framework/base/out_of_memory.h"
#include "framework/base/seconds.h"
#include "framework/base/signal_text.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr std::chrono::seconds kStatusInterval{1};

Instant Now() { return std::chrono::steady_clock::now().time_since_epoch(); }

CoordinatorOptions OptionsFor(const Config& config, const RunStart& start) {
  const CoordinatorHistory& history = start.history;
  CheckpointConfig checkpoint;
  checkpoint.every = CheckpointEvery::kNever;
  if (start.keeper != nullptr) checkpoint = config.checkpoint;
  return {.elastic = config.elastic,
          .parallel = config.parallel,
          .checkpoint = checkpoint,
          .microbatches = config.batch.microbatches,
          .total_steps = config.train.steps,
          .data_tokens = start.data_tokens,
          .validates = !config.data.validation.empty(),
          .validate_every_steps = config.train.validate_every_steps,
          .early_stop = {config.train.early_stop_patience, config.train.early_stop_min_delta},
          .used_cells = history.used_cells,
          .digests = DigestsOf(config),
          .last_generation = history.state.generation,
          .branch = history.state.branch,
          .contradicted = history.state.contradicted,
          .contradictions = history.state.contradictions,
          .recorded_step = history.recorded_step,
          .agreed_step = history.agreed_step,
          .agreed_digest = history.agreed_digest,
          .validations = history.validations,
          .checkpoints = start.usable,
          .had_checkpoint = history.has_saved,
          .workers_are_new = history.workers_are_new,
          .finished = IsDone(config, history),
          .run = history.run,
          .run_name = config.run.name,
          .since_1970 = std::chrono::system_clock::now().time_since_epoch() - Now()};
}

void ReadEvents(const std::string& path, CoordinatorHistory* history) {
  std::ifstream file = OpenToRead(path);
  for (std::string line; std::getline(file, line);) {
    const std::optional<RecordedEvent> recorded = ReadEventLine(line);
    if (!recorded.has_value()) continue;
    const RunEvent* event = recorded->event.has_value() ? &*recorded->event : nullptr;
    if (event != nullptr) history->tally.OnEvent(recorded->time, *event);
    if (std::get_if<event::AlertFailed>(event) != nullptr) continue;        // may come after the end
    history->finished = std::get_if<event::RunFinished>(event) != nullptr;  // if it is the last
    if (const auto* stop = std::get_if<event::EarlyStop>(event);
        stop != nullptr && stop->step == history->recorded_step) {
      history->validations_since_best = stop->validations;
    }
    history->has_saved = history->has_saved || std::get_if<event::CheckpointSaved>(event) != nullptr;
  }
}

}  // namespace

absl::StatusOr<CoordinatorHistory> ReadCoordinatorHistory(const RunDirectory& directory) {
  CoordinatorHistory history;
  ASSIGN_OR_RETURN(history.state, ReadCoordinatorState(directory));
  std::error_code error;
  const bool has_metrics = std::filesystem::exists(directory.metrics(), error);
  if (error) return ErrnoToStatus(error.value(), directory.metrics());
  if (has_metrics) {
    ASSIGN_OR_RETURN(const std::vector<StepMetrics> steps, directory.ReadMetrics());
    for (const StepMetrics& step : steps) {
      if (!history.state.branch.Includes(static_cast<uint64_t>(step.generation), step.step)) break;
      history.recorded_step = step.step;
      if (step.state_digest.has_value()) {
        history.agreed_step = step.step;
        history.agreed_digest = *step.state_digest;
      }
      history.worker_seconds += step.worker_seconds();
      if (step.validation.has_value()) history.validations.push_back(*step.validation);
    }
  }
  ReadEvents(directory.events(), &history);
  return history;
}

bool IsDone(const Config& config, const CoordinatorHistory& history) {
  if (!history.finished) return false;
  const int64_t patience = config.train.early_stop_patience;
  return history.recorded_step >= config.train.steps || (patience > 0 && history.validations_since_best >= patience);
}

absl::StatusOr<std::unique_ptr<CoordinatorShell>> CoordinatorShell::Create(const Config& config,
                                                                           const RunDirectory& directory,
                                                                           const RunStart& start, CoordinatorPort& port,
                                                                           std::vector<RunObserver*> observers) {
  ASSIGN_OR_RETURN(std::unique_ptr<RunRecorder> recorder,
                   RunRecorder::Open(config, directory, start.flops_per_token, start.history.recorded_step));
  // The next checkpoint would, but a run that only has to save its model makes none.
  if (start.keeper != nullptr) start.keeper->ClearAway();
  return std::unique_ptr<CoordinatorShell>(
      new CoordinatorShell(config, OptionsFor(config, start), std::move(recorder), port, start, std::move(observers)));
}

CoordinatorShell::CoordinatorShell(const Config& config, const CoordinatorOptions& options,
                                   std::unique_ptr<RunRecorder> recorder, CoordinatorPort& port, const RunStart& start,
                                   std::vector<RunObserver*> observers)
    : port_(port),
      observers_(std::move(observers)),
      keeper_(start.keeper),
      tick_(std::max<int64_t>(1, std::min<int64_t>(50, config.elastic.heartbeat_interval_ms / 2))),
      stop_timeout_(config.elastic.lost_state_timeout_ms),
      run_(config.run.name),
      leader_(start.leader),
      wanted_workers_(config.elastic.workers),
      was_done_(options.finished),
      coordinator_(options),
      recorder_(std::move(recorder)),
      branch_(options.branch),
      tally_(start.history.tally),
      actions_(start.is_ours, [this](const CoordinatorAction& action) { return Do(action); }),
      ticker_([this](const std::stop_token& stop) { Tick(stop); }) {}

CoordinatorShell::~CoordinatorShell() {
  if (keeper_ != nullptr) keeper_->Finish();  // it answers to us
}

void CoordinatorShell::Tick(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    if (!tick_waits_.exchange(true)) {
      inbox_.Post([this] {
        tick_waits_ = false;
        Feed(TickEvent{});
      });
    }
    std::unique_lock lock(mutex_);
    if (!outcome_.has_value() && Now() - last_status_ >= kStatusInterval) {
      last_status_ = Now();
      for (RunObserver* observer : observers_) observer->OnStatus(StatusLocked());
    }
    changed_.wait_for(lock, stop, tick_, [] { return false; });
  }
}

void CoordinatorShell::OnMessage(Connection from, const WorkerMessage& message) {
  const auto* beat = std::get_if<HeartbeatMessage>(&message);
  if (beat == nullptr) return Put(MessageEvent{from, message});
  {
    const std::lock_guard lock(beats_mutex_);
    if (!beats_.insert_or_assign(from, *beat).second) return;
  }
  inbox_.Post([this, from] {
    HeartbeatMessage latest;
    {
      const std::lock_guard lock(beats_mutex_);
      latest = beats_.extract(from).mapped();
    }
    Feed(MessageEvent{from, latest});
  });
}

void CoordinatorShell::Put(CoordinatorEvent event) {
  room_.acquire();
  inbox_.Post([this, event = std::move(event)] {
    room_.release();
    Feed(event);
  });
}

void CoordinatorShell::PutAndWait(const CoordinatorEvent& event) {
  std::promise<void> done;
  inbox_.Post([&] {
    Feed(event);
    done.set_value();
  });
  done.get_future().wait();
}

void CoordinatorShell::Feed(const CoordinatorEvent& event) {
  const std::lock_guard lock(mutex_);
  if (outcome_.has_value()) return SayThatItIsOver(event);
  if (const auto* stop = std::get_if<StopEvent>(&event); stop != nullptr && !stop_.has_value()) {
    stop_ = {Now(), stop->signal};
  }
  if (!paused_since_.has_value()) return TakeIn(event);
  if (!std::holds_alternative<TickEvent>(event)) return PutOff(event);
  CarryOut();
  if (paused_since_.has_value()) return GiveUpIfStopped();
  while (!paused_since_.has_value() && !put_off_.empty() && !outcome_.has_value()) {
    const CoordinatorEvent next = std::move(put_off_.front());
    put_off_.pop_front();
    TakeIn(next);
  }
}

void CoordinatorShell::MakeWay(int signal) {
  inbox_.Post([this, signal] {
    const std::lock_guard lock(mutex_);
    if (outcome_.has_value()) return;
    Leave(128 + signal,
          absl::StrCat("stopped by ", SignalText(signal), "; a coordinator that stands by leads the run on"));
  });
}

// Who connects only now, such as an agent that was just starting, must be told the end, too.
void CoordinatorShell::SayThatItIsOver(const CoordinatorEvent& event) {
  if (!std::holds_alternative<MessageEvent>(event) || outcome_->goes_on) return;
  for (const CoordinatorAction& action : coordinator_.OnEvent(Now(), event)) {
    if (const auto* send = std::get_if<SendAction>(&action)) port_.Send(send->to, send->message);
  }
}

void CoordinatorShell::TakeIn(const CoordinatorEvent& event) {
  if (const auto* message = std::get_if<MessageEvent>(&event)) newest_ = std::max(newest_, message->from);
  actions_.Add(coordinator_.OnEvent(Now(), event));
  CarryOut();
}

void CoordinatorShell::CarryOut() {
  const absl::Status status = actions_.CarryOut();
  if (actions_.replaced()) return Leave(1, std::string(status.message()));
  if (absl::IsResourceExhausted(status) || MayPass(status)) return Pause(status);
  if (!status.ok()) return GiveUp(absl::StrCat("the run cannot continue: ", std::string(status.message())));
  // Only now is it known to be the run's.
  if (keeper_ != nullptr && std::exchange(branch_is_news_, false)) keeper_->GoBack(branch_);
  if (!paused_since_.has_value()) return;
  const double seconds = std::chrono::duration<double>(Now() - *std::exchange(paused_since_, std::nullopt)).count();
  if (!outcome_.has_value()) Say(event::Resumed{seconds});  // its end is the last that is said of a run
}

// For the coordinator no time passes meanwhile, as if its process were frozen.
void CoordinatorShell::Pause(const absl::Status& status) {
  pause_cause_ = std::string(status.message());
  if (absl::IsPermissionDenied(status)) absl::StrAppend(&pause_cause_, "; make it writable again, or stop the run");
  if (paused_since_.has_value()) return;
  paused_since_ = Now();
  Say(event::Paused{pause_cause_});
}

// With room again what is committed can still be saved, so a stop waits for it, as it does for holders of state.
void CoordinatorShell::GiveUpIfStopped() {
  if (stop_.has_value() && Now() - std::max(stop_->first, *paused_since_) >= stop_timeout_) GiveUpPaused();
}

void CoordinatorShell::GiveUpPaused() {
  GiveUp(absl::StrCat(
      "stopped by ", SignalText(stop_->second),
      " while the run was paused, so what was done since the last checkpoint is not saved: ", pause_cause_));
}

void CoordinatorShell::PutOff(const CoordinatorEvent& event) {
  constexpr size_t kMax = 1 << 16;
  const auto* message = std::get_if<MessageEvent>(&event);
  if (message != nullptr && std::holds_alternative<HeartbeatMessage>(message->message)) return;
  put_off_.push_back(event);
  if (put_off_.size() > kMax) ForgetWhoCameAndWent();
  if (put_off_.size() > kMax) GiveUp(absl::StrCat("too many messages while the run was paused: ", pause_cause_));
}

// A worker that fails and is started again for a whole night with a full disk, say: it is as if it had never connected.
// But for one that asked for a stop.
void CoordinatorShell::ForgetWhoCameAndWent() {
  std::set<Connection> gone;
  for (const CoordinatorEvent& event : put_off_) {
    const auto* end = std::get_if<DisconnectEvent>(&event);
    if (end != nullptr && end->connection > newest_) gone.insert(end->connection);
  }
  for (const CoordinatorEvent& event : put_off_) {
    const auto* message = std::get_if<MessageEvent>(&event);
    if (message == nullptr || !std::holds_alternative<StopRequestMessage>(message->message)) continue;
    gone.erase(message->from);
  }
  std::erase_if(put_off_, [&](const CoordinatorEvent& event) {
    const auto* message = std::get_if<MessageEvent>(&event);
    const auto* end = std::get_if<DisconnectEvent>(&event);
    return (message != nullptr && gone.contains(message->from)) || (end != nullptr && gone.contains(end->connection));
  });
}

void CoordinatorShell::GiveUp(const std::string& reason) {
  const bool is_decided = actions_.ends_run();
  const std::deque<CoordinatorAction> rest = actions_.Take();
  paused_since_.reset();
  if (const absl::Status ours = actions_.Look(); actions_.replaced()) return Leave(1, std::string(ours.message()));
  if (is_decided) {  // how the run ends, and it was only to be told
    for (const CoordinatorAction& action : rest) Do(action).IgnoreError();
    return;
  }
  for (const CoordinatorAction& action : coordinator_.OnEvent(Now(), GiveUpEvent{reason})) Do(action).IgnoreError();
}

// Nothing is said to workers, who hold what the other coordinator counts on.
void CoordinatorShell::Leave(int exit_code, const std::string& reason) {
  paused_since_.reset();
  End(exit_code, reason, /*goes_on=*/true);
  port_.Leave();
}

absl::Status CoordinatorShell::Do(const CoordinatorAction& action) {
  if (const auto* send = std::get_if<SendAction>(&action)) {
    port_.Send(send->to, send->message);
  } else if (const auto* all = std::get_if<SendToAllAction>(&action)) {
    port_.SendToAll(all->to, all->message);
  } else if (const auto* close = std::get_if<CloseAction>(&action)) {
    port_.Close(close->connection);
  } else if (const auto* persist = std::get_if<PersistAction>(&action)) {
    RETURN_IF_ERROR(
        recorder_->Persist({persist->generation, persist->branch, persist->contradicted, persist->contradictions}));
    branch_is_news_ = branch_is_news_ || persist->branch != branch_;
    branch_ = persist->branch;
  } else if (const auto* record = std::get_if<RecordAction>(&action)) {
    ASSIGN_OR_RETURN(const StepMetrics step, recorder_->Record(*record));
    tally_.OnStep(std::chrono::steady_clock::now(), step);
    for (RunObserver* observer : observers_) observer->OnStep(step);
  } else if (const auto* commit = std::get_if<CommitCheckpointAction>(&action)) {
    keeper_->Commit(*commit, [this](const CoordinatorEvent& event) { PutAndWait(event); });
  } else if (const auto* verify = std::get_if<VerifyCheckpointAction>(&action)) {
    keeper_->Verify(verify->name, [this](const CoordinatorEvent& event) { PutAndWait(event); });
  } else if (const auto* room = std::get_if<MakeRoomAction>(&action)) {
    keeper_->MakeRoom({room->step, room->generation}, [this](const CoordinatorEvent& event) { PutAndWait(event); });
  } else if (const auto* rewind = std::get_if<RewindAction>(&action)) {
    return recorder_->Rewind(rewind->step);
  } else if (const auto* report = std::get_if<ReportAction>(&action)) {
    Say(report->event);
  } else if (const auto* end = std::get_if<EndAction>(&action)) {
    End(end->exit_code, end->reason);
  }
  return absl::OkStatus();
}

void CoordinatorShell::Say(const RunEvent& event) {
  if (const auto* validation = std::get_if<event::Validation>(&event)) validation_loss_ = validation->loss;
  tally_.OnEvent(SecondsSinceEpoch(), event);
  for (RunObserver* observer : observers_) observer->OnEvent(event);
}

void CoordinatorShell::End(int exit_code, const std::string& reason, bool goes_on) {
  outcome_ = Outcome{.exit_code = exit_code,
                     .reason = reason,
                     .steps = recorder_->last_step(),
                     .validation_loss = validation_loss_,
                     .goes_on = goes_on,
                     .is_said = !goes_on && !was_done_};
  for (RunObserver* observer : observers_) observer->OnStatus(StatusLocked());
  changed_.notify_all();
}

void CoordinatorShell::Report(const RunEvent& event) {
  const std::lock_guard lock(mutex_);
  Say(event);
}

RunStatus CoordinatorShell::StatusNow() const {
  const std::lock_guard lock(mutex_);
  return StatusLocked();
}

RunStatus CoordinatorShell::StatusLocked() const {
  RunStatus status = coordinator_.Status(Now());
  status.committed_step = recorder_->last_step();  // the coordinator is ahead of what cannot be written now
  status.figures =
      tally_.Figures(SecondsSinceEpoch(), std::chrono::steady_clock::now(), status.world_size, wanted_workers_);
  status.figures.run = run_;
  status.leader = leader_;
  if (paused_since_.has_value()) status.detail = absl::StrCat("paused, retrying: ", pause_cause_);
  if (outcome_.has_value()) {  // of a coordinator that was replaced: the run has not ended for the decisions
    status.state = RunState::kEnded;
    status.detail = outcome_->reason;
  }
  return status;
}

CoordinatorShell::Outcome CoordinatorShell::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return outcome_.has_value(); });
  return *outcome_;
}

std::optional<CoordinatorShell::Outcome> CoordinatorShell::Wait(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, stop, [&] { return outcome_.has_value(); });
  return outcome_;
}

}  // namespace holdfast
