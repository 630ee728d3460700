#include "tools/cli/stoppable.h"

#include <cstdio>

#include "framework/base/signal_text.h"

namespace holdfast {

absl::StatusOr<int> RunStoppable(const std::string& nothing_done,
                                 const std::function<absl::StatusOr<int>(const StopSignal&)>& work) {
  const StopSignal stop;
  absl::StatusOr<int> result = work(stop);
  if (!absl::IsCancelled(result.status()) || stop.received() == 0) return result;
  std::fprintf(stderr, "stopped by %s; %s\n", SignalText(stop.received()).c_str(), nothing_done.c_str());
  return 128 + stop.received();
}

std::optional<int> EndOfStart(const StopSignal& signal, const StopOfStart& stop, const absl::Status& error) {
  // Unavailable is what was told of something that could not be read for the stop.
  if (!stop.requested() || !(absl::IsCancelled(error) || absl::IsUnavailable(error))) return std::nullopt;
  // Not "before the run began": it may be one that this process was to resume, to take over or to join.
  std::fprintf(stderr, "stopped by %s while starting (%s)\n", SignalText(signal.received()).c_str(),
               std::string(error.message()).c_str());
  return 128 + signal.received();
}

}  // namespace holdfast
