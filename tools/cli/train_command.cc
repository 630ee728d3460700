#include "tools/cli/train_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elastic/launch/in_process_launcher.h"
#include "elastic/launch/local_launcher.h"
#include "elastic/launch/mpi_launcher.h"
#include "elastic/worker/stop_signal.h"
#include "framework/base/counted.h"
#include "framework/base/log.h"
#include "framework/base/processors.h"
#include "framework/base/status.h"
#include "framework/chat/chat_template.h"
#include "framework/config/enums.h"
#include "framework/config/validate.h"
#include "framework/metrics/progress.h"
#include "models/plan.h"
#include "models/runtime/epochs.h"
#include "models/runtime/initial_weights.h"
#include "models/runtime/loaded_model.h"
#include "models/runtime/training_data.h"
#include "models/sampler.h"
#include "tools/cli/loss_plot.h"
#include "tools/cli/stoppable.h"
#include "tools/cli/terminal_text.h"

namespace holdfast {
namespace {

constexpr char kSampleMessage[] = "Hello!";
/// For a template that writes the date: the sample of a run is the same on any day.
constexpr char kSampleDate[] = "2024-07-26";

void PrintHeader(const Config& config, const RunDirectory& directory, const TrainingOutline& outline) {
  const ModelConfig& model = config.model;
  std::printf("model       %s, %s of %d, %s", model.family.c_str(), Counted(model.num_layers, "layer").c_str(),
              static_cast<int>(model.hidden_size), Counted(model.num_heads, "head").c_str());
  if (model.num_experts > 0) {
    std::printf(", %d of %s", static_cast<int>(model.experts_per_token), Counted(model.num_experts, "expert").c_str());
  }
  std::printf("\n");
  std::printf("device      %s\n", outline.device.c_str());
  std::printf("parameters  %s", FormatCount(static_cast<double>(outline.parameters)).c_str());
  if (config.trains_part()) {
    std::printf(", trained %s", FormatCount(static_cast<double>(outline.layout.elements())).c_str());
  }
  std::printf("\n");
  std::printf(
      "data        %s tokens, %s samples of %d\n", FormatCount(static_cast<double>(outline.data.tokens)).c_str(),
      FormatCount(static_cast<double>(outline.data.samples)).c_str(), static_cast<int>(config.batch.sequence_length));
  const auto tokens = static_cast<double>(config.batch.step_tokens());
  std::printf("training    %s of %s tokens\n", Counted(config.train.steps, "step").c_str(),
              FormatCount(tokens).c_str());
  std::printf("epochs      %.3g\n", EpochsOfSteps(config, outline.data.samples));
  std::printf("optimizer   %s, learning rate %g, %s\n", Name(config.optimizer.name), config.optimizer.lr,
              Name(config.schedule.name));
  std::printf("workers     %d\n", static_cast<int>(config.elastic.workers));
  std::printf("run         %s\n", directory.root().c_str());
  std::printf("config      %s (all keys and their values)\n\n", directory.config().c_str());
  std::fflush(stdout);
}

/// What a sample begins with.
struct SampleStart {
  std::vector<int32_t> prompt, ends;
  std::string title = "sample";
};

/// Of a model that was trained on conversations, an answer to kSampleMessage, if its tokenizer has a chat template that
/// can write that.
absl::StatusOr<SampleStart> StartOfSample(const SavedModel& model, bool has_conversations) {
  SampleStart start;
  if (has_conversations) {
    const auto chat = ChatTemplate::Open(model.tokenizer_directory, {.date = kSampleDate});
    const absl::StatusOr<std::string> text =
        chat.ok() ? chat->RenderPrompt(/*system=*/"", kSampleMessage) : chat.status();
    if (text.ok()) {
      ASSIGN_OR_RETURN(start.prompt, model.Encode(*text));
      start.ends = chat->ends();
      if (chat->end_of_text().has_value()) start.ends.push_back(*chat->end_of_text());
      start.title = absl::StrCat("sample, an answer to '", kSampleMessage, "'");
      return start;
    }
  }
  ASSIGN_OR_RETURN(start.prompt, model.Encode("\n"));
  return start;
}

/// What the model that was saved writes.
absl::Status PrintSample(const Config& config, const RunDirectory& directory, bool has_conversations,
                         std::stop_token stop) {
  if (config.log.sample_bytes == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto model, LoadSavedModel(directory.model(), {.compute_dtype = config.train.compute_dtype,
                                                                        .threads = config.train.threads,
                                                                        .sequence = config.batch.sequence_length,
                                                                        .whole_batches = false}));
  if (model->tokenizer == nullptr) return absl::OkStatus();  // adapters, whose base has none beside it
  ASSIGN_OR_RETURN(const SampleStart start, StartOfSample(*model, has_conversations));
  if (start.prompt.empty()) return absl::OkStatus();
  std::printf("\n%s:\n", start.title.c_str());
  if (static_cast<int64_t>(start.prompt.size()) > config.batch.sequence_length) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto decoder, model->MakeDecoder(1, config.batch.sequence_length));
  std::vector<int32_t> tokens;
  const auto accept = [&](size_t, int32_t token) {
    if (stop.stop_requested() || std::ranges::find(start.ends, token) != start.ends.end()) return false;
    tokens.push_back(token);
    return true;
  };
  const SampleRequest request{.prompt = start.prompt};
  RETURN_IF_ERROR(GenerateTokens(*decoder, {&request, 1}, {.tokens = config.log.sample_bytes}, accept).status());
  const std::string text = model->tokenizer->Decode(tokens) + "\n";
  std::printf("%s", TerminalPieces(isatty(STDOUT_FILENO) != 0).Add(text).c_str());
  return absl::OkStatus();
}

/// All that a run leaves is saved by then: it has not failed because a curve of it cannot be drawn.
bool IsDrawn(const absl::Status& status, const char* what) {
  if (!status.ok()) LogWarning("no ", what, ": ", status.message());
  return status.ok();
}

absl::StatusOr<int> Report(const Config& config, const RunDirectory& directory, bool has_conversations,
                           const CoordinatorShell::Outcome& outcome, const StopSignal& stop_signal) {
  const bool stopped = outcome.exit_code > 128;
  bool curve = false, loads = false;
  if (outcome.exit_code != 0 && !stopped) return absl::InternalError(outcome.reason);
  if (!stopped) {
    curve = IsDrawn(PlotLoss(directory), "loss curve");
    const absl::StatusOr<bool> has_loads = PlotExpertLoads(directory);
    loads = IsDrawn(has_loads.status(), "curve of experts' loads") && *has_loads;
    if (outcome.validation_loss.has_value()) std::printf("validation loss  %.4f\n", *outcome.validation_loss);
    const absl::Status sampled = PrintSample(config, directory, has_conversations, stop_signal.token());
    // All is saved: no memory for a sample, a model that has diverged, or a chat template that writes a token which the
    // model has not, is no failure of the run.
    const bool is_warning =
        absl::IsResourceExhausted(sampled) || absl::IsFailedPrecondition(sampled) || absl::IsInvalidArgument(sampled);
    if (is_warning) LogWarning("no sample of the model: ", sampled.message());
    if (!sampled.ok() && !is_warning) return sampled;
  }
  std::error_code error;
  const bool has_model = std::filesystem::exists(directory.model(), error);
  if (has_model || outcome.steps > 0) std::printf("\n");
  if (has_model) std::printf("model       %s\n", directory.model().c_str());
  if (outcome.steps > 0) std::printf("metrics     %s\n", directory.metrics().c_str());
  if (curve) std::printf("loss curve  %s\n", directory.loss_plot().c_str());
  if (loads) std::printf("loads       %s\n", directory.load_plot().c_str());
  return outcome.exit_code;
}

absl::StatusOr<std::unique_ptr<Launcher>> TryToOpenLauncher(const Config& config, const RunDirectory& directory,
                                                            MpiJob* job, const std::stop_token& stop) {
  if (job != nullptr) return MpiLauncher::Open(config, directory, *job, stop);
  if (config.elastic.workers == 1) return InProcessLauncher::Open(config, directory, stop);
  return LocalLauncher::Open(config, directory, LocalLauncher::kThisBinary, stop);
}

absl::StatusOr<std::unique_ptr<Launcher>> OpenLauncher(const Config& config, const RunDirectory& directory, MpiJob* job,
                                                       const std::stop_token& stop) {
  auto launcher = TryToOpenLauncher(config, directory, job, stop);
  if (launcher.ok()) return launcher;
  // Files that cannot be used are a mistake in the config, and all of them are said at once.
  RETURN_IF_ERROR(CheckDataOf(config, stop));
  RETURN_IF_ERROR(AsUsageError(CheckInitialWeights(config)));
  // A token beyond the vocabulary is found when the whole file is read. Other misfits may be of this machine.
  return absl::IsOutOfRange(launcher.status()) ? AsUsageError(AsDataMistake(launcher.status())) : std::move(launcher);
}

absl::StatusOr<int> Follow(const Config& config, const RunDirectory& directory, MpiJob& job, const StopSignal& stop,
                           StopOfStart& start) {
  ASSIGN_OR_RETURN(const Worker::Exit exit, FollowMpiJob(config, directory, job, stop, start));
  return exit.code == 0 || exit.code > 128 ? exit.code : kExitFailure;
}

}  // namespace

absl::StatusOr<int> TrainCommand::Run() const {
  RunArguments what = run;
  what.config.SetWorkers(workers);
  RETURN_IF_ERROR(what.config.Read());
  StopSignal stop_signal;  // before any other thread
  StopOfStart start_stop(stop_signal);
  absl::StatusOr<int> result = Train(what, stop_signal, start_stop);
  if (const auto stopped = EndOfStart(stop_signal, start_stop, result.status())) return *stopped;
  return result;
}

absl::StatusOr<int> TrainCommand::Train(const RunArguments& what, const StopSignal& stop_signal,
                                        StopOfStart& start_stop) const {
  ASSIGN_OR_RETURN(Config config, AsUsageError(what.Load(start.overwrite, start_stop.token())));
  if (!start.overwrite) RETURN_IF_ERROR(what.CheckIsSameRun(config));
  const RunDirectory directory = what.Directory(config);
  std::unique_ptr<MpiJob> job;
  if (config.parallel.transport == Transport::kMpi) {
    ASSIGN_OR_RETURN(job, MpiJob::Start());
    job->Shape(&config);
    ResolveExpertPlacement(&config);
    if (job->rank() != 0) return Follow(config, directory, *job, stop_signal, start_stop);
  }
  RETURN_IF_ERROR(CheckAlertsOf(config));
  const int64_t workers_here = job == nullptr ? config.elastic.workers : job->slot().workers_here;
  for (const std::string& warning :
       {IdleWorkersWarning(config), UntrainedPositionsWarning(config), LongFactorsWarning(config),
        TooManyThreadsWarning("train.threads", config.train.threads, workers_here)}) {
    if (!warning.empty()) LogWarning(warning);
  }
  ASSIGN_OR_RETURN(const auto launcher, OpenLauncher(config, directory, job.get(), start_stop.token()));
  WarnOfTokenizer(config, start_stop.token());
  WarnOfUnreadValidation(config, start_stop.token());
  ASSIGN_OR_RETURN(const PreparedRun prepared, AsUsageError(PrepareRun(config, directory, launcher->outline().layout,
                                                                       {.overwrite = start.overwrite,
                                                                        .resume = start.resume,
                                                                        .workers_are_new = true,
                                                                        .stop = start_stop.token()})));
  RETURN_IF_ERROR(start_stop.End());
  PrintHeader(config, directory, launcher->outline());
  std::printf("%s", ResumeText(prepared).c_str());
  std::fflush(stdout);
  ASSIGN_OR_RETURN(const CoordinatorShell::Outcome outcome, launcher->Run(prepared, stop_signal));
  return Report(config, directory, launcher->outline().data.has_conversations, outcome, stop_signal);
}

void TrainCommand::AddTo(CLI::App& command) {
  run.AddTo(command);
  AddWorkersOption(command, workers, "worker processes to start; default elastic.workers");
  start.AddTo(command);
}

}  // namespace holdfast
