// Proves that a choice is scored by the probabilities of its tokens one after another, wherever the space before it
// stands, that contexts which are too long lose their beginning, and that what is no question is refused with its line.

#include "models/runtime/multiple_choice.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>

#include "models/runtime/saved_weights.h"
#include "models/transformer.h"
#include "tests/models/runtime/next_logits.h"
#include "tests/models/runtime/tiny_run.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

class MultipleChoice : public TinyRun {
 protected:
  static constexpr int64_t kSequence = 16;

  void SetUp() override { Load("model", ConfigOf()); }

  /// A model of random weights, or what `change` makes of them.
  void Load(
      const std::string& name, const Config& config,
      const std::function<void(std::vector<float>&)>& change = [](std::vector<float>&) {}) {
    const ParameterLayout layout = TransformerLayout(config.model);
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 0.4f);
    std::vector<float> weights(static_cast<size_t>(layout.elements()));
    for (float& weight : weights) weight = normal(random);
    change(weights);
    const auto read = [&](int64_t first, absl::Span<float> out) {
      std::copy_n(weights.begin() + first, out.size(), out.begin());
      return absl::OkStatus();
    };
    const absl::Status saved = SaveWeights(root_ / name, config, layout, read);
    ASSERT_TRUE(saved.ok()) << saved;
    auto loaded = LoadSavedModel(root_ / name, {.compute_dtype = ComputeDType::kF32, .threads = 1});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    model_ = *std::move(loaded);
  }

  absl::StatusOr<ChoiceResult> Answer(const std::string& lines) {
    std::ofstream(root_ / "questions.jsonl") << lines;
    LocalFileAccess files;
    auto input = InputFile::Open(files, root_ / "questions.jsonl");
    return AnswerQuestions(*model_, kSequence, *input, [](int64_t) {});
  }

  /// Token after token, from what sampling sees.
  double LogProbability(std::string text, const std::string& choice) {
    double sum = 0;
    for (const char c : choice) {
      if (text.size() > kSequence) text.erase(0, text.size() - kSequence);
      std::vector<int32_t> tokens;
      for (const char of_text : text) tokens.push_back(static_cast<uint8_t>(of_text));
      const std::vector<float> logits = NextLogits(*model_, tokens).value();
      double all = 0;
      for (const float logit : logits) all += std::exp(static_cast<double>(logit));
      sum += static_cast<double>(logits[static_cast<uint8_t>(c)]) - std::log(all);
      text += c;
    }
    return sum;
  }

  static std::string Line(const std::string& context, const std::string& a, const std::string& b, int answer) {
    return absl::StrCat(R"({"context": ")", context, R"(", "choices": [")", a, R"(", ")", b, R"("], "answer": )",
                        answer, "}\n");
  }

  std::unique_ptr<LoadedModel> model_;
};

// By length it is that of lm-evaluation-harness: in characters, without the space before them.
TEST_F(MultipleChoice, TheLikelierChoiceIsTaken) {
  std::mt19937 random(5);
  int differ = 0, differ_in_bytes = 0, differ_with_space = 0;
  for (int i = 0; i < 60; ++i) {
    std::string context(1 + random() % 6, 'a'), choices[2];
    for (char& c : context) c = static_cast<char>('a' + random() % 26);
    double logs[2], by_length[2], by_bytes[2], with_space[2];
    for (int c : {0, 1}) {
      const int length = 1 + static_cast<int>(random() % 5);
      choices[c] = " ";
      for (int l = 0; l < length; ++l) {
        const auto letter = static_cast<char>('a' + random() % 26);
        choices[c] += random() % 2 == 0 ? "ß" : std::string(1, letter);
      }
      logs[c] = LogProbability(context, choices[c]);
      by_length[c] = logs[c] / length;
      by_bytes[c] = logs[c] / static_cast<double>(choices[c].size() - 1);
      with_space[c] = logs[c] / (length + 1);
    }
    const auto taken = [](const double* scores) { return scores[1] > scores[0] ? 1 : 0; };
    const int answer = static_cast<int>(random() % 2);
    const auto result = Answer(Line(context, choices[0], choices[1], answer));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->questions, 1);
    EXPECT_EQ(result->correct, taken(logs) == answer) << context << "|" << choices[0] << "|" << choices[1];
    EXPECT_EQ(result->correct_by_length, taken(by_length) == answer)
        << context << "|" << choices[0] << "|" << choices[1];
    differ += taken(logs) != taken(by_length);
    differ_in_bytes += taken(by_bytes) != taken(by_length);
    differ_with_space += taken(with_space) != taken(by_length);
  }
  EXPECT_TRUE(differ > 0 && differ_in_bytes > 0 && differ_with_space > 0)
      << "these questions cannot tell them apart: " << differ << ", " << differ_in_bytes << ", " << differ_with_space;
}

// A tokenizer that joins a space with the word behind it: the first word of a choice is scored on whichever side of the
// space the line is cut.
TEST_F(MultipleChoice, ASpaceAtTheEndOfAContextIsThatOfTheChoice) {
  Load("of_words", ConfigOf({"model.vocab_size=1100", "data.tokenizer=" + SourceDir() +
                                                          "/tests/framework/data/golden/tokenizer_gpt2_style.json"}));
  const std::string words[] = {"the", "is", "of", "and", "in", "token", "tokens", "training", "step", "sum"};
  std::mt19937 random(7);
  const auto word = [&] { return words[random() % std::size(words)]; };
  int64_t first = 0;
  for (int i = 0; i < 30; ++i) {
    const std::string context = "the " + word(), a = word() + " is", b = word() + " is";
    const auto in_choice = Answer(Line(context, " " + a, " " + b, 0));
    const auto in_context = Answer(Line(context + " ", a, b, 0));
    ASSERT_TRUE(in_choice.ok() && in_context.ok()) << in_choice.status() << in_context.status();
    EXPECT_EQ(in_context->correct, in_choice->correct) << context << "|" << a << "|" << b;
    EXPECT_EQ(in_context->correct_by_length, in_choice->correct_by_length) << context << "|" << a << "|" << b;
    first += in_choice->correct;
  }
  EXPECT_TRUE(first > 5 && first < 25) << first << ": these questions cannot tell a word from none";
}

TEST_F(MultipleChoice, ALongContextLosesItsBeginning) {
  const std::string end = "the end of it is";
  const auto answer = [&](const std::string& context) { return Answer(Line(context, "x", "y", 0)).value(); };
  EXPECT_EQ(answer(std::string(500, 'z') + end).correct, answer(end).correct);
  EXPECT_EQ(answer(end).cut, 0);
  EXPECT_EQ(answer("z" + end).cut, 1);
  EXPECT_EQ(Answer(Line(end, "xx", "y", 0) + Line("z" + end, "x", "y", 0) + Line("a", "x", "y", 0))->cut, 2)
      << "one choice too long is enough";
  EXPECT_THAT(std::string(Answer(Line("c", std::string(40, 'x'), "y", 0)).status().message()),
              HasSubstr("questions.jsonl:1: a choice of 40 tokens does not fit into 16"));
}

// It took the first choice of each question, so the accuracy was the share of those with answer 0.
TEST_F(MultipleChoice, AModelThatIsNotFiniteHasNoAccuracy) {
  Load("diverged", ConfigOf(), [](std::vector<float>& weights) {
    // Of the last norm and of the head, whose products overflow.
    for (auto weight = weights.end() - (1 + 256) * 32; weight != weights.end(); ++weight) *weight *= 1e30f;
  });
  EXPECT_THAT(std::string(Answer(Line("a", "b", "c", 0)).status().message()),
              HasSubstr("questions.jsonl:1: the model gives its choices no probability: its logits are not finite"));
}

TEST_F(MultipleChoice, WhatIsNoQuestionIsRefused) {
  const auto refused = [&](const std::string& line, const std::string& says) {
    const absl::Status status = Answer(Line("a", "b", "c", 0) + line).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("questions.jsonl:2: " + says)) << line;
  };
  refused("{", "malformed JSON at byte");
  refused("[]", "not a JSON object");
  refused(R"({"context": "a", "choices": ["b", "c"], "answer": 0})" + std::string(1, '\0') + "garbage",
          "malformed JSON: byte 53 is zero");
  refused(std::string(100, '['), "JSON nested deeper than 8");
  refused(R"({"choices": ["a", "b"], "answer": 0})", "no text \"context\"");
  refused(R"({"messages": [{"role": "user", "content": "a"}]})", "a conversation, not a question; `holdfast data pack");
  refused(R"({"context": "a", "answer": 0})", "no list \"choices\"");
  refused(R"({"context": "a", "choices": ["a", "b"]})", "no whole number \"answer\"");
  refused(R"({"context": "a", "choices": ["a", ""], "answer": 0})", "a choice that is no text");
  refused(R"({"context": "a", "choices": ["a"], "answer": 0})", "fewer than two choices");
  refused(R"({"context": "a", "choices": ["a", "b"], "answer": 2})", "answer 2 of 2 choices");
  refused(R"({"context": "a", "choices": ["a", "b"], "answer": -1})", "answer -1 of 2 choices");
  refused(R"({"context": "", "choices": ["a", "b"], "answer": 0})", "an empty context");
  EXPECT_THAT(std::string(Answer("\n").status().message()), HasSubstr("no question"));
}

}  // namespace
}  // namespace holdfast
