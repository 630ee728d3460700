// Proves what a user sees of a model that a run has saved, with the real binary: it is evaluated, alone and beside
// questions, sampled as its tokenizer's settings say, and trained on, and its logits go to a file.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/command.h"
#include "tests/integration/tiny_runs.h"
#include "tests/paths.h"

namespace holdfast::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

using SavedModelTest = TinyRuns;

TEST_F(SavedModelTest, ASavedModelIsEvaluatedSampledAndTrainedOn) {
  ASSERT_EQ(Train("a").exit_code, 0);
  const CommandResult eval = RunHoldfast({"eval", Path("a"), Path("valid.bin"), "--sequence-length", "32"});
  EXPECT_EQ(eval.exit_code, 0) << eval.output;
  EXPECT_THAT(eval.output, AllOf(HasSubstr("perplexity"), Not(HasSubstr("\nfile  "))));
  WriteAll(directory_ / "questions.jsonl", R"({"context": "a", "choices": ["b", "c"], "answer": 0})");
  const CommandResult both =
      RunHoldfast({"eval", Path("a"), Path("questions.jsonl"), Path("valid.bin"), "--sequence-length", "32"});
  EXPECT_EQ(both.exit_code, 0) << both.output;
  EXPECT_THAT(both.output,
              AllOf(HasSubstr("file        " + Path("valid.bin") + "\ntokens  "), Not(HasSubstr("all files")),
                    HasSubstr("file        " + Path("questions.jsonl") + "\nquestions   1\n"), Not(HasSubstr("lost"))));
  WriteAll(directory_ / "long.jsonl",
           absl::StrCat(R"({"context": ")", std::string(40, 'a'), R"(", "choices": ["b", "c"], "answer": 0})"));
  EXPECT_THAT(RunHoldfast({"eval", Path("a"), Path("long.jsonl"), "--sequence-length", "32"}).output,
              HasSubstr(Path("long.jsonl") + ": the contexts of 1 question lost their beginning"));
  const auto sample = [&](const std::string& seed) {
    return RunHoldfast({"sample", Path("a/model"), "--tokens", "20", "--seed", seed, "--prompt", "line"});
  };
  EXPECT_EQ(sample("1").exit_code, 0) << sample("1").output;
  EXPECT_EQ(sample("1").output, sample("1").output);
  EXPECT_NE(sample("1").output, sample("2").output);
  const CommandResult more = Train("b", {"--set", "train.init_from=" + Path("a/model")});
  EXPECT_EQ(more.exit_code, 0) << more.output;
  EXPECT_EQ(RunHoldfast({"compare", Path("a"), Path("b")}).exit_code, 1);
}

// It was tried again for ever.
TEST_F(SavedModelTest, ARunFromWeightsThatAreNotFiniteEnds) {
  ASSERT_EQ(Train("a", {"--set", "train.steps=1"}).exit_code, 0);
  const std::string file = Path("a/model/model.safetensors");
  constexpr uint32_t kNan = 0x7fc00000;
  std::fstream weights(file, std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(-static_cast<std::streamoff>(sizeof(kNan)), std::ios::end);
  weights.write(reinterpret_cast<const char*>(&kNan), sizeof(kNan));
  weights.close();
  ASSERT_TRUE(weights);
  const CommandResult more = Train("b", {"--set", "train.init_from=" + Path("a/model")});
  EXPECT_EQ(more.exit_code, 1) << more.output;
  EXPECT_THAT(more.output, AllOf(HasSubstr("error: "), HasSubstr(file + ": tensor "), HasSubstr("is NaN or infinite"),
                                 Not(HasSubstr("retrying"))));
}

TEST_F(SavedModelTest, EvalWarnsOfDataOfAnotherTokenizer) {
  ASSERT_EQ(Train("a", {"--set", "model.vocab_size=1100"}).exit_code, 0);  // its tokens are bytes
  const CommandResult packed =
      RunHoldfast({"data", "pack", Path("text.txt"), "--tokenizer",
                   SourceDir() + "/tests/framework/data/golden/tokenizer_gpt2_style.json", "--out", Path("other.bin")});
  ASSERT_EQ(packed.exit_code, 0) << packed.output;
  const auto eval = [&](const std::string& file) {
    return RunHoldfast({"eval", Path("a"), Path("valid.bin"), Path(file), "--sequence-length", "32"}).output;
  };
  EXPECT_THAT(eval("other.bin"), HasSubstr("has 256 tokens, but " + Path("other.bin") + " holds token "));
  EXPECT_THAT(eval("train.bin"), Not(HasSubstr("another tokenizer")));
}

// Files without marks: the run's data.document_mask says that an end of text ends a document.
TEST_F(SavedModelTest, EvalOfARunKeepsDocumentsApartAsTheRunDoes) {
  const std::string tokenizer = SourceDir() + "/tests/framework/data/golden/tokenizer_llama3_style.json";
  std::string documents;
  for (int i = 0; i < 200; ++i) {
    documents +=
        "{\"text\": \"line " + std::to_string(i * i % 97) + " of the story" + std::string(i % 9, '!') + "\"}\n";
  }
  WriteAll(directory_ / "documents.jsonl", documents);
  const CommandResult packed =
      RunHoldfast({"data", "pack", Path("documents.jsonl"), "--tokenizer", tokenizer, "--out", Path("train.bin"),
                   "--validation-fraction", "0.2", "--validation-out", Path("valid.bin"), "--overwrite"});
  ASSERT_EQ(packed.exit_code, 0) << packed.output;
  const CommandResult run = Train("a", {"--set", "data.document_mask=true", "--set", "data.tokenizer=" + tokenizer,
                                        "--set", "model.vocab_size=1105", "--set", "train.compute_dtype=f32", "--set",
                                        "train.validation_microbatches=0", "--set", "optimizer.lr=1e-2"});
  ASSERT_EQ(run.exit_code, 0) << run.output;
  constexpr char kValidation[] = "\nvalidation loss  ";
  const size_t at = run.output.find(kValidation);
  ASSERT_NE(at, std::string::npos) << run.output;
  const std::string loss = run.output.substr(at + std::strlen(kValidation), 6);

  const auto eval = [&](const std::string& model) {
    return RunHoldfast(
        {"eval", Path(model), Path("valid.bin"), "--sequence-length", "32", "--batch", "2", "--dtype", "f32"});
  };
  const CommandResult of_run = eval("a"), of_model = eval("a/model");
  EXPECT_THAT(of_run.output, AllOf(HasSubstr("\nloss        " + loss), HasSubstr("documents   kept apart")));
  EXPECT_THAT(of_model.output, AllOf(HasSubstr("\nloss        "), Not(HasSubstr(loss)), Not(HasSubstr("apart"))));
}

// A model may take sequences that are longer than those it was trained on, and knows nothing of what lies beyond.
TEST_F(SavedModelTest, EvalOfARunHasTheSequencesOfTheRun) {
  const CommandResult run = Train("a", {"--set", "batch.sequence_length=16", "--set", "train.compute_dtype=f32",
                                        "--set", "train.validation_microbatches=0", "--set", "optimizer.lr=1e-2"});
  ASSERT_EQ(run.exit_code, 0) << run.output;
  constexpr char kValidation[] = "\nvalidation loss  ";
  const size_t at = run.output.find(kValidation);
  ASSERT_NE(at, std::string::npos) << run.output;
  const std::string loss = "\nloss        " + run.output.substr(at + std::strlen(kValidation), 6);

  const auto eval = [&](const std::string& model, std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"eval", Path(model), Path("valid.bin"), "--dtype", "f32"});
    return RunHoldfast(options).output;
  };
  EXPECT_THAT(eval("a"), AllOf(HasSubstr(loss), HasSubstr("sequences   of 16 tokens, as in the run")));
  EXPECT_THAT(eval("a/model"), HasSubstr("sequences   of 32 tokens\n"));
  EXPECT_THAT(eval("a/model", {"--sequence-length", "16"}), HasSubstr(loss));
}

/// The mean loss of the bytes of a token file of llm.c's, by the logits (sequences, 32, 256) in a safetensors file.
double LossByLogits(const std::string& safetensors, const std::string& token_file) {
  const auto at = [](const std::string& bytes, size_t offset, auto value) {
    std::memcpy(&value, bytes.data() + offset, sizeof(value));
    return value;
  };
  const size_t data = 8 + at(safetensors, 0, uint64_t{});
  const size_t rows = (safetensors.size() - data) / (256 * sizeof(float));
  double sum = 0;
  for (size_t row = 0; row < rows; ++row) {
    const auto logit = [&](size_t v) { return double{at(safetensors, data + (row * 256 + v) * sizeof(float), 0.0f)}; };
    double all = 0;
    for (size_t v = 0; v < 256; ++v) all += std::exp(logit(v));
    sum += std::log(all) - logit(at(token_file, 1024 + (row + 1) * sizeof(uint16_t), uint16_t{}));
  }
  return sum / static_cast<double>(rows);
}

TEST_F(SavedModelTest, LogitsGoToAFile) {
  ASSERT_EQ(Train("a").exit_code, 0);
  const std::vector<std::string> command{"eval", Path("a"),  Path("valid.bin"),          "--sequence-length",
                                         "32",   "--logits", Path("logits.safetensors"), "--dtype",
                                         "f32"};
  const CommandResult eval = RunHoldfast(command);
  ASSERT_EQ(eval.exit_code, 0) << eval.output;
  const size_t loss = eval.output.find("loss        ") + 12;
  const std::string file = ReadAll(Path("logits.safetensors")), tokens = ReadAll(Path("valid.bin"));
  EXPECT_NEAR(LossByLogits(file, tokens), std::stod(eval.output.substr(loss)), 1e-4);
  const size_t samples = ((tokens.size() - 1024) / sizeof(uint16_t) - 1) / 32;
  EXPECT_NE(samples % 4, 0u) << "the last microbatch is to be one that is filled up";
  EXPECT_THAT(file, HasSubstr(absl::StrCat("[", samples, ",32,256]")));

  std::vector<std::string> other = command;
  other[6] = Path("none/logits.safetensors");
  EXPECT_NE(RunHoldfast(other).exit_code, 0);
  fs::create_symlink(Path("valid.bin"), Path("link.bin"));
  for (const std::string& what :
       {Path("valid.bin"), Path("link.bin"), Path("a/model/model.safetensors"), Path("a/model/logits.safetensors")}) {
    other[6] = what;
    const CommandResult refused = RunHoldfast(other);
    EXPECT_EQ(refused.exit_code, 2) << what;
    EXPECT_THAT(refused.output, HasSubstr("--logits " + what + " would ")) << what;
  }
  EXPECT_EQ(ReadAll(Path("valid.bin")), tokens);
  const std::string another = ReadAll(Path("a/model/model.safetensors"));
  for (const std::string& text : {std::string("my notes"), another}) {
    WriteAll(directory_ / "mine", text);
    other[6] = Path("mine");
    const CommandResult refused = RunHoldfast(other);
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.output, HasSubstr("mine: there is something already that is no file of logits"));
    EXPECT_EQ(ReadAll(Path("mine")), text);
  }
  EXPECT_EQ(RunHoldfast(command).exit_code, 0) << "over its own";
  WriteAll(directory_ / "questions.jsonl", R"({"context": "a", "choices": ["b", "c"], "answer": 0})");
  other = {"eval", Path("a"), Path("questions.jsonl"), "--logits", Path("other.safetensors")};
  EXPECT_THAT(RunHoldfast(other).output, HasSubstr("--logits: there is no token file"));
  EXPECT_FALSE(fs::exists(directory_ / "other.safetensors"));
}

/// What is printed below the line that says whose sample it is.
std::string TextOf(const std::string& output, const std::string& whose) {
  const size_t head = output.find("--- " + whose + "\n");
  if (head == std::string::npos) return "no " + whose + " in " + output;
  const size_t begin = output.find('\n', head) + 1;
  return output.substr(begin, output.find("--- prompt", begin) - begin);
}

TEST_F(SavedModelTest, SamplesOfManyPromptsAreThoseOfEachAlone) {
  ASSERT_EQ(Train("a").exit_code, 0);
  WriteAll(directory_ / "prompts.txt", "line 4 of\n\nthe\n");
  const auto sample = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"sample", Path("a"), "--tokens", "24", "--stop", "o", "--log-level", "error"};
    all.insert(all.end(), more.begin(), more.end());
    return RunHoldfast(all);
  };
  const std::vector<std::string> many{"--prompt", "a line", "--prompts", Path("prompts.txt"), "--samples", "3"};
  const CommandResult all = sample(many);
  ASSERT_EQ(all.exit_code, 0) << all.output;
  const std::vector<std::string> prompts{"a line", "line 4 of", "the"};
  for (size_t i = 0; i < prompts.size(); ++i) {
    const CommandResult alone = sample({"--prompt", prompts[i], "--threads", "1"});
    EXPECT_EQ(TextOf(all.output, absl::StrCat("prompt ", i + 1, ", sample 1")), alone.output);
    EXPECT_THAT(alone.output.substr(prompts[i].size()), Not(HasSubstr("o"))) << "which is a stop";
  }
  EXPECT_NE(TextOf(all.output, "prompt 1, sample 1"), TextOf(all.output, "prompt 1, sample 2"));
  std::vector<std::string> soon_over = many;
  for (const char* stop : {" ", "e", "t", "h", "s", "r", "y", "l", "i", "n"}) {
    soon_over.insert(soon_over.end(), {"--stop", stop});
  }
  const std::string progress = sample(soon_over).output;
  EXPECT_THAT(progress, HasSubstr("sampling: 100%, "));
  EXPECT_THAT(progress, Not(HasSubstr("/216 tokens"))) << "some have ended before";
  for (const char* batch : {"1", "2", "50"}) {
    std::vector<std::string> other = many;
    other.insert(other.end(), {"--batch", batch, "--threads", "3"});
    const CommandResult again = sample(other);
    for (const char* whose : {"prompt 1, sample 3", "prompt 2, sample 2", "prompt 3, sample 1"}) {
      EXPECT_EQ(TextOf(again.output, whose), TextOf(all.output, whose)) << "in batches of " << batch;
    }
  }
}

TEST_F(SavedModelTest, ASampleBeginsAndEndsAsTheTokenizersSettingsSay) {
  ASSERT_EQ(Train("a").exit_code, 0);
  const auto sample = [&](const char* prompt) {
    const CommandResult result = RunHoldfast(
        {"sample", Path("a"), "--prompt", prompt, "--tokens", "20", "--temperature", "0", "--log-level", "error"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output.substr(std::string(prompt).size());
  };
  const std::string text = sample("line");
  const size_t letter = text.find_first_of("abcdefghijklmnopqrstuvwxyz", 1);
  ASSERT_NE(letter, std::string::npos) << text;
  const std::string end = text.substr(letter, 1);
  const std::string settings = Path("a/model/tokenizer_config.json");
  WriteAll(settings, R"({"eos_token": ")" + end + R"("})");
  EXPECT_EQ(sample("line"), text.substr(0, text.find(end)) + "\n");
  const std::string tokenizer = ReadAll(Path("a/model/tokenizer.json"));
  const std::string processor = R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"l",
      "type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"l":{"id":"l","ids":[108],
      "tokens":["l"]}}},)";
  WriteAll(Path("a/model/tokenizer.json"), "{" + processor + tokenizer.substr(tokenizer.find('{') + 1));
  fs::remove(settings);
  EXPECT_EQ(sample("ine"), text);
  EXPECT_EQ(sample("line"), text) << "which begins so by itself";
}

TEST_F(SavedModelTest, WhatHasNoModelIsNotSampledAndThatIsSaid) {
  const CommandResult none = RunHoldfast({"sample", Path("none")});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.output, HasSubstr(Path("none") + " does not exist"));
  const CommandResult unfinished = RunHoldfast({"sample", directory_.string()});
  EXPECT_EQ(unfinished.exit_code, 2);
  EXPECT_THAT(unfinished.output, HasSubstr("a run saves its model when it ends, and `holdfast ckpt export " +
                                           directory_.string() + " OUT_DIR` writes one"));
}

TEST_F(SavedModelTest, ASampleEndsWithTheContextAndBadPromptsAreErrors) {
  ASSERT_EQ(Train("a").exit_code, 0);
  const CommandResult full = RunHoldfast({"sample", Path("a"), "--prompt", "line", "--tokens", "100"});
  EXPECT_EQ(full.exit_code, 0) << full.output;
  EXPECT_THAT(full.output, HasSubstr("prompt 1, sample 1 ended early: the model takes 32 tokens"));
  const CommandResult exact = RunHoldfast({"sample", Path("a"), "--prompt", "line", "--tokens", "29"});
  EXPECT_THAT(exact.output, Not(HasSubstr("ended early")));
  const auto error = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"sample", Path("a")});
    const CommandResult result = RunHoldfast(more);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    return result.output;
  };
  EXPECT_THAT(error({"--prompt", "line", "--prompt", std::string(33, 'x')}),
              HasSubstr("error: prompt 2 has 33 tokens, and the model takes 32"));
  EXPECT_THAT(error({"--prompt", ""}), HasSubstr("error: prompt 1 is empty"));
  EXPECT_THAT(error({"--prompts", Path("none.txt")}), HasSubstr("none.txt"));
  WriteAll(directory_ / "empty.txt", "\n\n");
  EXPECT_THAT(error({"--prompts", Path("empty.txt")}), HasSubstr("empty.txt: no prompt"));
}

}  // namespace
}  // namespace holdfast::integration
