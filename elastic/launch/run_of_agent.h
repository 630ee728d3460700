#pragma once
// Of which run a worker is, as the agent says that has started it.

#include <cstdint>
#include <stop_token>

#include "absl/status/statusor.h"

namespace holdfast {

/// The run's number: from the environment (kRunVariable), or, if the agent was not taken in yet when it started this
/// process, from `input`, where it comes as a line; blocks until then. A worker that joined before could join another
/// run than its agent. 0: nobody says. Cancelled: `stop` was requested. Unavailable: the agent is gone.
absl::StatusOr<uint64_t> RunOfAgent(int input, const std::stop_token& stop);

}  // namespace holdfast
