#pragma once
// The number by which workers and agents know that a coordinator is of the run they are of. It lies in the run
// directory, so that whoever leads the run has it, and another run at the same address does not. A run that replaces
// the one in its directory (--overwrite) keeps the number, and with it the agents that are there.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// As it stands in its file.
std::string RunIdText(uint64_t run);

/// Of the run in `directory`, which exists; made, durably, if it has none, and never changed. DataLoss, saying what to
/// do, if its file is damaged.
absl::StatusOr<uint64_t> RunIdOf(const RunDirectory& directory);
/// The same, but NotFound if it has none.
absl::StatusOr<uint64_t> ReadRunId(const RunDirectory& directory);

}  // namespace holdfast
