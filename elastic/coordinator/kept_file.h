#pragma once
// A short file of the run directory that is to stay there while a coordinator leads the run.

#include <chrono>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "elastic/coordinator/action_queue.h"
#include "framework/base/rare_log.h"

namespace holdfast {

/// Thread-safety: none.
class KeptFile {
 public:
  KeptFile(std::string path, std::string text, ActionQueue::IsOurs is_ours)
      : path_(std::move(path)), text_(std::move(text)), is_ours_(std::move(is_ours)) {}

  const std::string& path() const { return path_; }
  const std::string& text() const { return text_; }
  /// Writes it anew if it was removed and no other coordinator has the run. What cannot be done is logged.
  void KeepInPlace();

 private:
  absl::Status WriteNew() const;

  const std::string path_, text_;
  const ActionQueue::IsOurs is_ours_;
  RareLog failures_{std::chrono::seconds(30)};
};

}  // namespace holdfast
