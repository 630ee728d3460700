#include "tools/cli/ckpt_command.h"

#include <memory>
#include <string>

#include "framework/base/processors.h"
#include "tools/cli/ckpt_actions.h"
#include "tools/cli/dtype_argument.h"

namespace holdfast {
namespace {

constexpr char kEndpoint[] =
    "of the S3 service, http://HOST[:PORT]; default: that of the run, or else AWS_ENDPOINT_URL, or AWS";
constexpr char kRegion[] = "of the S3 service; default: that of the run, or else AWS_REGION, or us-east-1";
constexpr char kWhere[] =
    "a run directory, a directory of checkpoints, s3://bucket/prefix, or one checkpoint in it (.../step-0000001000-g7)";

/// A subcommand whose options live as long as its body.
template <typename Options>
CLI::App* AddAction(CLI::App& ckpt, CommandBody& body, const std::string& name, const std::string& description,
                    const std::shared_ptr<Options>& options, absl::StatusOr<int> (*action)(const Options&)) {
  CLI::App* command = ckpt.add_subcommand(name, description);
  command->callback([options, action, &body] { body = [options, action] { return action(*options); }; });
  return command;
}

void AddPlace(CLI::App* command, PlaceOptions& place) {
  command->add_option("--endpoint", place.s3_endpoint, kEndpoint);
  command->add_option("--region", place.s3_region, kRegion);
}

void AddWhere(CLI::App* command, TargetOptions& target) {
  AddPathOption(*command, "WHERE", target.where, kWhere)->required();
  AddPlace(command, target.place);
}

CLI::Option* AddStep(CLI::App* command, TargetOptions& target) {
  return command->add_option("--step", target.step, "the checkpoint of this step; default: the newest")
      ->check(NotNegative());
}

void AddThreads(CLI::App* command, int& threads) {
  threads = AvailableProcessors();
  command->add_option("--threads", threads, "threads that read and decompress; default: all processors")
      ->check(WholeNumberWithin(1, 4096));
}

void AddList(CLI::App& ckpt, CommandBody& body) {
  auto options = std::make_shared<CkptListOptions>();
  CLI::App* command = AddAction(ckpt, body, "list", "Print which checkpoints there are, and why some are not usable",
                                options, CkptList);
  AddWhere(command, options->target);
  command->add_flag("--json", options->json, "print one JSON object");
}

void AddShow(CLI::App& ckpt, CommandBody& body) {
  auto options = std::make_shared<CkptShowOptions>();
  CLI::App* command = AddAction(ckpt, body, "show", "Print what is in a checkpoint", options, CkptShow);
  AddWhere(command, options->target);
  AddStep(command, options->target);
  CLI::Option* tensor = command->add_option("--tensor", options->tensor, "only the tensor of this name");
  CLI::Option* statistics = command->add_flag(
      "--stats", options->statistics, "read the values: min, max, mean, rms, zeros, NaNs of weights and moments");
  command->add_flag("--config", options->config, "print the config it was written with, nothing else")
      ->excludes(tensor)
      ->excludes(statistics);
  AddThreads(command, options->threads);
}

void AddVerify(CLI::App& ckpt, CommandBody& body) {
  auto options = std::make_shared<CkptVerifyOptions>();
  CLI::App* command = AddAction(ckpt, body, "verify",
                                "Read every byte and compare it with its digest; exit code 1 if anything is damaged",
                                options, CkptVerify);
  AddWhere(command, options->target);
  CLI::Option* step = AddStep(command, options->target);
  command->add_flag("--all", options->all, "verify all checkpoints there")->excludes(step);
  AddThreads(command, options->threads);
}

void AddDigest(CLI::App& ckpt, CommandBody& body) {
  auto options = std::make_shared<TargetOptions>();
  CLI::App* command = AddAction(
      ckpt, body, "digest", "Print the state digest: that of the step's line in metrics.jsonl", options, CkptDigest);
  AddWhere(command, *options);
  AddStep(command, *options);
}

void AddPrune(CLI::App& ckpt, CommandBody& body) {
  auto options = std::make_shared<CkptPruneOptions>();
  CLI::App* command = AddAction(
      ckpt, body, "prune", "Delete old and unfinished checkpoints; never the newest valid one", options, CkptPrune);
  AddWhere(command, options->target);
  command->add_option("--keep-last", options->keep_last, "keep so many of the newest; default: as the config says")
      ->check(WholeNumberWithin(1, int64_t{1} << 40));
  command
      ->add_option("--keep-every", options->keep_every_steps,
                   "and those whose step is a multiple of this; 0 = none; default: as the config says")
      ->check(NotNegative());
  command
      ->add_option("--keep-best", options->keep_best,
                   "and so many with the lowest validation loss; 0 = none; default: as the config says")
      ->check(NotNegative());
  command->add_flag("--damaged", options->damaged, "delete damaged checkpoints, too");
  command->add_flag("--take-over", options->take_over,
                    "take the directory over from the run that used it last, which has ended");
  command->add_flag("--dry-run", options->dry_run, "only print what would be deleted");
}

void AddExport(CLI::App& ckpt, CommandBody& body) {
  auto options = std::make_shared<CkptExportOptions>();
  CLI::App* command = AddAction(ckpt, body, "export",
                                "Write the weights as a saved model: Hugging Face safetensors, config.json, tokenizer",
                                options, CkptExport);
  AddWhere(command, options->target);
  AddPathOption(*command, "OUT_DIR", options->model.output, "directory of the saved model; not there yet, or empty")
      ->required();
  command->add_flag("--overwrite", options->model.overwrite, "replace the model in OUT_DIR");
  AddStep(command, options->target);
  AddFileDTypeOption(*command, options->model.dtype, "of the weights; default f32");
  command->add_option("--tokenizer", options->model.tokenizer,
                      "where the tokenizer.json is, if it has moved since; or bytes");
  command->add_flag("--ema", options->model.ema,
                    "the moving average of the weights (optimizer.ema_decay) instead of them");
  command->add_flag("--merge", options->model.merge,
                    "of a run with adapters (lora): the model that they are for with them added, not adapters alone");
  command->add_option("--base", options->model.base,
                      "where the model is that a run of adapters or of a part began with, if it has moved since");
  AddThreads(command, options->model.threads);
}

void AddImport(CLI::App& ckpt, CommandBody& body) {
  auto options = std::make_shared<CkptImportOptions>();
  CLI::App* command = AddAction(ckpt, body, "import", "Make a saved model the checkpoint of step 0, to train from it",
                                options, CkptImport);
  AddPathOption(*command, "MODEL_DIR", options->model, "directory of a saved model: safetensors and config.json")
      ->required();
  AddPathOption(*command, "WHERE", options->where, "directory of checkpoints or s3://bucket/prefix, without any yet")
      ->required();
  AddPathOption(*command, "--config", options->config.path, "config file (YAML) of the run that will resume from it")
      ->required();
  options->config.AddOverrides(*command);
  AddPlace(command, options->place);
}

void AddDiff(CLI::App& ckpt, CommandBody& body) {
  auto options = std::make_shared<CkptDiffOptions>();
  CLI::App* command =
      AddAction(ckpt, body, "diff",
                "Compare two checkpoints bit by bit; exit code 0 if they are equal, 1 if not, 2 if it cannot tell",
                options, CkptDiff);
  AddPathOption(*command, "A", options->a.where, kWhere)->required();
  AddPathOption(*command, "B", options->b.where, kWhere)->required();
  command
      ->add_option_function<int64_t>(
          "--step", [options](const int64_t& step) { options->a.step = options->b.step = step; },
          "the checkpoints of this step; default: the newest of each")
      ->check(NotNegative());
  command->add_option_function<std::string>(
      "--endpoint",
      [options](const std::string& value) { options->a.place.s3_endpoint = options->b.place.s3_endpoint = value; },
      kEndpoint);
  command->add_option_function<std::string>(
      "--region",
      [options](const std::string& value) { options->a.place.s3_region = options->b.place.s3_region = value; },
      kRegion);
  AddThreads(command, options->threads);
}

}  // namespace

void AddCkptCommand(CLI::App& parent, CommandBody& body) {
  CLI::App* ckpt = parent.add_subcommand("ckpt", "Look at checkpoints, verify, prune, export, import and compare them");
  ckpt->require_subcommand(1);
  AddList(*ckpt, body);
  AddShow(*ckpt, body);
  AddVerify(*ckpt, body);
  AddDigest(*ckpt, body);
  AddPrune(*ckpt, body);
  AddExport(*ckpt, body);
  AddImport(*ckpt, body);
  AddDiff(*ckpt, body);
}

}  // namespace holdfast
