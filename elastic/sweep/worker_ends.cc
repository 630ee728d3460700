#include "elastic/sweep/worker_ends.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <variant>

#include "elastic/coordinator/event_json.h"
#include "elastic/sweep/trial_reading.h"
#include "framework/base/files.h"

namespace holdfast {

WorkerEnds::WorkerEnds(RunDirectory directory) : directory_(std::move(directory)), step_(LastStep(directory_)) {
  std::error_code error;
  const auto size = std::filesystem::file_size(directory_.events(), error);
  if (!error) read_ = static_cast<int64_t>(size);
}

void WorkerEnds::Look() {
  ReadEvents();
  const int64_t step = LastStep(directory_);
  if (step <= step_) return;
  step_ = step;
  ends_.clear();
}

void WorkerEnds::ReadEvents() {
  std::ifstream file = OpenToRead(directory_.events());
  if (!file.seekg(read_)) return;
  for (std::string line; std::getline(file, line) && !file.eof();) {  // whole lines only
    read_ += static_cast<int64_t>(line.size()) + 1;
    const std::optional<RecordedEvent> recorded = ReadEventLine(line);
    if (!recorded.has_value() || !recorded->event.has_value()) continue;
    if (const auto* const paused = std::get_if<event::Paused>(&*recorded->event)) pause_ = paused->cause;
    const auto* const ended = std::get_if<event::WorkerExited>(&*recorded->event);
    if (ended == nullptr) continue;
    Ends& of = ends_[ended->worker];
    ++of.count;
    of.cause = ended->cause;
  }
}

WorkerEnds::Ends WorkerEnds::Of(const std::string& worker) const {
  const auto found = ends_.find(worker);
  return found == ends_.end() ? Ends{} : found->second;
}

}  // namespace holdfast
