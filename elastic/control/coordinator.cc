#include "elastic/control/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace holdfast {

Coordinator::Coordinator(const CoordinatorOptions& options)
    : options_(options),
      generation_(options.last_generation),
      branch_(options.branch),
      committed_(options.recorded_step),
      agreed_(std::min(options.agreed_step, options.recorded_step)),
      agreed_in_(options.recorded_step > 0 ? options.last_generation : 0),
      state_(/*claimed=*/options.recorded_step > 0 && !options.workers_are_new),
      checkpoints_(options.checkpoint, options.checkpoints),
      validations_(options.early_stop, options.validations),
      stragglers_(options.elastic.straggler_factor, options.elastic.straggler_steps) {
  for (const auto& [name, incarnation] : options.contradicted) contradicted_[name] = {incarnation, committed_ + 1};
  history_.Restore(options.contradictions);
  if (options.finished) {
    end_.End({0, committed_ == options.total_steps ? EndReason(nullptr)
                                                   : absl::StrCat("ended early, at step ", committed_)});
    return;
  }
  // What the run leaves at its end may be a checkpoint of a step that the coordinator before has recorded.
  if (agreed_ == options.agreed_step) checkpoints_.OnDigest(agreed_, options.agreed_digest);
  // Nor has anybody anything of a run of which no step was recorded.
  if (!state_.claimed() && checkpoints_.newest() != nullptr) LoadFrom(*checkpoints_.newest());
}

std::vector<CoordinatorAction> Coordinator::OnEvent(Instant now, const CoordinatorEvent& event) {
  now_ = now;
  ForgiveOwnAbsence();
  std::visit([this](const auto& e) { On(e); }, event);
  CommitSaves();
  std::vector<CoordinatorAction> actions;
  actions.swap(actions_);
  return actions;
}

// Whoever was silent while this process was frozen or starved may have spoken: what it said lies in our own queues. So
// does what others report of a failure, or find out about links, before anybody is to be blamed for it.
void Coordinator::ForgiveOwnAbsence() {
  const Instant gap = last_event_.has_value() ? now_ - *last_event_ : Instant{0};
  last_event_ = now_;
  if (gap < std::chrono::milliseconds(options_.elastic.heartbeat_timeout_ms) / 2) return;
  roster_.Forgive(gap);
  links_.Forgive(gap);
  formation_.Forgive(gap);
  if (open_.has_value()) open_->Forgive(gap);
  if (nobody_stays_since_.has_value()) *nobody_stays_since_ += gap;
  if (farewell_.has_value()) *farewell_ += gap;
  if (RunEnd::Stop* stop = end_.stop(); stop != nullptr) stop->since += gap;
}

void Coordinator::On(const MessageEvent& event) {
  constexpr int64_t kMaxMessages = 20'000;   // between two ticks
  if (closed_.contains(event.from)) return;  // sent before it learned that, as a join at once after a refusal
  if (JoinedWorker* worker = roster_.FindByConnection(event.from); worker != nullptr) {
    worker->last_message = now_;
    if (++worker->recent_messages > kMaxMessages) {
      const std::string name = worker->member.id.name;
      Remove(name, "sent too many messages to the coordinator", Leave::kRefused);
      Advance();
      return;
    }
  }
  std::visit([&](const auto& message) { Handle(event.from, message); }, event.message);
}

void Coordinator::On(const DisconnectEvent& event) {
  closed_.erase(event.connection);
  std::optional<std::string> node;
  if (JoinedWorker* worker = roster_.FindByConnection(event.connection); worker != nullptr) {
    roster_.Cut(worker, now_, event.cause.empty() ? "connection lost" : event.cause);
    node = worker->member.node;
  }
  if (const auto it = roster_.agents().find(event.connection); it != roster_.agents().end()) {
    if (!end_.over()) Report(event::AgentLost{it->second.node, it->second.host, event.cause});
    if (const auto left = leaving_.find(it->second.node); left != leaving_.end() && left->second.gone) {
      RememberLeft(it->second.node);  // none of its workers outlives it
    }
    node = it->second.node;
    roster_.RemoveAgent(event.connection);
  }
  RemoveCut(node.has_value() ? &*node : nullptr);
  Advance();
}

void Coordinator::On(const TickEvent&) {
  constexpr std::chrono::seconds kFarewell{10};  // who has lost its coordinator asks every second
  if (options_.finished) {
    if (!farewell_.has_value()) farewell_ = now_;
    if (now_ - *farewell_ >= kFarewell) actions_.emplace_back(EndAction{end_.end()->exit_code, end_.end()->reason});
  }
  if (end_.over()) return;
  for (auto& [name, worker] : roster_.workers()) worker.recent_messages = 0;
  RemoveCut(/*node=*/nullptr);
  RemoveSilent();
  RemoveStuck();
  WatchLinks();
  WatchPace();
  ReportNoProgress();
  ReportSlowStorage();
  EndIfFinished();  // a save may have been given up with a writer that was not in this world
  Advance();
}

void Coordinator::On(const StopEvent& event) {
  RequestStop(event.signal, "coordinator");
  Advance();
}

void Coordinator::RequestStop(int signal, const std::string& by) {
  if (!end_.Request({.signal = signal > 0 ? signal : 15, .since = now_})) return;
  EndWait();
  Report(event::StopRequested{.signal = end_.stop()->signal, .by = by, .step = committed_});
  CloseWorld("a stop was requested", 0);
}

void Coordinator::Send(Connection to, CoordinatorMessage message) {
  actions_.emplace_back(SendAction{to, std::move(message)});
}

void Coordinator::Close(Connection connection) {
  closed_.insert(connection);
  actions_.emplace_back(CloseAction{connection});
}

void Coordinator::SendToMembers(CoordinatorMessage message) {
  SendToAllAction send{{}, std::move(message)};
  for (const auto& [name, worker] : roster_.workers()) {
    if (worker.rank >= 0) send.to.push_back(worker.connection);
  }
  actions_.emplace_back(std::move(send));
}

void Coordinator::Report(RunEvent event) { actions_.emplace_back(ReportAction{std::move(event)}); }

// The event first: should the coordinator die amid the messages, what is started in its place knows that all is done.
void Coordinator::EndWith(const EndMessage& end, RunEvent event) {
  if (!end_.End(end)) return;
  Report(std::move(event));
  for (const auto& [name, worker] : roster_.workers()) Send(worker.connection, end);
  for (const auto& [connection, agent] : roster_.agents()) Send(connection, end);
  actions_.emplace_back(EndAction{end.exit_code, end.reason});
}

}  // namespace holdfast
