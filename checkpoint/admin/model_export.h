#pragma once
// The weights of a checkpoint as a saved model in the layout of Hugging Face. Streamed: neither the model nor a
// training process is needed in memory.

#include <cstdint>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/admin/byte_progress.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/sharded/checkpoint_reader.h"

namespace holdfast {

struct ModelExportOptions {
  std::string output;      // directory, made if needed
  bool overwrite = false;  // the model in it; else AlreadyExists if it is not empty
  FileDType dtype = FileDType::kF32;
  std::string tokenizer;  // empty = as the checkpoint's config says, or of `base` if it has moved with that
  bool ema = false;       // the moving average instead of the weights
  bool merge = false;     // of a run with adapters: the model with them, not they alone
  std::string base;       // the model that weights that were not trained are from; empty = as the config says
  int threads = 1;
  std::stop_token stop = {};  // asks for an end: Cancelled, and nothing is written
};

struct ModelExport {
  int64_t elements = 0, bytes = 0;
  bool kept_chat_template = false;  // that was in options.output, as the run's tokenizer has none
};

/// Every chunk is verified. Of a run that trained a part of a model the rest is read from where it began; of one with
/// adapters they are written in PEFT's form, unless options.merge. NotFound if the average is asked for and the run had
/// none; FailedPrecondition if options.base is another model than the run began with.
absl::StatusOr<ModelExport> ExportModel(const CheckpointReader& checkpoint, const ModelExportOptions& options,
                                        const ByteProgress& progress);

}  // namespace holdfast
