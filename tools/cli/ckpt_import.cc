// holdfast ckpt import: a saved model becomes the checkpoint of step 0.

#include <cstdio>

#include "checkpoint/admin/checkpoint_text.h"
#include "checkpoint/admin/fence_owner.h"
#include "checkpoint/admin/model_import.h"
#include "framework/base/status.h"
#include "models/runtime/gemm_table.h"
#include "tools/cli/ckpt_actions.h"
#include "tools/cli/command.h"
#include "tools/cli/shared_progress.h"
#include "tools/cli/stoppable.h"

namespace holdfast {

namespace {

absl::StatusOr<int> Import(const CkptImportOptions& options, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(Config config, options.config.LoadUnresolved(options.model));
  RETURN_IF_ERROR(ResolveGemmTable(&config.train));
  ASSIGN_OR_RETURN(const ModelImport model, ModelImport::Open(config, options.model));

  PlaceOptions place_options = options.place;
  place_options.access = PlaceAccess::kCreate;
  place_options.stop = stop;
  ASSIGN_OR_RETURN(const CheckpointPlace place, OpenCheckpointPlace(options.where, place_options));
  SharedProgress progress("importing");
  ASSIGN_OR_RETURN(const Manifest manifest,
                   model.WriteTo(*place.storage, FenceOwner("holdfast ckpt import"), progress.Listener(), stop));
  progress.Finish();
  std::printf("%s: %s parameters, state digest %s\n", Describe(manifest.name, *place.storage).c_str(),
              WithCommas(static_cast<uint64_t>(model.layout().elements())).c_str(),
              DigestText(manifest.state_digest).c_str());
  return kExitDone;
}

}  // namespace

absl::StatusOr<int> CkptImport(const CkptImportOptions& options) {
  CkptImportOptions read = options;
  RETURN_IF_ERROR(read.config.Read());
  return RunStoppable("no checkpoint was written", [&](const StopSignal& stop) { return Import(read, stop.token()); });
}

}  // namespace holdfast
