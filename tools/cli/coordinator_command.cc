#include "tools/cli/coordinator_command.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elastic/coordinator/coordinator_shell.h"
#include "elastic/coordinator/run_alerts.h"
#include "elastic/launch/prepared_run.h"
#include "elastic/launch/resume_check.h"
#include "elastic/launch/server_launcher.h"
#include "elastic/lease/directory_lease.h"
#include "elastic/lease/open_lease.h"
#include "elastic/lease/store_lease.h"
#include "framework/base/log.h"
#include "framework/base/rare_log.h"
#include "framework/base/status.h"
#include "framework/config/validate.h"
#include "framework/places/places.h"
#include "models/runtime/training_data.h"
#include "tools/cli/connection_arguments.h"
#include "tools/cli/stoppable.h"

namespace holdfast {
namespace {

constexpr std::chrono::seconds kBeforeTryingAgain{1}, kLogInterval{30};

void Say(const std::string& text) {
  std::printf("%s%s", text.c_str(), text.ends_with('\n') ? "" : "\n");
  std::fflush(stdout);
}

/// What the command ends with: an error, unless the run is done or was stopped by a signal.
absl::StatusOr<int> EndWith(int exit_code, const std::string& reason, bool is_said) {
  if (exit_code != 0 && exit_code <= 128) return absl::InternalError(reason);
  if (!is_said) Say(reason);
  return exit_code;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Lease>> CoordinatorCommand::MakeLease(const Config& config,
                                                                     const RunDirectory& directory,
                                                                     bool has_led) const {
  if (lease.empty()) return std::make_unique<DirectoryLease>(directory, has_led);
  const std::chrono::milliseconds duration(config.elastic.coordinator_lease_ms);
  // Of two calls one may fail and the lease still be renewed in time.
  absl::StatusOr<std::unique_ptr<LeaseStore>> store = OpenLeaseStore(lease, duration * 2 / 5, /*may_lead=*/!has_led);
  if (absl::IsInvalidArgument(store.status())) return UsageError(absl::StrCat("error: ", store.status().message()));
  RETURN_IF_ERROR(store.status());
  return std::make_unique<StoreLease>(*std::move(store), directory, duration);
}

absl::StatusOr<Turn> CoordinatorCommand::TakeTurn(const Config& config, const RunDirectory& directory, bool has_led,
                                                  const StopSignal& stop) const {
  const std::chrono::milliseconds duration(config.elastic.coordinator_lease_ms);
  ASSIGN_OR_RETURN(std::unique_ptr<Lease> made, MakeLease(config, directory, has_led));
  if (StandsBy()) {
    const TurnOptions options{
        .directory = directory, .lease = duration, .has_led = has_led, .may_lead = [this, &config] {
          RETURN_IF_ERROR(CheckAlerts(config.alerts));
          return ServerLauncher::CanListen(Listening());
        }};
    return WaitForTurn(std::move(made), options, stop.token(), Say);
  }
  RETURN_IF_ERROR(made->Take({}, /*begins=*/true));
  return Turn{.lead = std::make_shared<Lead>(std::move(made), duration)};
}

ServerLauncher::Options CoordinatorCommand::Listening() const {
  return {.listen = listen, .advertise = advertise, .token_file = token_file, .tls = tls, .hands_over = !no_handover};
}

// What was said of how the run is to begin holds for who begins it, not for who takes it over.
absl::StatusOr<CoordinatorShell::Outcome> CoordinatorCommand::LeadRun(const Config& config,
                                                                      const RunDirectory& directory, const Turn& turn,
                                                                      const StopSignal& stop,
                                                                      StopOfStart& start_stop) const {
  if (turn.from.empty()) return LeadRunWith(config, directory, turn, stop, start_stop);
  const LeadingConfig leading = ConfigToLeadOnWith(config, directory);
  if (!leading.changes.empty()) {
    LogWarning("this coordinator was started with another config than the run has (", leading.changes,
               "): it leads the run on with the run's own, as the workers have that; to change it, stop the run and ",
               "resume it with the other one");
  }
  return LeadRunWith(leading.config, directory, turn, stop, start_stop);
}

absl::StatusOr<CoordinatorShell::Outcome> CoordinatorCommand::LeadRunWith(const Config& config,
                                                                          const RunDirectory& directory,
                                                                          const Turn& turn, const StopSignal& stop,
                                                                          StopOfStart& start_stop) const {
  std::string resume_text;
  const auto on_listening = [&](const std::string& address) {
    Say(absl::StrCat("listening at ", address, "; run directory ", directory.root(), "\n", resume_text));
  };
  ServerLauncher::Options listening = Listening();
  listening.taken_over_from = turn.from;
  listening.on_listening = on_listening;
  ASSIGN_OR_RETURN(const auto launcher,
                   ServerLauncher::Open(config, directory, std::move(listening), start_stop.token()));
  WarnOfTokenizer(config, start_stop.token());
  PrepareOptions options{.overwrite = start.overwrite, .resume = start.resume, .workers_are_new = new_workers};
  if (!turn.from.empty()) options = {.resume = "auto"};
  options.stop = start_stop.token();
  absl::StatusOr<PreparedRun> found = PrepareRun(config, directory, launcher->outline().layout, options, turn.lead);
  // What else is missing may be there later, or for another coordinator.
  const bool names_a_step = !options.resume.empty() && options.resume != "auto" && options.resume != "never";
  if (names_a_step && absl::IsNotFound(found.status())) return AsUsageError(found.status());
  ASSIGN_OR_RETURN(const PreparedRun prepared, std::move(found));
  const absl::Status stopped = start_stop.End();
  // Directories know of no stop, and workers may hold what that of the run is to save.
  if (IsRemotePlace(config.checkpoint.directory)) RETURN_IF_ERROR(stopped);
  resume_text = ResumeText(prepared);
  return launcher->Run(prepared, stop);
}

absl::StatusOr<int> CoordinatorCommand::Run() const {
  RunArguments what = run;
  RETURN_IF_ERROR(what.config.Read());
  StopSignal stop_signal;  // before any other thread
  StopOfStart load_stop(stop_signal);
  absl::StatusOr<Config> loaded = what.Load(start.overwrite, load_stop.token());  // the steps of epochs are counted
  if (const auto stopped = EndOfStart(stop_signal, load_stop, loaded.status())) return *stopped;
  ASSIGN_OR_RETURN(const Config config, std::move(loaded));
  RETURN_IF_ERROR(CheckAlertsOf(config));  // now, and not when it is to take a run over
  if (!start.overwrite) RETURN_IF_ERROR(run.CheckIsSameRun(config));
  for (const std::string& warning :
       {IdleWorkersWarning(config), UntrainedPositionsWarning(config), LongFactorsWarning(config)}) {
    if (!warning.empty()) LogWarning(warning);
  }
  const RunDirectory directory = run.Directory(config);
  bool has_led = had_led;
  RareLog failures(kLogInterval);
  while (true) {
    absl::StatusOr<Turn> taken = TakeTurn(config, directory, has_led, stop_signal);
    if (!taken.ok()) LeaveNothing(directory, /*lead=*/nullptr);
    ASSIGN_OR_RETURN(Turn turn, std::move(taken));
    if (turn.exit_code.has_value()) return EndWith(*turn.exit_code, turn.reason, /*is_said=*/false);
    if (turn.lead == nullptr) return 128 + stop_signal.received();
    StopOfStart start_stop(stop_signal);
    const absl::StatusOr<CoordinatorShell::Outcome> outcome = LeadRun(config, directory, turn, stop_signal, start_stop);
    if (!outcome.ok()) {
      // It was another one's, or is by now: it is taken over the next time, too, and not begun anew.
      has_led = has_led || !turn.from.empty() || absl::IsFailedPrecondition(turn.lead->Check());
      if (!has_led) LeaveNothing(directory, turn.lead.get());
    }
    if (const auto stopped = EndOfStart(stop_signal, start_stop, outcome.status())) return *stopped;
    const bool may_pass = absl::IsUnavailable(outcome.status()) || absl::IsResourceExhausted(outcome.status()) ||
                          absl::IsAborted(outcome.status());
    if (StandsBy() && may_pass && stop_signal.received() == 0) {
      // What cannot be reached, or does not fit on the disk now, may later, or by another one, who may lead already.
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      const auto line = failures.Line(now, outcome.status().message());
      if (line.has_value()) LogWarning("cannot lead the run, trying again: ", *line);
      turn.lead.reset();
      std::this_thread::sleep_for(kBeforeTryingAgain);
      continue;
    }
    RETURN_IF_ERROR(outcome.status());
    has_led = true;
    if (StandsBy() && outcome->goes_on && stop_signal.received() == 0) {
      LogWarning(outcome->reason);
      continue;
    }
    return EndWith(outcome->exit_code, outcome->reason, outcome->is_said);
  }
}

void CoordinatorCommand::AddTo(CLI::App& command) {
  run.AddTo(command);
  command.add_option("--listen", listen, absl::StrCat("HOST[:PORT] to listen at; default ", listen))
      ->check(AddressProblem);
  command
      .add_option("--advertise", advertise,
                  "host by which others reach this coordinator, without port; default: --listen's, or the one that "
                  "the default route begins at")
      ->check(HostProblem);
  command.add_flag("--standby", standby,
                   "if another coordinator leads the run, wait, and lead it when that one has gone or is silent for "
                   "elastic.coordinator_lease_ms; --overwrite, --resume and --new-workers are for who begins the run");
  AddLeaseOption(command, lease,
                 "by which those that stand by agree on who leads, instead of the lock of the run "
                 "directory, which all of them share in any case; implies --standby");
  command.add_flag(
      "--no-handover", no_handover,
      "SIGTERM stops the run, also if another coordinator stands by: for what signals all of them at once");
  command.add_flag(
      "--has-led", had_led,
      "this coordinator is started again in the place of one that crashed: a run that has ended meanwhile is "
      "not begun anew");
  command.add_option("--token-file", token_file,
                     "file with a secret, mode 0600; default: one is made in the run directory");
  AddTlsOptions(command, tls);
  command.add_flag("--new-workers", new_workers,
                   "no worker of an earlier life of the run is alive: do not wait for what it may hold");
  start.AddTo(command);
}

}  // namespace holdfast
