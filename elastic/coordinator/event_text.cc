#include "elastic/coordinator/event_text.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "elastic/control/straggler.h"
#include "framework/base/counted.h"
#include "framework/base/format_bytes.h"
#include "framework/base/signal_text.h"
#include "framework/metrics/progress.h"

namespace holdfast {
namespace {

std::string Bytes(int64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

std::string Short(double number) { return absl::StrFormat("%.3g", number); }

/// "1.26 times as long as".
std::string TimesAsLongAs(double factor) {
  const std::string times = Short(factor);
  return times == "1" ? "as long as" : absl::StrCat(times, " times as long as");
}

template <class Event>
std::string Place(const Event& e) {
  const std::string rank = e.rank < 0 ? "" : absl::StrCat("rank ", e.rank, " ");  // else it was in no world
  return absl::StrCat(e.worker, " (", rank, "on ", e.host, ")");
}

std::string Hosts(const event::LinkFields& e) { return absl::StrCat(e.host, " and ", e.peer_host); }

std::string Listed(const RunEvent& event) {
  std::string line = EventName(event);
  const char* separator = ": ";
  for (const auto& [key, value] : FieldsOf(event)) {
    absl::StrAppend(&line, separator, key, " ");
    if (const auto* number = std::get_if<double>(&value)) {
      line += Short(*number);
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      absl::StrAppend(&line, *integer);
    } else {
      line += std::get<std::string>(value);
    }
    separator = ", ";
  }
  return line;
}

// Of each kind that has words of its own.
std::string Words(const event::Validation&) { return ""; }
std::string Words(const event::RunStarted&) { return ""; }
std::string Words(const event::AgentJoined&) { return ""; }
std::string Words(const event::AgentRefused& e) {
  return absl::StrCat("refused the agent on ", e.host, " (pid ", e.pid, "): node ", e.node, " has one already, on ",
                      e.other_host, " (pid ", e.other_pid, "); each needs a --node of its own");
}
std::string Words(const event::AgentLost& e) {
  return absl::StrCat("the agent of node ", e.node, " on ", e.host, " is gone: ", e.cause);
}
std::string Words(const event::NodeLeaving& e) {
  return absl::StrCat("node ", e.node, " on ", e.host, " is to leave the run, which has done step ", e.step);
}
std::string Words(const event::NodeLeft& e) {
  return absl::StrCat("node ", e.node, " has left the run after step ", e.step);
}
std::string Words(const event::NodeReturned& e) { return absl::StrCat("node ", e.node, " on ", e.host, " is back"); }
std::string Words(const event::NoProgress& e) {
  return absl::StrCat("no step for ", Short(e.seconds), " s: step ", e.step, " is not done (generation ", e.generation,
                      ")");
}
std::string Words(const event::WorkerJoined& e) {
  return absl::StrCat(e.worker, " joined (", e.host, ", pid ", e.pid, ")");
}
std::string Words(const event::WorkerRefused& e) {
  return absl::StrCat(
      "refused ", e.worker, " on ", e.host, ", which holds state and asks again: it ", e.cause,
      "; if it is this coordinator that has the wrong settings or run directory, start it again with the right ones");
}
std::string Words(const event::WorkerExited& e) {
  return absl::StrCat(e.worker, ": ", e.cause, e.restarting ? "; started again" : "");
}
std::string Words(const event::KeptOut& e) {
  return absl::StrCat(
      "keeping ", e.worker, " on ", e.host, " out: most had other bits than it ", e.contradictions,
      " times within a day, so its processor or memory is faulty; when that is mended, end its process (", e.pid,
      "), so that its agent starts it again");
}
std::string Words(const event::KeptOutResolved& e) {
  return absl::StrCat("no longer keeping ", e.worker, " out: another process has its name (", e.host, ", pid ", e.pid,
                      ")");
}
std::string Words(const event::WorkerLost& e) {
  return absl::StrCat("lost ", Place(e), " in step ", e.step, ": ", e.cause);
}
std::string Words(const event::WorkerHung& e) {
  return absl::StrCat("hung: ", Place(e), " in phase ", PhaseName(e.phase), " of step ", e.step, " for ",
                      Short(e.seconds), " s: ", e.reason);
}
std::string Words(const event::Straggler& e) {
  const std::string before =
      e.reason == kSlowerThanBefore ? absl::StrCat(TimesAsLongAs(e.own_factor), " it used to and ") : "";
  return absl::StrCat("slow: ", Place(e), " takes ", before, TimesAsLongAs(e.factor), " the others (",
                      PhaseName(e.phase), ")");
}
std::string Words(const event::StragglerResolved& e) {
  if (e.factor == 0) return absl::StrCat("no longer slow: ", e.worker, ": ", e.reason);  // it may have left
  return absl::StrCat("no longer slow: ", Place(e), " takes ", TimesAsLongAs(e.factor), " the others");
}
std::string Words(const event::StepFailed& e) {
  return absl::StrCat(Place(e), " failed at step ", e.step, ": ", e.cause);
}
std::string Words(const event::WorldPublished& e) {
  return absl::StrCat("generation ", e.generation, ": world of ", e.size, " after step ", e.step, ": ", e.reason);
}
std::string Words(const event::Recovered& e) {
  return absl::StrFormat(
      "generation %d: ready in %.3f s (detect %.3f, abort %.3f, rendezvous %.3f, transfer %.3f; %s moved), first "
      "step %.3f s",
      e.generation, e.detect_seconds + e.abort_seconds + e.rendezvous_seconds + e.transfer_seconds, e.detect_seconds,
      e.abort_seconds, e.rendezvous_seconds, e.transfer_seconds, Bytes(e.bytes), e.first_step_seconds);
}
std::string Words(const event::MirrorsMissing& e) {
  return absl::StrFormat(
      "mirrors incomplete (%s to copy): another loss may mean going back to a checkpoint; training continues",
      Bytes(e.bytes));
}
std::string Words(const event::MirrorsComplete& e) {
  return absl::StrFormat("mirrors complete: %s in %.3f s", Bytes(e.bytes), e.seconds);
}
std::string Words(const event::TooFewWorkers& e) {
  return absl::StrCat("training is suspended after step ", e.step, ": ", e.detail);
}
std::string Words(const event::StateMissing& e) {
  if (e.holders.empty())
    return absl::StrCat("waiting for workers with the state of step ", e.step, ": none is connected");
  return absl::StrCat("waiting for workers that hold a part of the state of step ", e.step, ": ", e.holders);
}
std::string Words(const event::StateLost& e) {
  return absl::StrCat(
      "lost the state of step ", e.step,
      e.holders.empty() ? ": no worker holds it" : absl::StrCat(", of which a part was held by ", e.holders));
}
std::string Words(const event::CheckpointSaved& e) {
  const std::string skipped = e.skipped == 0 ? ""
                                             : absl::StrFormat(" (skipped at %s: another one was still being written)",
                                                               Counted(e.skipped, "step"));
  return absl::StrFormat("checkpoint of step %d: %s in %.2f s, training held up for %.3f s%s", e.step, Bytes(e.bytes),
                         e.seconds, e.stall_seconds, skipped);
}
std::string Words(const event::CheckpointFailed& e) {
  return absl::StrCat("no checkpoint of step ", e.step, ": ", e.cause);
}
std::string Words(const event::CheckpointRejected& e) { return absl::StrCat(e.name, " cannot be used: ", e.cause); }
std::string Words(const event::CheckpointWarning& e) { return e.cause; }
std::string Words(const event::CheckpointInterval& e) {
  const std::string between = FormatDuration(e.failure_seconds);
  return absl::StrFormat("a checkpoint every %.0f s from now on: one costs %.3f s, %s", e.seconds, e.cost_seconds,
                         e.failures == 0 ? absl::StrCat("no failure so far (one in ", between, " is assumed)")
                                         : absl::StrCat("mean time between failures ", between));
}
std::string Words(const event::Rewind& e) {
  const std::string where = e.name.empty() ? "step 0" : absl::StrCat("checkpoint ", e.name);
  return absl::StrCat("rewinding from step ", e.from_step, " to ", where, ": ", e.reason);
}
std::string Words(const event::DataChanged& e) {
  return absl::StrCat("warning: the token files are not those that ", e.name, " was trained on, or another token ends ",
                      "a document in them: the run may differ from one that was never stopped");
}
std::string Words(const event::NoGradient& e) {
  return absl::StrFormat(
      "warning: the gradient of step %d is exactly 0, though its loss is %.4f: nothing is learned. Most often values "
      "have grown beyond their range; resume from an earlier checkpoint (--resume STEP) with a lower optimizer.lr",
      e.step, e.loss);
}

std::string Words(const event::KernelsChanged& e) {
  return absl::StrCat(
      "warning: what computes here has other bits than what wrote ", e.name,
      " (another GPU, another version of its libraries, or another build): the run may differ from one ",
      "that was never stopped");
}
std::string Words(const event::LinkCut& e) {
  return absl::StrCat(
      "no link between ", Hosts(e), " (", e.worker, " and ", e.peer, ") in step ", e.step,
      e.without.empty() ? ": both are needed, retrying" : absl::StrCat(": continuing without ", e.without));
}
std::string Words(const event::LinkBack& e) { return absl::StrCat("the link between ", Hosts(e), " works again"); }
std::string Words(const event::LinkSlow& e) {
  if (!e.peer.empty()) {
    return absl::StrCat("slow link: ", e.worker, " on ", e.host, " and ", e.peer, " on ", e.peer_host,
                        " reach each other in ", Short(e.milliseconds), " ms, others in ", Short(e.usual_milliseconds),
                        " ms");
  }
  return absl::StrCat("slow link: ", e.worker, " on ", e.host, " is reached in ", Short(e.milliseconds),
                      " ms, others in ", Short(e.usual_milliseconds), " ms");
}
std::string Words(const event::StepSlow& e) {
  return absl::StrCat("step ", e.step, " takes more than ", Short(e.seconds), " s, usually ", Short(e.usual_seconds),
                      " s; waiting for ", e.waiting_for);
}
std::string Words(const event::StepSlowResolved& e) {
  return absl::StrCat("steps take as long as before: ", Short(e.seconds), " s");
}
std::string Words(const event::EarlyStop& e) {
  if (e.fall_step == 0 || e.fall_step == e.best_step) {
    return absl::StrFormat("the validation loss has not fallen below that of step %d, %.4f, for %s: the run ends",
                           e.best_step, e.best_loss, Counted(e.validations, "validation"));
  }
  return absl::StrFormat(
      "the validation loss has not fallen below that of step %d, %.4f, by more than train.early_stop_min_delta for %s: "
      "the run ends; it was lowest at step %d, %.4f",
      e.fall_step, e.fall_loss, Counted(e.validations, "validation"), e.best_step, e.best_loss);
}
std::string Words(const event::StopRequested& e) {
  const std::string who = e.by == "coordinator" ? "the coordinator" : e.by;
  return absl::StrCat("a stop was requested after step ", e.step, ": ", who, " got ", SignalText(e.signal));
}
std::string Words(const event::CoordinatorChanged& e) {
  return absl::StrCat("this coordinator leads the run on: ", e.cause);
}
std::string Words(const event::AlertFailed& e) { return absl::StrCat("alert: ", e.cause); }
std::string Words(const event::Paused& e) { return absl::StrCat("paused, retrying: ", e.cause); }
std::string Words(const event::Resumed& e) {
  return absl::StrCat("resuming after a pause of ", Short(e.seconds), " s");
}
std::string Words(const event::EndFields& e) { return e.reason; }

}  // namespace

std::string EventText(const RunEvent& event) {
  return std::visit(
      [&](const auto& e) -> std::string {
        if constexpr (requires { Words(e); }) {
          return Words(e);
        } else {
          return Listed(event);
        }
      },
      event);
}

}  // namespace holdfast
