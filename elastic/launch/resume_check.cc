#include "elastic/launch/resume_check.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "elastic/coordinator/run_digests.h"
#include "framework/base/counted.h"
#include "framework/config/decides.h"
#include "framework/config/enums.h"
#include "framework/config/load.h"
#include "framework/config/validate.h"
#include "models/families/families.h"

namespace holdfast {
namespace {

/// Of the program that resumes, against the one that wrote the checkpoint, for the same config; what is not known is
/// not compared.
std::string ProgramDifferences(const Config& config, const Manifest& manifest) {
  const RunDigests now = DigestsOf(config);
  if (now.kernels != 0 && manifest.kernel_digest != 0 && now.kernels != manifest.kernel_digest) {
    return absl::StrCat("kernels compute other bits than those that wrote the checkpoint (build ", manifest.build,
                        ", this is ", now.build, "): the run may differ from one that was never stopped");
  }
  if (manifest.build.empty() || manifest.build == now.build) return "";
  return absl::StrCat("build ", manifest.build, " of Holdfast wrote the checkpoint, this is ", now.build);
}

struct KeyChange {
  std::string key, was, is;
};

/// Of the keys that `counts` is true of.
std::vector<KeyChange> Changes(const std::string& printed, const Config& config,
                               absl::FunctionRef<bool(const std::string& key)> counts) {
  const auto was = ValuesByKey(printed), is = ValuesByKey(PrintConfig(config));
  std::vector<KeyChange> changes;
  for (const auto& [key, value] : is) {
    const auto before = was.find(key);
    if (counts(key) && before != was.end() && before->second != value) changes.push_back({key, before->second, value});
  }
  return changes;
}

/// Of many changes the first, and how many more there are.
std::vector<std::string> Words(const std::vector<KeyChange>& changes, absl::string_view was, absl::string_view is) {
  constexpr size_t kMost = 10;
  std::vector<std::string> words;
  for (const KeyChange& change : absl::MakeSpan(changes).first(std::min(changes.size(), kMost))) {
    words.push_back(absl::StrCat(change.key, was, change.was, is, change.is));
  }
  if (changes.size() > kMost) words.push_back(absl::StrCat("and ", Counted(std::ssize(changes) - kMost, "more key")));
  return words;
}

std::string OnOneLine(const std::vector<KeyChange>& changes) {
  return absl::StrJoin(Words(changes, " was ", " and is "), "; ");
}

/// After a text, each on a line of its own.
std::string OnLines(const std::vector<KeyChange>& changes) {
  std::string text = changes.empty() ? "" : ":";
  for (const std::string& words : Words(changes, ": ", " -> ")) absl::StrAppend(&text, "\n  ", words);
  return text;
}

bool DecidesBits(const std::string& key) { return WhatDecides(key) == Decides::kBits; }

constexpr char kWhatElse[] = "choose another --run-dir or checkpoint.directory, or pass --overwrite to start a new run";

/// Steps after `begin`, up to `end`.
struct Decay {
  int64_t begin = 0, end = 0;
  bool operator==(const Decay&) const = default;
};

/// Of a schedule in a run of so many steps; nothing if it does not follow from them.
std::optional<Decay> DecayByLength(const ScheduleConfig& schedule, int64_t train_steps) {
  const int64_t end = schedule.length(train_steps);
  switch (schedule.name) {
    case ScheduleKind::kConstant:
      return std::nullopt;
    case ScheduleKind::kCosine:
    case ScheduleKind::kLinear:
      if (schedule.decay_steps > 0) return std::nullopt;
      return Decay{.begin = schedule.warmup_steps, .end = end};
    case ScheduleKind::kWsd:
      return Decay{.begin = end - (schedule.decay_steps > 0 ? schedule.decay_steps : end / 5), .end = end};
  }
  return std::nullopt;
}

/// What would leave the rates of the steps to come as they were.
std::string KeepingOldCourse(const Config& config, const Decay& now, const Decay& was) {
  const ScheduleConfig& schedule = config.schedule;
  if (schedule.name == ScheduleKind::kWsd) {  // after whose end no rate is defined
    return now.end < was.end ? absl::StrCat("; set schedule.total_steps to ", was.end, " to keep the old course") : "";
  }
  if (was.end <= schedule.warmup_steps) return "";  // there was no decay that decay_steps could say
  std::string text =
      absl::StrCat("; set schedule.decay_steps to ", was.end - schedule.warmup_steps, " to keep the old course");
  if (now.end > was.end) {
    absl::StrAppend(&text, ", with the lowest rate, ", config.optimizer.lr * schedule.min_lr_ratio, ", after step ",
                    was.end);
  }
  return text;
}

/// Steps that the checkpoint has behind it with rates that they would not have had in a run of this length.
std::string DoneWithOldRates(const Config& config, const Decay& now, const Decay& was, int64_t done) {
  const int64_t before = std::max(config.schedule.warmup_steps, std::min(now.begin, was.begin));
  if (before >= done) return "";
  std::string text = before + 1 == done ? absl::StrCat("; step ", done, ", which is done,")
                                        : absl::StrCat("; steps ", before + 1, " to ", done, ", which are done,");
  absl::StrAppend(&text, " had another rate than in a run of ", Counted(config.train.steps, "step"),
                  " that was never stopped");
  if (config.schedule.name == ScheduleKind::kWsd && before > 0) {
    absl::StrAppend(&text, "; --resume of step ", before, " or before goes back behind that");
  }
  return text;
}

/// The config that wrote the checkpoint. That of an import is as it was written: the arithmetic that it leaves open,
/// and the steps that its train.epochs are, are those of the run that begins with it.
absl::StatusOr<Config> StoredConfig(const Config& config, const Manifest& manifest) {
  auto stored = ParseStoredConfig(manifest.config, manifest.name.ToString(), FamilyPresets());
  if (!stored.ok() || manifest.sharding != kImported) return stored;
  ArithmeticChoice& arithmetic = stored->train.arithmetic;
  if (arithmetic == ArithmeticChoice::kAuto || arithmetic == ArithmeticChoice::kNative) {
    arithmetic = config.train.arithmetic;
  }
  if (stored->train.steps == 0) stored->train.steps = config.train.steps;
  return stored;
}

}  // namespace

std::string Differences(const Config& config, const Manifest& manifest) {
  if (manifest.config_digest == BitsDigest(config)) return ProgramDifferences(config, manifest);
  // An earlier build did not have every key: what it left out has its default.
  const auto stored = StoredConfig(config, manifest);
  if (stored.ok() && BitsDigest(*stored) == BitsDigest(config)) return ProgramDifferences(config, manifest);
  return absl::StrCat(
      "this is not the config that wrote the checkpoint, so the run may differ from one that was never stopped",
      OnLines(Changes(stored.ok() ? PrintConfig(*stored) : manifest.config, config, DecidesBits)));
}

std::string ScheduleChange(const Config& config, const Manifest& manifest) {
  if (manifest.sharding == kImported) return "";  // it was never trained by a schedule
  const auto stored = ParseStoredConfig(manifest.config, manifest.name.ToString(), FamilyPresets());
  const ScheduleConfig& now = config.schedule;
  // Where a key of the schedule has changed, that is what was wanted.
  if (!stored.ok() || now != stored->schedule || now.min_lr_ratio == 1) return "";
  const auto decay = DecayByLength(now, config.train.steps), old = DecayByLength(now, stored->train.steps);
  if (!decay.has_value() || decay == old) return "";
  std::string text = absl::StrCat("the learning rate of the steps to come moves: its ", Name(now.name), " decay ");
  if (now.name == ScheduleKind::kWsd) {
    absl::StrAppend(&text, "goes from step ", decay->begin, " to step ", decay->end, " instead of from step ",
                    old->begin, " to step ", old->end);
  } else {
    absl::StrAppend(&text, "ends with the run, at step ", decay->end, " instead of step ", old->end);
  }
  return absl::StrCat(text, KeepingOldCourse(config, *decay, *old),
                      DoneWithOldRates(config, *decay, *old, manifest.name.step));
}

std::string DataChange(const Config& config, const Manifest& manifest) {
  const auto stored = ParseStoredConfig(manifest.config, manifest.name.ToString(), FamilyPresets());
  const int64_t done = manifest.name.step;
  if (!stored.ok() || done == 0) return "";
  const bool other_order =
      config.data.shuffle != stored->data.shuffle || (config.data.shuffle && config.run.seed != stored->run.seed);
  const BatchConfig &now = config.batch, &was = stored->batch;
  const bool other_length = now.sequence_length != was.sequence_length;
  if (other_order || other_length) {
    return absl::StrCat(
        other_length ? absl::StrCat("sequences of ", now.sequence_length, " tokens are cut and drawn anew")
                     : "sequences come in another order",
        ", so some of what steps 1 to ", done, " have read may come again before all of the data has been read");
  }
  const int64_t read = done * was.microbatches * was.microbatch_size;
  const int64_t next = done * now.microbatches * now.microbatch_size;
  if (next == read) return "";
  const int64_t between = std::abs(next - read);
  return absl::StrCat("step ", done + 1, " reads the data from sequence ", next + 1, " of their order on, as if the ",
                      "steps before it had had the batch of now; step ", done, " has read up to sequence ", read,
                      ", so ", between, between == 1 ? " is " : " are ", next < read ? "read again" : "passed over",
                      " (if no step before had yet another batch)");
}

std::string ValidationChange(const Config& config, const Manifest& manifest) {
  if (config.train.early_stop_patience == 0 && config.checkpoint.keep_best == 0) return "";
  const auto stored = ParseStoredConfig(manifest.config, manifest.name.ToString(), FamilyPresets());
  if (!stored.ok() || manifest.name.step == 0 || stored->data.validation.empty()) return "";
  const auto read = [](const Config& c) { return c.train.validation_microbatches * c.batch.microbatch_size; };
  if (read(config) == read(*stored) && config.batch.sequence_length == stored->batch.sequence_length) return "";
  return "validations to come read another part of data.validation than those before (train.validation_microbatches, "
         "batch), and train.early_stop_patience and checkpoint.keep_best compare the losses of both";
}

std::string ChangedKeys(const std::string& printed, const Config& config) {
  return OnOneLine(Changes(printed, config, DecidesBits));
}

std::string ChangesToWorkers(const Config& config, const RunDirectory& directory) {
  const auto of_run = LoadStoredConfig(directory.config(), FamilyPresets());
  if (!of_run.ok()) return "";
  return OnOneLine(Changes(PrintConfig(*of_run), config, [](const std::string& key) {
    const Decides decides = WhatDecides(key);
    return decides == Decides::kBits || decides == Decides::kContent || decides == Decides::kLayout;
  }));
}

absl::Status CheckSameModel(const Config& config, const Manifest& manifest, const std::vector<StoredTensor>& tensors) {
  const absl::Status same = CheckModel(manifest, tensors);
  if (same.ok()) return absl::OkStatus();
  const std::vector<KeyChange> changes = Changes(manifest.config, config, [](const std::string& key) {
    return absl::StartsWith(key, "model.") || absl::StartsWith(key, "lora.") || key == "train.only" ||
           key == "train.freeze";
  });
  if (changes.empty()) return absl::FailedPreconditionError(absl::StrCat(same.message(), ": ", kWhatElse));
  return absl::FailedPreconditionError(absl::StrCat("the model of the config is another than the checkpoint's (",
                                                    OnOneLine(changes), "): set that as it was to resume the run, ",
                                                    kWhatElse, " (", same.message(), ")"));
}

absl::Status CheckOptimizer(const Config& config, const Manifest& manifest, const std::vector<StoredTensor>& tensors) {
  const absl::Status same = CheckPlanes(manifest, tensors);
  if (same.ok()) return absl::OkStatus();
  const std::string changes = OnOneLine(Changes(manifest.config, config, [](const std::string& key) {
    return key == "optimizer.name" || key == "optimizer.ema_decay";  // which decide what is kept
  }));
  return absl::FailedPreconditionError(absl::StrCat(
      same.message(), changes.empty() ? ": " : absl::StrCat(" (", changes, "): set that as it was, "), kWhatElse));
}

absl::Status CheckFrozenWeights(const Config& config, const Manifest& manifest) {
  if (!config.trains_part()) return absl::OkStatus();
  const auto stored = ParseStoredConfig(manifest.config, manifest.name.ToString(), FamilyPresets());
  if (!stored.ok() || stored->train.init_digest.empty()) return absl::OkStatus();
  if (stored->train.init_digest == config.train.init_digest) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(manifest.name.ToString(), " holds what was trained beside weights with the digest ",
                   stored->train.init_digest, ", but those in ", config.train.init_from, " have ",
                   config.train.init_digest, ": bring those back, or begin another run"));
}

LeadingConfig ConfigToLeadOnWith(const Config& config, const RunDirectory& directory) {
  LeadingConfig leading{.config = config, .changes = ""};
  if (!directory.HoldsRun()) return leading;
  const auto of_run = LoadStoredConfig(directory.config(), FamilyPresets());
  if (!of_run.ok()) return leading;
  leading.config = WithKeysThat({Decides::kBits, Decides::kContent, Decides::kLayout}, *of_run, config);
  if (!ValidateConfig(leading.config).empty()) leading.config = *of_run;  // what this one has of its own does not fit
  leading.changes = OnOneLine(Changes(PrintConfig(leading.config), config, [](const std::string&) { return true; }));
  return leading;
}

absl::Status CheckImported(const Config& config, const Manifest& manifest) {
  if (manifest.sharding != kImported) return absl::OkStatus();
  const auto imported = ParseStoredConfig(manifest.config, manifest.name.ToString(), FamilyPresets());
  if (!imported.ok()) return absl::OkStatus();  // of a later build: as with any other checkpoint, there is a warning
  std::vector<std::string> differences;
  for (const ModelDifference& difference : ArithmeticDifferences(config.model, imported->model)) {
    differences.push_back(
        absl::StrCat("model.", difference.key, " is ", difference.ours, " and was ", difference.theirs));
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      manifest.name.ToString(), " holds an imported model that computes something else than the config's (",
      absl::StrJoin(differences, "; "), "): set these keys as they were, or train.init_from to the saved model"));
}

}  // namespace holdfast
