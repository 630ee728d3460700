#include "models/runtime/multiple_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "framework/base/json.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int kQuestionDepthMax = 8;

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, R"(; expected {"context": "...", "choices": ["...", "..."], "answer": 0})"));
}

absl::StatusOr<ChoiceQuestion> FromObject(const nlohmann::json& object) {
  if (!object.is_object()) return Bad("not a JSON object");
  const auto has = [&](const char* key) { return object.contains(key); };
  if (!has("context") && (has("messages") || has("completion"))) {
    return absl::InvalidArgumentError(
        "a conversation, not a question; `holdfast data pack --chat` makes a token file of such lines");
  }
  if (!has("context") || !object["context"].is_string()) return Bad("no text \"context\"");
  if (!has("choices") || !object["choices"].is_array()) return Bad("no list \"choices\"");
  if (!has("answer") || !object["answer"].is_number_integer()) return Bad("no whole number \"answer\"");
  ChoiceQuestion question{.context = object["context"].get<std::string>(), .choices = {}};
  for (const nlohmann::json& choice : object["choices"]) {
    if (!choice.is_string() || choice.get_ref<const std::string&>().empty()) {
      return Bad("a choice that is no text, or an empty one");
    }
    question.choices.push_back(choice.get<std::string>());
  }
  const auto answer = object["answer"].get<int64_t>();
  if (question.choices.size() < 2) return Bad("fewer than two choices");
  if (answer < 0 || answer >= static_cast<int64_t>(question.choices.size())) {
    return Bad(absl::StrCat("answer ", answer, " of ", question.choices.size(), " choices, counted from 0"));
  }
  question.answer = static_cast<size_t>(answer);
  return question;
}

/// One choice after its context: the tokens, and from which on they are the choice's.
struct Continued {
  std::vector<int32_t> tokens;
  size_t first = 0;
  bool cut = false;
};

/// Where a choice begins: with the white space at the end of its context, which most tokenizers join with what follows.
size_t EndOfContext(const std::string& context) {
  const size_t stripped = absl::StripTrailingAsciiWhitespace(context).size();
  return stripped > 0 ? stripped : context.size();
}

absl::StatusOr<Continued> Continue(const LoadedModel& model, const ChoiceQuestion& question, const std::string& choice,
                                   int64_t sequence) {
  const Tokenizer& tokenizer = *model.tokenizer;
  Continued continued;
  ASSIGN_OR_RETURN(TokensOfText encoded, tokenizer.EncodeWithRanges(question.context + choice));
  continued.tokens = std::move(encoded.tokens);
  const size_t end = EndOfContext(question.context);
  while (continued.first + 1 < encoded.ranges.size() && encoded.ranges[continued.first].end <= end) ++continued.first;
  if (continued.first == 0) {  // the first token is nobody's target
    if (!tokenizer.begin_of_text().has_value()) {
      return absl::InvalidArgumentError("an empty context, and the tokenizer has no token that begins a text");
    }
    continued.tokens.insert(continued.tokens.begin(), *tokenizer.begin_of_text());
    continued.first = 1;
  }
  RETURN_IF_ERROR(CheckTokens(tokenizer, continued.tokens, model.config.vocab_size));
  const auto most = static_cast<size_t>(sequence) + 1;
  if (continued.tokens.size() <= most) return continued;
  const size_t cut = continued.tokens.size() - most;
  if (cut >= continued.first) {
    return absl::InvalidArgumentError(absl::StrCat("a choice of ", continued.tokens.size() - continued.first,
                                                   " tokens does not fit into ", sequence));
  }
  continued.tokens.erase(continued.tokens.begin(), continued.tokens.begin() + static_cast<std::ptrdiff_t>(cut));
  continued.first -= cut;
  continued.cut = true;
  return continued;
}

/// The logarithm of a choice's probability.
absl::StatusOr<double> LogProbability(const LoadedModel& model, const Continued& continued) {
  Microbatch one;
  one.batch = 1;
  one.sequence = static_cast<int64_t>(continued.tokens.size()) - 1;
  one.inputs.assign(continued.tokens.begin(), continued.tokens.end() - 1);
  one.targets.assign(one.inputs.size(), -1);
  std::copy(continued.tokens.begin() + static_cast<std::ptrdiff_t>(continued.first), continued.tokens.end(),
            one.targets.begin() + static_cast<std::ptrdiff_t>(continued.first) - 1);
  ASSIGN_OR_RETURN(const LossSum loss, model.runner->Evaluate(std::move(one), *model.store));
  return -loss.sum;
}

/// In characters, without the white space before it, which lm-evaluation-harness does not count: its target_delimiter.
double LengthOf(const std::string& choice) {
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(choice);
  const auto begins_character = [](char byte) { return (byte & 0xc0) != 0x80; };
  const auto length = std::count_if(text.begin(), text.end(), begins_character);
  return static_cast<double>(length > 0 ? static_cast<size_t>(length) : choice.size());
}

absl::Status Answer(const LoadedModel& model, int64_t sequence, const ChoiceQuestion& question, ChoiceResult* result) {
  size_t best = 0, best_by_length = 0;
  bool cut = false;
  double most = -std::numeric_limits<double>::infinity(), most_by_length = most;
  for (size_t i = 0; i < question.choices.size(); ++i) {
    const std::string& choice = question.choices[i];
    ASSIGN_OR_RETURN(const Continued continued, Continue(model, question, choice, sequence));
    cut = cut || continued.cut;
    ASSIGN_OR_RETURN(const double log, LogProbability(model, continued));
    if (!std::isfinite(log)) {  // else the first choice would be taken, and be right now and then
      return absl::FailedPreconditionError("the model gives its choices no probability: its logits are not finite");
    }
    const double by_length = log / LengthOf(choice);
    if (log > most) most = log, best = i;
    if (by_length > most_by_length) most_by_length = by_length, best_by_length = i;
  }
  ++result->questions;
  result->correct += best == question.answer ? 1 : 0;
  result->correct_by_length += best_by_length == question.answer ? 1 : 0;
  result->cut += cut ? 1 : 0;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChoiceQuestion> ParseChoiceQuestion(std::string_view line) {
  const absl::StatusOr<nlohmann::json> object = ParseJson(line, kQuestionDepthMax);
  return object.ok() ? FromObject(*object) : Bad(std::string(object.status().message()));
}

absl::StatusOr<ChoiceResult> AnswerQuestions(const LoadedModel& model, int64_t sequence, InputFile& file,
                                             const std::function<void(int64_t bytes)>& count_bytes) {
  if (model.tokenizer == nullptr) {
    return absl::InvalidArgumentError("the model's directory has no tokenizer.json, so questions cannot be read");
  }
  ChoiceResult result;
  const auto take = [&](std::string_view line) -> absl::Status {
    ASSIGN_OR_RETURN(const ChoiceQuestion question, ParseChoiceQuestion(line));
    return Answer(model, sequence, question, &result);
  };
  RETURN_IF_ERROR(ReadLines(file, take, count_bytes));
  if (result.questions == 0) return absl::InvalidArgumentError(absl::StrCat(file.name(), ": no question"));
  return result;
}

}  // namespace holdfast
