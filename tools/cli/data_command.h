#pragma once
// holdfast data: makes, shows, indexes and verifies token files.

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "framework/chat/pack_conversations.h"
#include "framework/data/pack.h"
#include "framework/places/places.h"
#include "tools/cli/command.h"

namespace holdfast {

struct DataPackCommand {
  PackOptions options;
  std::string tokenizer = "bytes";
  bool append_eot = false, no_eot = false;
  bool chat = false;  // the inputs are conversations; the tokenizer a directory, with its template:
  ChatOptions chat_options;
  int64_t sequence_length = 0;
  PackConversationsOptions::TooLong too_long = PackConversationsOptions::TooLong::kDrop;
  PlaceSettings places;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;

 private:
  void AddChatTo(CLI::App& command);
  absl::StatusOr<int> PackText(const std::stop_token& stop) const;
  absl::StatusOr<int> PackChat(const std::stop_token& stop) const;
};

struct DataShowCommand {
  std::string path;
  std::string tokenizer;
  int64_t tokens = 128;
  int64_t at = 0;
  PlaceSettings places;

  void AddTo(CLI::App& command);
  absl::StatusOr<int> Run() const;
};

/// Of several token files.
struct DataFilesArguments {
  std::vector<std::string> paths;
  PlaceSettings places;

  void AddTo(CLI::App& command);
};

struct DataIndexCommand : DataFilesArguments {
  absl::StatusOr<int> Run() const;
};

struct DataVerifyCommand : DataFilesArguments {
  absl::StatusOr<int> Run() const;
};

}  // namespace holdfast
