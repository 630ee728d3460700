#include "tools/cli/commands.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/config/suggest.h"
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
namespace {

/// The command that was named last; `app` itself if none was.
const CLI::App& Deepest(const CLI::App& app) {
  const std::vector<CLI::App*> named = app.get_subcommands();
  return named.empty() ? app : Deepest(*named.back());
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); })) {
    names.push_back(command->get_name());
  }
  return names;
}

/// The longest name that is a part of `word` with all its hyphens, as "tokens" is of "max-tokens"; "" if none is.
std::string PartOf(const std::string& word, const std::vector<std::string>& names) {
  std::string longest;
  for (const std::string& name : names) {
    const bool is_part = absl::StrContains(absl::StrCat("-", word, "-"), absl::StrCat("-", name, "-"));
    if (is_part && name.size() > longest.size()) longest = name;
  }
  return longest;
}

/// Of what was written "--worker" or "--worker=2".
std::string OptionHint(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* each : {&app, &Deepest(app)}) {
    for (const CLI::Option* option : each->get_options()) {
      names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
    }
  }
  const std::string name = word.substr(2, word.find('=') - 2);
  std::string nearest = Nearest(name, names);
  if (nearest == name) return absl::StrCat("write it behind the name of the command, '", Deepest(app).get_name(), "'");
  if (nearest.empty()) nearest = PartOf(name, names);
  return nearest.empty() ? "" : absl::StrCat("did you mean '--", nearest, "'?");
}

std::string CommandHint(const std::vector<std::string>& commands, const std::string& word) {
  const std::string is_none = absl::StrCat("'", word, "' is none");
  if (word == "resume") return absl::StrCat(is_none, "; the command that began a run resumes it");
  const bool is_flag = word == "help" || word == "version";
  const std::string nearest = is_flag ? absl::StrCat("--", word) : Nearest(word, commands);
  return nearest.empty() ? is_none : absl::StrCat(is_none, "; did you mean '", nearest, "'?");
}

/// Of the first word that is not understood; empty where there is nothing to say.
std::string Hint(const CLI::App& app) {
  const std::vector<std::string> commands = CommandsOf(Deepest(app));
  const bool sets_keys = Deepest(app).get_option_no_throw("--set") != nullptr;
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  const bool takes_prompts = Deepest(app).get_option_no_throw("--prompt") != nullptr;
  if (takes_prompts && !words.empty() && !absl::StartsWith(words.front(), "--")) {
    return "a text to continue is given by --prompt";
  }
  for (const std::string& word : words) {
    const bool is_option = absl::StartsWith(word, "--");
    std::string hint;
    if (is_option) {
      hint = OptionHint(app, word);
    } else if (!commands.empty()) {
      hint = CommandHint(commands, word);
    }
    // "--train.steps=5", as other programs have it, or the second KEY=VALUE after one --set.
    if (hint.empty() && (is_option || absl::StrContains(word, '=')) && sets_keys) {
      hint = "a key of the config is set by --set section.key=value, each by a --set of its own";
    }
    if (!hint.empty()) return hint;
  }
  return "";
}

/// What the parser says, but that it lists words from the last to the first.
std::string WhatIsWrong(const CLI::App& app, const CLI::Error& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return error.what();
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  return absl::StrCat(words.size() > 1 ? "These arguments were not expected: " : "This argument was not expected: ",
                      absl::StrJoin(words, " "));
}

}  // namespace

std::string ParseErrorText(const CLI::App* app, const CLI::Error& error) {
  std::string text = CLI::FailureMessage::simple(app, error);
  std::string what = WhatIsWrong(*app, error);
  const std::string hint = Hint(*app);
  if (!hint.empty()) absl::StrAppend(&what, " (", hint, ")");
  return text.replace(0, std::strlen(error.what()), what);
}

void AddCommands(CLI::App& app, CommandBody& body) {
  app.require_subcommand(1);
  AddCommand<TrainCommand>(app, body, "train", "Train a model as a config file says");
  AddCommand<ValidateCommand>(app, body, "validate", "Check a config and print what it means");
  AddCommand<CheckWidthCommand>(app, body, "check-width",
                                "Check that activations change alike in models of any width and depth");
  AddCommand<TuneCommand>(app, body, "tune", "Find the fastest matrix products of a config on this GPU");
  CLI::App* data = app.add_subcommand("data", "Make and look at token files");
  data->require_subcommand(1);
  AddCommand<DataPackCommand>(*data, body, "pack", "Turn text or JSON Lines files into a token file");
  AddCommand<DataShowCommand>(*data, body, "show", "Print what is in a token file");
  AddCommand<DataIndexCommand>(*data, body, "index", "Read token files and write the index beside each, as pack does");
  AddCommand<DataVerifyCommand>(*data, body, "verify", "Read token files and compare every block with their index");
  AddCommand<SampleCommand>(app, body, "sample", "Print text sampled from a model");
  AddCommand<EvalCommand>(app, body, "eval", "Print the loss of a model on token files, or its accuracy on questions");
  CLI::App* model = app.add_subcommand("model", "Make a saved model out of another one");
  model->require_subcommand(1);
  AddCommand<ModelUpcycleCommand>(*model, body, "upcycle", "Make a model with experts of a dense one");
  AddCommand<CompareCommand>(app, body, "compare", "Compare runs bit by bit and print the first step that differs");
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
