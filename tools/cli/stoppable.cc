#include "tools/cli/stoppable.h"

#include <cstdio>

#include "elastic/worker/stop_signal.h"

namespace holdfast {

absl::StatusOr<int> RunStoppable(const std::string& nothing_written,
                                 const std::function<absl::StatusOr<int>(const std::stop_token&)>& work) {
  const StopSignal stop;
  absl::StatusOr<int> result = work(stop.token());
  if (!absl::IsCancelled(result.status()) || stop.received() == 0) return result;
  std::fprintf(stderr, "stopped by signal %d; %s\n", stop.received(), nothing_written.c_str());
  return 128 + stop.received();
}

}  // namespace holdfast
