#include "elastic/launch/standby.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/file_descriptor.h"
#include "framework/base/files.h"
#include "framework/base/host.h"
#include "framework/base/log.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kBeatsPerLease = 5;
constexpr milliseconds kLook{200};      // at the lock, by those that wait
constexpr milliseconds kLongest{1000};  // until one of those that wait has said that it is there

void Sleep(const std::stop_token& stop, milliseconds time) {
  std::mutex mutex;
  std::condition_variable_any woken;
  std::unique_lock lock(mutex);
  woken.wait_for(lock, stop, time, [] { return false; });
}

/// The file of one that waits. That it cannot be written is no reason not to wait.
class Notice {
 public:
  explicit Notice(const RunDirectory& directory)
      : path_(absl::StrCat(directory.standbys(), "/", HostName(), ".", absl::Hex(std::random_device()()))) {
    std::error_code error;
    std::filesystem::create_directories(directory.standbys(), error);
    file_ = OpenFile(path_, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0644);
  }
  ~Notice() { unlink(path_.c_str()); }
  Notice(const Notice&) = delete;
  Notice& operator=(const Notice&) = delete;

  void Say() {
    if (file_.ok()) WriteAllAt(file_.get(), 0, absl::StrFormat("%012d\n", ++count_), path_).IgnoreError();
  }

 private:
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
    const absl::StatusOr<std::string> text = ReadFile(files->path(), kMaxBytes);
    if (text.ok()) notices[files->path().filename()] = *text;
  }
  return notices;
}

}  // namespace

Lead::Lead(RunLock lock, milliseconds lease) : lock_(std::move(lock)), interval_(lease / kBeatsPerLease) {
  if (lease.count() > 0) beats_ = std::jthread([this](const std::stop_token& stop) { Beat(stop); });
}

void Lead::Beat(const std::stop_token& stop) {
  bool is_told = false;
  for (uint64_t beat = 1; !stop.stop_requested(); ++beat) {
    const absl::Status said = lock_.Say(LeaderWords{.beat = beat}.Line());
    if (!said.ok() && !is_told) LogWarning("cannot say that this coordinator leads: ", said.message());
    is_told = !said.ok();
    Sleep(stop, interval_);
  }
}

void Lead::EndsWith(int exit_code, const std::string& reason) {
  beats_.request_stop();
  if (beats_.joinable()) beats_.join();
  const absl::Status said = lock_.Say(LeaderWords{.exit_code = exit_code, .reason = reason}.Line());
  if (!said.ok()) LogWarning("cannot say that the run has ended: ", said.message());
}

absl::StatusOr<Turn> WaitForTurn(const RunDirectory& directory, milliseconds lease, bool has_led,
                                 const std::stop_token& stop, const std::function<void(const std::string&)>& report) {
  absl::StatusOr<RunLock> lock = absl::UnavailableError("not asked for yet");
  if (!has_led) {
    lock = RunLock::Take(directory);
    if (lock.ok()) return Turn{.lead = std::make_shared<Lead>(*std::move(lock), lease)};
    if (!absl::IsAborted(lock.status())) return lock.status();
  }
  Notice notice(directory);
  LeaderWatch watch(lease);
  std::string leader;
  for (; !stop.stop_requested(); Sleep(stop, std::min(kLook, lease / kBeatsPerLease))) {
    notice.Say();
    lock = RunLock::Take(directory);
    std::string what = "has ended";
    if (absl::IsAborted(lock.status())) {
      const absl::StatusOr<LockText> text = RunLock::Read(directory);
      if (text.ok() && text->owner != std::exchange(leader, text->owner)) {
        report(absl::StrCat("standing by: ", text->Name(), " leads the run"));
      }
      if (!text.ok()) watch.CouldNotLook();
      if (!text.ok() || !watch.IsSilent(Clock::now().time_since_epoch(), *text)) continue;
      lock = RunLock::TakeFrom(directory, *text);
      what = absl::StrCat("has been silent for ", lease.count(), " ms");
    }
    if (!lock.ok()) {
      watch.CouldNotLook();
      continue;
    }
    const LockText& before = lock->previous();
    if (before.owner.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(directory.lock(), " has been removed: there is no run to lead any more"));
    }
    const auto words = LeaderWords::Read(before.words);
    if (words.has_value() && words->exit_code.has_value()) {
      const absl::Status said = lock->Say(before.words);  // for others that wait, too
      if (!said.ok()) LogWarning("cannot say that the run has ended: ", said.message());
      return Turn{.exit_code = words->exit_code, .reason = words->reason};
    }
    std::string from = absl::StrCat(before.Name(), " ", what);
    return Turn{.lead = std::make_shared<Lead>(*std::move(lock), lease), .from = std::move(from)};
  }
  return Turn{};
}

bool SomebodyStandsBy(const RunDirectory& directory) {
  const Notices then = ReadNotices(directory);
  for (const auto end = Clock::now() + kLongest; !then.empty() && Clock::now() < end;) {
    std::this_thread::sleep_for(kLook / 4);
    if (SaysSomethingNew(then, ReadNotices(directory))) return true;
  }
  return false;
}

}  // namespace holdfast
