#include "elastic/worker/run_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "framework/base/status.h"
#include "nlohmann/json.hpp"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double UnixTime() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

class Run {
 public:
  Run(const RunParts& parts, std::stop_token stop, JsonLinesWriter metrics, JsonLinesWriter events)
      : p_(parts), stop_(std::move(stop)), metrics_(std::move(metrics)), events_(std::move(events)) {}

  absl::StatusOr<RunOutcome> Go() {
    HF_RETURN_IF_ERROR(Event("run_started", {{"steps", p_.config->train.steps}, {"seed", p_.config->run.seed}}));
    const absl::Status status = Steps();
    outcome_.stopped = absl::IsCancelled(status);
    if (!status.ok() && !outcome_.stopped) return Failed(status);
    p_.console->Finish();
    HF_RETURN_IF_ERROR(p_.save_model());
    HF_RETURN_IF_ERROR(Event(outcome_.stopped ? "run_stopped" : "run_finished", {{"step", outcome_.steps}}));
    return outcome_;
  }

 private:
  absl::Status Steps() {
    const int64_t steps = p_.config->train.steps;
    const int64_t every = p_.config->train.validate_every_steps;
    for (int64_t step = 0; step < steps; ++step) {
      const Clock::time_point start = Clock::now();
      auto next = [&](int64_t index) { return p_.loader->Next(step, index, stop_); };
      HF_ASSIGN_OR_RETURN(const StepResult result, p_.trainer->Prepare(step, next, stop_));
      p_.trainer->Commit(result);
      outcome_.steps = step + 1;
      HF_RETURN_IF_ERROR(Record(result, SecondsSince(start)));
      if (every > 0 && (step + 1) % every == 0 && step + 1 < steps) HF_RETURN_IF_ERROR(Validate());
    }
    return Validate();
  }

  /// The one metrics line of a committed step.
  absl::Status Record(const StepResult& result, double seconds) {
    const int64_t step_tokens = p_.config->batch.step_tokens();
    StepMetrics m;
    m.step = result.step + 1;
    m.loss = result.loss;
    m.grad_norm = result.grad_norm;
    m.lr = result.lr;
    m.tokens = m.step * step_tokens;
    m.step_seconds = seconds;
    m.tokens_per_second = static_cast<double>(step_tokens) / seconds;
    m.time = UnixTime();
    const int64_t every = p_.config->log.digest_every_steps;
    if (m.step == p_.config->train.steps || (every > 0 && m.step % every == 0)) {
      m.state_digest = p_.trainer->state().Digest();
    }
    HF_RETURN_IF_ERROR(metrics_.Write(m.ToJson()));
    p_.console->Step(m);
    return absl::OkStatus();
  }

  absl::Status Validate() {
    if (p_.validation == nullptr) return absl::OkStatus();
    const int64_t size = p_.config->batch.microbatch_size;
    const int64_t whole_set = (p_.validation->num_samples() + size - 1) / size;
    const int64_t limit = p_.config->train.validation_microbatches;
    const int64_t count = limit > 0 ? std::min(limit, whole_set) : whole_set;
    auto next = [&](int64_t index) -> absl::StatusOr<Microbatch> {
      return ReadValidationMicrobatch(*p_.validation, size, index);
    };
    HF_ASSIGN_OR_RETURN(const double loss, p_.trainer->Evaluate(count, next, stop_));
    outcome_.validation_loss = loss;
    p_.console->Validation(outcome_.steps, loss);
    return Event("validation", {{"step", outcome_.steps}, {"loss", loss}});
  }

  absl::Status Failed(const absl::Status& cause) {
    p_.console->Finish();
    if (outcome_.steps > 0) {
      const absl::Status saved = p_.save_model();
      p_.console->Line(saved.ok() ? absl::StrCat("the model of step ", outcome_.steps, " was saved")
                                  : std::string(saved.message()));
    }
    Event("run_failed", {{"step", outcome_.steps}, {"cause", std::string(cause.message())}}).IgnoreError();
    return cause;
  }

  absl::Status Event(const std::string& name, nlohmann::json fields) {
    nlohmann::ordered_json event{{"time", UnixTime()}, {"event", name}};
    for (auto& [key, value] : fields.items()) event[key] = value;
    return events_.Write(event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  const RunParts& p_;
  std::stop_token stop_;
  JsonLinesWriter metrics_, events_;
  RunOutcome outcome_;
};

}  // namespace

absl::StatusOr<RunOutcome> RunTraining(const RunParts& parts, std::stop_token stop) {
  HF_ASSIGN_OR_RETURN(JsonLinesWriter metrics, JsonLinesWriter::Open(parts.directory->metrics()));
  HF_ASSIGN_OR_RETURN(JsonLinesWriter events, JsonLinesWriter::Open(parts.directory->events()));
  return Run(parts, std::move(stop), std::move(metrics), std::move(events)).Go();
}

}  // namespace holdfast
