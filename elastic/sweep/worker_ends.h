#pragma once
// How often the workers of a run have ended since it last committed a step, and why it has paused, by what events.jsonl
// says. An agent starts its workers again, and a run waits for workers and for room on a disk, so a trial whose workers
// cannot live would never end by itself. Thread-safety: none.

#include <cstdint>
#include <map>
#include <string>

#include "framework/metrics/run_directory.h"

namespace holdfast {

class WorkerEnds {
 public:
  /// Counts what comes from now on.
  explicit WorkerEnds(RunDirectory directory);

  /// Reads what was written since; a committed step that is beyond all before sets all counts to 0.
  void Look();
  struct Ends {
    int64_t count = 0;
    std::string cause;  // of the last one
  };
  /// Of a worker, by its name.
  Ends Of(const std::string& worker) const;
  /// Why it paused when it last did; empty if it has not.
  const std::string& pause() const { return pause_; }

 private:
  void ReadEvents();

  const RunDirectory directory_;
  std::map<std::string, Ends> ends_;
  std::string pause_;
  int64_t read_ = 0, step_ = 0;  // bytes of events.jsonl; the last step that is recorded
};

}  // namespace holdfast
