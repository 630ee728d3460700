#include "tools/cli/model_command.h"

#include <cstdio>

#include "framework/base/counted.h"
#include "framework/base/status.h"
#include "framework/metrics/progress.h"
#include "models/plan.h"
#include "models/transformer.h"
#include "tools/cli/dtype_argument.h"
#include "tools/cli/shared_progress.h"
#include "tools/cli/stoppable.h"

namespace holdfast {

absl::StatusOr<int> ModelUpcycleCommand::Run() const {
  return RunStoppable("no model was written", [this](const StopSignal& stop) { return Upcycle(stop.token()); });
}

absl::StatusOr<int> ModelUpcycleCommand::Upcycle(const std::stop_token& stop) const {
  UpcycleOptions stoppable = options;
  stoppable.stop = stop;
  SharedProgress progress("writing");
  ASSIGN_OR_RETURN(const ModelConfig made, UpcycleModel(stoppable, progress.Listener()));
  progress.Finish();
  std::printf("%s: %s with %s, %lld for a token: %s parameters, of which %s are used for a token\n",
              options.output.c_str(), made.family.c_str(), Counted(made.num_experts, "expert").c_str(),
              static_cast<long long>(made.experts_per_token),
              FormatCount(static_cast<double>(TransformerLayout(made).elements())).c_str(),
              FormatCount(static_cast<double>(ActiveParameters(made))).c_str());
  return kExitDone;
}

void ModelUpcycleCommand::AddTo(CLI::App& command) {
  AddPathOption(command, "DENSE", options.dense, "directory of a saved Llama, Mistral, Qwen2 or Qwen3")->required();
  AddPathOption(command, "MOE", options.output, "directory of the new one; not there yet, or empty")->required();
  command.add_option("--experts", options.experts, "experts of each layer, copies of its MLP; default 8")
      ->check(WholeNumberWithin(1, 4096));
  command.add_option("--experts-per-token", options.experts_per_token, "experts that each token goes to; default 2")
      ->check(WholeNumberWithin(1, 64));
  command.add_option("--seed", options.seed, "of the routers' first weights; default 0")->check(IsSeed());
  AddFileDTypeOption(command, options.dtype, "of the weights; default: the dense model's");
}

}  // namespace holdfast
