// Proves `holdfast sweep` as its users meet it: the same table of results with any number of workers and through kills
// of everything, runs that are taken from other sweeps, rungs that continue, and errors that say what is wrong.

#include <dirent.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "tests/integration/tiny_runs.h"

namespace holdfast::integration {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class Sweep : public TinyRuns {
 protected:
  /// `sweep`: more keys of the section, each after a comma.
  std::string WriteSweep(const std::string& name, const std::string& sweep, const std::string& rest) {
    WriteAll(directory_ / name,
             "sweep: {config: " + Path("config.yaml") + ", strategy: random, parallel: 3" + sweep + "}\n" + rest);
    return Path(name);
  }
  std::string WriteSweep(const std::string& sweep = "") {
    return WriteSweep("sweep.yaml", sweep,
                      "budget: {trials: 6}\n"
                      "space:\n"
                      "  optimizer.lr: {low: 1e-3, high: 1e-1, scale: log}\n"
                      "  model.hidden_size: {choices: [32, 64]}\n");
  }
  CommandResult RunSweep(const std::string& file, const std::string& into, int workers = 2) {
    return RunHoldfast({"sweep", file, "--sweep-dir", Path(into), "--workers", std::to_string(workers)});
  }
  std::string Results(const std::string& sweep) const { return ReadAll(Path(sweep + "/results.csv")); }

  /// Processes that work for a run in this directory.
  std::vector<int> Processes(const std::string& sweep) const {
    std::vector<int> pids;
    DIR* proc = opendir("/proc");
    while (const dirent* entry = readdir(proc)) {
      const int pid = atoi(entry->d_name);
      if (pid > 0 && ReadAll("/proc/" + std::string(entry->d_name) + "/cmdline").find(Path(sweep + "/runs/")) !=
                         std::string::npos) {
        pids.push_back(pid);
      }
    }
    closedir(proc);
    return pids;
  }
  static bool WaitFor(const std::function<bool()>& condition) {
    for (int i = 0; i < 3000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }
  /// The kernel kills a worker when its agent ends, which takes a moment.
  bool NobodyIsLeft(const std::string& sweep) const {
    return WaitFor([&] { return Processes(sweep).empty(); });
  }
};

TEST_F(Sweep, HasOneTableOfResultsForAnyNumberOfWorkers) {
  const std::string file = WriteSweep();
  const CommandResult one = RunSweep(file, "one", 1);
  ASSERT_EQ(one.exit_code, 0) << one.output;
  const CommandResult five = RunSweep(file, "five", 5);
  ASSERT_EQ(five.exit_code, 0) << five.output;
  EXPECT_EQ(Results("one"), Results("five"));
  EXPECT_THAT(Results("one"), AllOf(HasSubstr("\n5,"), Not(HasSubstr("\n6,")), HasSubstr(",measured\n")));
  EXPECT_THAT(ReadAll(Path("one/report.html")), AllOf(HasSubstr("<svg"), HasSubstr("optimizer.lr")));
  // Each trial is the run that the user would have by hand.
  const std::string first = Results("one").substr(Results("one").find("\n0,"));
  std::vector<std::string> cells;
  std::stringstream line(first.substr(1, first.find('\n', 1) - 1));
  for (std::string cell; std::getline(line, cell, ',');) cells.push_back(cell);
  const CommandResult alone =
      Train("alone", {"--set", "optimizer.lr=" + cells[1], "--set", "model.hidden_size=" + cells[2]});
  ASSERT_EQ(alone.exit_code, 0) << alone.output;
  const CommandResult compared = RunHoldfast({"compare", Path("alone"), Path("one/runs/" + cells[9])});
  EXPECT_EQ(compared.exit_code, 0) << compared.output;
}

TEST_F(Sweep, TrialsThatBeginWithOtherWeightsAreOthers) {
  ASSERT_EQ(Train("a").exit_code, 0);
  ASSERT_EQ(Train("b", {"--set", "optimizer.lr=0.1"}).exit_code, 0);
  WriteAll(Path("sweep.yaml"), "sweep: {config: " + Path("config.yaml") +
                                   ", strategy: grid, parallel: 1, metric: training_loss}\n"
                                   "space:\n  train.init_from: {choices: [" +
                                   Path("a/model") + ", " + Path("b/model") + "]}\n");
  const CommandResult result = RunSweep(Path("sweep.yaml"), "both");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const auto is_run = [](const std::filesystem::directory_entry& entry) { return entry.is_directory(); };
  EXPECT_EQ(std::count_if(std::filesystem::directory_iterator(Path("both/runs")), std::filesystem::directory_iterator(),
                          is_run),
            2)
      << Results("both");
}

TEST_F(Sweep, HasTheSameTableThroughKillsOfEverything) {
  const std::string file = WriteSweep();
  ASSERT_EQ(RunSweep(file, "calm").exit_code, 0);
  std::minstd_rand random(1);
  setenv("HOLDFAST_TEST_SLOWDOWN_MS", "30", 1);
  CommandResult result;
  int killed = 0;
  for (int life = 0; life < 5; ++life) {
    Command sweep({"sweep", file, "--sweep-dir", Path("hurt"), "--workers", "3"});
    for (int hit = 0; hit < 4; ++hit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 300));
      std::vector<int> pids = Processes("hurt");
      for (int i = 0; killed == 0 && pids.empty() && i < 30'000; ++i) {  // five minutes, for the first that is started
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        pids = Processes("hurt");
      }
      if (pids.empty()) continue;
      kill(pids[random() % pids.size()], SIGKILL);
      ++killed;
    }
    if (life < 4) sweep.Signal(SIGKILL);
    result = sweep.Wait();
    if (result.exit_code == 0) break;
  }
  unsetenv("HOLDFAST_TEST_SLOWDOWN_MS");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_GT(killed, 0);
  EXPECT_EQ(Results("hurt"), Results("calm"));
}

// As rm -r of the directory and another start leave it, or two machines of which one was cut off.
TEST_F(Sweep, WhoseDirectoryIsTakenByAnotherEnds) {
  setenv("HOLDFAST_TEST_SLOWDOWN_MS", "1000", 1);
  Command sweep({"sweep", WriteSweep(), "--sweep-dir", Path("taken")});
  unsetenv("HOLDFAST_TEST_SLOWDOWN_MS");
  EXPECT_TRUE(sweep.WaitForOutput("trial 0 {"));
  std::filesystem::remove(Path("taken/.lock"));
  const CommandResult ended = sweep.Wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("taken/.lock has been removed: another process may own the sweep"));
  EXPECT_EQ(ReadAll(Path("taken/results.jsonl")), "");
  EXPECT_TRUE(NobodyIsLeft("taken"));
}

TEST_F(Sweep, ThatIsStoppedGoesOn) {
  const std::string file = WriteSweep();
  setenv("HOLDFAST_TEST_SLOWDOWN_MS", "1000", 1);  // 12 steps a trial: far from its end when the signal comes
  Command sweep({"sweep", file, "--sweep-dir", Path("stopped")});
  unsetenv("HOLDFAST_TEST_SLOWDOWN_MS");
  EXPECT_TRUE(sweep.WaitForOutput("trial 1 {"));
  sweep.Signal(SIGTERM);
  const CommandResult stopped = sweep.Wait();
  EXPECT_EQ(stopped.exit_code, 143) << stopped.output;
  EXPECT_THAT(stopped.output, HasSubstr("the same command resumes the sweep"));
  EXPECT_TRUE(NobodyIsLeft("stopped"));
  const CommandResult watched = RunHoldfast({"sweep", file, "--sweep-dir", Path("stopped"), "--watch"});
  EXPECT_EQ(watched.exit_code, 0) << watched.output;
  EXPECT_THAT(watched.output, testing::ContainsRegex("[0-9] trials? done"));
  EXPECT_THAT(watched.output, AnyOf(HasSubstr("to go with"), HasSubstr(" 0 % of the budget")));
  EXPECT_THAT(watched.output,
              EndsWith("no process works at this sweep: the same command without --watch resumes it\n"));
  ASSERT_EQ(RunSweep(file, "stopped").exit_code, 0);
  ASSERT_EQ(RunSweep(file, "whole").exit_code, 0);
  EXPECT_EQ(Results("stopped"), Results("whole"));
}

/// Two hosts besides this machine: one that is reached as by ssh (what is started there gets no signals, and outlives
/// what started it), and one that is not reached at all, which is seen once both workers of the other have joined:
/// before, the first trial has them, and afterwards maybe none.
class SweepOnHosts : public Sweep {
 protected:
  void SetUp() override {
    Sweep::SetUp();
    WriteAll(directory_ / "far.sh", "#!/bin/bash\nsetsid -w \"$@\" <&0 &\nwait\n");
    WriteAll(directory_ / "gone.sh", "#!/bin/bash\nuntil grep -qs far-1 " + Path("hosts/runs") +
                                         "/*/events.jsonl; do sleep 0.1; done\nexit 1\n");
    for (const char* script : {"far.sh", "gone.sh"}) {
      std::filesystem::permissions(Path(script), std::filesystem::perms::owner_all);
    }
    file_ = WriteSweep("sweep.yaml", ", listen: 127.0.0.1",
                       "budget: {trials: 6}\n"
                       "hosts:\n"
                       "  near: {workers: 1}\n"
                       "  far: {workers: 2, command: " +
                           Path("far.sh") +
                           "}\n"
                           "  gone: {workers: 1, command: " +
                           Path("gone.sh") +
                           "}\n"
                           "space:\n"
                           "  optimizer.lr: {low: 1e-3, high: 1e-1, scale: log}\n"
                           "  model.hidden_size: {choices: [32, 64]}\n");
  }
  /// Of all runs.
  std::string Events(const std::string& sweep) const {
    std::string events;
    for (const auto& run : std::filesystem::directory_iterator(directory_ / sweep / "runs")) {
      if (run.is_directory()) events += ReadAll(run.path() / "events.jsonl");
    }
    return events;
  }

  std::string file_;
};

TEST_F(SweepOnHosts, HasTheTableOfOneMachine) {
  setenv("HOLDFAST_TEST_SLOWDOWN_MS", "300", 1);  // agents there are to come before all trials are done
  const CommandResult hosts = RunHoldfast({"sweep", file_, "--sweep-dir", Path("hosts")});
  unsetenv("HOLDFAST_TEST_SLOWDOWN_MS");
  ASSERT_EQ(hosts.exit_code, 0) << hosts.output;
  EXPECT_THAT(hosts.output, HasSubstr("host gone is left out for 10 s, as agents do not stay there"));
  EXPECT_TRUE(NobodyIsLeft("hosts"));
  EXPECT_THAT(Events("hosts"),
              AllOf(HasSubstr("near-0"), HasSubstr("far-0"), HasSubstr("far-1"), Not(HasSubstr("gone-0"))));
  ASSERT_EQ(RunSweep(WriteSweep(), "one", 1).exit_code, 0);
  EXPECT_EQ(Results("hosts"), Results("one"));
}

TEST_F(SweepOnHosts, LeavesNothingThereWhenItIsKilled) {
  setenv("HOLDFAST_TEST_SLOWDOWN_MS", "1000", 1);
  Command sweep({"sweep", file_, "--sweep-dir", Path("hosts")});
  unsetenv("HOLDFAST_TEST_SLOWDOWN_MS");
  EXPECT_TRUE(sweep.WaitForOutput("trial 1 {"));
  EXPECT_TRUE(WaitFor([&] { return Events("hosts").find("far-") != std::string::npos; }));
  EXPECT_FALSE(Processes("hosts").empty());
  sweep.Signal(SIGKILL);
  sweep.Wait();
  EXPECT_TRUE(NobodyIsLeft("hosts"));
}

TEST_F(SweepOnHosts, HostsAndWorkersContradictEachOther) {
  const CommandResult both = RunHoldfast({"sweep", file_, "--sweep-dir", Path("hosts"), "--workers", "2"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.output, HasSubstr("say how many workers they have"));
}

TEST_F(Sweep, TakesRunsOfOtherSweeps) {
  ASSERT_EQ(RunSweep(WriteSweep(", runs: " + Path("shared")), "first").exit_code, 0);
  const CommandResult again = RunSweep(WriteSweep(", runs: " + Path("shared")), "second");
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_THAT(again.output, AllOf(HasSubstr("from a run that was there"), Not(HasSubstr("steps 1 to"))));
  EXPECT_EQ(Results("first"), Results("second"));
}

TEST_F(Sweep, RungsTakeUpTheirRuns) {
  const std::string file = WriteSweep("asha.yaml", "", "");
  WriteAll(file, "sweep: {config: " + Path("config.yaml") +
                     ", strategy: asha, parallel: 2}\n"
                     "budget: {trials: 12}\nasha: {rungs: 2, reduction: 3}\n"
                     "space:\n  optimizer.lr: {low: 1e-3, high: 1e-1, scale: log}\n");
  const CommandResult result = RunSweep(file, "asha");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  // 12 steps in all; the first rung ends after a third of them, and the second goes on from there.
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("steps 1 to 4"), HasSubstr("steps 5 to 12"), Not(HasSubstr("steps 1 to 12"))));
}

TEST_F(Sweep, ALongerRunWithAConstantRateCostsItsOwnStepsOnly) {
  const std::string file = WriteSweep("grid.yaml", "", "");
  WriteAll(file, "sweep: {config: " + Path("config.yaml") +
                     ", strategy: grid, parallel: 1,\n"
                     "        set: [\"schedule.name=constant\"]}\n"
                     "space:\n  train.steps: {choices: [6, 12, 18]}\n");
  const CommandResult result = RunSweep(file, "grid");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("steps 1 to 6"), HasSubstr("steps 7 to 12"), HasSubstr("steps 13 to 18")));
}

// Of 562 sequences: 28.1, in steps of 4 or 8.
TEST_F(Sweep, TrialsOfEpochsHaveTheirOwnSteps) {
  const std::string file = WriteSweep("grid.yaml", "", "");
  WriteAll(file, "sweep: {config: " + Path("config.yaml") +
                     ", strategy: grid, parallel: 1,\n"
                     "        set: [\"train.steps=0\", \"train.epochs=0.05\"]}\n"
                     "space:\n  batch.microbatches: {choices: [2, 4]}\n");
  const CommandResult result = RunSweep(file, "grid");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("steps 1 to 8;"), HasSubstr("steps 1 to 4;")));
}

// A shorter one, whose loss the longer one has not said, is trained in a directory beside that; the lock of the first
// kept no other sweep from that one.
TEST_F(Sweep, EachDirectoryIsTrainedUnderALockOfItsOwn) {
  WriteAll(Path("grid.yaml"), "sweep: {config: " + Path("config.yaml") +
                                  ", strategy: grid, parallel: 1,\n"
                                  "        set: [\"schedule.name=constant\"]}\n"
                                  "space:\n  train.steps: {choices: [12, 6]}\n");
  const CommandResult result = RunSweep(Path("grid.yaml"), "grid");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("steps 1 to 12"), HasSubstr("steps 1 to 6")));
  for (const auto& run : std::filesystem::directory_iterator(Path("grid/runs"))) {
    EXPECT_TRUE(!run.is_directory() || std::filesystem::exists(run.path().string() + ".lock")) << run.path();
  }
}

TEST_F(Sweep, ALongerRunWithAFinalDecayCostsItsOwnStepsOnlyAndHasItsBits) {
  const std::string sweep = Path("grid.yaml");
  WriteAll(sweep, "sweep: {config: " + Path("config.yaml") +
                      ", strategy: grid, parallel: 2,\n"
                      "        set: [\"schedule.name=wsd\", \"schedule.decay_steps=4\", \"schedule.warmup_steps=2\"]}\n"
                      "space:\n  train.steps: {choices: [10, 16, 24]}\n");
  const CommandResult result = RunSweep(sweep, "grid", 3);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  for (const char* steps :
       {"steps 1 to 6;", "steps 7 to 10;", "steps 7 to 12;", "steps 13 to 16;", "steps 13 to 20;", "steps 21 to 24;"}) {
    EXPECT_THAT(result.output, HasSubstr(steps));
  }
  ASSERT_EQ(Train("alone", {"--set", "schedule.name=wsd", "--set", "schedule.decay_steps=4", "--set",
                            "schedule.warmup_steps=2", "--set", "train.steps=24"})
                .exit_code,
            0);
  bool found = false;
  for (const auto& run : std::filesystem::directory_iterator(Path("grid/runs"))) {
    const std::string metrics = ReadAll(run.path() / "metrics.jsonl");
    if (metrics.find("\"step\":24,") == std::string::npos) continue;
    found = true;
    const CommandResult compared = RunHoldfast({"compare", Path("alone"), run.path().string()});
    EXPECT_EQ(compared.exit_code, 0) << compared.output;
  }
  EXPECT_TRUE(found);
}

TEST_F(Sweep, ADivergedTrialIsAResult) {
  WriteAll(Path("sweep.yaml"), "sweep: {config: " + Path("config.yaml") +
                                   ", strategy: grid, set: [\"optimizer.name=lion\", \"optimizer.grad_clip_norm=0\"]}\n"
                                   "space:\n  optimizer.lr: {choices: [1e-3, 900, 1000]}\n");
  const CommandResult one = RunSweep(Path("sweep.yaml"), "one", 1), three = RunSweep(Path("sweep.yaml"), "three", 4);
  EXPECT_EQ(one.exit_code, 0) << one.output;
  EXPECT_EQ(three.exit_code, 0) << three.output;
  EXPECT_THAT(Results("one"), AllOf(HasSubstr(",measured\n"), HasSubstr("failed: step "), HasSubstr("diverged: ")));
  EXPECT_EQ(Results("one"), Results("three")) << "whoever said so";
}

TEST_F(Sweep, SaysWhatIsWrong) {
  const auto fails = [&](const std::string& sweep, const std::string& rest, int exit_code = 1) {
    const CommandResult result = RunSweep(WriteSweep("bad.yaml", sweep, rest), "bad");
    EXPECT_EQ(result.exit_code, exit_code) << result.output;
    EXPECT_FALSE(std::filesystem::exists(Path("bad/results.csv")));
    std::filesystem::remove_all(Path("bad"));
    return result.output;
  };
  const std::string rates = "space:\n  optimizer.lr: {low: 1e-3, high: 1e-1}\n";
  EXPECT_THAT(fails(", metric: valdation_loss", "budget: {trials: 3}\n" + rates, 2),
              AllOf(HasSubstr("no metric 'valdation_loss'"), HasSubstr("validation_loss")));
  EXPECT_THAT(fails("", "budget: {trials: 9}\nspace:\n  model.num_heads: {choices: [3, 5, 6, 7, 9, 10, 11]}\n"),
              AllOf(HasSubstr(" trials have failed"), HasSubstr("num_heads")));
  EXPECT_THAT(fails("", "budget: {trials: 2}\nspace:\n  model.num_heads: {choices: [3, 5]}\n"),
              AllOf(HasSubstr("all 2 trials have failed; trial 0 {"), HasSubstr("is not a multiple of num_heads")));
  EXPECT_THAT(fails("", "budget: {trials: 1}\nspace:\n  model.num_heads: {choices: [3]}\n"),
              HasSubstr("the only trial has failed; trial 0 {"));
  EXPECT_THAT(
      fails(", set: [\"data.validation=[]\", train.validate_every_steps=0]", "budget: {trials: 3}\n" + rates, 2),
      AllOf(HasSubstr("bad.yaml: no trial can be trained ("),
            HasSubstr("and data.validation is empty; name token files"), Not(HasSubstr("steps 1 to"))));
  EXPECT_THAT(fails("", "budget: {flops: 10}\n" + rates), HasSubstr("does not fit into budget.flops"));
  EXPECT_THAT(fails("", rates, 2), HasSubstr("nothing limits the search"));
  const std::string patience =
      ", set: [train.early_stop_patience=1, train.validate_every_steps=1, checkpoint.keep_best=1]";
  EXPECT_THAT(fails(patience, "budget: {trials: 2}\n" + rates, 2),
              AllOf(HasSubstr("train.early_stop_patience is not for sweeps"), Not(HasSubstr("is tried again"))));
}

// A dry run ended with 0, and the sweep with all of its trials failed.
TEST_F(Sweep, ABaseConfigThatNoTrialCanHaveIsRefusedBeforeAnythingStarts) {
  const std::string rates = "budget: {trials: 2}\nspace:\n  optimizer.lr: {low: 1e-3, high: 1e-1}\n";
  const std::string file = WriteSweep("bad.yaml", ", set: [\"nope=3\"]", rates);
  for (const bool dry : {true, false}) {
    std::vector<std::string> arguments{"sweep", file, "--sweep-dir", Path("bad")};
    if (dry) arguments.emplace_back("--dry-run");
    const CommandResult result = RunHoldfast(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("bad.yaml: no trial can be trained ("),
                      HasSubstr("\n--set nope=3: expected section.key=value"), Not(HasSubstr("trial 0"))));
    EXPECT_FALSE(std::filesystem::exists(Path("bad")));
  }
  // Wrong by itself, and right with a point.
  const CommandResult completed =
      RunHoldfast({"sweep",
                   WriteSweep("good.yaml", ", set: [\"model.num_heads=3\"]",
                              "budget: {trials: 2}\nspace:\n  model.num_heads: {choices: [2, 4]}\n"),
                   "--sweep-dir", Path("good"), "--dry-run"});
  EXPECT_EQ(completed.exit_code, 0) << completed.output;
}

// It said that they were done.
TEST_F(Sweep, ADryRunSaysWhichTrialsAreRefused) {
  const std::string file =
      WriteSweep("some.yaml", "", "budget: {trials: 2}\nspace:\n  model.num_heads: {choices: [3, 4]}\n");
  const CommandResult dry = RunHoldfast({"sweep", file, "--sweep-dir", Path("some"), "--dry-run"});
  EXPECT_EQ(dry.exit_code, 0) << dry.output;
  EXPECT_THAT(dry.output, AllOf(HasSubstr("}: failed: --set model.num_heads=3"), HasSubstr("}: step 0 of ")));
}

TEST_F(Sweep, TrialsThatAreRefusedLeaveTheBudgetToOthers) {
  const std::string file =
      WriteSweep("some.yaml", "", "budget: {trials: 1}\nspace:\n  model.num_heads: {choices: [3, 5, 6, 7, 4]}\n");
  const CommandResult result = RunSweep(file, "some");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(Results("some"), HasSubstr(",measured\n"));
}

// Promotions count as trials: with 9 at rung 0 and 3 at rung 1 the thirteenth is the first one that has all steps.
TEST_F(Sweep, ABudgetThatTheLastRungIsBeyondIsWarnedOf) {
  for (const int trials : {12, 13}) {
    WriteAll(Path("asha.yaml"), "sweep: {config: " + Path("config.yaml") +
                                    ", strategy: asha}\nbudget: {trials: " + std::to_string(trials) +
                                    "}\nspace:\n  optimizer.lr: {low: 1e-3, high: 1e-1, scale: log}\n");
    const CommandResult dry = RunHoldfast({"sweep", Path("asha.yaml"), "--sweep-dir", Path("asha"), "--dry-run"});
    EXPECT_EQ(dry.exit_code, 0) << dry.output;
    const bool warned =
        dry.output.find(
            "warning: budget.trials, 12, ends the search before any trial is trained in "
            "full: promotions count, and the last of 3 rungs takes 13 trials at least") != std::string::npos;
    EXPECT_EQ(warned, trials == 12) << dry.output;
  }
}

TEST_F(Sweep, AnotherSweepInItsDirectoryIsRefused) {
  ASSERT_EQ(RunSweep(WriteSweep(), "place").exit_code, 0);
  const CommandResult other = RunSweep(WriteSweep(", seed: 2"), "place");
  EXPECT_EQ(other.exit_code, 2) << other.output;
  EXPECT_THAT(other.output, AllOf(HasSubstr("holds another sweep"), HasSubstr("seed")));
}

TEST_F(Sweep, DataThatAreNotThereAreAMistakeBeforeAnythingBegins) {
  const std::string rates = "budget: {trials: 2}\nspace:\n  optimizer.lr: {low: 1e-3, high: 1e-1}\n";
  const std::string file = WriteSweep("bad.yaml", ", set: [\"data.train=" + Path("none.bin") + "\"]", rates);
  for (const char* option : {"--workers=1", "--dry-run"}) {
    const CommandResult result = RunHoldfast({"sweep", file, "--sweep-dir", Path("bad"), option});
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr("error: trial 0 {"), HasSubstr("none.bin: No such file")));
  }
  WriteAll(Path("file"), "in the way");
  const CommandResult result = RunHoldfast({"sweep", WriteSweep(), "--sweep-dir", Path("file")});
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("cannot create the sweep directory: "));
}

TEST_F(Sweep, APlaceWithoutASweepIsCalledThat) {
  const CommandResult none = RunHoldfast({"sweep", WriteSweep(), "--sweep-dir", Path("none"), "--watch"});
  EXPECT_EQ(none.exit_code, 2) << none.output;
  EXPECT_THAT(none.output, HasSubstr("there is no sweep in "));
  const CommandResult would = RunHoldfast({"sweep", WriteSweep(), "--sweep-dir", Path("none"), "--dry-run"});
  EXPECT_EQ(would.exit_code, 0) << would.output;
  EXPECT_THAT(would.output, AllOf(HasSubstr("not begun; the first trials will take "), Not(HasSubstr("spent "))));
  EXPECT_FALSE(std::filesystem::exists(Path("none")));
  std::filesystem::create_directory(Path("run"));
  std::ofstream(Path("run/coordinator.json")) << "{}";
  const CommandResult run = RunSweep(WriteSweep(), "run");
  EXPECT_EQ(run.exit_code, 2) << run.output;
  EXPECT_THAT(run.output, HasSubstr("holds a run, not a sweep"));
}

}  // namespace
}  // namespace holdfast::integration
