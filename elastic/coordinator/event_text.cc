#include "elastic/coordinator/event_text.h"

#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace holdfast {
namespace {

std::string Text(const RunEvent::Value& value) {
  if (const auto* number = std::get_if<double>(&value)) return absl::StrFormat("%.3g", *number);
  if (const auto* number = std::get_if<int64_t>(&value)) return absl::StrCat(*number);
  return std::get<std::string>(value);
}

double Number(const RunEvent& event, const std::string& name) {
  for (const auto& [key, value] : event.fields) {
    if (key != name) continue;
    if (const auto* number = std::get_if<double>(&value)) return *number;
    if (const auto* number = std::get_if<int64_t>(&value)) return static_cast<double>(*number);
  }
  return 0;
}

std::string Listed(const RunEvent& event) {
  std::string line = event.name;
  const char* separator = ": ";
  for (const auto& [key, value] : event.fields) {
    absl::StrAppend(&line, separator, key, " ", Text(value));
    separator = ", ";
  }
  return line;
}

std::string RecoveredText(const RunEvent& event) {
  const double detect = Number(event, "detect_seconds"), abort = Number(event, "abort_seconds"),
               rendezvous = Number(event, "rendezvous_seconds"), transfer = Number(event, "transfer_seconds");
  return absl::StrFormat(
      "generation %s: ready in %.3f s (detect %.3f, abort %.3f, rendezvous %.3f, transfer %.3f; %.1f MiB moved), first "
      "step %.3f s",
      FieldText(event, "generation"), detect + abort + rendezvous + transfer, detect, abort, rendezvous, transfer,
      Number(event, "bytes") / (1 << 20), Number(event, "first_step_seconds"));
}

std::string CheckpointText(const RunEvent& event) {
  const auto field = [&](const char* name) { return FieldText(event, name); };
  if (event.name == "checkpoint") {
    return absl::StrFormat("checkpoint of step %s: %.1f MiB in %.2f s, training held up for %.3f s", field("step"),
                           Number(event, "bytes") / (1 << 20), Number(event, "seconds"),
                           Number(event, "stall_seconds"));
  }
  if (event.name == "checkpoint_failed") {
    return absl::StrCat("no checkpoint of step ", field("step"), ": ", field("cause"));
  }
  if (event.name == "checkpoint_rejected") return absl::StrCat(field("name"), " cannot be used: ", field("cause"));
  if (event.name == "checkpoint_interval") {
    return absl::StrFormat(
        "a checkpoint every %.0f s from here on: one costs %.3f s, a failure is to be expected every %.0f s",
        Number(event, "seconds"), Number(event, "cost_seconds"), Number(event, "failure_seconds"));
  }
  return field("cause");
}

std::string LinkText(const RunEvent& event) {
  const auto field = [&](const char* name) { return FieldText(event, name); };
  const std::string hosts = absl::StrCat(field("host"), " and ", field("peer_host"));
  if (event.name == "link_cut") {
    return absl::StrCat("no link between ", hosts, " (", field("worker"), " and ", field("peer"), ") in step ",
                        field("step"),
                        field("without").empty() ? ": neither can be spared, trying again"
                                                 : absl::StrCat(": going on without ", field("without")));
  }
  if (event.name == "link_back") return absl::StrCat("the link between ", hosts, " is back");
  if (event.name == "link_slow") {
    return absl::StrCat("slow link: ", field("worker"), " on ", field("host"), " is reached in ", field("milliseconds"),
                        " ms, others in ", field("usual_milliseconds"), " ms");
  }
  if (event.name == "step_slow") {
    return absl::StrCat("step ", field("step"), " takes more than ", field("seconds"), " s, usually ",
                        field("usual_seconds"), " s; waiting for ", field("waiting_for"));
  }
  return absl::StrCat("steps take as long as before: ", field("seconds"), " s");
}

}  // namespace

std::string FieldText(const RunEvent& event, const std::string& name) {
  for (const auto& [key, value] : event.fields) {
    if (key == name) return Text(value);
  }
  return "";
}

std::string EventText(const RunEvent& event) {
  const auto field = [&](const char* name) { return FieldText(event, name); };
  const auto place = [&] {
    return absl::StrCat(field("worker"), " (rank ", field("rank"), " on ", field("host"), ")");
  };
  if (event.name == "validation" || event.name == "run_started" || event.name == "agent_joined") return "";
  if (event.name == "worker_joined") {
    return absl::StrCat(field("worker"), " joined (", field("host"), ", pid ", field("pid"), ")");
  }
  if (event.name == "worker_exited") {
    return absl::StrCat(field("worker"), ": ", field("cause"), field("restarting") == "1" ? "; started again" : "");
  }
  if (event.name == "worker_lost") {
    return absl::StrCat("lost ", place(), " in step ", field("step"), ": ", field("cause"));
  }
  if (event.name == "worker_hung") {
    return absl::StrCat("hung: ", place(), " in phase ", field("phase"), " of step ", field("step"), " for ",
                        field("seconds"), " s: ", field("reason"));
  }
  if (event.name == "straggler") {
    return absl::StrCat("slow: ", place(), " takes ", field("factor"), " times as long as the others (", field("phase"),
                        ")");
  }
  if (event.name == "step_failed") {
    return absl::StrCat(place(), " could not go on with step ", field("step"), ": ", field("cause"));
  }
  if (event.name == "world_published") {
    return absl::StrCat("generation ", field("generation"), ": world of ", field("size"), " after step ", field("step"),
                        ": ", field("reason"));
  }
  if (absl::StartsWith(event.name, "checkpoint")) return CheckpointText(event);
  if (event.name == "rewind") {
    const std::string where = field("name").empty() ? "the beginning" : absl::StrCat("checkpoint ", field("name"));
    return absl::StrCat("back from step ", field("from_step"), " to ", where, ": ", field("reason"));
  }
  if (event.name == "data_changed") {
    return absl::StrCat("warning: the token files are not those that ", field("name"),
                        " was trained on: the run may differ from one that was never stopped");
  }
  if (event.name == "too_few_workers") {
    return absl::StrCat("the run stands still after step ", field("step"), ": ", field("detail"));
  }
  if (absl::StartsWith(event.name, "link") || absl::StartsWith(event.name, "step_slow")) return LinkText(event);
  if (event.name == "paused") return absl::StrCat("paused until this can be done: ", field("cause"));
  if (event.name == "resumed") return absl::StrCat("goes on after a pause of ", field("seconds"), " s");
  if (event.name == "recovered") return RecoveredText(event);
  if (event.name == "mirrors_missing") {
    return absl::StrFormat(
        "one failure away from a checkpoint until %.1f MiB of mirrors are there again; training goes on",
        Number(event, "bytes") / (1 << 20));
  }
  if (event.name == "mirrors_complete") {
    return absl::StrFormat("all mirrors are there again: %.1f MiB in %.3f s", Number(event, "bytes") / (1 << 20),
                           Number(event, "seconds"));
  }
  if (event.name == "run_finished" || event.name == "run_stopped" || event.name == "run_failed") {
    return field("reason");
  }
  return Listed(event);
}

}  // namespace holdfast
