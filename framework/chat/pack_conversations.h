#pragma once
// Conversations to token files of rows: each row holds several conversations that do not see each other, and says which
// tokens are learned.

#include <cstdint>
#include <functional>
#include <stop_token>

#include "absl/status/statusor.h"
#include "framework/chat/chat_template.h"
#include "framework/data/pack_paths.h"
#include "framework/storage/file_access.h"

namespace holdfast {

struct PackConversationsOptions {
  enum class TooLong { kDrop, kCut };

  PackPaths paths = {};  // validation_fraction: of the conversations, spread evenly over the inputs
  int64_t row_tokens = 0;
  TooLong too_long = TooLong::kDrop;  // a conversation of more tokens than a row
  int threads = 1;                    // that encode; no bit of the files depends on it
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress = {};  // may be empty; total 0 = unknown
  std::stop_token stop = {};                                                   // as PackOptions'
};

struct PackedRows {
  int64_t conversations = 0, rows = 0;
  int64_t tokens = 0, learned_tokens = 0;  // of the conversations; what is free in rows is not counted
};

struct PackConversationsReport {
  int64_t conversations = 0;          // read
  int64_t too_long = 0, longest = 0;  // the latter in tokens
  int64_t without_learned = 0;        // left out: nothing of what was left after cutting is learned
  int64_t left_out_tools = 0;         // with tools or calls of tools that the template does not write
  int64_t left_out_reasoning = 0;     // ChatTokens::leaves_out_thought
  int64_t left_out_calls = 0;         // ChatTokens::leaves_out_calls
  int64_t left_out_system = 0;        // ChatTokens::leaves_out_system
  int64_t without_end = 0;            // of whose last turn of the assistant no end is learned
  PackedRows training, validation;
};

/// Writes the token file(s) and their indexes, each complete or not at all; errors name file and line, the first that
/// has one.
absl::StatusOr<PackConversationsReport> PackConversations(const ChatTemplate& chat,
                                                          const PackConversationsOptions& options, FileAccess& files);

}  // namespace holdfast
