#include "elastic/launch/current_world.h"

#include "absl/strings/str_cat.h"
#include "elastic/coordinator/coordinator_state.h"
#include "elastic/coordinator/run_id.h"

namespace holdfast {

absl::Status CheckIsCurrent(const RunDirectory& directory, uint64_t run, uint64_t generation) {
  const absl::StatusOr<uint64_t> there = ReadRunId(directory);
  if (run == 0 || !there.ok() || *there != run) return absl::OkStatus();
  const absl::StatusOr<CoordinatorState> state = ReadCoordinatorState(directory);
  if (!state.ok() || state->generation <= generation) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("the run is in generation ", state->generation,
                                         " by now, and this process in ", generation,
                                         ": the model is not its to write"));
}

}  // namespace holdfast
