#pragma once
// Where others reach a coordinator: a file of the run directory in which agents and `holdfast status` look for it.

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "elastic/coordinator/action_queue.h"
#include "elastic/coordinator/kept_file.h"

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

  /// As of KeptFile.
  void KeepInPlace() { file_.KeepInPlace(); }

 private:
  NotedAddress(const std::string& path, const std::string& address, ActionQueue::IsOurs is_ours)
      : file_(path, address + "\n", KeptFileKind::kOfLeader, std::move(is_ours)) {}

  KeptFile file_;
};

}  // namespace holdfast
