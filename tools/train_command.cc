// holdfast train: one worker from a config file to a saved model.

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "elastic/worker/run_loop.h"
#include "elastic/worker/stop_signal.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/config/load.h"
#include "models/sampler.h"
#include "tools/command.h"
#include "tools/loss_plot.h"
#include "tools/memory_estimate.h"
#include "tools/session.h"

namespace holdfast {
namespace {

struct Arguments {
  std::string config_path, run_dir;
  std::vector<std::string> overrides;
  bool overwrite = false;
};

/// The parts of a run in order of construction.
struct Session {
  std::optional<Dataset> training, validation;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<Device> device;
  std::unique_ptr<Model> model;
  std::unique_ptr<Trainer> trainer;
};

absl::Status OpenData(const Config& config, Session& session) {
  const int64_t sequence = config.batch.sequence_length;
  HF_ASSIGN_OR_RETURN(session.training, Dataset::Open(config.data.train, sequence, config.model.vocab_size));
  if (!config.data.validation.empty()) {
    HF_ASSIGN_OR_RETURN(session.validation, Dataset::Open(config.data.validation, sequence, config.model.vocab_size));
  }
  HF_ASSIGN_OR_RETURN(session.tokenizer, OpenTokenizer(config.data.tokenizer));
  if (session.tokenizer->vocab_size() > config.model.vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("the tokenizer ", config.data.tokenizer, " has ",
                                                   session.tokenizer->vocab_size(),
                                                   " tokens, model.vocab_size is only ", config.model.vocab_size));
  }
  return absl::OkStatus();
}

absl::Status BuildTrainer(const Config& config, Session& session) {
  HF_ASSIGN_OR_RETURN(session.device, MakeDevice(config.train));
  HF_ASSIGN_OR_RETURN(session.model, MakeModel(config, *session.device));
  HF_ASSIGN_OR_RETURN(const size_t arena_bytes,
                      ArenaBytes(*session.model, config.model.vocab_size, config.batch.microbatch_size,
                                 config.batch.sequence_length, /*training=*/true));
  HF_RETURN_IF_ERROR(CheckHostMemory(EstimateMemory(config, session.model->layout(), arena_bytes)));
  const TrainerOptions options{.batch = config.batch,
                               .optimizer = config.optimizer,
                               .schedule = config.schedule,
                               .total_steps = config.train.steps,
                               .seed = config.run.seed,
                               .arena_bytes = arena_bytes};
  HF_ASSIGN_OR_RETURN(session.trainer, Trainer::Create(*session.model, *session.device, options));
  if (config.train.init_from.empty()) return absl::OkStatus();
  return LoadSavedWeights(config.train.init_from, config.model, session.trainer->state().weights());
}

void PrintHeader(const Config& config, const RunDirectory& directory, const Session& session) {
  std::printf("%s\n", PrintConfig(config).c_str());
  std::printf("device      %s\n", session.device->name().c_str());
  std::printf("parameters  %s\n", FormatCount(static_cast<double>(session.model->layout().elements())).c_str());
  std::printf("data        %s tokens, %s samples of %d\n",
              FormatCount(static_cast<double>(session.training->num_tokens())).c_str(),
              FormatCount(static_cast<double>(session.training->num_samples())).c_str(),
              static_cast<int>(config.batch.sequence_length));
  std::printf("run         %s\n\n", directory.root().c_str());
  std::fflush(stdout);
}

absl::Status PrintSample(const Config& config, Session& session, std::stop_token stop) {
  const SampleOptions options{.tokens = config.log.sample_bytes, .context = config.batch.sequence_length};
  std::vector<int32_t> prompt = session.tokenizer->Encode("\n");
  if (prompt.empty() || options.tokens == 0) return absl::OkStatus();
  std::printf("\nsample:\n");
  const auto next = [&](absl::Span<const int32_t> tokens) {
    return session.trainer->NextLogits(tokens, config.model.vocab_size);
  };
  const auto accept = [&](int32_t) { return !stop.stop_requested(); };
  HF_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, GenerateTokens(next, prompt, options, accept));
  std::printf("%s\n", session.tokenizer->Decode(tokens).c_str());
  return absl::OkStatus();
}

absl::StatusOr<int> Train(const Arguments& arguments) {
  StopSignal stop_signal;  // before any other thread
  const absl::StatusOr<Config> loaded = LoadConfig(arguments.config_path, arguments.overrides);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", std::string(loaded.status().message()).c_str());
    return kExitUsage;
  }
  const Config& config = *loaded;
  RunDirectory directory(arguments.run_dir.empty() ? "runs/" + config.run.name : arguments.run_dir);

  Session session;
  HF_RETURN_IF_ERROR(OpenData(config, session));
  HF_RETURN_IF_ERROR(BuildTrainer(config, session));
  HF_RETURN_IF_ERROR(directory.Create(arguments.overwrite));
  HF_RETURN_IF_ERROR(WriteFileAtomically(directory.config(), PrintConfig(config)));
  PrintHeader(config, directory, session);

  const SampleOrder order(session.training->num_samples(), config.run.seed, config.data.shuffle);
  const BatchShape shape{config.batch.microbatches, config.batch.microbatch_size};
  Loader loader(*session.training, order, {.shape = shape, .threads = static_cast<int>(config.data.loader_threads)});
  RunConsole console(config.train.steps, config.log.every_steps);
  RunParts parts;
  parts.config = &config;
  parts.trainer = session.trainer.get();
  parts.loader = &loader;
  parts.validation = session.validation.has_value() ? &*session.validation : nullptr;
  parts.directory = &directory;
  parts.console = &console;
  parts.save_model = [&] { return SaveWeights(directory.model(), config, session.trainer->state().weights()); };

  HF_ASSIGN_OR_RETURN(const RunOutcome outcome, RunTraining(parts, stop_signal.token()));
  if (!outcome.stopped) {
    HF_RETURN_IF_ERROR(PlotLoss(directory));
    if (outcome.validation_loss.has_value()) std::printf("validation loss  %.4f\n", *outcome.validation_loss);
    HF_RETURN_IF_ERROR(PrintSample(config, session, stop_signal.token()));
  }
  std::printf("\nmodel       %s\nmetrics     %s\nloss curve  %s\n", directory.model().c_str(),
              directory.metrics().c_str(), directory.loss_plot().c_str());
  if (stop_signal.received() == 0) return kExitDone;
  std::printf("stopped by signal %d after step %d; the model of that step is saved\n", stop_signal.received(),
              static_cast<int>(outcome.steps));
  return 128 + stop_signal.received();
}

}  // namespace

void AddTrainCommand(CLI::App& parent, CommandBody& body) {
  CLI::App* command = parent.add_subcommand("train", "Train a model as a config file says");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("CONFIG", arguments->config_path, "config file (YAML)")->required();
  command->add_option("--set", arguments->overrides, "override a value: section.key=value")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--run-dir", arguments->run_dir, "where everything is written; default runs/<run.name>");
  command->add_flag("--overwrite", arguments->overwrite, "replace the run that is in the run directory");
  command->callback([arguments, &body] { body = [arguments] { return Train(*arguments); }; });
}

}  // namespace holdfast
