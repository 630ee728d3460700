#pragma once
// Commands that write for long: a signal that asks for their end is an error that they unwind by, so that nothing half
// written stays.

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "elastic/worker/stop_signal.h"

namespace holdfast {

/// What `work` returns, an exit code. If it is Cancelled for a signal, `nothing_done` is printed and the exit code 128
/// + signal. Must be called before any thread is started.
absl::StatusOr<int> RunStoppable(const std::string& nothing_done,
                                 const std::function<absl::StatusOr<int>(const StopSignal&)>& work);

/// 128 + signal if `error` is that of a start which a signal has ended (StopOfStart); signal and error are printed.
std::optional<int> EndOfStart(const StopSignal& signal, const StopOfStart& stop, const absl::Status& error);

}  // namespace holdfast
