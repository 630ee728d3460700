#include "framework/metrics/run_directory.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_split.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"
#include "framework/storage/temporary_name.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

// Tells it from a config.yaml that somebody wrote, which is not ours to replace.
constexpr char kConfigMark[] = "# Written by holdfast train: all keys of this run and their values.\n";

/// Everything a run may leave in its directory.
std::vector<std::string> RunFiles(const RunDirectory& run) {
  return {
      run.model(),  run.checkpoints(),         run.logs(),  run.loss_plot(), run.load_plot(), run.coordinator_state(),
      run.run_id(), run.coordinator_address(), run.token(), run.events(),    run.metrics(),   run.config()};
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found && !error;
}

/// A link is none of what it points to.
bool IsOfType(const std::string& path, fs::file_type type) {
  std::error_code error;
  return fs::symlink_status(path, error).type() == type;
}

constexpr char kLogsMark[] = ".of_workers";

/// In logs() that agents have made, and not somebody else.
std::string LogsMark(const RunDirectory& run) { return absl::StrCat(run.logs(), "/", kLogsMark); }

/// What an agent leaves that is killed while it makes logs() or its mark.
bool HasNothingButUnfinishedMarks(const std::string& logs) {
  std::error_code error;
  for (fs::directory_iterator entry(logs, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (!IsTemporaryNameOf(entry->path().filename().string(), kLogsMark)) return false;
  }
  return !error;
}

/// Agents may be started before the coordinator that begins the run.
bool IsOfAgents(const RunDirectory& run) {
  return IsOfType(run.logs(), fs::file_type::directory) &&
         (Exists(LogsMark(run)) || HasNothingButUnfinishedMarks(run.logs()));
}

/// Those of an old run that a new one does not go on with: what tells the old run's workers apart from the new one's
/// stays, as does the config, which marks the directory as a run's until the new one replaces it.
std::vector<std::string> RemovedFiles(const RunDirectory& run) {
  std::vector<std::string> files = RunFiles(run);
  std::erase_if(files, [&](const std::string& path) {
    return path == run.coordinator_state() || path == run.run_id() || path == run.token() || path == run.config();
  });
  return files;
}

/// access() asks about permissions only; a read-only or full file system shows when a file is made.
absl::Status ProbeWritable(const std::string& directory) {
  std::string probe = directory + "/.holdfast_probe_XXXXXX";
  const int fd = mkstemp(probe.data());
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("cannot write in the run directory ", directory));
  close(fd);
  unlink(probe.c_str());
  return absl::OkStatus();
}

/// Without their content, files stay: workers that outlive the run go on writing into their logs, and in one that was
/// removed nobody would find it.
void EmptyFiles(const std::string& directory, std::error_code& error) {
  for (fs::directory_iterator entry(directory, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code cannot = std::make_error_code(std::errc::invalid_argument);
    if (IsOfType(entry->path(), fs::file_type::regular)) fs::resize_file(entry->path(), 0, cannot);
    if (cannot) fs::remove_all(entry->path(), error);  // no file, or another user's
    if (error) return;
  }
}

absl::Status RemoveOldRun(const RunDirectory& run) {
  for (const std::string& path : RemovedFiles(run)) {
    std::error_code error;
    if (path == run.logs() && IsOfType(path, fs::file_type::directory)) {
      EmptyFiles(path, error);
    } else {
      fs::remove_all(path, error);
    }
    if (error) return ErrnoToStatus(error.value(), absl::StrCat("cannot remove ", path, " of the old run"));
  }
  return absl::OkStatus();
}

absl::Status Damaged(const std::string& path, int64_t line, absl::string_view what, bool of_run) {
  const std::string advice =
      absl::StrCat("; to resume the run from its newest checkpoint, with a record that begins there: mv ", path, " ",
                   path, ".damaged; to resume it from a checkpoint of a step before, cut the file off there: head -n ",
                   line - 1, " ", path, " > ", path, ".cut && mv ", path, ".cut ", path);
  return absl::DataLossError(absl::StrCat(path, ":", line, ": ", what, of_run ? advice : ""));
}

/// The last `count` lines of a file, or all that it has. What comes after the last newline was cut off by a crash.
absl::StatusOr<std::vector<std::string>> ReadLastLines(const std::string& path, size_t count) {
  errno = 0;
  std::ifstream file = OpenToRead(path);
  const auto size = static_cast<int64_t>(file.seekg(0, std::ios::end).tellg());
  // Until they are there whole: a line may have a number for each expert of each layer.
  for (int64_t bytes = 1 << 16;; bytes *= 2) {
    std::string tail(static_cast<size_t>(std::clamp<int64_t>(size, 0, bytes)), '\0');
    file.seekg(size - static_cast<int64_t>(tail.size()));
    file.read(tail.data(), static_cast<std::streamsize>(tail.size()));
    if (!file) return ErrnoToStatus(errno != 0 ? errno : EIO, absl::StrCat("cannot read ", path));
    const bool is_all = static_cast<int64_t>(tail.size()) == size;
    std::vector<std::string> lines = absl::StrSplit(tail, '\n');
    lines.pop_back();
    if (!is_all && !lines.empty()) lines.erase(lines.begin());  // its beginning may be missing
    if (!is_all && lines.size() < count) continue;
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(std::min(count, lines.size())));
    return lines;
  }
}

absl::StatusOr<std::vector<StepMetrics>> ReadSteps(const std::string& path, bool of_run) {
  RETURN_IF_ERROR(CheckIsFile(path));
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return ErrnoToStatus(errno != 0 ? errno : EIO, absl::StrCat("cannot read ", path));

  std::vector<StepMetrics> steps;
  std::string line;
  absl::Status unreadable;  // the line before
  // getline() reaches the end of the file only on a line without its newline: one that was cut off.
  for (int64_t number = 1; std::getline(file, line) && !file.eof(); ++number) {
    RETURN_IF_ERROR(unreadable);
    absl::StatusOr<StepMetrics> step = StepMetrics::FromJson(line);
    if (!step.ok()) {
      unreadable = Damaged(path, number, step.status().message(), of_run);
      continue;
    }
    if (!steps.empty() && step->step != steps.back().step + 1) {
      return Damaged(path, number, absl::StrCat("step ", step->step, " follows step ", steps.back().step), of_run);
    }
    steps.push_back(*std::move(step));
  }
  if (file.bad()) return absl::DataLossError(absl::StrCat("cannot read all of ", path));
  return steps;
}

}  // namespace

absl::Status RunDirectory::Create(bool overwrite) const {
  RETURN_IF_ERROR(Annotate(MakeDirectories(root_), "cannot create the run directory"));
  const bool holds_run = HoldsRun();
  if (holds_run && !overwrite) {
    return absl::AlreadyExistsError(
        absl::StrCat(root_, " already holds a run: choose another --run-dir, or pass --overwrite to replace it"));
  }
  for (const std::string& path : RunFiles(*this)) {
    // Without a run's own files these are somebody else's: never remove them.
    if (!holds_run && Exists(path) && !(path == logs() && IsOfAgents(*this))) {
      return absl::AlreadyExistsError(
          absl::StrCat(path, " exists and does not belong to a run: choose another --run-dir"));
    }
  }
  RETURN_IF_ERROR(ProbeWritable(root_));
  return holds_run ? RemoveOldRun(*this) : absl::OkStatus();
}

absl::Status RunDirectory::CheckFiles() const {
  for (const std::string& path : {config(), metrics(), events(), coordinator_state(), run_id(), token(), lock()}) {
    if (const absl::Status file = CheckIsFile(path); !file.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.message(), ", in the place of a file of the run: remove it, or choose another --run-dir"));
    }
  }
  for (const std::string& path : {model(), logs()}) {
    std::error_code error;
    if (Exists(path) && !fs::is_directory(path, error)) {  // also a link to nothing
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": not a directory, in the place of one of the run: remove it, or choose another --run-dir"));
    }
  }
  return absl::OkStatus();
}

bool RunDirectory::IsRemovedWithOldRun(const std::string& path) const {
  std::error_code error;
  const fs::path place = fs::weakly_canonical(path, error);
  if (error) return false;  // then nobody reads it, either
  const std::vector<std::string> removed = RemovedFiles(*this);
  return std::any_of(removed.begin(), removed.end(), [&](const std::string& file) {
    const fs::path within = place.lexically_relative(fs::weakly_canonical(file, error));
    return !within.empty() && *within.begin() != "..";
  });
}

absl::Status RunDirectory::MakeLogs() const {
  RETURN_IF_ERROR(MakeDirectories(logs()));
  if (HoldsRun() || !IsOfAgents(*this)) return absl::OkStatus();
  return WriteFileAtomically(LogsMark(*this), "Logs of the workers of a run that is to be begun in this directory.\n");
}

bool RunDirectory::HoldsRun() const {
  if (Exists(coordinator_state())) return true;
  std::string line;
  std::ifstream file = OpenToRead(config());
  return std::getline(file, line) && line + "\n" == kConfigMark;
}

absl::Status RunDirectory::WriteConfig(const std::string& text) const {
  return WriteFileAtomically(config(), absl::StrCat(kConfigMark, text));
}

absl::StatusOr<int64_t> RunDirectory::MetricsEnd(int64_t step) const {
  if (!Exists(metrics())) return 0;
  ASSIGN_OR_RETURN(const std::vector<StepMetrics> steps, ReadMetrics());
  if (steps.empty()) return 0;
  if (steps.back().step < step) {
    return absl::DataLossError(absl::StrCat(metrics(), " ends with step ", steps.back().step, ": resuming after step ",
                                            step, " would leave a gap"));
  }
  const int64_t keep = std::max<int64_t>(0, step - steps.front().step + 1);
  std::ifstream file(metrics(), std::ios::binary);
  std::string line;
  for (int64_t i = 0; i < keep; ++i) std::getline(file, line);
  const auto end = keep == 0 ? std::streamoff{0} : static_cast<std::streamoff>(file.tellg());
  if (end < 0) return absl::DataLossError(absl::StrCat("cannot read ", metrics(), " up to step ", step));
  return end;
}

absl::Status RunDirectory::CutMetrics(int64_t step, const std::function<absl::Status()>& still_ours) const {
  if (!Exists(metrics())) return absl::OkStatus();
  ASSIGN_OR_RETURN(JsonLinesWriter writer, JsonLinesWriter::Open(metrics()));
  ASSIGN_OR_RETURN(const int64_t end, MetricsEnd(step));
  if (still_ours != nullptr) RETURN_IF_ERROR(still_ours());
  return Annotate(writer.CutTo(end), absl::StrCat("after step ", step));
}

absl::Status RunDirectory::TakeOver(const std::function<absl::Status()>& still_ours) const {
  for (const std::string& path : {coordinator_state(), metrics(), events()}) {
    std::error_code error;
    if (!fs::is_regular_file(fs::symlink_status(path, error))) continue;
    RETURN_IF_ERROR(CopyFileAtomically(path, path, still_ours));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StepMetrics>> RunDirectory::ReadMetrics() const {
  return ReadSteps(metrics(), /*of_run=*/true);
}

absl::StatusOr<std::vector<StepMetrics>> ReadStepMetrics(const std::string& path) {
  return ReadSteps(path, /*of_run=*/false);
}

absl::StatusOr<std::optional<StepMetrics>> RunDirectory::ReadLastMetrics() const {
  std::error_code error;
  if (!fs::exists(metrics(), error) && !error) return std::nullopt;
  RETURN_IF_ERROR(CheckIsFile(metrics()));
  ASSIGN_OR_RETURN(const std::vector<std::string> lines, ReadLastLines(metrics(), 2));
  if (lines.empty()) return std::nullopt;
  absl::StatusOr<StepMetrics> step = StepMetrics::FromJson(lines.back());
  if (!step.ok() && lines.size() == 1) return std::nullopt;
  if (!step.ok()) step = StepMetrics::FromJson(lines.front());
  if (!step.ok()) return Annotate(step.status(), absl::StrCat("the end of ", metrics()));
  return *std::move(step);
}

}  // namespace holdfast
