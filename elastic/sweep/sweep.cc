#include "elastic/sweep/sweep.h"

#include <sys/file.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "elastic/sweep/fork_run.h"
#include "elastic/sweep/host_health.h"
#include "elastic/sweep/sweep_record.h"
#include "elastic/sweep/trial_reading.h"
#include "elastic/sweep/trial_run.h"
#include "elastic/sweep/worker_share.h"
#include "framework/base/counted.h"
#include "framework/base/file_descriptor.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTick{20};
constexpr milliseconds kStatusInterval{1'000};
constexpr int kRetryExit = 75;  // EX_TEMPFAIL: the same command may succeed later
constexpr milliseconds kFirstBackoff{1'000}, kMaxBackoff{60'000};
constexpr std::chrono::seconds kWorthJoining{5};  // what is left of a run that takes one more worker
constexpr milliseconds kLockInterval{1'000};      // between looks whether another sweep has left a run

/// A curve that some trial needs more of.
struct Job {
  const PlannedTrial* trial = nullptr;  // the one that needs the fewest steps of the curve
  const TrialSetup* setup = nullptr;    // the trial's, or that of the curve that it leaves
  std::string directory;                // of its run
  FileDescriptor lock;                  // of `directory`; held: no other sweep trains it
  std::unique_ptr<TrialRun> run;        // null: does not run
  Clock::time_point began{};            // of `run`
  int64_t first_step = 0, step = 0;     // where it began, and where it was when somebody last looked
  int64_t failures = 0, retries = 0;    // what may pass is tried again, and is no failure
  Clock::time_point not_before{};
};

/// A run that will have ended before one more worker were of use.
bool IsNearlyDone(const Job& job) {
  const double done = static_cast<double>(job.step - job.first_step);
  if (job.run == nullptr || done <= 0) return false;
  const std::chrono::duration<double> taken = Clock::now() - job.began;
  return taken / done * static_cast<double>(job.setup->steps() - job.step) < kWorthJoining;
}

int64_t SumOf(const WorkersByHost& workers) { return std::accumulate(workers.begin(), workers.end(), int64_t{0}); }

std::vector<int64_t> WorkersOf(const std::vector<SweepHost>& hosts) {
  std::vector<int64_t> workers;
  for (const SweepHost& host : hosts) workers.push_back(host.workers);
  return workers;
}

class Runner {
 public:
  Runner(const SweepConfig& config, const SweepPlace& place, SweepPlan& plan, SweepObserver& observer,
         const std::function<absl::Status()>& is_ours, JsonLinesWriter results)
      : config_(config),
        place_(place),
        plan_(plan),
        observer_(observer),
        is_ours_(is_ours),
        results_(std::move(results)),
        health_(config.hosts.size()),
        slots_(WorkersOf(config.hosts)) {}

  absl::StatusOr<int> Run(const std::function<int()>& stopped) {
    while (!plan_.done() || !gone_.empty()) {
      if (const int code = stopped(); code != 0) {
        StopAll();
        return code;
      }
      const absl::Status status = Step();
      if (!status.ok()) {
        StopAll();
        return status;
      }
      std::this_thread::sleep_for(kTick);
    }
    if (plan_.trials().empty()) {
      return absl::FailedPreconditionError(absl::StrCat("there is no trial to begin with: ", plan_.end()));
    }
    return plan_.best() == nullptr ? absl::StatusOr<int>(NothingMeasured()) : 0;
  }

 private:
  absl::Status Step() {
    if (Clock::now() - last_check_ >= kStatusInterval) {
      last_check_ = Clock::now();
      RETURN_IF_ERROR(StillOurs());
    }
    RETURN_IF_ERROR(TakeResults());
    RETURN_IF_ERROR(FindJobs());
    if (!plan_.done()) RETURN_IF_ERROR(ShareOut());
    TickGone();
    if (Clock::now() - last_status_ >= kStatusInterval) {
      last_status_ = Clock::now();
      ReportStatus();
    }
    return absl::OkStatus();
  }

  // While the directory is not there it cannot be told: it may be put back.
  absl::Status StillOurs() const {
    const absl::Status ours = is_ours_();
    return absl::IsFailedPrecondition(ours) ? absl::AbortedError(ours.message()) : absl::OkStatus();
  }

  absl::Status NothingMeasured() const {
    const size_t trials = plan_.trials().size();
    const std::string end = plan_.hopeless() ? plan_.end()
                            : trials == 1    ? "the only trial has failed"
                                             : absl::StrCat("all ", trials, " trials have failed");
    const auto began = [](const PlannedTrial& trial) { return trial.result.has_value() && trial.setup.has_value(); };
    auto first = std::find_if(plan_.trials().begin(), plan_.trials().end(), began);
    if (first == plan_.trials().end()) first = plan_.trials().begin();  // all refused
    return absl::FailedPreconditionError(absl::StrCat(end, "; trial ", first->number, " {",
                                                      search::PointText(first->suggestion.point),
                                                      "}: ", first->result->reason));
  }

  absl::Status Finish(const PlannedTrial& trial, const TrialResult& result, bool reused) {
    RETURN_IF_ERROR(StillOurs());
    RETURN_IF_ERROR(results_.KeepInPlace());  // else the next start would not know of what was done
    RETURN_IF_ERROR(results_.WriteDurably(RecordLine(RecordOf(trial, result, reused))));
    plan_.Tell(trial.number, result);
    observer_.OnTrialEnds(plan_, trial, reused);
    return absl::OkStatus();
  }

  /// Of runs that have ended.
  absl::Status TakeResults() {
    for (auto& [digest, job] : jobs_) {
      if (job.run == nullptr) continue;
      job.run->Tick();
      if (!job.run->end().has_value()) continue;
      const TrialRun::End end = *job.run->end();
      gone_.push_back(std::move(job.run));
      ASSIGN_OR_RETURN(const RunReading reading, Read(job, job.directory));
      if (reading.result.has_value()) {
        RETURN_IF_ERROR(TakeResult(job, *reading.result, /*reused=*/false));
      } else if (end.exit_code <= 128 && end.exit_code != kRetryExit &&
                 (++job.failures >= config_.attempts || end.exit_code == 2)) {
        const TrialResult failed{.steps = reading.steps, .seconds = reading.seconds, .reason = end.cause};
        RETURN_IF_ERROR(Finish(*job.trial, failed, /*reused=*/false));
      } else if (end.exit_code <= 128) {
        LogWarning("trial ", job.trial->number, " is tried again: ", end.cause);
        job.not_before =
            Clock::now() + std::min(kMaxBackoff, kFirstBackoff * (1 << std::min<int64_t>(++job.retries, 6)));
      }
    }
    return absl::OkStatus();
  }

  /// Of the trial, or of the curve that it leaves, which makes it ready for a run of its own.
  absl::Status TakeResult(Job& job, const TrialResult& result, bool reused) {
    if (job.setup == &*job.trial->setup || !result.measured) return Finish(*job.trial, result, reused);
    ASSIGN_OR_RETURN(const bool locked, TakeLock(job));
    if (!locked) return absl::OkStatus();  // this comes again
    // One that has gone on holds steps of its own, and is left alone.
    const bool is_forked = RunDirectory(DirectoryOf(*job.trial->setup)).HoldsRun();  // by another sweep
    if (!is_forked && LastStep(RunDirectory(job.directory)) == job.setup->steps()) {
      RETURN_IF_ERROR(ForkRun(job.directory, DirectoryOf(*job.trial->setup)));
    }
    job.trial = nullptr;
    known_results_ = -1;  // looks for jobs again
    return absl::OkStatus();
  }

  absl::StatusOr<RunReading> Read(const Job& job, const std::string& directory) const {
    return ReadTrial(RunDirectory(directory), *job.setup, job.trial->first_step, config_.metric);
  }

  std::string DirectoryOf(const TrialSetup& setup) const { return place_.run(config_, setup); }

  /// A job for each curve that some trial waits for.
  absl::Status FindJobs() {
    while (plan_.results() != known_results_) {
      RETURN_IF_ERROR(plan_.status());
      known_results_ = plan_.results();
      SayRefused();
      std::map<uint64_t, std::pair<const PlannedTrial*, const TrialSetup*>> wanted;
      for (const PlannedTrial& trial : plan_.trials()) {
        if (trial.result.has_value()) continue;
        const TrialSetup* const next = &NextOf(config_, place_, *trial.setup);
        auto& [first, setup] = wanted[next->digest];
        if (first != nullptr && setup->steps() <= next->steps()) continue;
        first = &trial;
        setup = next;
      }
      std::erase_if(jobs_, [&](const auto& job) { return job.second.run == nullptr && !wanted.contains(job.first); });
      for (const auto& [digest, next] : wanted) {
        Job& job = jobs_[digest];
        if (job.run != nullptr || job.trial == next.first) continue;
        job.trial = next.first;
        job.setup = next.second;
        job.failures = 0;
        RETURN_IF_ERROR(TakeResultThatIsThere(job));  // which brings new trials, for the next time round
      }
    }
    return absl::OkStatus();
  }

  void SayRefused() {
    for (; said_ < plan_.trials().size(); ++said_) {
      const PlannedTrial& trial = plan_.trials()[said_];
      if (!trial.setup.has_value()) observer_.OnTrialEnds(plan_, trial, /*reused=*/false);
    }
  }

  /// The run of a curve lies under its digest. One that has gone on beyond what is asked for, and has not said the
  /// metric there, leaves the trial a directory of its own.
  absl::Status TakeResultThatIsThere(Job& job) {
    const std::string of_curve = DirectoryOf(*job.setup);
    for (const std::string& place : {of_curve, absl::StrCat(of_curve, "-", job.setup->steps())}) {
      if (job.directory != place) job.lock = FileDescriptor();
      job.directory = place;
      ASSIGN_OR_RETURN(const RunReading reading, Read(job, place));
      if (reading.result.has_value()) return TakeResult(job, *reading.result, /*reused=*/true);
      if (reading.steps < job.setup->steps()) break;
    }
    return absl::OkStatus();
  }

  /// Workers for those whose results are needed first.
  absl::Status ShareOut() {
    std::vector<Job*> ready;
    for (auto& [digest, job] : jobs_) {
      if (job.trial == nullptr || job.trial->result.has_value()) continue;
      if (job.run == nullptr) {
        if (Clock::now() < job.not_before) continue;
        ASSIGN_OR_RETURN(const bool locked, TakeLock(job));
        if (!locked) continue;
      }
      ready.push_back(&job);
    }
    std::sort(ready.begin(), ready.end(), [](const Job* a, const Job* b) {
      return std::pair(a->trial->ends, a->trial->number) < std::pair(b->trial->ends, b->trial->number);
    });
    const WorkersByHost nobody(config_.hosts.size(), 0);
    WorkersByHost room;
    for (size_t host = 0; host < config_.hosts.size(); ++host) {
      room.push_back(health_.IsUsable(host, Clock::now()) ? config_.hosts[host].workers : 0);
    }
    std::vector<int64_t> most;
    std::vector<WorkersByHost> now;
    for (const Job* job : ready) {
      now.push_back(job->run == nullptr ? nobody : job->run->workers());
      most.push_back(IsNearlyDone(*job) ? SumOf(now.back()) : job->setup->most_workers());
    }
    const std::vector<int64_t> share = ShareWorkers(most, SumOf(room));
    const std::vector<WorkersByHost> placed = PlaceWorkers(share, now, room);
    for (size_t i = 0; i < ready.size(); ++i) RETURN_IF_ERROR(Give(*ready[i], placed[i]));
    return absl::OkStatus();
  }

  absl::Status Give(Job& job, const WorkersByHost& workers) {
    const bool nobody = std::all_of(workers.begin(), workers.end(), [](int64_t count) { return count == 0; });
    if (job.run != nullptr) {
      if (nobody) job.run->Stop();
      if (!nobody) job.run->SetWorkers(workers);
      return absl::OkStatus();
    }
    if (nobody) return absl::OkStatus();
    ASSIGN_OR_RETURN(const RunReading reading, Read(job, job.directory));
    if (reading.result.has_value()) return TakeResult(job, *reading.result, /*reused=*/true);  // of another sweep
    job.run = std::make_unique<TrialRun>(job.setup->config, RunDirectory(job.directory),
                                         TrialRun::Options{.binary = place_.binary,
                                                           .listen = config_.listen,
                                                           .hosts = config_.hosts,
                                                           .health = &health_,
                                                           .slots = &slots_});
    job.began = Clock::now();
    job.first_step = job.step = reading.steps;
    observer_.OnTrialBegins(*job.trial, reading.steps, job.setup->steps());
    return job.run->Start(workers);
  }

  /// False: another sweep is at it.
  static absl::StatusOr<bool> TakeLock(Job& job) {
    if (job.lock.ok()) return true;
    const std::string path = job.directory + ".lock";
    FileDescriptor lock = OpenFile(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (!lock.ok()) return ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
    if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) {
      job.lock = std::move(lock);
      return true;
    }
    if (errno != EWOULDBLOCK) return ErrnoToStatus(errno, absl::StrCat("cannot lock ", path));
    job.not_before = Clock::now() + kLockInterval;
    return false;
  }

  void ReportStatus() {
    std::vector<SweepObserver::Running> running;
    for (auto& [digest, job] : jobs_) {
      if (job.run == nullptr) continue;
      job.step = LastStep(job.run->directory());
      running.push_back({job.trial, SumOf(job.run->workers()), job.step});
    }
    observer_.OnStatus(plan_, running);
  }

  void TickGone() {
    std::erase_if(gone_, [](const std::unique_ptr<TrialRun>& run) {
      run->Tick();
      return run->gone();
    });
  }

  /// Each saves what it has.
  void StopAll() {
    for (auto& [digest, job] : jobs_) {
      if (job.run == nullptr) continue;
      job.run->Stop();
      gone_.push_back(std::move(job.run));
    }
    while (!gone_.empty()) {
      TickGone();
      std::this_thread::sleep_for(kTick);
    }
  }

  const SweepConfig& config_;
  const SweepPlace& place_;
  SweepPlan& plan_;
  SweepObserver& observer_;
  const std::function<absl::Status()>& is_ours_;
  JsonLinesWriter results_;
  HostHealth health_;
  HostSlots slots_;
  std::map<uint64_t, Job> jobs_;                 // by digest
  std::vector<std::unique_ptr<TrialRun>> gone_;  // that have ended; some of their processes may be left
  int64_t known_results_ = -1;                   // of the plan, when jobs were looked for
  size_t said_ = 0;                              // trials of which it has been looked whether their config was refused
  Clock::time_point last_status_{}, last_check_{};
};

}  // namespace

std::string StatusText(const SweepPlan& plan, const std::vector<SweepObserver::Running>& running) {
  std::string text = absl::StrCat(Counted(plan.results(), "trial"), " done");
  for (size_t i = 0; i < running.size(); ++i) {
    const SweepObserver::Running& run = running[i];
    absl::StrAppend(&text, i == 0 ? ", trial " : ", ", run.trial->number, ": ", run.step, "/",
                    run.trial->setup->steps(), " on ", run.workers);
  }
  return text;
}

std::string SweepPlace::run(const SweepConfig& config, const TrialSetup& setup) const {
  return absl::StrCat(runs(config), "/", absl::StrFormat("%016x", setup.digest));
}

const TrialSetup& NextOf(const SweepConfig& config, const SweepPlace& place, const TrialSetup& trial) {
  const TrialSetup* const trunk = trial.trunk.get();
  if (trunk == nullptr || RunDirectory(place.run(config, trial)).HoldsRun()) return trial;
  return LastStep(RunDirectory(place.run(config, *trunk))) <= trunk->steps() ? *trunk : trial;
}

bool HoldsSweep(const SweepPlace& place) {
  std::error_code error;
  return fs::exists(place.config(), error) && fs::exists(place.results(), error);
}

absl::StatusOr<std::unique_ptr<SweepPlan>> TakeUpPlan(const SweepConfig& config, const search::SearchStrategy& strategy,
                                                      const SweepPlace& place, SweepPlan::SetUpFn set_up) {
  auto plan = std::make_unique<SweepPlan>(config, strategy, std::move(set_up));
  RETURN_IF_ERROR(TellRecorded(place, *plan));
  return plan;
}

absl::Status TellRecorded(const SweepPlace& place, SweepPlan& plan) {
  ASSIGN_OR_RETURN(const auto recorded, ReadRecord(place.results()));
  for (const PlannedTrial& trial : plan.trials()) {
    if (!trial.result.has_value() || !trial.setup.has_value() || recorded.contains(trial.number)) continue;
    return absl::FailedPreconditionError(absl::StrCat(place.results(), " has no line of trial ", trial.number,
                                                      " any more: the sweep has been begun anew"));
  }
  for (bool told = true; told;) {
    told = false;
    for (size_t i = 0; i < plan.trials().size(); ++i) {
      const PlannedTrial& trial = plan.trials()[i];
      const auto found = recorded.find(trial.number);
      if (found == recorded.end() || (trial.result.has_value() && trial.setup.has_value())) continue;
      RETURN_IF_ERROR(CheckRecorded(found->second, trial));
      if (trial.result.has_value()) continue;
      plan.Tell(trial.number, found->second.result);
      told = true;
    }
  }
  return plan.status();
}

absl::StatusOr<int> RunSweep(const SweepConfig& config, const SweepPlace& place, SweepPlan& plan,
                             SweepObserver& observer, const std::function<int()>& stopped,
                             const std::function<absl::Status()>& is_ours) {
  RETURN_IF_ERROR(Annotate(MakeDirectories(place.runs(config)), "cannot make the directory of the runs"));
  ASSIGN_OR_RETURN(JsonLinesWriter results, JsonLinesWriter::Open(place.results()));
  RETURN_IF_ERROR(SyncDirectory(place.directory));
  return Runner(config, place, plan, observer, is_ours, std::move(results)).Run(stopped);
}

}  // namespace holdfast
