#include "elastic/sweep/trial_reading.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elastic/coordinator/coordinator_shell.h"
#include "elastic/coordinator/event_json.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/train/trainer.h"

namespace holdfast {
namespace {

struct Events {
  std::optional<double> validation;  // after the trial's last step
  std::optional<event::RunFailed> failure;
  bool finished = false;
};

Events ReadEvents(const RunDirectory& directory, int64_t step) {
  Events found;
  std::ifstream file = OpenToRead(directory.events());
  for (std::string line; std::getline(file, line);) {
    const std::optional<RecordedEvent> recorded = ReadEventLine(line);
    if (!recorded.has_value() || !recorded->event.has_value()) continue;
    const RunEvent& event = *recorded->event;
    if (const auto* validation = std::get_if<event::Validation>(&event)) {
      if (validation->step == step) found.validation = validation->loss;
    } else if (const auto* failure = std::get_if<event::RunFailed>(&event)) {
      found.failure = *failure;
    } else if (std::get_if<event::RunStarted>(&event) != nullptr) {
      found.failure.reset();
    } else if (const auto* finished = std::get_if<event::RunFinished>(&event)) {
      found.finished = found.finished || finished->step == step;
    }
  }
  return found;
}

absl::StatusOr<double> ValueOf(const std::string& metric, const std::vector<StepMetrics>& steps, const Events& events) {
  if (metric == kTrainingLoss) return LastTrainingLoss(steps).mean;
  if (metric == kValidationLoss && events.validation.has_value()) return *events.validation;
  std::vector<std::string> names{kTrainingLoss};
  if (events.validation.has_value()) names.emplace_back(kValidationLoss);
  for (const Figure& figure : steps.back().figures) {
    if (figure.name == metric && !figure.values.empty()) {
      return std::accumulate(figure.values.begin(), figure.values.end(), 0.0) /
             static_cast<double>(figure.values.size());
    }
    names.push_back(figure.name);
  }
  // A step of whose tokens all are learned does not say so.
  const int64_t tokens_of_a_step = steps.back().tokens / steps.back().step;
  if (metric == kLearnedTokens) return static_cast<double>(tokens_of_a_step);
  return absl::NotFoundError(
      absl::StrCat("a trial's run has no metric '", metric, "'; it has ", absl::StrJoin(names, ", ")));
}

}  // namespace

int64_t LastStep(const RunDirectory& directory) {
  const absl::StatusOr<std::optional<StepMetrics>> last = directory.ReadLastMetrics();
  return last.ok() && last->has_value() ? (*last)->step : 0;
}

LastLoss LastTrainingLoss(const std::vector<StepMetrics>& steps) {
  const size_t count = std::min(steps.size(), std::max<size_t>(10, steps.size() / 20));
  double sum = 0;
  for (size_t i = steps.size() - count; i < steps.size(); ++i) sum += static_cast<double>(steps[i].loss);
  return {sum / static_cast<double>(count), steps[steps.size() - count].step};
}

bool IsOfTraining(const std::string& reason) { return absl::StrContains(reason, kDiverged); }

absl::StatusOr<RunReading> ReadTrial(const RunDirectory& directory, const TrialSetup& trial, int64_t first_step,
                                     const std::string& metric) {
  RunReading reading;
  if (!directory.HoldsRun()) return reading;
  ASSIGN_OR_RETURN(const CoordinatorHistory history, ReadCoordinatorHistory(directory));
  reading.steps = history.recorded_step;
  std::vector<StepMetrics> steps;
  if (reading.steps > 0) {  // else the file need not be there
    ASSIGN_OR_RETURN(steps, directory.ReadMetrics());
  }
  std::erase_if(steps, [&](const StepMetrics& s) { return s.step > std::min(trial.steps(), history.recorded_step); });
  const Events events = ReadEvents(directory, trial.steps());
  for (const StepMetrics& step : steps) {
    if (step.step > first_step) reading.seconds += step.step_seconds * static_cast<double>(step.world_size);
  }
  TrialResult result{.steps = std::min(trial.steps(), history.recorded_step), .seconds = reading.seconds};
  if (history.recorded_step < trial.steps()) {
    if (!events.failure.has_value() || !IsOfTraining(events.failure->reason)) return reading;
    // Which of the workers said it first is chance.
    const std::string& said = events.failure->reason;
    const size_t begin = said.find(": ", 0);
    const bool by_worker = begin != std::string::npos && begin < said.find(kDiverged);
    result.reason = by_worker ? said.substr(begin + 2) : said;
  } else {
    // The loss after the last step is said after its line, and the end of the run after that.
    const bool whole = metric == kValidationLoss ? events.validation.has_value() || events.finished : true;
    if (!whole) return reading;
    ASSIGN_OR_RETURN(result.value, ValueOf(metric, steps, events));
    result.measured = std::isfinite(result.value);
    if (!result.measured) result.reason = absl::StrCat(metric, " is ", result.value);
  }
  reading.result = result;
  return reading;
}

}  // namespace holdfast
