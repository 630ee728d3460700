#pragma once
// holdfast coordinator: decides for a run over several machines.

#include <memory>
#include <string>

#include "elastic/coordinator/coordinator_shell.h"
#include "elastic/launch/server_launcher.h"
#include "elastic/launch/standby.h"
#include "elastic/lease/lease.h"
#include "elastic/wire/tls_files.h"
#include "elastic/worker/stop_signal.h"
#include "tools/cli/command.h"
#include "tools/cli/run_arguments.h"

namespace holdfast {

struct CoordinatorCommand {
  RunArguments run;
  StartArguments start;
  std::string listen = "127.0.0.1:29400", advertise, token_file, lease;
  TlsFiles tls;
  bool new_workers = false, standby = false, no_handover = false, had_led = false;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;

 private:
  ServerLauncher::Options Listening() const;
  bool StandsBy() const { return standby || !lease.empty(); }
  absl::StatusOr<std::unique_ptr<Lease>> MakeLease(const Config& config, const RunDirectory& directory,
                                                   bool has_led) const;
  absl::StatusOr<Turn> TakeTurn(const Config& config, const RunDirectory& directory, bool has_led,
                                const StopSignal& stop) const;
  /// With the run's config if another one has led it.
  absl::StatusOr<CoordinatorShell::Outcome> LeadRun(const Config& config, const RunDirectory& directory,
                                                    const Turn& turn, const StopSignal& stop,
                                                    StopOfStart& start_stop) const;
  absl::StatusOr<CoordinatorShell::Outcome> LeadRunWith(const Config& config, const RunDirectory& directory,
                                                        const Turn& turn, const StopSignal& stop,
                                                        StopOfStart& start_stop) const;
};

}  // namespace holdfast
