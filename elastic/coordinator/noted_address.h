#pragma once
// Where others reach a coordinator: a file of the run directory in which agents and `holdfast status` look for it.

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "elastic/coordinator/action_queue.h"
#include "framework/base/rare_log.h"

namespace holdfast {

/// Thread-safety: none.
class NotedAddress {
 public:
  /// Replaces what an earlier coordinator has left at `path`. Aborted if another one has the run by now.
  static absl::StatusOr<std::unique_ptr<NotedAddress>> Write(const std::string& path, const std::string& address,
                                                             ActionQueue::IsOurs is_ours);
  /// Removes it, unless another coordinator has written its own there.
  ~NotedAddress();
  NotedAddress(const NotedAddress&) = delete;
  NotedAddress& operator=(const NotedAddress&) = delete;

  /// Writes it anew if it was removed and no other coordinator has the run. What cannot be done is logged.
  void KeepInPlace();

 private:
  NotedAddress(std::string path, const std::string& address, ActionQueue::IsOurs is_ours)
      : path_(std::move(path)), text_(address + "\n"), is_ours_(std::move(is_ours)) {}
  absl::Status WriteNew() const;

  const std::string path_, text_;
  const ActionQueue::IsOurs is_ours_;
  RareLog failures_{std::chrono::seconds(30)};
};

}  // namespace holdfast
