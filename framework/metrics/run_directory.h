#pragma once
// The files of a run directory: config.yaml, metrics.jsonl, events.jsonl, logs/, model/, checkpoints/, loss.svg, ...
// This header owns every name in it.

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/exchanged_bytes.h"
#include "framework/base/figures.h"
#include "framework/base/file_descriptor.h"
#include "framework/base/validation_result.h"

namespace holdfast {

/// What metrics.jsonl says about one committed step.
struct StepMetrics {
  int64_t step = 0;  // counts from 1: the number of optimizer updates done
  float loss = 0;
  float grad_norm = 0;
  double lr = 0;
  int64_t tokens = 0;  // since the start of the run
  int64_t world_size = 1;
  int64_t generation = 1;
  double step_seconds = 0;
  double tokens_per_second = 0;
  std::optional<double> mfu;  // model FLOPs utilisation in [0, 1]; absent if the device's peak is unknown
  double checkpoint_stall_seconds = 0;
  ExchangedBytes exchanged = {};  // by all ranks; "exchanged_bytes" in JSON, absent if there are none
  double time = 0;                // seconds since the epoch
  std::optional<uint64_t> state_digest;
  std::optional<ValidationResult> validation = {};  // with the state after the step before, if there was one
  std::vector<Figure> figures = {};                 // "statistics" in JSON, absent if there are none

  double worker_seconds() const { return step_seconds * static_cast<double>(world_size); }

  /// One JSON object on one line, without a newline; `loss_bits` and `grad_norm_bits` are the 8 hexadecimal digits of
  /// the binary32 pattern, `state_digest` 16 digits.
  std::string ToJson() const;
  static absl::StatusOr<StepMetrics> FromJson(const std::string& line);
};

/// Of `peak_flops` FLOP/s, what a model that takes `flops_per_token` uses. Absent if the peak is unknown (0).
std::optional<double> ModelFlopsUtilisation(double flops_per_token, double tokens_per_second, double peak_flops);

class RunDirectory {
 public:
  explicit RunDirectory(std::string root) : root_(std::move(root)) {}
  const std::string& root() const { return root_; }
  std::string config() const { return root_ + "/config.yaml"; }
  std::string metrics() const { return root_ + "/metrics.jsonl"; }
  std::string events() const { return root_ + "/events.jsonl"; }
  std::string model() const { return root_ + "/model"; }
  std::string checkpoints() const { return root_ + "/checkpoints"; }  // unless the config says where
  std::string logs() const { return root_ + "/logs"; }
  std::string coordinator_state() const { return root_ + "/coordinator.json"; }       // what survives its restart
  std::string run_id() const { return root_ + "/run_id"; }                            // elastic/coordinator/run_id.h
  std::string coordinator_address() const { return root_ + "/coordinator.address"; }  // HOST:PORT while it runs
  std::string token() const { return root_ + "/coordinator.token"; }                  // secret, mode 0600
  std::string coordinator_absence() const { return root_ + "/coordinator.absent"; }   // an alert of that is open
  std::string lock() const { return root_ + "/.lock"; }                               // run_lock.h
  std::string standbys() const { return root_ + "/.standbys"; }  // a file of each coordinator that waits for its turn
  std::string loss_plot() const { return root_ + "/loss.svg"; }
  std::string load_plot() const { return root_ + "/expert_load.svg"; }  // of a model with experts

  /// Creates the directory. AlreadyExists with what to do if it holds a run and not `overwrite`; with it, the old run's
  /// files (those named here, nothing else) are removed, but for config, coordinator_state, run_id and token; those in
  /// logs are emptied. AlreadyExists, too, if something else has the name of one of them. An unwritable place is
  /// PermissionDenied before anything is done.
  absl::Status Create(bool overwrite) const;

  /// InvalidArgument, with what to do, if something else than a file (a pipe, a directory) is where a run has a file,
  /// or something else than a directory where it has model or logs.
  absl::Status CheckFiles() const;

  /// `path` is one of the files that Create removes of an old run, or lies in one of them.
  bool IsRemovedWithOldRun(const std::string& path) const;

  /// A run is going on or has been in this directory: it has coordinator_state, or a config that WriteConfig wrote.
  bool HoldsRun() const;
  /// Makes logs for an agent, which need not wait for the run to be begun: Create does not refuse them.
  absl::Status MakeLogs() const;
  /// Replaces config by `text`, marked as a run's.
  absl::Status WriteConfig(const std::string& text) const;

  /// Cuts metrics.jsonl off after the line of `step`, durably: the run resumes from there. DataLoss if it ends before.
  /// `still_ours` is asked when the file is open: one that another process has put in its place before that is left
  /// alone, but for a torn line, if it says so, and one that comes later stays as it is.
  absl::Status CutMetrics(int64_t step, const std::function<absl::Status()>& still_ours = nullptr) const;
  /// Where it is to be cut, in bytes. 0 if it has no steps, or does not exist.
  absl::StatusOr<int64_t> MetricsEnd(int64_t step) const;

  /// Puts copies in the place of all files that a coordinator appends to. One that was replaced and does not know it
  /// yet writes on into the old ones, which nobody reads. For whoever holds the lock, before anything is read; whether
  /// it still does `still_ours`, if it is given, is asked before each copy takes its place.
  absl::Status TakeOver(const std::function<absl::Status()>& still_ours = nullptr) const;

  /// Every step of metrics.jsonl.
  absl::StatusOr<std::vector<StepMetrics>> ReadMetrics() const;
  /// The last of them, by reading the end of the file. Absent if no step is committed.
  absl::StatusOr<std::optional<StepMetrics>> ReadLastMetrics() const;

 private:
  std::string root_;
};

/// Appends lines to a JSONL file; a line is written whole by one write() or reported.
class JsonLinesWriter {
 public:
  static absl::StatusOr<JsonLinesWriter> Open(const std::string& path);

  /// After an error the line is not there, or is taken back before the next one is written: until then a part of it,
  /// or all, may be there.
  absl::Status Write(const std::string& json);
  /// The same, and the line survives a loss of power.
  absl::Status WriteDurably(const std::string& json);
  /// What comes after the first so many bytes is gone, durably.
  absl::Status CutTo(int64_t bytes);
  /// Whether readers find what is appended. FailedPrecondition if the file was removed or cut off by somebody else;
  /// Unavailable while it does not have its name, as it may be put back.
  absl::Status CheckInPlace() const;
  /// The same; and if the file was removed, and nothing has its name, it is written anew with all its lines, which this
  /// process still has open.
  absl::Status KeepInPlace();

 private:
  JsonLinesWriter() = default;
  bool WasRemoved() const;
  absl::Status TakeBack();
  FileDescriptor file_;
  std::string path_;
  int64_t bytes_ = 0;       // that the file has at least
  int64_t unfinished_ = 0;  // after them: of a line that failed and is to be taken back
};

/// Every step of a metrics.jsonl without its run. A last line that is torn (from a crash), or does not read, is
/// dropped; anything else wrong is DataLoss with its line.
absl::StatusOr<std::vector<StepMetrics>> ReadStepMetrics(const std::string& path);

}  // namespace holdfast
