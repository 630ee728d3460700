#pragma once
// Whether a world is still the run's last one, for who writes what has no fence: the model.

#include <cstdint>

#include "absl/status/status.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// Aborted if the run directory says that there is a world after `generation`: this process was frozen, say, and the
/// others have gone on. OK also where it says nothing of run `run`: it may be the directory of this machine alone.
absl::Status CheckIsCurrent(const RunDirectory& directory, uint64_t run, uint64_t generation);

}  // namespace holdfast
