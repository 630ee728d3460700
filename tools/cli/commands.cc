#include "tools/cli/commands.h"

#include "tools/cli/agent_command.h"
#include "tools/cli/check_width_command.h"
#include "tools/cli/ckpt_command.h"
#include "tools/cli/compare_command.h"
#include "tools/cli/coordinator_command.h"
#include "tools/cli/data_command.h"
#include "tools/cli/eval_command.h"
#include "tools/cli/model_command.h"
#include "tools/cli/sample_command.h"
#include "tools/cli/scaling_command.h"
#include "tools/cli/status_command.h"
#include "tools/cli/sweep_command.h"
#include "tools/cli/train_command.h"
#include "tools/cli/tune_command.h"
#include "tools/cli/validate_command.h"
#include "tools/cli/worker_command.h"

namespace holdfast {

void AddCommands(CLI::App& app, CommandBody& body) {
  app.require_subcommand(1);
  AddCommand<TrainCommand>(app, body, "train", "Train a model as a config file says");
  AddCommand<ValidateCommand>(app, body, "validate", "Check a config and print what it means");
  AddCommand<CheckWidthCommand>(app, body, "check-width",
                                "Check that activations change alike in models of any width and depth");
  AddCommand<TuneCommand>(app, body, "tune", "Find the fastest matrix products of a config on this GPU");
  CLI::App* data = app.add_subcommand("data", "Make and look at token files");
  data->require_subcommand(1);
  AddCommand<DataPackCommand>(*data, body, "pack", "Turn text or JSONL files into a token file");
  AddCommand<DataShowCommand>(*data, body, "show", "Print what is in a token file");
  AddCommand<DataIndexCommand>(*data, body, "index", "Read token files and write the index beside each, as pack does");
  AddCommand<DataVerifyCommand>(*data, body, "verify", "Read token files and compare every block with their index");
  AddCommand<SampleCommand>(app, body, "sample", "Print text sampled from a saved model");
  AddCommand<EvalCommand>(app, body, "eval", "Print the loss of a saved model on token files");
  CLI::App* model = app.add_subcommand("model", "Make a saved model of another one");
  model->require_subcommand(1);
  AddCommand<ModelUpcycleCommand>(*model, body, "upcycle", "Make a model with experts of a dense one");
  AddCommand<CompareCommand>(app, body, "compare", "Compare two runs bit by bit and print the first step that differs");
  AddCommand<SweepCommand>(app, body, "sweep", "Try a config over a space of values, on workers that trials share");
  CLI::App* scaling = app.add_subcommand("scaling", "Fit scaling laws to runs, and predict runs by them");
  scaling->require_subcommand(1);
  AddCommand<ScalingFitCommand>(*scaling, body, "fit", "Fit a law of the loss over model size and tokens");
  AddCommand<ScalingOptimumCommand>(*scaling, body, "optimum", "Print the best model size and tokens for a budget");
  AddCommand<ScalingNextCommand>(*scaling, body, "next", "Print the next runs that make a prediction more certain");
  AddCommand<ScalingPredictCommand>(*scaling, body, "predict", "Predict the loss of a config before it is run");
  AddCommand<ScalingCompareCommand>(*scaling, body, "compare", "Print how far off a prediction was");
  AddCkptCommand(app, body);
  AddCommand<CoordinatorCommand>(app, body, "coordinator",
                                 "Coordinate a run over several machines; the same command resumes it");
  AddCommand<AgentCommand>(app, body, "agent", "Start and supervise the workers of one machine");
  AddCommand<StatusCommand>(app, body, "status", "Print the state of a run: world, workers, last events");
  AddCommand<WorkerCommand>(app, body, "worker", "One worker process; started by an agent")
      ->group("");  // not for people
}

}  // namespace holdfast
