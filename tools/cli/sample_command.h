#pragma once
// holdfast sample: text from a saved model, or a conversation with it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/chat/chat_template.h"
#include "framework/config/config.h"
#include "models/runtime/loaded_model.h"
#include "models/sampler.h"
#include "tools/cli/command.h"

namespace holdfast {

struct SampleCommand {
  std::string model;
  std::vector<std::string> prompts;
  std::string prompts_file;       // more of them, one on each line
  int64_t samples = 1;            // of each prompt
  int64_t batch = 8;              // at a time
  bool chat = false;              // a prompt is a message to the model, by its chat template
  std::string conversation_file;  // whose last message is to be answered; "-" = standard input
  std::string system;             // a message before it
  std::string date;               // YYYY-MM-DD, for templates that write it; empty = today
  std::vector<std::string> stops;
  SampleOptions options;
  ComputeDType dtype = ComputeDType::kBF16;
  int64_t threads = 0;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;

 private:
  absl::StatusOr<std::vector<std::string>> Prompts() const;
  struct Start {
    std::vector<std::string> texts;             // of each prompt, what the model continues
    std::vector<int32_t> prefix;                // tokens before it, unless it begins with them
    std::vector<int32_t> ends;                  // tokens after which there is no more
    std::optional<ChatTemplate> chat_template;  // with --chat
  };
  /// Whether standard input is a conversation, each of its lines a message.
  bool IsTalk() const { return chat && prompts.empty() && prompts_file.empty() && conversation_file.empty(); }
  absl::StatusOr<Start> StartOf(const SavedModel& saved, const std::vector<std::string>& given) const;
  /// Of conversation_file, what the model continues.
  absl::StatusOr<std::string> TextOfConversation(const ChatTemplate& opened) const;
  absl::StatusOr<int> TalkWith(const LoadedModel& loaded, const Start& start) const;
  /// `samples` for each prompt.
  absl::StatusOr<std::vector<SampleRequest>> Requests(const SavedModel& saved, const Start& start) const;
};

}  // namespace holdfast
