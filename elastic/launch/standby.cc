#include "elastic/launch/standby.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "elastic/lease/port_probe.h"
#include "framework/base/file_descriptor.h"
#include "framework/base/files.h"
#include "framework/base/host.h"
#include "framework/base/join_first.h"
#include "framework/base/log.h"
#include "framework/base/rare_log.h"
#include "framework/base/status.h"
#include "framework/net/socket_address.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kBeatsPerLease = 5;
constexpr milliseconds kLook{200};  // at the lock, by those that wait
constexpr std::chrono::seconds kLogInterval{30};
constexpr milliseconds kLongest{1000};  // until one of those that wait has said that it is there

void Sleep(const std::stop_token& stop, milliseconds time) {
  std::mutex mutex;
  std::condition_variable_any woken;
  std::unique_lock lock(mutex);
  woken.wait_for(lock, stop, time, [] { return false; });
}

/// By one that was killed: those that live say something five times a second.
bool IsLeftOver(const std::filesystem::path& notice) {
  constexpr std::chrono::hours kLeftOver{24};  // clocks may differ
  std::error_code unknown;
  const auto said = std::filesystem::last_write_time(notice, unknown);
  return !unknown && std::filesystem::file_time_type::clock::now() - said > kLeftOver;
}

void RemoveLeftOver(const std::string& notices) {
  std::error_code error;
  std::filesystem::directory_iterator files(notices, error);
  for (; !error && files != std::filesystem::directory_iterator(); files.increment(error)) {
    std::error_code not_removed;
    if (IsLeftOver(files->path())) std::filesystem::remove(files->path(), not_removed);
  }
}

/// The file of one that waits. That it cannot be written is no reason not to wait.
class Notice {
 public:
  /// The run directory is not made: one that is missing comes back, and could not where another is.
  explicit Notice(const RunDirectory& directory)
      : directory_(directory),
        path_(absl::StrCat(directory.standbys(), "/", HostName(), ".", absl::Hex(std::random_device()()))) {
    Open();
  }
  ~Notice() { unlink(path_.c_str()); }
  Notice(const Notice&) = delete;
  Notice& operator=(const Notice&) = delete;

  void Say() {
    struct stat info;
    const bool is_removed = file_.ok() && fstat(file_.get(), &info) == 0 && info.st_nlink == 0;
    if (!file_.ok() || is_removed) Open();
    if (file_.ok()) WriteAllAt(file_.get(), 0, absl::StrFormat("%012d\n", ++count_), path_).IgnoreError();
  }

 private:
  void Open() {
    std::error_code error;
    std::filesystem::create_directory(directory_.standbys(), error);
    RemoveLeftOver(directory_.standbys());
    file_ = OpenFile(path_, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0644);
  }

  const RunDirectory directory_;
  const std::string path_;
  FileDescriptor file_;
  int64_t count_ = 0;
};

Notices ReadNotices(const RunDirectory& directory) {
  constexpr size_t kMaxBytes = 100, kMaxNotices = 100;
  Notices notices;
  std::error_code error;
  std::filesystem::directory_iterator files(directory.standbys(), error);
  for (; !error && files != std::filesystem::directory_iterator() && notices.size() < kMaxNotices;
       files.increment(error)) {
    if (IsLeftOver(files->path())) continue;
    const absl::StatusOr<std::string> text = ReadFile(files->path(), kMaxBytes);
    if (text.ok()) notices[files->path().filename()] = *text;
  }
  return notices;
}

}  // namespace

Lead::Lead(std::unique_ptr<Lease> lease, milliseconds duration)
    : lease_(std::move(lease)), interval_(duration / kBeatsPerLease) {
  if (duration.count() > 0) beats_ = std::jthread([this](const std::stop_token& stop) { Beat(stop); });
}

// Not later than an interval after the one before, also if a store takes long to answer.
void Lead::Beat(const std::stop_token& stop) {
  RareLog failures(kLogInterval);
  for (uint64_t beat = 1; !stop.stop_requested(); ++beat) {
    const Clock::time_point begin = Clock::now();
    const absl::Status said = lease_->Say({.beat = beat});
    const auto line = said.ok() ? std::nullopt : failures.Line(Clock::now().time_since_epoch(), said.message());
    if (line.has_value()) LogWarning("cannot say that this coordinator leads: ", *line);
    if (said.ok()) failures.Reset();
    const Clock::time_point next = std::max(begin + interval_, Clock::now() + interval_ / 10);
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, stop, next, [this] { return has_news_; });
    has_news_ = false;
  }
}

void Lead::ListensAt(const std::string& address) {
  lease_->ListensAt(address);
  const std::lock_guard lock(mutex_);
  has_news_ = true;
  changed_.notify_all();
}

void Lead::EndsWith(int exit_code, const std::string& reason) {
  beats_.request_stop();
  if (beats_.joinable()) beats_.join();
  const LeaderWords end{.exit_code = exit_code, .reason = reason};
  // Those that stand by would take the run over, and wait for workers that have heard of its end.
  const Clock::time_point deadline = Clock::now() + 2 * kBeatsPerLease * interval_;
  absl::Status said = lease_->Say(end);
  // Aborted: what was said before has come late, and another version of it is there than we know.
  while ((absl::IsUnavailable(said) || absl::IsAborted(said)) && Clock::now() < deadline) {
    std::this_thread::sleep_for(interval_ / 4);
    said = lease_->Say(end);
  }
  if (!said.ok()) LogWarning("cannot say that the run has ended: ", said.message());
}

namespace {

/// One that waits. Thread-safety: none.
class StandingBy {
 public:
  StandingBy(std::unique_ptr<Lease> lease, const TurnOptions& options,
             const std::function<void(const std::string&)>& report)
      : lease_(std::move(lease)),
        options_(options),
        report_(report),
        notice_(options.directory),
        watch_(options.lease, lease_->owner(), options.has_led) {}

  /// Nothing: not yet.
  absl::StatusOr<std::optional<Turn>> Look() {
    notice_.Say();
    const absl::StatusOr<LeaseSight> sight = lease_->Look();
    if (!sight.ok()) return CouldNot(sight.status());
    const Instant now = Clock::now().time_since_epoch();
    LeaseDecision decision = watch_.Decide(now, *sight);
    if (decision.step == LeaseDecision::Step::kAsk) decision = Ask(now, *sight);
    is_first_ = false;
    if (decision.step == LeaseDecision::Step::kEnd) {
      return Turn{.exit_code = decision.end.exit_code, .reason = decision.end.reason};
    }
    if (decision.step == LeaseDecision::Step::kTake) return Take(*sight, decision.from);
    if (sight->text.owner != std::exchange(leader_, sight->text.owner) && !sight->text.owner.empty()) {
      const absl::Status may_lead = MayLead();
      report_(absl::StrCat("standing by: ", sight->text.Name(), " leads the run",
                           may_lead.ok() ? "" : "; this one could not lead it now: ", may_lead.message()));
    }
    return std::nullopt;
  }

 private:
  using Instant = LeaseWatch::Instant;

  LeaseDecision Ask(Instant now, LeaseSight sight) {
    if (HasEnded(sight)) {
      sight.owner = LeaseSight::Owner::kGone;
      return watch_.Decide(now, sight);
    }
    watch_.MayLive();
    return {};
  }

  absl::Status MayLead() const { return options_.may_lead == nullptr ? absl::OkStatus() : options_.may_lead(); }

  // Who has led until now may only be frozen: it would end for one that ends as well.
  absl::StatusOr<std::optional<Turn>> Take(const LeaseSight& sight, const std::string& from) {
    if (const absl::Status may_lead = MayLead(); !may_lead.ok()) {
      if (from.empty()) return may_lead;
      return WarnRarely("cannot lead the run on: ", may_lead);
    }
    const absl::Status taken = lease_->Take(sight, /*begins=*/from.empty());
    if (taken.ok()) return Turn{.lead = std::make_shared<Lead>(std::move(lease_), options_.lease), .from = from};
    if (!absl::IsAborted(taken)) return CouldNot(taken);
    if (taken.message() != std::exchange(refusal_, std::string(taken.message()))) {
      report_(absl::StrCat("standing by: ", taken.message()));
    }
    return std::nullopt;
  }

  absl::StatusOr<std::optional<Turn>> CouldNot(const absl::Status& status) {
    watch_.CouldNotLook();
    const bool is_final = absl::IsFailedPrecondition(status) || (is_first_ && !options_.has_led);
    if (is_final) return status;
    return WarnRarely("cannot look who leads the run: ", status);
  }

  std::optional<Turn> WarnRarely(const char* what, const absl::Status& why) {
    const auto line = failures_.Line(Clock::now().time_since_epoch(), why.message());
    if (line.has_value()) LogWarning(what, *line);
    return std::nullopt;
  }

  // An address of loopback is one of the machine that says it.
  static bool HasEnded(const LeaseSight& sight) {
    const auto parts = SplitHostAndPort(sight.address);
    return parts.ok() && (sight.text.IsHere() || !IsLoopbackHost(parts->first)) && IsRefused(sight.address, kLook);
  }

  std::unique_ptr<Lease> lease_;
  const TurnOptions& options_;
  const std::function<void(const std::string&)>& report_;
  Notice notice_;
  LeaseWatch watch_;
  RareLog failures_{kLogInterval};
  std::string leader_, refusal_;
  bool is_first_ = true;
};

}  // namespace

absl::StatusOr<Turn> WaitForTurn(std::unique_ptr<Lease> lease, const TurnOptions& options, const std::stop_token& stop,
                                 const std::function<void(const std::string&)>& report) {
  StandingBy standing_by(std::move(lease), options, report);
  for (; !stop.stop_requested(); Sleep(stop, std::min(kLook, options.lease / kBeatsPerLease))) {
    ASSIGN_OR_RETURN(std::optional<Turn> turn, standing_by.Look());
    if (turn.has_value()) return *std::move(turn);
  }
  return Turn{};
}

bool SomebodyStandsBy(const RunDirectory& directory) {
  constexpr milliseconds kAtOnce{500};  // in which whoever is told to end with this one may still say that it is there
  Notices then = ReadNotices(directory);
  if (!then.empty()) std::this_thread::sleep_for(kAtOnce);
  then = ReadNotices(directory);
  for (const auto end = Clock::now() + kLongest; !then.empty() && Clock::now() < end;) {
    std::this_thread::sleep_for(kLook / 4);
    if (SaysSomethingNew(then, ReadNotices(directory))) return true;
  }
  if (!then.empty()) {
    LogWarning("nobody is left to lead the run: none of those that stood by has answered for a second (",
               JoinFirst(then, 4, [](std::string* out, const auto& notice) { out->append(notice.first); }),
               "), so they were killed, or are frozen");
  }
  return false;
}

void LeaveNothing(const RunDirectory& directory, Lead* lead) {
  if (directory.HoldsRun()) return;
  const bool nobody_waits = rmdir(directory.standbys().c_str()) == 0 || errno == ENOENT;  // else its file is there
  if (lead != nullptr && nobody_waits) lead->UndoTake();
}

}  // namespace holdfast
