#include "tools/cli/sample_command.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "framework/base/status.h"
#include "framework/chat/chat_template.h"
#include "models/stop_text.h"

namespace holdfast {
namespace {

absl::StatusOr<jinja::Value> Message(const char* role, const std::string& content) {
  jinja::Dict message;
  RETURN_IF_ERROR(message.Set("role", role));
  RETURN_IF_ERROR(message.Set("content", content));
  return jinja::Value(std::move(message));
}

void Print(const std::string& text) {
  std::printf("%s", text.c_str());
  std::fflush(stdout);
}

}  // namespace

absl::StatusOr<SampleCommand::Start> SampleCommand::StartOf(const LoadedModel& loaded) const {
  Start start{.text = prompt, .ends = {}};
  if (loaded.tokenizer->end_of_text().has_value()) start.ends.push_back(*loaded.tokenizer->end_of_text());
  if (!chat) return start;
  ASSIGN_OR_RETURN(const ChatTemplate opened, ChatTemplate::Open(loaded.directory, {}));
  Conversation conversation;
  if (!system.empty()) {
    ASSIGN_OR_RETURN(jinja::Value message, Message("system", system));
    conversation.messages.push_back(std::move(message));
  }
  ASSIGN_OR_RETURN(jinja::Value message, Message("user", prompt));
  conversation.messages.push_back(std::move(message));
  ASSIGN_OR_RETURN(start.text, opened.Render(conversation, /*add_generation_prompt=*/true));
  if (opened.end_of_text().has_value()) start.ends.push_back(*opened.end_of_text());
  return start;
}

absl::StatusOr<int> SampleCommand::Run() const {
  ASSIGN_OR_RETURN(const auto loaded, LoadSavedModel(model, {.threads = threads}));
  if (loaded->tokenizer == nullptr) {
    return absl::FailedPreconditionError(model + " has no tokenizer.json, so text cannot be sampled from it");
  }
  SampleOptions bounded = options;
  bounded.context = std::min<int64_t>(options.context, loaded->config.max_sequence_length);
  ASSIGN_OR_RETURN(const Start start, StartOf(*loaded));
  ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, loaded->tokenizer->Encode(start.text));
  if (tokens.empty()) return absl::InvalidArgumentError("--prompt must not be empty");

  if (!chat) Print(prompt);
  StopText text(stops);
  const auto next = [&](absl::Span<const int32_t> before) { return loaded->NextLogits(before); };
  const auto accept = [&](int32_t token) {
    if (std::find(start.ends.begin(), start.ends.end(), token) != start.ends.end()) return false;
    Print(text.Add(loaded->tokenizer->Decode({token})));
    return !text.stopped();
  };
  RETURN_IF_ERROR(GenerateTokens(next, tokens, bounded, accept).status());
  Print(text.Rest() + "\n");
  return kExitDone;
}

void SampleCommand::AddTo(CLI::App& command) {
  command.add_option("MODEL", model, "saved model directory, or a run directory")->required();
  command.add_option("--prompt", prompt, "text to continue; with --chat a message to answer");
  auto* is_chat = command.add_flag("--chat", chat, "write the prompt by the model's chat template");
  command.add_option("--system", system, "a system message before it")->needs(is_chat);
  command.add_option("--stop", stops, "end before this text; may be repeated")->check([](const std::string& stop) {
    return stop.empty() ? std::string("a stop must not be empty") : std::string();
  });
  command.add_option("--tokens", options.tokens, "tokens to generate")->check(CLI::Range(1, 1'000'000));
  command.add_option("--temperature", options.temperature, "0 = always the likeliest")->check(CLI::Range(0.0, 100.0));
  command.add_option("--top-k", options.top_k, "sample among the k likeliest; 0 = all")->check(CLI::NonNegativeNumber);
  command
      .add_option("--top-p", options.top_p,
                  "sample among the likeliest, up to this share of their probability; 1 = all")
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--seed", options.seed, "the same seed gives the same text");
  command.add_option("--threads", threads, "0 = all")->check(CLI::Range(0, 4096));
}

}  // namespace holdfast
