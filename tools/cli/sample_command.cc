#include "tools/cli/sample_command.h"

#include <cstdio>
#include <memory>

#include "framework/base/status.h"
#include "models/runtime/loaded_model.h"

namespace holdfast {
absl::StatusOr<int> SampleCommand::Run() const {
  ASSIGN_OR_RETURN(const auto loaded, LoadSavedModel(model, {.threads = threads}));
  if (loaded->tokenizer == nullptr) {
    return absl::FailedPreconditionError(model + " has no tokenizer.json, so text cannot be sampled from it");
  }
  SampleOptions bounded = options;
  bounded.context = std::min<int64_t>(options.context, loaded->config.max_sequence_length);
  ASSIGN_OR_RETURN(const std::vector<int32_t> start, loaded->tokenizer->Encode(prompt));
  if (start.empty()) return absl::InvalidArgumentError("--prompt must not be empty");

  std::printf("%s", prompt.c_str());
  const auto next = [&](absl::Span<const int32_t> tokens) { return loaded->NextLogits(tokens); };
  const auto accept = [&](int32_t token) {
    if (loaded->tokenizer->end_of_text() == token) return false;
    std::printf("%s", loaded->tokenizer->Decode({token}).c_str());
    std::fflush(stdout);
    return true;
  };
  RETURN_IF_ERROR(GenerateTokens(next, start, bounded, accept).status());
  std::printf("\n");
  return kExitDone;
}

void SampleCommand::AddTo(CLI::App& command) {
  command.add_option("MODEL", model, "saved model directory, or a run directory")->required();
  command.add_option("--prompt", prompt, "text to continue");
  command.add_option("--tokens", options.tokens, "tokens to generate")->check(CLI::Range(1, 1'000'000));
  command.add_option("--temperature", options.temperature, "0 = always the likeliest")->check(CLI::Range(0.0, 100.0));
  command.add_option("--top-k", options.top_k, "sample among the k likeliest; 0 = all")->check(CLI::NonNegativeNumber);
  command.add_option("--seed", options.seed, "the same seed gives the same text");
  command.add_option("--threads", threads, "0 = all")->check(CLI::Range(0, 4096));
}

}  // namespace holdfast
