#include "tools/cli/eval_command.h"

#include <cmath>
#include <cstdio>
#include <memory>

#include "framework/base/status.h"
#include "framework/data/dataset.h"
#include "framework/metrics/progress.h"
#include "models/runtime/data_places.h"
#include "models/runtime/loaded_model.h"
#include "tools/cli/place_arguments.h"

namespace holdfast {
absl::StatusOr<int> EvalCommand::Run() const {
  ASSIGN_OR_RETURN(const auto loaded,
                   LoadSavedModel(model, {.threads = threads, .batch = batch, .sequence = sequence}));
  const int64_t length = sequence > 0 ? sequence : std::min<int64_t>(1024, loaded->config.max_sequence_length);
  Places files(places);
  ASSIGN_OR_RETURN(const Dataset dataset,
                   Dataset::Open(data, length, loaded->config.vocab_size, {.files = &files, .on_scan = ScanNotice()}));
  const int64_t whole = (dataset.num_samples() + batch - 1) / batch;
  const int64_t count = microbatches > 0 ? std::min(microbatches, whole) : whole;

  Progress progress("evaluating", count, "microbatches");
  LossSum total;
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const Microbatch microbatch, ReadValidationMicrobatch(dataset, batch, i));
    ASSIGN_OR_RETURN(const LossSum loss, loaded->runner->Evaluate(microbatch, *loaded->store));
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

void EvalCommand::AddTo(CLI::App& command) {
  command.add_option("MODEL", model, "saved model directory, or a run directory")->required();
  command.add_option("DATA", data, "token files, paths or s3://bucket/name")->required();
  AddPlaceOptions(command, places);
  command.add_option("--sequence-length", sequence, "0 = the model's, at most 1024")->check(CLI::Range(0, 1 << 24));
  command.add_option("--batch", batch, "sequences at a time")->check(CLI::Range(1, 65536));
  command.add_option("--microbatches", microbatches, "stop after this many; 0 = all the data")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--threads", threads, "0 = all")->check(CLI::Range(0, 4096));
}

}  // namespace holdfast
