#pragma once
// A simulated coordinator process around a real Coordinator: what it has stored survives it, and it may die between any
// two actions.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "elastic/control/coordinator.h"
#include "tests/elastic/control/sim_clock.h"
#include "tests/elastic/control/sim_network.h"
#include "tests/elastic/control/sim_truth.h"

namespace holdfast::sim {

struct CoordinatorBugs {
  bool forgets_generation = false;  // a restart does not know what was persisted
  bool commits_unrecorded = false;  // records after having told everybody
  bool loses_lines = false;         // the record is written, not synced
};

class CoordinatorHost {
 public:
  CoordinatorHost(Clock& clock, Network& network, Truth& truth, CoordinatorOptions options, CoordinatorBugs bugs)
      : clock_(clock), network_(network), truth_(truth), options_(std::move(options)), bugs_(bugs) {}

  void Start() {
    if (ended()) return;
    ++life_;
    CoordinatorOptions options = options_;
    truth_.CutWhatWasGivenUp();
    truth_.CheckThatNothingToldIsMissing();
    options.last_generation = bugs_.forgets_generation ? 0 : truth_.persisted();
    options.branch = truth_.branch();
    options.recorded_step = truth_.committed();
    options.used_cells = truth_.UsedCells();
    options.checkpoints = truth_.Usable();
    coordinator_ = std::make_unique<Coordinator>(options);
    frozen_ = false;
    later_.clear();
    network_.SetServer(true);
    Tick(life_);
  }

  /// After so many actions more, the process dies.
  void CrashAfter(int actions) { crash_after_ = actions; }
  bool up() const { return coordinator_ != nullptr; }
  bool well() const { return up() && !frozen_ && crash_after_ < 0; }
  int life() const { return life_; }

  void Freeze() { frozen_ = true; }
  void Thaw() {
    frozen_ = false;
    std::deque<CoordinatorEvent> later;
    later.swap(later_);
    for (const CoordinatorEvent& event : later) Feed(event);
  }

  void Feed(const CoordinatorEvent& event) {
    if (!up() || ended()) return;
    if (frozen_) {
      later_.push_back(event);
      return;
    }
    std::vector<CoordinatorAction> actions = coordinator_->OnEvent(clock_.now(), event);
    if (bugs_.commits_unrecorded) {
      std::stable_partition(actions.begin(), actions.end(),
                            [](const CoordinatorAction& a) { return !std::holds_alternative<RecordAction>(a); });
    }
    for (CoordinatorAction& action : actions) {
      if (crash_after_ >= 0 && crash_after_-- == 0) {
        Crash();
        return;
      }
      std::visit([this](auto& a) { Do(a); }, action);
      if (!up()) return;
    }
  }

  /// The run's exit code, once it is over.
  const std::optional<int>& exit_code() const { return exit_code_; }
  bool ended() const { return exit_code_.has_value(); }
  int64_t Count(const std::string& event) const {
    const auto it = events_.find(event);
    return it == events_.end() ? 0 : it->second;
  }
  const std::string& end_reason() const { return end_reason_; }
  RunStatus Status() const { return coordinator_->Status(clock_.now()); }
  const std::vector<std::string>& log() const { return log_; }
  bool keep_log = false;
  std::function<void()> mirrors_missing = [] {};  // a world begins its first step without them
  std::function<void()> rewinding = [] {};        // before committed steps are given up
  std::function<void()> restarting = [] {};       // before a coordinator is started in the place of one that died

 private:
  void Crash() {
    crash_after_ = -1;
    coordinator_.reset();
    network_.SetServer(false);
    if (bugs_.loses_lines) truth_.LoseLines(clock_.Between(0, 3));
    if (ended()) return;
    clock_.After(clock_.Between(milliseconds(100), seconds(3)), [this] {
      restarting();
      Start();
    });
  }

  void Tick(int life) {
    if (life != life_ || ended()) return;
    Feed(TickEvent{});
    clock_.After(milliseconds(options_.elastic.heartbeat_interval_ms) / 2, [this, life] { Tick(life); });
  }

  void Do(SendAction& action) {
    if (const auto* world = std::get_if<WorldMessage>(&action.message)) truth_.Sent(life_, *world);
    if (const auto* commit = std::get_if<CommitMessage>(&action.message)) truth_.SentCommit(*commit);
    network_.Down(action.to, std::move(action.message));
  }
  void Do(SendToAllAction& action) {
    if (const auto* world = std::get_if<WorldMessage>(&action.message)) truth_.Sent(life_, *world);
    if (const auto* commit = std::get_if<CommitMessage>(&action.message)) truth_.SentCommit(*commit);
    // It may die when only some of them have been told.
    const bool dies = crash_after_ >= 0 && static_cast<size_t>(crash_after_) < action.to.size();
    if (dies) {
      action.to.resize(static_cast<size_t>(crash_after_));
    } else if (crash_after_ >= 0) {
      crash_after_ -= static_cast<int>(action.to.size());
    }
    network_.DownToAll(action.to, std::move(action.message));
    if (dies) Crash();
  }
  void Do(const CloseAction& action) { network_.CloseByServer(action.connection); }
  void Do(const PersistAction& action) { truth_.Persisted(action.generation, action.branch); }
  void Do(const RecordAction& action) { truth_.Recorded(action); }
  // In the life of this process: its threads die with it.
  void Later(Instant most, std::function<void()> action) {
    clock_.After(clock_.Between(milliseconds(1), most), [this, life = life_, action = std::move(action)] {
      if (life == life_ && up()) action();
    });
  }
  void Do(const CommitCheckpointAction& action) {
    Later(milliseconds(500), [this, action] {
      CheckpointDoneEvent done{
          action.step, action.generation, Truth::NameOf(action.step, action.generation), "", false, 1, 0, {}};
      if (truth_.branch().Includes(action.generation, action.step)) {
        truth_.CheckpointExists(action.step, action.generation);
      } else {
        done.cause = "given up";
      }
      Later(milliseconds(500), [this, done]() mutable {
        done.usable = truth_.Choices();
        Feed(done);
        Later(milliseconds(500), [this, exists = done.cause.empty()] {
          if (!exists) return;
          truth_.Tidy();
          Feed(CheckpointsTidiedEvent{"", truth_.Choices()});
        });
      });
    });
  }
  void Do(const VerifyCheckpointAction& action) {
    Later(seconds(2), [this, name = action.name] {
      const bool damaged = truth_.IsDamaged(name), knows = damaged || clock_.Chance(0.8);
      Feed(CheckpointVerifiedEvent{name, damaged ? "wrong digest" : knows ? "" : "connection refused", damaged});
    });
  }
  void Do(const RewindAction& action) {
    if (truth_.committed() > action.step) rewinding();
    truth_.Rewound(action.step);
  }
  // Who starts a coordinator looks at the events first: a run that is over is not started again.
  void Do(const ReportAction& action) {
    const std::string& name = action.event.name;
    ++events_[name];
    if (name == "checkpoint_rejected") {
      const std::string checkpoint = std::get<std::string>(action.event.fields.front().second);
      truth_.Demand(truth_.IsDamaged(checkpoint), "checkpoint ", checkpoint, " is rejected, although it is whole");
    }
    if (keep_log) log_.push_back(Line(action.event));
    if (name == "mirrors_missing") mirrors_missing();
    if (name != "run_finished" && name != "run_stopped" && name != "run_failed") return;
    exit_code_ = static_cast<int>(std::get<int64_t>(action.event.fields.front().second));
    end_reason_ = std::get<std::string>(action.event.fields.back().second);
  }
  void Do(const EndAction& action) {
    truth_.Demand(ended() && *exit_code_ == action.exit_code, "the run ends without having said so");
  }

  std::string Line(const RunEvent& event) const {
    std::string line = absl::StrCat(std::chrono::duration<double>(clock_.now()).count(), " ", event.name);
    for (const auto& [key, value] : event.fields) {
      absl::StrAppend(&line, " ", key, "=");
      std::visit([&](const auto& v) { absl::StrAppend(&line, v); }, value);
    }
    return line;
  }

  Clock& clock_;
  Network& network_;
  Truth& truth_;
  CoordinatorOptions options_;
  CoordinatorBugs bugs_;
  std::unique_ptr<Coordinator> coordinator_;
  bool frozen_ = false;
  std::deque<CoordinatorEvent> later_;
  int life_ = 0, crash_after_ = -1;
  std::map<std::string, int64_t> events_;
  std::optional<int> exit_code_;
  std::string end_reason_;
  std::vector<std::string> log_;
};

}  // namespace holdfast::sim
