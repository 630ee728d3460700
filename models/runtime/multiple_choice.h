#pragma once
// Questions with several answers to choose from: which of them a model finds the likeliest to follow.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/data/document_reader.h"
#include "models/runtime/loaded_model.h"

namespace holdfast {

struct ChoiceQuestion {
  /// A choice follows it as it stands: a space between them belongs to one of them, and is scored with the choice, as
  /// lm-evaluation-harness does. Nothing is put before it, whatever the tokenizer's settings say of texts, as that does
  /// by default (add_bos_token=False); an empty one begins with the token that begins a text.
  std::string context;
  std::vector<std::string> choices;  // at least two, none empty
  size_t answer = 0;                 // the right one
};

struct ChoiceResult {
  int64_t questions = 0;
  int64_t correct = 0;  // by the probability of the whole choice: acc of lm-evaluation-harness
  /// By its logarithm over the number of characters, which is fair to long choices: acc_norm of lm-evaluation-harness,
  /// which does not count the white space before a choice.
  int64_t correct_by_length = 0;
  int64_t cut = 0;  // of the questions, those whose context lost its beginning

  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(questions); }
  double accuracy_by_length() const { return static_cast<double>(correct_by_length) / static_cast<double>(questions); }
};

/// A line of JSON: {"context": "...", "choices": ["...", ...], "answer": 0}, the answer counted from 0.
absl::StatusOr<ChoiceQuestion> ParseChoiceQuestion(std::string_view line);

/// Adds up the questions of a JSONL file; errors name file and line. What does not fit into the sequence of `model`,
/// loaded for batches of one, is cut at its beginning.
absl::StatusOr<ChoiceResult> AnswerQuestions(const LoadedModel& model, int64_t sequence, InputFile& file,
                                             const std::function<void(int64_t bytes)>& count_bytes);

}  // namespace holdfast
