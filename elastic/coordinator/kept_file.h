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
  /// `is_secret`: written anew with mode 0600.
  KeptFile(std::string path, std::string text, ActionQueue::IsOurs is_ours, bool is_secret = false)
      : path_(std::move(path)), text_(std::move(text)), is_ours_(std::move(is_ours)), is_secret_(is_secret) {}

  const std::string& path() const { return path_; }
  const std::string& text() const { return text_; }
  /// Writes it anew if it was removed and no other coordinator has the run. What cannot be done is logged.
  void KeepInPlace();

 private:
  absl::Status WriteNew() const;

  const std::string path_, text_;
  const ActionQueue::IsOurs is_ours_;
  const bool is_secret_;
  RareLog failures_{std::chrono::seconds(30)};
};

}  // namespace holdfast
