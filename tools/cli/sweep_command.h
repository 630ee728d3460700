#pragma once
// holdfast sweep: trials of a config over a space of values, and what they found (elastic/sweep). Exit codes: 0 done,
// 1 an error, 2 a bad argument, 128 + signal stopped.

#include <cstdint>
#include <string>

#include "elastic/worker/stop_signal.h"
#include "tools/cli/command.h"

namespace holdfast {

struct SweepCommand {
  std::string path, directory;
  int64_t workers = 0;
  bool watch = false, dry_run = false;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;

 private:
  absl::StatusOr<int> Sweep(const StopSignal& stop_signal) const;
};

}  // namespace holdfast
