// holdfast train: from a config file to a saved model. One worker lives in this process; several are processes of their
// own, started and watched by this one, which is then their coordinator and agent.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "elastic/coordinator/in_process_link.h"
#include "elastic/worker/stop_signal.h"
#include "framework/base/files.h"
#include "framework/base/limits.h"
#include "framework/base/status.h"
#include "framework/config/load.h"
#include "models/families/families.h"
#include "models/sampler.h"
#include "tools/command.h"
#include "tools/loss_plot.h"
#include "tools/mpi_job.h"
#include "tools/run_alerts.h"
#include "tools/run_arguments.h"
#include "tools/session.h"
#include "tools/train_with_workers.h"
#include "tools/training_session.h"

namespace holdfast {
namespace {

struct TrainArguments {
  RunArguments run;
  int64_t workers = 0;
  bool overwrite = false;
  std::string resume;
};

void PrintHeader(const Config& config, const RunDirectory& directory, const TrainingSession& session) {
  std::printf("%s\n", PrintConfig(config).c_str());
  std::printf("device      %s\n", session.device->name().c_str());
  std::printf("parameters  %s\n", FormatCount(static_cast<double>(session.model->layout().elements())).c_str());
  std::printf("data        %s tokens, %s samples of %d\n",
              FormatCount(static_cast<double>(session.training->num_tokens())).c_str(),
              FormatCount(static_cast<double>(session.training->num_samples())).c_str(),
              static_cast<int>(config.batch.sequence_length));
  std::printf("workers     %d\n", static_cast<int>(config.elastic.workers));
  std::printf("run         %s\n\n", directory.root().c_str());
  std::fflush(stdout);
}

/// What the model that was saved writes.
absl::Status PrintSample(const Config& config, const RunDirectory& directory, std::stop_token stop) {
  if (config.log.sample_bytes == 0) return absl::OkStatus();
  HF_ASSIGN_OR_RETURN(const auto model, LoadSavedModel(directory.model(), {.compute_dtype = config.train.compute_dtype,
                                                                           .threads = config.train.threads,
                                                                           .sequence = config.batch.sequence_length}));
  HF_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, model->tokenizer->Encode("\n"));
  if (prompt.empty()) return absl::OkStatus();
  std::printf("\nsample:\n");
  const auto next = [&](absl::Span<const int32_t> tokens) { return model->NextLogits(tokens); };
  const auto accept = [&](int32_t) { return !stop.stop_requested(); };
  const SampleOptions options{.tokens = config.log.sample_bytes, .context = config.batch.sequence_length};
  HF_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, GenerateTokens(next, prompt, options, accept));
  std::printf("%s\n", model->tokenizer->Decode(tokens).c_str());
  return absl::OkStatus();
}

absl::StatusOr<CoordinatorShell::Outcome> TrainHere(const Config& config, const RunDirectory& directory,
                                                    const PreparedRun& run, TrainingSession& session,
                                                    const StopSignal& stop_signal) {
  InProcessLink link;
  CoordinatorShell* shell = nullptr;
  HF_ASSIGN_OR_RETURN(const auto alerts, RunAlerts::Create(config, [&shell](const RunEvent& event) {
                        if (shell != nullptr) shell->Report(event);
                      }));
  HF_ASSIGN_OR_RETURN(
      const auto coordinator,
      CoordinatorShell::Create(
          config, directory, run.history, ModelFlopsPerToken(config.model, config.batch.sequence_length), link,
          [&lock = run.lock] { return lock.Check(); },
          [&alerts = *alerts](const RunEvent& event) { alerts.OnEvent(event); }, run.keeper.get(), run.usable));
  shell = coordinator.get();
  link.Attach(*coordinator);
  const std::stop_callback on_stop(stop_signal.token(), [&] { coordinator->RequestStop(stop_signal.received()); });
  RunWorker(config, directory, {}, session, link);
  CoordinatorShell::Outcome outcome = coordinator->Wait();
  alerts->Finish();
  return outcome;
}

absl::StatusOr<int> Report(const Config& config, const RunDirectory& directory,
                           const CoordinatorShell::Outcome& outcome, const StopSignal& stop_signal) {
  const bool stopped = outcome.exit_code > 128;
  if (outcome.exit_code != 0 && !stopped) return absl::InternalError(outcome.reason);
  if (!stopped) {
    HF_RETURN_IF_ERROR(PlotLoss(directory));
    if (outcome.validation_loss.has_value()) std::printf("validation loss  %.4f\n", *outcome.validation_loss);
    HF_RETURN_IF_ERROR(PrintSample(config, directory, stop_signal.token()));
  }
  if (outcome.steps > 0) {
    std::printf("\nmodel       %s\nmetrics     %s\n", directory.model().c_str(), directory.metrics().c_str());
  }
  if (!stopped) std::printf("loss curve  %s\n", directory.loss_plot().c_str());
  if (stopped) {
    std::printf("stopped by signal %d after step %d%s\n", outcome.exit_code - 128, static_cast<int>(outcome.steps),
                outcome.steps > 0 ? "; the model of that step is saved" : "");
  }
  return outcome.exit_code;
}

absl::StatusOr<int> Train(const TrainArguments& arguments) {
  StopSignal stop_signal;  // before any other thread
  RunArguments what = arguments.run;
  if (arguments.workers > 0) what.config.overrides.push_back(absl::StrCat("elastic.workers=", arguments.workers));
  HF_ASSIGN_OR_RETURN(Config config, arguments.overwrite ? what.config.Load() : what.Load());
  const RunDirectory directory = what.Directory(config);
  std::unique_ptr<MpiJob> job;
  if (config.parallel.transport == Transport::kMpi) {
    HF_ASSIGN_OR_RETURN(job, MpiJob::Start());
    job->Shape(&config);
    if (job->rank() != 0) return job->Follow(config, directory, stop_signal);
  }
  const bool here = config.elastic.workers == 1 && job == nullptr;
  const int64_t workers_here = job != nullptr ? job->processes_here() : config.elastic.workers;
  HF_ASSIGN_OR_RETURN(const auto session,
                      OpenTrainingSession(config, workers_here, /*check_only=*/!here && job == nullptr));
  HF_ASSIGN_OR_RETURN(
      const PreparedRun run,
      PrepareRun(config, directory, session->model->layout(),
                 {.overwrite = arguments.overwrite, .resume = arguments.resume, .workers_are_new = true}));
  PrintHeader(config, directory, *session);
  PrintResume(run);
  HF_ASSIGN_OR_RETURN(const CoordinatorShell::Outcome outcome,
                      job != nullptr ? job->Lead(config, directory, run, *session, stop_signal)
                      : here         ? TrainHere(config, directory, run, *session, stop_signal)
                                     : TrainWithWorkers(config, directory, run, stop_signal));
  return Report(config, directory, outcome, stop_signal);
}

}  // namespace

void AddTrainCommand(CLI::App& parent, CommandBody& body) {
  CLI::App* command = parent.add_subcommand("train", "Train a model as a config file says");
  auto arguments = std::make_shared<TrainArguments>();
  arguments->run.AddTo(*command);
  command->add_option("--workers", arguments->workers, "worker processes to start; default elastic.workers")
      ->check(CLI::Range(int64_t{1}, int64_t{kMaxWorkers}));
  AddResumeOption(*command, arguments->resume);
  command->add_flag("--overwrite", arguments->overwrite, "replace the run that is in the run directory");
  command->callback([arguments, &body] { body = [arguments] { return Train(*arguments); }; });
}

}  // namespace holdfast
