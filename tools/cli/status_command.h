#pragma once
// holdfast status: the state of a run.

#include <string>

#include "elastic/control/run_status.h"
#include "elastic/wire/tls_files.h"
#include "tools/cli/command.h"

namespace holdfast {

struct StatusCommand {
  std::string target, token_file, lease;  // target: a run directory, or HOST:PORT of the coordinator
  TlsFiles tls;
  bool watch = false, json = false;

  void AddTo(CLI::App& command);
  /// With `watch`: until the run has ended, or no coordinator of it has answered for a minute.
  absl::StatusOr<int> Run() const;
  /// From its coordinator, or of a run that has none by its record.
  absl::StatusOr<RunStatus> Fetch() const;

 private:
  void Print(const RunStatus& status) const;
};

}  // namespace holdfast
