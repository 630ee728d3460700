#pragma once
// results.jsonl of a sweep: a line for each trial that has a result, in the order in which they came. With it a plan is
// taken up where it was.

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "elastic/sweep/sweep_plan.h"

namespace holdfast {

struct RecordedTrial {
  int64_t trial = 0;
  std::string point;    // search::PointText
  uint64_t digest = 0;  // TrialSetup's; 0 = its config was refused
  int64_t steps_planned = 0;
  bool reused = false;  // its run was there: of another sweep, or of an earlier trial
  TrialResult result;
};

/// One line, without its end.
std::string RecordLine(const RecordedTrial& recorded);

/// By trial; of a file that does not exist none. A torn last line is dropped; anything else wrong is DataLoss with its
/// line.
absl::StatusOr<std::map<int64_t, RecordedTrial>> ReadRecord(const std::string& path);

/// What stands in the record of this trial. FailedPrecondition if it is another one.
absl::Status CheckRecorded(const RecordedTrial& recorded, const PlannedTrial& planned);

RecordedTrial RecordOf(const PlannedTrial& trial, const TrialResult& result, bool reused);

}  // namespace holdfast
