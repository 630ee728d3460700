#include "elastic/coordinator/run_console.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "elastic/coordinator/event_text.h"
#include "framework/base/format_bytes.h"

namespace holdfast {

RunConsole::RunConsole(int64_t total_steps, int64_t every_steps, bool show_memory)
    : total_steps_(total_steps),
      every_steps_(every_steps),
      show_memory_(show_memory),
      progress_("training", total_steps, "steps") {}

void RunConsole::OnStep(const StepMetrics& step) {
  EndLoading();
  if (every_steps_ > 0 && (step.step % every_steps_ == 0 || step.step == 1 || step.step == total_steps_)) {
    std::string line = absl::StrFormat("step %*d/%d  loss %.4f  grad norm %.3f  lr %.2e  %s tokens/s",
                                       static_cast<int>(absl::StrCat(total_steps_).size()), step.step, total_steps_,
                                       step.loss, step.grad_norm, step.lr, FormatCount(step.tokens_per_second));
    for (const Figure& figure : step.figures) {
      if (figure.values.empty()) continue;
      const double largest = *std::max_element(figure.values.begin(), figure.values.end());
      absl::StrAppendFormat(&line, "  %s%s %.4g", figure.is_list ? "max " : "", figure.name, largest);
    }
    const double exchanged = static_cast<double>(step.exchanged.in_node + step.exchanged.between_nodes);
    if (exchanged > 0) {
      absl::StrAppend(&line, "  exchanged ", FormatBytes(exchanged), ", between nodes ",
                      FormatBytes(static_cast<double>(step.exchanged.between_nodes)));
    }
    if (show_memory_) absl::StrAppend(&line, "  memory ", FormatBytes(static_cast<double>(PeakResidentBytes())));
    if (step.mfu.has_value()) absl::StrAppendFormat(&line, "  MFU %.1f%%", *step.mfu * 100);
    Line(line);
  }
  progress_.Update(step.step, absl::StrFormat("loss %.3f", step.loss));
}

void RunConsole::OnEvent(const RunEvent& event) {
  if (std::holds_alternative<event::CheckpointSaved>(event)) failed_checkpoints_.Reset();
  if (const auto* failed = std::get_if<event::CheckpointFailed>(&event)) {
    if (const auto text = OnFailedCheckpoint(*failed)) Line(*text);
  } else if (const auto* validation = std::get_if<event::Validation>(&event)) {
    Line(absl::StrFormat("step %*d/%d  validation loss %.4f", static_cast<int>(absl::StrCat(total_steps_).size()),
                         validation->step, total_steps_, validation->loss));
  } else if (const std::string text = EventText(event); !text.empty()) {
    Line(text);
  }
}

std::optional<std::string> RunConsole::OnFailedCheckpoint(const event::CheckpointFailed& failed) {
  std::string cause = failed.cause;  // whose numbers, of steps and free bytes, are others each time
  std::erase_if(cause, [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
  if (cause != std::exchange(failed_for_, cause)) failed_checkpoints_.Reset();
  return failed_checkpoints_.Line(std::chrono::steady_clock::now().time_since_epoch(), EventText(failed));
}

void RunConsole::OnStatus(const RunStatus& status) {
  if (status.loading.has_value()) ShowLoading(*status.loading);
  if (status.state == RunState::kEnded) progress_.Finish();
}

void RunConsole::ShowLoading(const LoadProgress& loading) {
  const auto total = static_cast<int64_t>(loading.total_bytes);
  if (!loading_.has_value() || loading_total_ != total) {  // members say one after the other how much it is
    EndLoading();
    loading_.emplace("loading the checkpoint", total, "B");
    loading_total_ = total;
  }
  loading_->Update(static_cast<int64_t>(loading.done_bytes));
}

void RunConsole::EndLoading() {
  if (loading_.has_value()) loading_->Clear();
  loading_.reset();
}

void RunConsole::Line(const std::string& text) {
  EndLoading();
  progress_.Clear();
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

int64_t PeakResidentBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * int64_t{1024};
}

}  // namespace holdfast
