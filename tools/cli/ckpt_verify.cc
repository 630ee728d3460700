// holdfast ckpt verify: reads every byte of checkpoints and compares it with its digest.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/admin/checkpoint_text.h"
#include "checkpoint/admin/checkpoint_verify.h"
#include "framework/base/counted.h"
#include "framework/base/status.h"
#include "tools/cli/ckpt_actions.h"
#include "tools/cli/command.h"
#include "tools/cli/shared_progress.h"

namespace holdfast {

absl::StatusOr<int> CkptVerify(const CkptVerifyOptions& options) {
  ASSIGN_OR_RETURN(const CheckpointPlace place, OpenCheckpointPlace(options.target.where, options.target.place));
  ASSIGN_OR_RETURN(const Catalog catalog, ScanCheckpoints(*place.storage));
  ASSIGN_OR_RETURN(const std::vector<Verifiable> checkpoints,
                   ChooseVerifiable(catalog, place, options.target, options.all));
  size_t damaged = 0;
  for (const Verifiable& checkpoint : checkpoints) {
    SharedProgress progress("verifying " + checkpoint.name);
    ASSIGN_OR_RETURN(const std::vector<std::string> problems,
                     VerifyCheckpoint(*place.storage, checkpoint, options.threads, progress.Listener()));
    progress.Finish();
    for (const std::string& problem : problems) std::printf("%s\n", problem.c_str());
    damaged += problems.empty() ? 0 : 1;
    if (!problems.empty()) continue;
    std::printf("%s: valid, state digest %s\n", checkpoint.name.c_str(),
                DigestText(checkpoint.entry->manifest.state_digest).c_str());
  }
  if (damaged == 0) return kExitDone;
  return absl::DataLossError(absl::StrCat(place.storage->Describe(), ": ", damaged, " of ",
                                          Counted(static_cast<int64_t>(checkpoints.size()), "checkpoint"), " damaged"));
}

}  // namespace holdfast
