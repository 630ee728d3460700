#pragma once
// Writes events.jsonl.

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "elastic/coordinator/run_observer.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

class EventLog final : public RunObserver {
 public:
  /// Appends to the file, and writes it anew if it was removed and the run's lock was not. An event that cannot be
  /// written, or not where it is looked for, as somebody has moved or replaced the file, may be missing: `on_failure`
  /// is told why, once for those that follow each other.
  static absl::StatusOr<std::unique_ptr<EventLog>> Open(const RunDirectory& directory,
                                                        std::function<void(const std::string&)> on_failure);

  void OnEvent(const RunEvent& event) override;

 private:
  EventLog(JsonLinesWriter file, std::string lock, std::function<void(const std::string&)> on_failure)
      : file_(std::move(file)), lock_(std::move(lock)), on_failure_(std::move(on_failure)) {}

  JsonLinesWriter file_;
  const std::string lock_;
  std::function<void(const std::string&)> on_failure_;
  bool fails_ = false;
};

}  // namespace holdfast
