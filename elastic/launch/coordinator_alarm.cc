#include "elastic/launch/coordinator_alarm.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elastic/alerts/incident_tracker.h"
#include "elastic/coordinator/run_alerts.h"
#include "elastic/lease/lease_watch.h"
#include "framework/base/file_descriptor.h"
#include "framework/base/host.h"

namespace holdfast {
namespace {

constexpr double kSecondsPerHour = 3600;

int64_t Seconds(std::chrono::milliseconds time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

}  // namespace

void CoordinatorAlarm::Look(std::chrono::milliseconds alone_for) {
  const bool is_alone = alone_for.count() > 0;
  if (is_alone != was_alone_) lead_said_something_ = Clock::now();
  if (!is_alone && was_alone_) TellThatItIsOver();
  was_alone_ = is_alone;
  if (!is_alone) has_told_ = false;
  if (!is_alone || has_told_) return;
  if (SomebodyLeads() || alone_for.count() < config_.alerts.coordinator_absent_ms) return;
  has_told_ = true;
  Tell(alone_for);
}

bool CoordinatorAlarm::SomebodyLeads() {
  const absl::StatusOr<LockText> lead = read_lead_();
  if (!lead.ok()) return false;
  if (*lead != lead_) {
    lead_ = *lead;
    lead_said_something_ = Clock::now();
  }
  const auto words = LeaderWords::Read(lead->words);
  if (words.has_value() && words->exit_code.has_value()) return true;  // the run has ended, and was led to its end
  return Clock::now() - lead_said_something_ < std::chrono::milliseconds(config_.elastic.coordinator_lease_ms);
}

void CoordinatorAlarm::Tell(std::chrono::milliseconds alone_for) {
  const std::string file = directory_.coordinator_absence();
  const FileDescriptor claim(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!claim.ok() && errno == EEXIST) return;  // another one tells; where no file can be made, each does
  Alert alert =
      Make(Alert::Action::kTrigger, absl::StrCat("no coordinator has answered for ", Seconds(alone_for), " s"));
  alert.advice = absl::StrCat("Start `holdfast coordinator` again with the same config and --run-dir ",
                              alert.run.directory, ": workers keep their state and wait for it for up to ",
                              Seconds(std::chrono::milliseconds(config_.elastic.coordinator_timeout_ms)),
                              " s (elastic.coordinator_timeout_ms). With --standby on a second host nobody needs to.");
  sender_.Send(alert);
}

// Of several agents one succeeds in giving the file another name.
void CoordinatorAlarm::TellThatItIsOver() {
  const std::string file = directory_.coordinator_absence();
  const std::string taken = absl::StrCat(file, ".", absl::Hex(std::random_device()()));
  if (rename(file.c_str(), taken.c_str()) != 0) return;
  unlink(taken.c_str());
  sender_.Send(Make(Alert::Action::kResolve, "no coordinator has answered - one does again"));
}

Alert CoordinatorAlarm::Make(Alert::Action action, const std::string& what) const {
  AlertedRun run = WithWholePath(AlertedRunOf(config_, directory_));
  const absl::StatusOr<std::vector<StepMetrics>> steps = directory_.ReadMetrics();
  if (steps.ok() && !steps->empty()) {
    run.step = steps->back().step;
    run.tokens = steps->back().tokens;
    for (const StepMetrics& step : *steps) run.worker_hours += step.worker_seconds() / kSecondsPerHour;
  }
  return {.action = action,
          .severity = Alert::Severity::kCritical,
          .key = IncidentKey(run, kCoordinatorIncident),
          .summary = absl::StrCat("run ", run.name, ": ", what),
          .source = HostName(),
          .run = run};
}

}  // namespace holdfast
