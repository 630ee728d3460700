#pragma once
// What a run says on the console: one line per logged step, a live progress bar on a terminal.

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "framework/metrics/progress.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {

/// Thread-safety: none.
class RunConsole {
 public:
  /// `show_memory`: this process does the work, so its memory is worth a look.
  RunConsole(int64_t total_steps, int64_t every_steps, bool show_memory);

  /// "step   120/2000  loss 2.3456  grad norm 1.23  lr 3.00e-04  memory 1.2 GiB  12,345 tokens/s"
  void Step(const StepMetrics& metrics);
  void Validation(int64_t step, double loss);
  void Loading(double done_bytes, double total_bytes);
  void Line(const std::string& text);
  void Finish() { progress_.Finish(); }

 private:
  void EndLoading();

  int64_t total_steps_, every_steps_;
  bool show_memory_;
  Progress progress_;
  std::optional<Progress> loading_;
  int64_t loading_total_ = 0;
};

/// Peak resident memory of this process in bytes.
int64_t PeakResidentBytes();

}  // namespace holdfast
