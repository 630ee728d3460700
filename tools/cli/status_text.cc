#include "tools/cli/status_text.h"

#include <deque>
#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "elastic/coordinator/event_json.h"
#include "elastic/coordinator/event_text.h"
#include "framework/base/counted.h"
#include "framework/base/files.h"
#include "framework/metrics/progress.h"
#include "nlohmann/json.hpp"

namespace holdfast {
namespace {

std::string WorkerLine(const WorkerStatus& w) {
  const std::string rank = w.rank < 0 ? "-" : absl::StrCat(w.rank);
  const std::string speed =
      w.relative_compute_time > 0 ? absl::StrFormat("%.2fx", w.relative_compute_time) : std::string("-");
  return absl::StrFormat("%4s  %-20s %-16s %8d %8d  %-16s %8.1f s %9.1f s %8s %6d\n", rank, w.id.name, w.host, w.pid,
                         w.step, PhaseName(w.phase), w.seconds_since_heartbeat, w.seconds_in_phase, speed,
                         w.microbatches);
}

bool IsOver(const RunStatus& s) { return s.state == RunState::kEnded || s.state == RunState::kNotRunning; }

/// "step 7 of 100, loss 3.21, 12.3 K tokens/s, ETA 3 min 20 s; 2.5 M tokens so far"
std::string ProgressLine(const RunStatus& s) {
  const RunFigures& f = s.figures;
  std::string line = absl::StrCat("step ", s.committed_step, " of ", s.total_steps);
  if (f.tokens == 0) return line;  // no step of this life yet
  absl::StrAppendFormat(&line, ", loss %.4f, %s tokens/s", f.loss, FormatCount(f.tokens_per_second));
  if (f.steps_per_second > 0 && !IsOver(s)) {
    const auto left = static_cast<double>(s.total_steps - s.committed_step);
    absl::StrAppend(&line, ", ETA ", FormatDuration(left / f.steps_per_second));
  }
  absl::StrAppend(&line, "; ", FormatCount(static_cast<double>(f.tokens)), " tokens so far");
  return line;
}

std::string ClockTime(double seconds) {
  return absl::FormatTime("%H:%M:%S", absl::FromUnixSeconds(static_cast<int64_t>(seconds)), absl::LocalTimeZone());
}

}  // namespace

std::string StatusText(const RunStatus& s) {
  const RunFigures& f = s.figures;
  std::string text = absl::StrCat("run ", f.run, ": ", RunStateName(s.state), s.detail.empty() ? "" : ": ", s.detail,
                                  "\n", ProgressLine(s), "\n");
  if (!IsOver(s) || !s.workers.empty()) {  // else it is by its record
    absl::StrAppend(&text, "world of ", s.world_size, " of ", Counted(f.wanted_workers, "worker"), ", generation ",
                    s.generation, "\n");
    for (const std::string& worker : f.missing) absl::StrAppend(&text, "missing: ", worker, "\n");
  }
  if (f.workers_lost > 0 || f.lost_seconds > 0) {
    absl::StrAppend(&text, "so far ", Counted(f.workers_lost, "loss"), " of a worker, ", FormatDuration(f.lost_seconds),
                    " until the next step after losses and other trouble\n");
  }
  if (s.workers.empty()) return text;
  text += '\n';
  absl::StrAppendFormat(&text, "%4s  %-20s %-16s %8s %8s  %-16s %10s %11s %8s %6s\n", "rank", "worker", "host", "pid",
                        "step", "phase", "heartbeat", "progress", "time", "micro");
  for (const WorkerStatus& worker : s.workers) text += WorkerLine(worker);
  return text;
}

std::string StatusJson(const RunStatus& s, bool on_one_line) {
  const RunFigures& f = s.figures;
  nlohmann::ordered_json status{{"run", f.run},
                                {"state", RunStateName(s.state)},
                                {"detail", s.detail},
                                {"world_size", s.world_size},
                                {"generation", s.generation},
                                {"committed_step", s.committed_step},
                                {"total_steps", s.total_steps},
                                {"wanted_workers", f.wanted_workers},
                                {"missing", f.missing},
                                {"workers_lost", f.workers_lost},
                                {"lost_seconds", f.lost_seconds},
                                {"loss", nullptr},
                                {"tokens", f.tokens},
                                {"tokens_per_second", f.tokens_per_second},
                                {"steps_per_second", f.steps_per_second},
                                {"nodes", s.nodes},
                                {"workers", nlohmann::ordered_json::array()}};
  if (f.tokens > 0) status["loss"] = f.loss;
  for (const WorkerStatus& w : s.workers) {
    status["workers"].push_back({{"id", w.id.name},
                                 {"rank", w.rank},
                                 {"node", w.node},
                                 {"host", w.host},
                                 {"pid", w.pid},
                                 {"step", w.step},
                                 {"phase", PhaseName(w.phase)},
                                 {"seconds_since_heartbeat", w.seconds_since_heartbeat},
                                 {"seconds_in_phase", w.seconds_in_phase},
                                 {"relative_compute_time", w.relative_compute_time},
                                 {"microbatches", w.microbatches}});
  }
  return status.dump(on_one_line ? -1 : 2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string LastEvents(const std::string& path, int count) {
  std::ifstream file = OpenToRead(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(std::move(line));
    if (static_cast<int>(lines.size()) > count) lines.pop_front();
  }
  std::string text;
  for (const std::string& line : lines) {
    const std::optional<RecordedEvent> recorded = ReadEventLine(line);
    if (!recorded.has_value()) continue;
    const std::string words = recorded->event.has_value() ? EventText(*recorded->event) : recorded->name;
    if (!words.empty()) absl::StrAppend(&text, ClockTime(recorded->time), "  ", words, "\n");
  }
  return text;
}

}  // namespace holdfast
