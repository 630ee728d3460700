// holdfast sample: text from a saved model.

#include <cstdio>
#include <memory>

#include "framework/base/status.h"
#include "models/sampler.h"
#include "tools/command.h"
#include "tools/session.h"

namespace holdfast {
namespace {

struct SampleArguments {
  std::string model, prompt = "\n";
  SampleOptions options;
  int64_t threads = 0;
};

absl::StatusOr<int> Sample(const SampleArguments& arguments) {
  HF_ASSIGN_OR_RETURN(const auto loaded, LoadSavedModel(arguments.model, {.threads = arguments.threads}));
  if (loaded->tokenizer == nullptr) {
    return absl::FailedPreconditionError(arguments.model + " has no tokenizer.json, so text cannot be sampled from it");
  }
  SampleOptions options = arguments.options;
  options.context = std::min<int64_t>(options.context, loaded->config.max_sequence_length);
  HF_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, loaded->tokenizer->Encode(arguments.prompt));
  if (prompt.empty()) return absl::InvalidArgumentError("--prompt must not be empty");

  std::printf("%s", arguments.prompt.c_str());
  const auto next = [&](absl::Span<const int32_t> tokens) { return loaded->NextLogits(tokens); };
  const auto accept = [&](int32_t token) {
    if (loaded->tokenizer->end_of_text() == token) return false;
    std::printf("%s", loaded->tokenizer->Decode({token}).c_str());
    std::fflush(stdout);
    return true;
  };
  HF_RETURN_IF_ERROR(GenerateTokens(next, prompt, options, accept).status());
  std::printf("\n");
  return kExitDone;
}

}  // namespace

void AddSampleCommand(CLI::App& parent, CommandBody& body) {
  CLI::App* command = parent.add_subcommand("sample", "Print text sampled from a saved model");
  auto arguments = std::make_shared<SampleArguments>();
  SampleOptions& options = arguments->options;
  command->add_option("MODEL", arguments->model, "saved model directory, or a run directory")->required();
  command->add_option("--prompt", arguments->prompt, "text to continue");
  command->add_option("--tokens", options.tokens, "tokens to generate")->check(CLI::Range(1, 1'000'000));
  command->add_option("--temperature", options.temperature, "0 = always the likeliest")->check(CLI::Range(0.0, 100.0));
  command->add_option("--top-k", options.top_k, "sample among the k likeliest; 0 = all")->check(CLI::NonNegativeNumber);
  command->add_option("--seed", options.seed, "the same seed gives the same text");
  command->add_option("--threads", arguments->threads, "0 = all")->check(CLI::Range(0, 4096));
  command->callback([arguments, &body] { body = [arguments] { return Sample(*arguments); }; });
}

}  // namespace holdfast
