#include "elastic/coordinator/coordinator_runtime.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "elastic/coordinator/event_log.h"
#include "elastic/coordinator/run_alerts.h"
#include "elastic/coordinator/run_console.h"
#include "framework/base/status.h"

namespace holdfast {

// Whoever watches runs is named here, and nowhere else.
absl::Status CoordinatorRuntime::AddObservers(const Config& config, const RunDirectory& directory,
                                              double worker_seconds) {
  auto console = std::make_unique<RunConsole>(config.train.steps, config.log.every_steps,
                                              /*show_memory=*/config.elastic.workers == 1);
  ASSIGN_OR_RETURN(auto events, EventLog::Open(directory, [&console = *console](const std::string& problem) {
                     console.Line(absl::StrCat("warning: ", problem));
                   }));
  ASSIGN_OR_RETURN(auto alerts, RunAlerts::Create(config, directory, worker_seconds, [this](const RunEvent& event) {
                     if (shell_ != nullptr) shell_->Report(event);
                   }));
  observers_.push_back(std::move(alerts));
  observers_.push_back(std::move(console));
  observers_.push_back(std::move(events));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CoordinatorRuntime>> CoordinatorRuntime::Create(const Config& config,
                                                                               const RunDirectory& directory,
                                                                               const RunStart& start,
                                                                               CoordinatorPort& port) {
  std::unique_ptr<CoordinatorRuntime> runtime(new CoordinatorRuntime());
  RETURN_IF_ERROR(runtime->AddObservers(config, directory, start.history.worker_seconds));
  std::vector<RunObserver*> observers;
  for (const auto& observer : runtime->observers_) observers.push_back(observer.get());
  ASSIGN_OR_RETURN(runtime->shell_, CoordinatorShell::Create(config, directory, start, port, std::move(observers)));
  return runtime;
}

CoordinatorRuntime::~CoordinatorRuntime() {
  for (const auto& observer : observers_) observer->Close();
}

}  // namespace holdfast
