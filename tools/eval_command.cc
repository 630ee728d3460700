// holdfast eval: the loss of a saved model on token files.

#include <cmath>
#include <cstdio>
#include <memory>

#include "framework/base/status.h"
#include "framework/data/dataset.h"
#include "framework/metrics/progress.h"
#include "tools/command.h"
#include "tools/data_files.h"
#include "tools/session.h"

namespace holdfast {
namespace {

struct EvalArguments {
  std::string model;
  std::vector<std::string> data;
  int64_t sequence = 0, batch = 4, microbatches = 0, threads = 0;
  PlaceSettings places;
};

absl::StatusOr<int> Eval(const EvalArguments& arguments) {
  HF_ASSIGN_OR_RETURN(const auto loaded, LoadSavedModel(arguments.model, {.threads = arguments.threads,
                                                                          .batch = arguments.batch,
                                                                          .sequence = arguments.sequence}));
  const int64_t sequence =
      arguments.sequence > 0 ? arguments.sequence : std::min<int64_t>(1024, loaded->config.max_sequence_length);
  Places places(arguments.places);
  HF_ASSIGN_OR_RETURN(const Dataset data, Dataset::Open(arguments.data, sequence, loaded->config.vocab_size,
                                                        {.files = &places, .on_scan = ScanNotice()}));
  const int64_t whole = (data.num_samples() + arguments.batch - 1) / arguments.batch;
  const int64_t count = arguments.microbatches > 0 ? std::min(arguments.microbatches, whole) : whole;

  Progress progress("evaluating", count, "microbatches");
  LossSum total;
  for (int64_t i = 0; i < count; ++i) {
    HF_ASSIGN_OR_RETURN(const Microbatch microbatch, ReadValidationMicrobatch(data, arguments.batch, i));
    HF_ASSIGN_OR_RETURN(const LossSum loss, loaded->runner->Evaluate(microbatch, *loaded->store));
    total.sum += loss.sum;
    total.counted += loss.counted;
    progress.Update(i + 1);
  }
  progress.Finish();
  const double loss = total.sum / static_cast<double>(total.counted);
  std::printf("tokens      %s\nloss        %.4f nats per token\nperplexity  %.3f\n",
              FormatCount(static_cast<double>(total.counted)).c_str(), loss, std::exp(loss));
  return kExitDone;
}

}  // namespace

void AddEvalCommand(CLI::App& parent, CommandBody& body) {
  CLI::App* command = parent.add_subcommand("eval", "Print the loss of a saved model on token files");
  auto arguments = std::make_shared<EvalArguments>();
  command->add_option("MODEL", arguments->model, "saved model directory, or a run directory")->required();
  command->add_option("DATA", arguments->data, "token files, paths or s3://bucket/name")->required();
  AddPlaceOptions(*command, arguments->places);
  command->add_option("--sequence-length", arguments->sequence, "0 = the model's, at most 1024")
      ->check(CLI::Range(0, 1 << 24));
  command->add_option("--batch", arguments->batch, "sequences at a time")->check(CLI::Range(1, 65536));
  command->add_option("--microbatches", arguments->microbatches, "stop after this many; 0 = all the data")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--threads", arguments->threads, "0 = all")->check(CLI::Range(0, 4096));
  command->callback([arguments, &body] { body = [arguments] { return Eval(*arguments); }; });
}

}  // namespace holdfast
