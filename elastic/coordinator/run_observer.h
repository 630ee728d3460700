#pragma once
// What watches a run: events.jsonl, the console, alerts; a page of metrics or an exporter would be others. A class that
// derives from this, and one line in coordinator_runtime.cc.

#include "elastic/control/run_event.h"
#include "elastic/control/run_status.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// Called by one thread at a time, under the coordinator's lock: it is not to take long, to wait for anybody or to call
/// back. What an observer cannot do is its own trouble and no reason for the run to stop.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// The step is committed and its line of metrics.jsonl is on the disk.
  virtual void OnStep(const StepMetrics& step) { static_cast<void>(step); }
  virtual void OnEvent(const RunEvent& event) { static_cast<void>(event); }
  /// About once a second, and last with the state kEnded.
  virtual void OnStatus(const RunStatus& status) { static_cast<void>(status); }
  /// Nothing more will come. Called without a lock; may take some seconds.
  virtual void Close() {}
};

}  // namespace holdfast
