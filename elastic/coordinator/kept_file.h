#pragma once
// A short file of the run directory that is to stay there while a coordinator leads the run.

#include <chrono>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elastic/coordinator/action_queue.h"
#include "framework/base/rare_log.h"

namespace holdfast {

enum class KeptFileKind {
  kOfRun,     // the same whoever leads: what it says is not looked at
  kSecret,    // the same, of mode 0600
  kOfLeader,  // each has its own text: one that was frozen may have put it in the place of the leader's
};

/// Thread-safety: none.
class KeptFile {
 public:
  KeptFile(std::string path, std::string text, KeptFileKind kind, ActionQueue::IsOurs is_ours)
      : path_(std::move(path)), text_(std::move(text)), kind_(kind), is_ours_(std::move(is_ours)) {}

  const std::string& path() const { return path_; }
  const std::string& text() const { return text_; }
  /// Writes it anew if it was removed, or is a leader's and has another's text, and no other coordinator has the run.
  /// What cannot be done is logged.
  void KeepInPlace();
  /// What it says now.
  absl::StatusOr<std::string> Read() const;

 private:
  bool IsOfAnother() const;
  absl::Status WriteNew() const;

  const std::string path_, text_;
  const KeptFileKind kind_;
  const ActionQueue::IsOurs is_ours_;
  RareLog failures_{std::chrono::seconds(30)};
};

}  // namespace holdfast
