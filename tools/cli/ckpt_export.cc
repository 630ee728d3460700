// holdfast ckpt export: the weights of a checkpoint as a saved model.

#include <cstdio>

#include "checkpoint/admin/checkpoint_text.h"
#include "checkpoint/model_directory.h"
#include "framework/base/format_bytes.h"
#include "framework/base/status.h"
#include "tools/cli/ckpt_actions.h"
#include "tools/cli/command.h"
#include "tools/cli/shared_progress.h"
#include "tools/cli/stoppable.h"

namespace holdfast {

namespace {

absl::StatusOr<int> Export(const CkptExportOptions& options, const std::stop_token& stop) {
  TargetOptions target = options.target;
  target.place.stop = stop;
  ASSIGN_OR_RETURN(const auto checkpoint, OpenCheckpoint(target));
  ModelExportOptions model = options.model;
  model.stop = stop;
  SharedProgress progress("exporting");
  ASSIGN_OR_RETURN(const ModelExport made, ExportModel(*checkpoint->reader, model, progress.Listener()));
  progress.Finish();
  const int64_t step = checkpoint->reader->manifest().name.step;
  std::printf("%s: %s %s of step %lld, %s, every chunk verified\n", options.model.output.c_str(),
              WithCommas(static_cast<uint64_t>(made.elements)).c_str(),
              options.model.ema ? "averaged parameters" : "parameters", static_cast<long long>(step),
              FormatBytes(static_cast<double>(made.bytes)).c_str());
  if (made.kept_chat_template) {
    std::printf("%s/%s, which was there, is kept: the run's tokenizer has no chat template\n",
                options.model.output.c_str(), kChatTemplateFile);
  }
  return kExitDone;
}

}  // namespace

absl::StatusOr<int> CkptExport(const CkptExportOptions& options) {
  return RunStoppable("no model was written", [&](const StopSignal& stop) { return Export(options, stop.token()); });
}

}  // namespace holdfast
