#pragma once
// Of which run a worker is, as the agent says that has started it.

#include <cstdint>

#include "absl/status/statusor.h"

namespace holdfast {

/// Whether an agent has started this process, and ends it when it is to leave.
bool HasAgent();

/// The run's number: from the environment (kRunVariable), or, if the agent was not taken in yet when it started this
/// process, from `input`, where it comes as a line; blocks until then, also after a stop, which only a worker that
/// has joined can pass on. A worker that joined before could join another run than its agent. 0: nobody says.
/// Unavailable: the agent is gone.
absl::StatusOr<uint64_t> RunOfAgent(int input);

}  // namespace holdfast
