#pragma once
// holdfast train: from a config file to a saved model.

#include <cstdint>

#include "elastic/worker/stop_signal.h"
#include "tools/cli/command.h"
#include "tools/cli/run_arguments.h"

namespace holdfast {

struct TrainCommand {
  RunArguments run;
  StartArguments start;
  int64_t workers = 0;  // 0 = elastic.workers

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;

 private:
  absl::StatusOr<int> Train(const RunArguments& what, const StopSignal& stop_signal, StopOfStart& start_stop) const;
};

}  // namespace holdfast
