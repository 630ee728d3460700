// What becomes of a run directory, and what a run resumes from: by --resume and --overwrite, and by what is there.

#include "elastic/launch/prepared_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_join.h"
#include "checkpoint/place/checkpoint_place.h"
#include "checkpoint/sharded/fence.h"
#include "elastic/coordinator/event_json.h"
#include "elastic/launch/in_process_launcher.h"
#include "elastic/launch/resume_check.h"
#include "elastic/launch/standby.h"
#include "elastic/lease/directory_lease.h"
#include "framework/config/decides.h"
#include "framework/config/load.h"
#include "framework/metrics/run_lock.h"
#include "models/families/families.h"
#include "models/runtime/trained_parameters.h"
#include "tests/models/runtime/tiny_run.h"

namespace holdfast {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path().filename());
  return names;
}

class PreparedRunTest : public TinyRun {
 protected:
  absl::StatusOr<PreparedRun> Prepare(const Config& config, const PrepareOptions& options) {
    const auto outline = CheckTraining(config, 1);
    if (!outline.ok()) return outline.status();
    return PrepareRun(config, directory_, outline->layout, options);
  }
  /// To its end.
  void Train(const Config& config) {
    const auto launcher = InProcessLauncher::Open(config, directory_);
    ASSERT_TRUE(launcher.ok()) << launcher.status();
    const auto run = PrepareRun(config, directory_, (*launcher)->outline().layout, {.workers_are_new = true});
    ASSERT_TRUE(run.ok()) << run.status();
    const auto outcome = (*launcher)->Run(*run, stop_);
    ASSERT_TRUE(outcome.ok() && outcome->exit_code == 0) << outcome.status();
  }

  StopSignal stop_;  // before any other thread
  const RunDirectory directory_{root_ / "run"};
};

TEST_F(PreparedRunTest, ANewRun) {
  const auto run = Prepare(ConfigOf(), {.workers_are_new = true});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->history.recorded_step, 0);
  EXPECT_THAT(run->usable, IsEmpty());
  EXPECT_EQ(ResumeText(*run), "");
  EXPECT_TRUE(directory_.HoldsRun());
  EXPECT_TRUE(absl::IsAborted(Prepare(ConfigOf(), {}).status())) << "this process has it";
}

// Its agents and workers are known by it: those that are there may be of the run that is replaced.
TEST_F(PreparedRunTest, ARunKeepsItsNumber) {
  const auto number = [&](const PrepareOptions& options) {
    const auto run = Prepare(ConfigOf(), options);
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? StartOf(ConfigOf(), *run, {}).history.run : 0;
  };
  const uint64_t first = number({.workers_are_new = true});
  EXPECT_NE(first, 0u);
  EXPECT_EQ(number({}), first);
  EXPECT_EQ(number({.overwrite = true}), first);
  std::filesystem::remove_all(directory_.root());
  EXPECT_NE(number({}), first);
}

TEST_F(PreparedRunTest, ARunWhoseNumberIsDamagedIsNotRemoved) {
  Train(ConfigOf({"checkpoint.every_steps=4"}));
  std::ofstream(directory_.run_id()) << "x";
  const absl::Status refused = Prepare(ConfigOf(), {.overwrite = true}).status();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_TRUE(std::filesystem::exists(directory_.checkpoints()));
  EXPECT_NE(std::filesystem::file_size(directory_.metrics()), 0u);
}

// As one of two that took over from a silent coordinator, or one that was frozen since.
TEST_F(PreparedRunTest, WhoHasLostTheRunTouchesNothing) {
  Train(ConfigOf({"checkpoint.every_steps=4"}));
  auto lease = std::make_unique<DirectoryLease>(directory_);
  ASSERT_TRUE(lease->Take({}, /*begins=*/true).ok());
  const auto lead = std::make_shared<Lead>(std::move(lease), std::chrono::milliseconds(0));
  const auto other = RunLock::TakeFrom(directory_, RunLock::Read(directory_).value());
  ASSERT_TRUE(other.ok()) << other.status();
  const auto listing = [this] {
    std::vector<std::string> names;
    for (const auto& file : std::filesystem::recursive_directory_iterator(directory_.root()))
      names.push_back(file.path());
    std::sort(names.begin(), names.end());
    return names;
  };
  const std::vector<std::string> before = listing();
  const Config longer = ConfigOf({"checkpoint.every_steps=4", "train.steps=20"});
  const auto run = PrepareRun(longer, directory_, CheckTraining(longer, 1)->layout, {.workers_are_new = true}, lead);
  EXPECT_TRUE(absl::IsAborted(run.status())) << run.status();
  EXPECT_EQ(listing(), before);
}

/// Another process takes it after so many looks.
class LostLease final : public Lease {
 public:
  explicit LostLease(int looks) : looks_(looks) {}
  absl::StatusOr<LeaseSight> Look() override { return LeaseSight{}; }
  absl::Status Take(const LeaseSight&, bool) override { return absl::OkStatus(); }
  absl::Status Say(const LeaderWords&) override { return absl::OkStatus(); }
  absl::Status Check() override {
    return looks_-- > 0 ? absl::OkStatus() : absl::FailedPreconditionError("taken by another process");
  }
  void UndoTake() override {}
  std::string Describe() const override { return "a lease"; }

 private:
  int looks_;
};

uint64_t InodeOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_ino;
}

// Copying a large record, reading it, and opening a storage that does not answer take long, each.
TEST_F(PreparedRunTest, WhoLosesTheRunWhilePreparingItChangesNothingMore) {
  Train(ConfigOf({"checkpoint.every_steps=4"}));
  std::ofstream(directory_.metrics(), std::ios::app) << "{";  // a line that was cut off
  const Config longer = ConfigOf({"checkpoint.every_steps=4", "train.steps=20"});
  const auto outline = CheckTraining(longer, 1);
  ASSERT_TRUE(outline.ok()) << outline.status();
  const auto prepare = [&](int looks) {
    const auto lead = std::make_shared<Lead>(std::make_unique<LostLease>(looks), std::chrono::milliseconds(0));
    return PrepareRun(longer, directory_, outline->layout, {.workers_are_new = true}, lead).status();
  };
  const uint64_t generation = ReadCoordinatorState(directory_)->generation;
  const uint64_t state = InodeOf(directory_.coordinator_state()), events = InodeOf(directory_.events());
  EXPECT_TRUE(absl::IsAborted(prepare(0)));
  EXPECT_EQ(InodeOf(directory_.coordinator_state()), state) << "that of the one that has the run";
  EXPECT_TRUE(absl::IsAborted(prepare(2)));
  EXPECT_EQ(InodeOf(directory_.events()), events);
  const auto size = std::filesystem::file_size(directory_.metrics());
  EXPECT_TRUE(absl::IsAborted(prepare(3)));
  EXPECT_EQ(std::filesystem::file_size(directory_.metrics()), size) << "it may have been written by the other one";
  EXPECT_TRUE(absl::IsAborted(prepare(4)));
  EXPECT_EQ(directory_.ReadMetrics()->size(), 12u);
  for (const int looks : {5, 6}) {
    EXPECT_TRUE(absl::IsAborted(prepare(looks)));
    EXPECT_EQ(ReadCoordinatorState(directory_)->generation, generation) << looks;
  }
  const uint64_t config = InodeOf(directory_.config());
  EXPECT_TRUE(absl::IsAborted(prepare(7)));
  EXPECT_EQ(InodeOf(directory_.config()), config);
  const absl::Status prepared = prepare(8);
  EXPECT_TRUE(prepared.ok()) << prepared;
}

/// Another process takes it right after so many looks have passed, and the next one has still said that it is ours.
class ReplacedLease final : public Lease {
 public:
  ReplacedLease(int looks, std::function<void()> replace) : looks_(looks), replace_(std::move(replace)) {}
  absl::StatusOr<LeaseSight> Look() override { return LeaseSight{}; }
  absl::Status Take(const LeaseSight&, bool) override { return absl::OkStatus(); }
  absl::Status Say(const LeaderWords&) override { return absl::OkStatus(); }
  absl::Status Check() override {
    if (looks_ < 0) return absl::FailedPreconditionError("taken by another process");
    if (looks_-- == 0) replace_();
    return absl::OkStatus();
  }
  void UndoTake() override {}
  std::string Describe() const override { return "a lease"; }

 private:
  int looks_;
  const std::function<void()> replace_;
};

// As a coordinator that is frozen right after a look at the lock, for longer than the lease.
TEST_F(PreparedRunTest, WhoIsReplacedRightAfterALookTakesNoCheckpoints) {
  Train(ConfigOf({"checkpoint.every_steps=4"}));
  const Config longer = ConfigOf({"checkpoint.every_steps=4", "train.steps=20"});
  const auto outline = CheckTraining(longer, 1);
  ASSERT_TRUE(outline.ok()) << outline.status();
  const auto storage = OpenCheckpointStorage(longer.checkpoint, directory_.root());
  ASSERT_TRUE(storage.ok()) << storage.status();
  for (int looks = 0;; ++looks) {
    std::unique_ptr<Fence> other;
    const auto replace = [&] {
      auto claimed = Fence::Claim(**storage, "the one that leads now");
      ASSERT_TRUE(claimed.ok()) << claimed.status();
      other = *std::move(claimed);
    };
    const auto lead =
        std::make_shared<Lead>(std::make_unique<ReplacedLease>(looks, replace), std::chrono::milliseconds(0));
    const absl::Status prepared =
        PrepareRun(longer, directory_, outline->layout, {.workers_are_new = true}, lead).status();
    if (other == nullptr) {
      EXPECT_TRUE(prepared.ok()) << prepared;
      ASSERT_GT(looks, 4) << "it looks before each change, and one of these is the claim";
      break;
    }
    const absl::Status owns = other->Check();
    EXPECT_TRUE(owns.ok()) << looks << " looks: " << owns;
  }
}

TEST_F(PreparedRunTest, ARunThatIsDoneIsNotReplacedButByWord) {
  const Config config = ConfigOf({"checkpoint.every_steps=4"});
  Train(config);
  const auto again = Prepare(config, {.workers_are_new = true});
  EXPECT_TRUE(absl::IsAlreadyExists(again.status())) << again.status();
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("raise train.steps"));
  EXPECT_EQ(Prepare(config, {.resume = "12", .workers_are_new = true}).status(), again.status());
  const auto another = Prepare(ConfigOf({"checkpoint.every_steps=4", "optimizer.lr=0.5"}), {.workers_are_new = true});
  EXPECT_THAT(std::string(another.status().message()),
              AllOf(HasSubstr(" holds a run of another config (optimizer.lr "), Not(HasSubstr("raise train.steps"))));
  const auto beyond = Prepare(config, {.resume = "13", .workers_are_new = true});
  EXPECT_TRUE(absl::IsNotFound(beyond.status())) << beyond.status();
  EXPECT_THAT(std::string(beyond.status().message()),
              HasSubstr("no checkpoint of step 13 in " + directory_.checkpoints()));
  EXPECT_EQ(directory_.ReadMetrics()->size(), 12u);

  const auto longer = Prepare(ConfigOf({"checkpoint.every_steps=4", "train.steps=20"}), {.workers_are_new = true});
  ASSERT_TRUE(longer.ok()) << longer.status();
  EXPECT_EQ(longer->history.recorded_step, 12);
  ASSERT_FALSE(longer->usable.empty());
  EXPECT_EQ(longer->usable.front().step, 12);
  EXPECT_THAT(ResumeText(*longer), HasSubstr("12 steps recorded"));
}

// The key of the schedule that would keep the rates is another one than the key that was changed.
TEST_F(PreparedRunTest, AMovedDecayIsSaidWithWhatKeepsIt) {
  const auto resumed = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"checkpoint.every_steps=4", "schedule.warmup_steps=2", "optimizer.lr=0.5"});
    const auto run = Prepare(ConfigOf(overrides), {.workers_are_new = true});
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? ResumeText(*run) : "";
  };
  Train(ConfigOf({"checkpoint.every_steps=4", "schedule.warmup_steps=2", "optimizer.lr=0.5"}));
  const std::string text = resumed({"train.steps=20"});
  constexpr char kMoved[] =
      "\nwarning: the learning rate of the steps to come moves: its cosine decay ends with the run, at step 20 instead "
      "of step "
      "12; set schedule.decay_steps to 10 to keep the old course, with the lowest rate, 0.05, after step 12; "
      "steps 3 to 12, which are done, had another rate than in a run of 20 steps that was never stopped\n";
  EXPECT_THAT(text, HasSubstr("never stopped:\n  train.steps: 12 -> 20\nwarning: "));
  EXPECT_THAT(text, HasSubstr(kMoved));
  EXPECT_EQ(text.find("to keep the old course"), text.rfind("to keep the old course")) << "once";
  EXPECT_THAT(resumed({"train.steps=20", "schedule.decay_steps=10"}), testing::Not(HasSubstr("of the steps to come")))
      << "what it asks for";
}

TEST_F(PreparedRunTest, ADecayThatDoesNotMoveIsNotTalkedAbout) {
  const auto change = [&](const std::vector<std::string>& schedule, int64_t steps) {
    Config config = ConfigOf(schedule);
    Manifest manifest;
    manifest.config = PrintConfig(config);
    config.train.steps = steps;
    return ScheduleChange(config, manifest);
  };
  EXPECT_EQ(change({}, 12), "");
  EXPECT_THAT(change({"schedule.name=linear"}, 20), HasSubstr("its linear decay ends with the run, at step 20"));
  EXPECT_THAT(change({}, 13), HasSubstr("schedule.decay_steps to 12 "));
  EXPECT_THAT(change({}, 10), testing::EndsWith("to keep the old course")) << "its end is not reached";
  EXPECT_EQ(change({"schedule.total_steps=40"}, 20), "");
  EXPECT_EQ(change({"schedule.decay_steps=5"}, 20), "");
  EXPECT_EQ(change({"schedule.name=constant"}, 20), "");
  EXPECT_EQ(change({"schedule.min_lr_ratio=1"}, 20), "");
  EXPECT_THAT(change({"schedule.warmup_steps=12"}, 20), testing::Not(HasSubstr("decay_steps")));
}

// Of a run of 12 steps whose decay is that of its last 2, and of one of 20 the last 4. What is done with the constant
// rate is so in either.
TEST_F(PreparedRunTest, AMovedDecayNamesTheStepsThatAreDoneWithOtherRates) {
  const auto change = [&](int64_t steps, int64_t done, std::vector<std::string> schedule = {"schedule.name=wsd"}) {
    Config config = ConfigOf(std::move(schedule));
    Manifest manifest;
    manifest.config = PrintConfig(config);
    manifest.name.step = done;
    config.train.steps = steps;
    return ScheduleChange(config, manifest);
  };
  const std::string longer =
      "the learning rate of the steps to come moves: its wsd decay goes from step 16 to step 20 instead of from step "
      "10 to step 12";
  EXPECT_EQ(change(20, 10), longer);
  EXPECT_EQ(change(20, 11), longer +
                                "; step 11, which is done, had another rate than in a run of 20 steps that was never "
                                "stopped; --resume of step 10 or before goes back behind that");
  EXPECT_THAT(change(20, 12), HasSubstr("; steps 11 to 12, which are done, had another rate than in a run of 20"));
  // Its decay would have begun after step 8.
  const std::string shorter = change(10, 9);
  EXPECT_THAT(shorter, HasSubstr("its wsd decay goes from step 8 to step 10 instead of"));
  EXPECT_THAT(shorter, HasSubstr("; set schedule.total_steps to 12 to keep the old course; step 9, which is done"));
  EXPECT_THAT(change(20, 12, {"schedule.name=wsd", "schedule.decay_steps=6", "schedule.warmup_steps=3"}),
              HasSubstr("; steps 7 to 12, which are done"));
  EXPECT_THAT(change(20, 4, {"schedule.name=linear", "schedule.warmup_steps=3"}), HasSubstr("; step 4, which is done"));
  EXPECT_THAT(change(20, 3, {"schedule.name=linear", "schedule.warmup_steps=3"}),
              testing::Not(HasSubstr("which are done")));
}

// What a step reads follows from its number and the batch, so the place in the data jumps with another batch.
TEST_F(PreparedRunTest, AnotherBatchSaysWhatComesAgain) {
  const auto change = [&](const std::vector<std::string>& overrides, int64_t done = 4) {
    const std::vector<std::string> was = {"batch.microbatches=3", "batch.microbatch_size=2"};
    std::vector<std::string> is = was;
    is.insert(is.end(), overrides.begin(), overrides.end());
    Manifest manifest;
    manifest.config = PrintConfig(ConfigOf(was));
    manifest.name.step = done;
    return DataChange(ConfigOf(is), manifest);
  };
  EXPECT_EQ(change({}), "");
  EXPECT_EQ(change({"batch.microbatches=2", "batch.microbatch_size=3", "optimizer.lr=1"}), "") << "as many sequences";
  EXPECT_EQ(change({"batch.microbatches=2"}),
            "step 5 reads the data from sequence 17 of their order on, as if the steps before it had had the batch of "
            "now; step 4 has read up to sequence 24, so 8 are read again (if no step before had yet another batch)");
  EXPECT_THAT(change({"batch.microbatches=4"}), HasSubstr("step 4 has read up to sequence 24, so 8 are passed over"));
  EXPECT_EQ(change({"batch.microbatches=2"}, 0), "") << "nothing has been read";
  EXPECT_EQ(change({"run.seed=7"}),
            "sequences come in another order, so some of what steps 1 to 4 have read may come again before all of the "
            "data has been read");
  EXPECT_EQ(change({"data.shuffle=false"}), change({"run.seed=7"}));
  EXPECT_THAT(change({"batch.sequence_length=8"}), testing::StartsWith("sequences of 8 tokens are cut and drawn anew"));

  Train(ConfigOf({"checkpoint.every_steps=4"}));
  const int64_t more = ConfigOf().batch.microbatches + 1;
  const Config other =
      ConfigOf({"checkpoint.every_steps=4", "train.steps=20", absl::StrCat("batch.microbatches=", more)});
  const auto run = Prepare(other, {.workers_are_new = true});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_THAT(ResumeText(*run), HasSubstr("\nwarning: step 13 reads the data from sequence "));
}

// A loss is lower than another one by what it is of, too.
TEST_F(PreparedRunTest, OtherValidationsAreSaidWhereTheyDecideSomething) {
  const std::string files = absl::StrCat("data.validation=[", root_ / "train.bin", "]");
  const auto change = [&](const std::vector<std::string>& overrides, const std::string& decides) {
    const std::vector<std::string> was = {files, decides, "train.validate_every_steps=2"};
    std::vector<std::string> is = was;
    is.insert(is.end(), overrides.begin(), overrides.end());
    Manifest manifest;
    manifest.config = PrintConfig(ConfigOf(was));
    manifest.name.step = 4;
    return ValidationChange(ConfigOf(is), manifest);
  };
  const std::string keeps = "checkpoint.keep_best=1";
  EXPECT_EQ(change({}, keeps), "");
  EXPECT_EQ(change({"batch.microbatches=3", "train.steps=20"}, keeps), "");
  for (const char* other : {"train.validation_microbatches=4", "train.validation_microbatches=0",
                            "batch.microbatch_size=4", "batch.sequence_length=8"}) {
    EXPECT_THAT(change({other}, keeps), HasSubstr("read another part of data.validation")) << other;
    EXPECT_EQ(change({other}, "checkpoint.keep_best=0"), "") << other;
  }
  EXPECT_EQ(change({"batch.microbatch_size=4", "train.validation_microbatches=4"}, keeps), "") << "as many sequences";
}

TEST_F(PreparedRunTest, UtilisationCountsWhatIsTrained) {
  const Config whole = ConfigOf();
  Config adapters = whole;
  adapters.lora.rank = 1;
  const auto run = Prepare(whole, {.workers_are_new = true});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(StartOf(whole, *run, {}).flops_per_token({}), ModelFlopsPerToken(whole.model, whole.batch.sequence_length));
  EXPECT_DOUBLE_EQ(StartOf(adapters, *run, {}).flops_per_token({}), TrainedFlopsPerToken(adapters));
}

// As `ckpt export RUN RUN/model --merge --overwrite` leaves it. The run would train to its end and then fail.
TEST_F(PreparedRunTest, AModelWhereAdaptersGoIsFoundBeforeTheRunGoesOn) {
  const Config whole = ConfigOf();
  ASSERT_TRUE(Prepare(whole, {.workers_are_new = true}).ok());
  std::filesystem::create_directories(directory_.model());
  for (const char* name : {"/config.json", "/model.safetensors"}) std::ofstream(directory_.model() + name) << "{}";
  Config adapters = whole;
  adapters.lora.rank = 1;
  const auto outline = CheckTraining(whole, 1);
  ASSERT_TRUE(outline.ok()) << outline.status();
  const auto prepare = [&](const Config& config) {
    return std::string(PrepareRun(config, directory_, outline->layout, {.workers_are_new = true}).status().message());
  };
  EXPECT_THAT(prepare(adapters), HasSubstr("holds a model, and the run saves its adapters there"));
  EXPECT_EQ(prepare(whole), "");
}

TEST_F(PreparedRunTest, AStepToResumeFromCutsTheRecord) {
  Config config = ConfigOf({"checkpoint.every_steps=100", "checkpoint.keep_last=10", "train.steps=8"});
  Train(config);  // whose last step is saved
  config.train.steps = 12;
  Train(config);
  Config longer = config;
  longer.train.steps = 20;
  const auto missing = Prepare(longer, {.resume = "5", .workers_are_new = true});
  EXPECT_TRUE(absl::IsNotFound(missing.status())) << missing.status();
  const auto run = Prepare(longer, {.resume = "8", .workers_are_new = true});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->usable.front().step, 8);
  EXPECT_THAT(ResumeText(*run), HasSubstr(run->usable.front().name + ", of the step of --resume\n"));
  EXPECT_EQ(run->history.recorded_step, 8);
  EXPECT_EQ(directory_.ReadMetrics()->size(), 8u);
  // By which `holdfast status` knows that the checkpoint of step 12 is none of the run any more.
  std::string line, last;
  for (std::ifstream events(directory_.events()); std::getline(events, line);) last = line;
  const auto recorded = ReadEventLine(last);
  ASSERT_TRUE(recorded.has_value() && recorded->event.has_value()) << last;
  const auto* rewind = std::get_if<event::Rewind>(&*recorded->event);
  ASSERT_NE(rewind, nullptr) << last;
  EXPECT_EQ(rewind->from_step, 12);
  EXPECT_EQ(rewind->step, 8);
  EXPECT_EQ(rewind->name, run->usable.front().name);
  EXPECT_EQ(rewind->reason, "--resume 8");
}

TEST_F(PreparedRunTest, ACheckpointBeyondTheRecordIsNamed) {
  Config config = ConfigOf({"checkpoint.every_steps=100", "checkpoint.keep_last=10", "train.steps=8"});
  Train(config);  // whose last step is saved
  config.train.steps = 12;
  Train(config);
  ASSERT_TRUE(directory_.CutMetrics(9).ok());
  config.train.steps = 20;
  const auto run = Prepare(config, {.workers_are_new = true});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->usable.front().step, 8);
  const std::string newest = run->keeper->found().valid.front().manifest.name.ToString();
  EXPECT_THAT(ResumeText(*run), HasSubstr("not used    " + newest + ": " + directory_.metrics() + " ends at step 9\n"));
}

// It began, and waited for a step that had passed.
TEST_F(PreparedRunTest, ACheckpointBeyondTheEndIsRefusedBeforeAnythingIsRemoved) {
  const std::string elsewhere = absl::StrCat("checkpoint.directory=", root_ / "elsewhere");
  Train(ConfigOf({"checkpoint.every_steps=100", "checkpoint.keep_last=10", "train.steps=8", elsewhere}));
  const Config shorter = ConfigOf({"checkpoint.every_steps=100", "train.steps=5", elsewhere});
  for (const std::string resume : {"auto", "8"}) {
    const auto run = Prepare(shorter, {.overwrite = true, .resume = resume, .workers_are_new = true});
    EXPECT_TRUE(absl::IsFailedPrecondition(run.status())) << run.status();
    EXPECT_THAT(std::string(run.status().message()), HasSubstr("of step 8, and train.steps is 5: raise train.steps"));
    EXPECT_EQ(directory_.ReadMetrics()->size(), 8u);
  }
  std::filesystem::remove_all(directory_.root());
  EXPECT_TRUE(absl::IsFailedPrecondition(Prepare(shorter, {.workers_are_new = true}).status()));
  EXPECT_FALSE(directory_.HoldsRun());
  // What the directory itself has left is of that step, too.
  Train(ConfigOf({"checkpoint.every_steps=100", "train.steps=8"}));
  ASSERT_TRUE(directory_.CutMetrics(0).ok());
  const auto rest = Prepare(ConfigOf({"checkpoint.every_steps=100", "train.steps=5"}), {.workers_are_new = true});
  EXPECT_TRUE(absl::IsFailedPrecondition(rest.status())) << rest.status();
}

TEST_F(PreparedRunTest, ARunThatIsDoneGoesBackToAStepByWord) {
  Config config = ConfigOf({"checkpoint.every_steps=100", "checkpoint.keep_last=10", "train.steps=8"});
  Train(config);  // whose last step is saved
  config.train.steps = 12;
  Train(config);
  const auto run = Prepare(config, {.resume = "8", .workers_are_new = true});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->history.recorded_step, 8);
  EXPECT_FALSE(run->history.finished) << "its last steps are to be done again";
}

TEST_F(PreparedRunTest, AStepThatIsNotThereCostsNoOldRun) {
  const Config config = ConfigOf({"checkpoint.every_steps=4"});
  const auto fresh = Prepare(config, {.resume = "4", .workers_are_new = true});
  EXPECT_TRUE(absl::IsNotFound(fresh.status())) << fresh.status();
  EXPECT_FALSE(std::filesystem::exists(directory_.root()));
  Train(config);
  const auto over = Prepare(config, {.overwrite = true, .resume = "12", .workers_are_new = true});
  EXPECT_THAT(std::string(over.status().message()), HasSubstr("leave --overwrite out to go back to that step"));
  const auto both = Prepare(config, {.overwrite = true, .resume = "auto", .workers_are_new = true});
  EXPECT_THAT(std::string(both.status().message()), HasSubstr("leave --overwrite out to resume the run"));
  Config elsewhere = config;
  elsewhere.checkpoint.directory = root_ / "elsewhere";
  const auto missing = Prepare(elsewhere, {.overwrite = true, .resume = "12", .workers_are_new = true});
  EXPECT_TRUE(absl::IsNotFound(missing.status())) << missing.status();
  EXPECT_EQ(directory_.ReadMetrics()->size(), 12u);
  EXPECT_TRUE(std::filesystem::exists(directory_.model()));
  EXPECT_FALSE(std::filesystem::is_empty(directory_.checkpoints()));
}

// Its files would lie between those of somebody else, who would have to find out whose they are.
TEST_F(PreparedRunTest, WhatDoesNotBeginLeavesNothing) {
  const auto refused = [&](const std::string& root, const std::string& resume) {
    const Config config = ConfigOf();
    const auto outline = CheckTraining(config, 1);
    EXPECT_TRUE(outline.ok()) << outline.status();
    return PrepareRun(config, RunDirectory(root), outline->layout, {.resume = resume, .workers_are_new = true})
        .status();
  };
  EXPECT_TRUE(absl::IsNotFound(refused(root_ / "runs/of/mine", "4")));
  EXPECT_FALSE(std::filesystem::exists(root_ / "runs"));

  const std::filesystem::path mine = root_ / "mine";
  std::filesystem::create_directories(mine / "checkpoints");
  std::ofstream(mine / "checkpoints/notes") << "mine";
  EXPECT_TRUE(absl::IsAlreadyExists(refused(mine, "")));
  EXPECT_THAT(NamesIn(mine), ElementsAre("checkpoints"));
  std::filesystem::remove_all(mine / "checkpoints");
  EXPECT_TRUE(absl::IsNotFound(refused(mine, "4")));
  EXPECT_THAT(NamesIn(mine), IsEmpty()) << "it was there before";

  std::ofstream(mine / ".lock") << "";  // as of somebody who has led, and was killed
  EXPECT_TRUE(absl::IsNotFound(refused(mine, "4")));
  EXPECT_THAT(NamesIn(mine), ElementsAre(".lock"));
}

TEST_F(PreparedRunTest, AnotherModelCostsNoCheckpoint) {
  Config config = ConfigOf({"checkpoint.every_steps=100", "checkpoint.keep_last=10", "train.steps=8"});
  Train(config);
  config.train.steps = 12;
  Train(config);
  Config other = ConfigOf({"checkpoint.every_steps=100", "train.steps=20"});
  other.model.num_layers += 1;
  for (const char* resume : {"auto", "8"}) {
    const auto run = Prepare(other, {.resume = resume, .workers_are_new = true});
    EXPECT_THAT(std::string(run.status().message()),
                AllOf(HasSubstr("the model of the config is another than the checkpoint's (model.num_layers was 1 and "
                                "is 2): set that as it was to resume the run, choose another --run-dir"),
                      HasSubstr("is not of this model: ")))
        << resume;
  }
  EXPECT_EQ(directory_.ReadMetrics()->size(), 12u);
  config.train.steps = 20;
  const auto again = Prepare(config, {.workers_are_new = true});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->usable.size(), 2u);
}

TEST_F(PreparedRunTest, AnotherOptimizerIsRefusedWithItsKeys) {
  Train(ConfigOf({"checkpoint.every_steps=4"}));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"optimizer.name=lion", "(optimizer.name was adamw and is lion): set that as it was"},
      {"optimizer.ema_decay=0.9", "(optimizer.ema_decay was 0"}};
  for (const auto& [setting, says] : cases) {
    const auto run = Prepare(ConfigOf({"checkpoint.every_steps=4", "train.steps=20", setting}), {});
    EXPECT_TRUE(absl::IsFailedPrecondition(run.status())) << run.status();
    EXPECT_THAT(std::string(run.status().message()), testing::AllOf(HasSubstr(says), HasSubstr("--run-dir")));
  }
}

TEST_F(PreparedRunTest, FewerStepsThanAreRecordedAreRefused) {
  Train(ConfigOf({"checkpoint.every_steps=100"}));
  std::filesystem::remove(directory_.events());  // as if it had been stopped at its last step
  const auto message = [&] {
    const auto run = Prepare(ConfigOf({"checkpoint.every_steps=100", "train.steps=5"}), {.workers_are_new = true});
    return std::string(run.status().message());
  };
  const std::string advice = "12 steps recorded, and train.steps is 5: raise train.steps, or ";
  EXPECT_THAT(message(), HasSubstr(advice + "pass --overwrite")) << "no checkpoint is known that it could go back to";
  std::ofstream(directory_.events()) << EventLine(1, event::CheckpointSaved{12, "twelve"}) << "\n";
  EXPECT_THAT(message(), HasSubstr(advice + "go back to a step with --resume STEP"));
}

TEST_F(PreparedRunTest, SettingsThatCannotWorkCostNoOldRun) {
  Train(ConfigOf());
  Config alerts = ConfigOf();
  alerts.alerts.slack_webhook_file = root_ / "none";
  const auto refused = Prepare(alerts, {.overwrite = true, .workers_are_new = true});
  EXPECT_THAT(refused.status().ToString(), HasSubstr(root_ / "none"));
  Config nowhere = ConfigOf({"checkpoint.every_steps=4"});
  nowhere.checkpoint.directory = "/proc/nowhere";
  for (const char* resume : {"auto", "never"}) {
    const auto run = Prepare(nowhere, {.overwrite = true, .resume = resume, .workers_are_new = true});
    EXPECT_THAT(run.status().ToString(), HasSubstr("/proc/nowhere")) << resume;
  }
  EXPECT_EQ(directory_.ReadMetrics()->size(), 12u);
  EXPECT_TRUE(std::filesystem::exists(directory_.model()));
}

// It was removed, and the new one ended before its first step.
TEST_F(PreparedRunTest, WeightsThatCannotBeUsedCostNoOldRun) {
  Train(ConfigOf());
  const std::string model = root_ / "model", file = model + "/model.safetensors";
  std::filesystem::copy(directory_.model(), model);
  Config config = ConfigOf();
  config.train.init_from = model;
  constexpr uint32_t kNan = 0x7fc00000;
  std::fstream weights(file, std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(-static_cast<std::streamoff>(sizeof(kNan)), std::ios::end);
  weights.write(reinterpret_cast<const char*>(&kNan), sizeof(kNan));
  weights.close();
  ASSERT_TRUE(weights);
  const auto run = Prepare(config, {.overwrite = true, .workers_are_new = true});
  EXPECT_THAT(std::string(run.status().message()),
              testing::AllOf(HasSubstr("train.init_from: " + file), HasSubstr("is NaN or infinite")));
  EXPECT_EQ(directory_.ReadMetrics()->size(), 12u);
  EXPECT_TRUE(std::filesystem::exists(directory_.model() + "/model.safetensors"));
  std::filesystem::remove_all(model);
  std::filesystem::copy(directory_.model(), model);
  EXPECT_TRUE(Prepare(config, {.overwrite = true, .workers_are_new = true}).ok());
  EXPECT_FALSE(std::filesystem::exists(directory_.model()));
}

TEST_F(PreparedRunTest, ACheckpointElsewhereThatDoesNotFitCostsNoOldRun) {
  const std::string elsewhere = absl::StrCat("checkpoint.directory=", root_ / "elsewhere");
  {
    Config other = ConfigOf({"checkpoint.every_steps=100", elsewhere});
    other.model.num_layers += 1;
    Train(other);
  }
  std::filesystem::remove_all(directory_.root());
  Train(ConfigOf());
  const auto refuses = [&](const Config& config, const std::string& resume, const std::string& says) {
    const auto run = Prepare(config, {.overwrite = true, .resume = resume, .workers_are_new = true});
    EXPECT_THAT(std::string(run.status().message()), HasSubstr(says)) << resume;
    EXPECT_EQ(directory_.ReadMetrics()->size(), 12u);
    EXPECT_TRUE(std::filesystem::exists(directory_.model()));
  };
  const Config config = ConfigOf({"checkpoint.every_steps=100", elsewhere});
  refuses(config, "auto", "is not of this model");
  refuses(config, "12", "is not of this model");
  Config same = config;
  same.model.num_layers += 1;
  for (const auto& file : std::filesystem::recursive_directory_iterator(root_ / "elsewhere")) {
    if (file.path().extension() != ".h5") continue;
    std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(-9, std::ios::end);
    bytes.put('!');
  }
  refuses(same, "12", "is damaged (");
}

TEST_F(PreparedRunTest, WhatTheNewRunReadsIsNotRemovedWithTheOldOne) {
  Train(ConfigOf());
  std::filesystem::create_directory_symlink(directory_.model(), root_ / "link");
  const auto outline = CheckTraining(ConfigOf(), 1);
  ASSERT_TRUE(outline.ok()) << outline.status();
  for (const std::string& model : {directory_.model(), directory_.root(), std::string(root_ / "link")}) {
    Config config = ConfigOf();
    config.train.init_from = model;
    const auto run = PrepareRun(config, directory_, outline->layout, {.overwrite = true, .workers_are_new = true});
    EXPECT_THAT(std::string(run.status().message()), HasSubstr("train.init_from reads")) << model;
  }
  Config config = ConfigOf();
  config.data.tokenizer = directory_.model();
  const auto run = PrepareRun(config, directory_, outline->layout, {.overwrite = true, .workers_are_new = true});
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("data.tokenizer reads"));
  Config further = ConfigOf();
  further.lora.init_from = directory_.model();
  const auto adapters = PrepareRun(further, directory_, outline->layout, {.overwrite = true, .workers_are_new = true});
  EXPECT_THAT(std::string(adapters.status().message()), HasSubstr("lora.init_from reads"));
  EXPECT_TRUE(std::filesystem::exists(directory_.model() + "/model.safetensors"));
  EXPECT_EQ(directory_.ReadMetrics()->size(), 12u);
}

TEST_F(PreparedRunTest, NothingIsGivenUpForACheckpointThatIsDamaged) {
  Config config = ConfigOf({"checkpoint.every_steps=100", "checkpoint.keep_last=10", "train.steps=8"});
  Train(config);
  config.train.steps = 12;
  Train(config);
  config.train.steps = 20;
  std::string older;
  {
    const auto before = Prepare(config, {.workers_are_new = true});
    ASSERT_TRUE(before.ok()) << before.status();
    ASSERT_EQ(before->usable.back().step, 8);
    older = before->usable.back().name;
  }  // gives the run back
  bool damaged = false;
  for (const auto& entry : std::filesystem::directory_iterator(directory_.checkpoints())) {
    if (entry.path().filename().string().find(older) == std::string::npos) continue;
    for (const auto& file : std::filesystem::recursive_directory_iterator(entry)) {
      if (file.path().extension() != ".h5") continue;
      std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekp(-9, std::ios::end);
      bytes.put('!');
      damaged = true;
    }
  }
  ASSERT_TRUE(damaged);
  const auto run = Prepare(config, {.resume = "8", .workers_are_new = true});
  EXPECT_TRUE(absl::IsDataLoss(run.status())) << run.status();
  EXPECT_EQ(directory_.ReadMetrics()->size(), 12u);
  const auto newest = Prepare(config, {.workers_are_new = true});
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->usable.front().step, 12);
}

TEST_F(PreparedRunTest, WhatOfTheConfigIsNotAsItWasIsNamed) {
  const Config config = ConfigOf({"checkpoint.every_steps=4"});
  Train(config);
  const auto changed =
      Prepare(ConfigOf({"checkpoint.every_steps=4", "train.steps=20", "optimizer.lr=0.5"}), {.workers_are_new = true});
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_THAT(changed->warnings, Contains(HasSubstr("\n  optimizer.lr: ")));
}

// In a log and on a terminal: whoever looks for his key finds it at the beginning of a line.
TEST_F(PreparedRunTest, EachKeyThatIsNotAsItWasHasALineAndOfManyTheFirstTen) {
  const Config config = ConfigOf({"optimizer.lr=0.25"});
  Manifest manifest;
  manifest.config = PrintConfig(config);
  EXPECT_EQ(Differences(ConfigOf({"optimizer.lr=0.5", "run.seed=7"}), manifest),
            "this is not the config that wrote the checkpoint, so the run may differ from one that was never stopped:\n"
            "  optimizer.lr: 0.25 -> 0.5\n"
            "  run.seed: 1 -> 7");
  std::vector<std::string> many = {"batch.microbatches=5",   "data.shuffle=false",  "model.norm_eps=0.25",
                                   "optimizer.beta1=0.5",    "optimizer.beta2=0.5", "optimizer.grad_clip_norm=7",
                                   "optimizer.eps=0.5",      "optimizer.lr=0.5",    "optimizer.weight_decay=0.5",
                                   "schedule.warmup_steps=3"};
  EXPECT_THAT(Differences(ConfigOf(many), manifest), EndsWith("\n  schedule.warmup_steps: 0 -> 3"));
  many.emplace_back("train.steps=20");
  EXPECT_THAT(Differences(ConfigOf(many), manifest), EndsWith("\n  schedule.warmup_steps: 0 -> 3\n  and 1 more key"));
  many.emplace_back("run.seed=7");
  const std::string twelve = Differences(ConfigOf(many), manifest);
  EXPECT_THAT(twelve, EndsWith("\n  run.seed: 1 -> 7\n  and 2 more keys"));
  EXPECT_EQ(std::count(twelve.begin(), twelve.end(), '\n'), 11);
  EXPECT_THAT(ChangedKeys(manifest.config, ConfigOf(many)), EndsWith("; and 2 more keys"));
}

// As a coordinator that is started again, while its workers wait for it.
TEST_F(PreparedRunTest, WithoutACheckpointTheWorkersConfigCounts) {
  const std::vector<std::string> begun{"checkpoint.every=never", "elastic.max_restarts=7"};
  Train(ConfigOf(begun));
  std::filesystem::remove(directory_.events());  // it has not ended
  {
    const auto other = Prepare(ConfigOf({"checkpoint.every=never", "optimizer.lr=0.5", "data.shuffle=false"}), {});
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_THAT(other->warnings, ElementsAre(AllOf(HasSubstr("(data.shuffle was true and is false; optimizer.lr was "),
                                                   Not(HasSubstr("elastic")))))
        << "which a coordinator may have of its own";
    EXPECT_THAT(ResumeText(*other), HasSubstr("warning: the run has no checkpoint to resume from"));
  }
  const auto same = Prepare(ConfigOf({"checkpoint.every=never", "optimizer.lr=0.5", "data.shuffle=false"}), {});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_THAT(same->warnings, IsEmpty()) << "it is the run's by now";
}

// Its record would be cut and its model replaced.
TEST_F(PreparedRunTest, ARunThatIsDoneWithoutCheckpointsDoesNotBeginAnewToBeLonger) {
  Train(ConfigOf({"checkpoint.every=never"}));
  const auto longer = Prepare(ConfigOf({"checkpoint.every_steps=4", "train.steps=20"}), {.workers_are_new = true});
  EXPECT_TRUE(absl::IsAlreadyExists(longer.status())) << longer.status();
  EXPECT_THAT(std::string(longer.status().message()),
              HasSubstr(" holds a run that is done, up to step 12, and has no checkpoint to resume from: "));
  EXPECT_EQ(directory_.ReadMetrics()->size(), 12u);
}

// As after a loss of power: events are not synced.
TEST_F(PreparedRunTest, ADamagedCheckpointIsNoReasonToBeginAnewThoughNoEventTellsOfIt) {
  Train(ConfigOf({"checkpoint.every_steps=4"}));
  std::filesystem::remove(directory_.events());
  for (const auto& file : std::filesystem::recursive_directory_iterator(directory_.checkpoints())) {
    if (file.path().filename() == "manifest.json") std::ofstream(file.path()) << "{";
  }
  const auto run = Prepare(ConfigOf({"checkpoint.every_steps=4", "train.steps=20"}), {.workers_are_new = true});
  EXPECT_TRUE(absl::IsAlreadyExists(run.status())) << run.status();
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("has no checkpoint to resume from"));
  EXPECT_EQ(directory_.ReadMetrics()->size(), 12u);
}

TEST_F(PreparedRunTest, ALostRecordIsSaid) {
  const Config config = ConfigOf({"checkpoint.every_steps=4"});
  Train(config);
  std::filesystem::resize_file(directory_.metrics(), 0);
  const auto run = Prepare(ConfigOf({"checkpoint.every_steps=4", "train.steps=20"}), {.workers_are_new = true});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->usable.front().step, 12);
  EXPECT_THAT(run->warnings,
              Contains(HasSubstr("has no step of this run, which has saved checkpoints: the record begins after")));
}

// Both ways that the message names: the cut one may have no checkpoint left.
TEST_F(PreparedRunTest, ADamagedRecordIsMovedAwayOrCutOff) {
  Train(ConfigOf({"checkpoint.every_steps=4"}));
  const Config longer = ConfigOf({"checkpoint.every_steps=4", "train.steps=20"});
  std::vector<std::string> lines;
  std::ifstream file(directory_.metrics());
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 12u);
  std::ofstream(directory_.metrics()) << absl::StrJoin(lines.begin(), lines.begin() + 9, "\n") << "\n{\n"
                                      << lines[10] << "\n";
  const std::string message(Prepare(longer, {.workers_are_new = true}).status().message());
  EXPECT_THAT(message, HasSubstr("metrics.jsonl:10: "));
  EXPECT_THAT(message, HasSubstr("mv " + directory_.metrics() + " " + directory_.metrics() + ".damaged"));
  EXPECT_THAT(message, HasSubstr("head -n 9 "));
  std::filesystem::rename(directory_.metrics(), directory_.metrics() + ".damaged");
  {
    const auto moved = Prepare(longer, {.workers_are_new = true});
    ASSERT_TRUE(moved.ok()) << moved.status();
    EXPECT_EQ(moved->usable.front().step, 12);
  }
  std::ofstream(directory_.metrics()) << absl::StrJoin(lines.begin(), lines.begin() + 9, "\n") << "\n";
  const auto cut = Prepare(longer, {.workers_are_new = true});
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_LE(cut->usable.front().step, 8);  // that of step 4 where the one of 8 was skipped
}

TEST_F(PreparedRunTest, OnlyWhatDecidesBitsIsADifference) {
  Config config = ConfigOf();
  Manifest manifest;
  manifest.config = PrintConfig(config);
  manifest.config_digest = BitsDigest(config);
  EXPECT_EQ(Differences(config, manifest), "");
  config.log.every_steps = 7;
  EXPECT_EQ(Differences(config, manifest), "");
  config.run.seed = 7;
  EXPECT_THAT(Differences(config, manifest), HasSubstr("run.seed: 1 -> 7"));
}

// Workers that have the run's config would be refused by a coordinator with another one.
TEST_F(PreparedRunTest, WhoLeadsARunOnLeadsItWithTheConfigThatItHas) {
  const Config config = ConfigOf({"optimizer.lr=0.25", "elastic.workers=2"});
  const Config other = ConfigOf({"optimizer.lr=0.5", "train.steps=20", "data.shuffle=false", "elastic.workers=3"});
  EXPECT_EQ(PrintConfig(ConfigToLeadOnWith(other, directory_).config), PrintConfig(other)) << "no run has begun";
  ASSERT_TRUE(Prepare(config, {.workers_are_new = true}).ok());
  const LeadingConfig leading = ConfigToLeadOnWith(other, directory_);
  EXPECT_EQ(leading.changes,
            "data.shuffle was true and is false; optimizer.lr was 0.25 and is 0.5; train.steps was 12 and is 20");
  Config expected = config;
  expected.elastic.workers = 3;  // which each host may have its own of
  EXPECT_EQ(PrintConfig(leading.config), PrintConfig(expected));
  EXPECT_EQ(ConfigToLeadOnWith(config, directory_).changes, "");
}

TEST_F(PreparedRunTest, WhoLeadsARunOnHasItsEpochsAndTheirSteps) {
  const Config config = ConfigOf({"train.epochs=2"}), other = ConfigOf({"train.steps=20", "train.epochs=3"});
  ASSERT_TRUE(Prepare(config, {.workers_are_new = true}).ok());
  EXPECT_EQ(PrintConfig(ConfigToLeadOnWith(other, directory_).config), PrintConfig(config));
}

// As where the run ends early and keeps its best checkpoint, and the other coordinator keeps none.
TEST_F(PreparedRunTest, WhoLeadsARunOnWithWhatDoesNotFitItHasAllOfTheRun) {
  WriteTokens("validation.bin", 97);
  const Config config =
      ConfigOf({absl::StrCat("data.validation=[", root_ / "validation.bin", "]"), "train.validate_every_steps=4",
                "train.early_stop_patience=2", "checkpoint.every_steps=4", "checkpoint.keep_best=1"});
  ASSERT_TRUE(Prepare(config, {.workers_are_new = true}).ok());
  const LeadingConfig leading = ConfigToLeadOnWith(ConfigOf({"checkpoint.every_steps=4"}), directory_);
  EXPECT_EQ(PrintConfig(leading.config), PrintConfig(config));
  EXPECT_THAT(leading.changes, HasSubstr("checkpoint.keep_best was 1 and is 0"));
}

TEST_F(PreparedRunTest, AnImportLeavesTheArithmeticToTheRun) {
  const Config config = ConfigOf();  // resolved
  Config imported = config;
  Manifest manifest;
  manifest.sharding = kImported;
  for (const ArithmeticChoice open : {ArithmeticChoice::kAuto, ArithmeticChoice::kNative}) {
    imported.train.arithmetic = open;
    manifest.config = PrintConfig(imported);
    manifest.config_digest = BitsDigest(imported);
    EXPECT_EQ(Differences(config, manifest), "");
  }
  imported.run.seed = 7;
  manifest.config = PrintConfig(imported);
  manifest.config_digest = BitsDigest(imported);
  EXPECT_THAT(Differences(config, manifest),
              testing::AllOf(HasSubstr("run.seed: 7 -> 1"), testing::Not(HasSubstr("arithmetic"))));
}

TEST_F(PreparedRunTest, AnImportLeavesTheStepsOfEpochsToTheRun) {
  const Config config = ConfigOf({"train.epochs=2"});  // resolved
  Config imported = config;
  imported.train.steps = 0;
  Manifest manifest;
  manifest.sharding = kImported;
  manifest.config = PrintConfig(imported);
  manifest.config_digest = BitsDigest(imported);
  EXPECT_EQ(Differences(config, manifest), "");
  manifest.sharding.clear();
  EXPECT_THAT(Differences(config, manifest), HasSubstr("train.steps: 0 -> 12"));
}

TEST_F(PreparedRunTest, AnImportedModelMustComputeWhatItsFilesSay) {
  Config config = ConfigOf();
  Manifest manifest;
  manifest.config = PrintConfig(config);
  manifest.sharding = kImported;
  EXPECT_TRUE(CheckImported(config, manifest).ok());
  config.model.norm_eps *= 10;
  const absl::Status other = CheckImported(config, manifest);
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("model.norm_eps"));
  manifest.sharding = "full_shard";
  EXPECT_TRUE(CheckImported(config, manifest).ok()) << "with a run's own checkpoint there is a warning";
}

}  // namespace
}  // namespace holdfast
