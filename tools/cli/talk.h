#pragma once
// A conversation with a model: each line that is read is a user's turn, and each turn is answered by the chat template
// of all before it (`holdfast sample --chat`).

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/chat/chat_template.h"
#include "models/runtime/loaded_model.h"
#include "models/sampler.h"

namespace holdfast {

struct TalkOptions {
  std::string system;              // a message before all others, unless it is empty
  std::vector<int32_t> ends;       // tokens after which an answer has no more
  std::vector<std::string> stops;  // texts before which it ends
  SampleOptions sample;            // of each answer
  bool asks = false;               // for each line, on standard error
  bool tells_of_cuts = false;      // of the first answer that sample.tokens ends, on standard error
  bool to_terminal = false;        // as what is printed goes
};

/// Prints an answer to each of `lines`, as it is made, until they end or one is blank. It is the answer that the same
/// turns have as a file (`--conversation`). OutOfRange once the model's context is full, InvalidArgument for a line of
/// more bytes than such a file may have. `model` was loaded for its longest sequence.
absl::Status Talk(const LoadedModel& model, const ChatTemplate& chat, const TalkOptions& options, std::istream& lines);

}  // namespace holdfast
