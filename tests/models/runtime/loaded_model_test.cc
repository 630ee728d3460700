// Proves that the length that a model is loaded for, which its rotary tables have, decides no bit of what it says, and
// that adapters of LongRoPE have the angles that they were trained with.

#include "models/runtime/loaded_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/runtime/adapter_files.h"
#include "models/runtime/initial_adapters.h"
#include "models/runtime/initial_model.h"
#include "models/runtime/trained_parameters.h"
#include "models/transformer.h"
#include "tests/models/runtime/next_logits.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

// Of LongRoPE, whose angles follow from the length in config.json: 96, twice the original one.
TEST(LoadedModelTest, TheLengthOfItsTablesDecidesNoLogit) {
  const std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 35};
  std::vector<std::vector<float>> logits;
  for (const int64_t sequence : {96, 48, 10}) {
    const auto loaded = LoadSavedModel(absl::StrCat(SourceDir(), "/tests/golden/tiny_phi4_mini"),
                                       {.compute_dtype = ComputeDType::kF32, .threads = 1, .sequence = sequence});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const auto next = NextLogits(**loaded, tokens);
    ASSERT_TRUE(next.ok()) << next.status();
    logits.push_back(*next);
    EXPECT_EQ(logits.back(), logits.front()) << "loaded for " << sequence << " tokens";
  }
}

// Adapters of zeros, so that all that differs is the list of factors: the model's own length is 96, the original
// one 48.
TEST(LoadedModelTest, AdaptersOfLongRopeHaveTheLengthOfTheirRun) {
  const std::string base = absl::StrCat(SourceDir(), "/tests/golden/tiny_phi4_mini");
  const std::string directory =
      std::filesystem::path(::testing::TempDir()) / absl::StrCat("loaded_model_test_", getpid());
  const std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 35};
  const auto logits_of = [&](const std::string& path, int64_t length) {
    const auto loaded = LoadSavedModel(path, {.compute_dtype = ComputeDType::kF32, .threads = 1});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ((*loaded)->config.max_sequence_length, length);
    return NextLogits(**loaded, tokens).value();
  };
  Config config;
  config.model = ReadModelConfig(base).value().model;
  config.train.init_from = base;
  config.lora = {.rank = 2, .targets = {"attention"}};
  const ParameterLayout layout = TransformerLayout(config.model, LoraOptionsOf(config).value());
  const auto zeros = [](int64_t, absl::Span<float> out) {
    std::fill(out.begin(), out.end(), 0.0f);
    return absl::OkStatus();
  };
  const std::vector<float> of_base = logits_of(base, 96);
  ASSERT_TRUE(SaveAdapter(directory, config, layout, zeros, FileDType::kF32).ok());
  EXPECT_EQ(logits_of(directory, 96), of_base);
  config.model.max_sequence_length = 48;
  ASSERT_TRUE(SaveAdapter(directory, config, layout, zeros, FileDType::kF32).ok());
  EXPECT_NE(logits_of(directory, 48), of_base);

  config.lora.init_from = directory;
  for (const int64_t length : {48, 40, 96, 60}) {  // of the run that begins with them
    Config further = config;
    further.model.max_sequence_length = length;
    EXPECT_EQ(std::string(ResolveAdapterDigest(&further).message()),
              length <= 48
                  ? ""
                  : absl::StrCat("lora.init_from: the adapters in ", directory,
                                 " were trained with other factors of LongRoPE than ", "model.max_sequence_length ",
                                 length, " chooses: set model.max_sequence_length: 48"));
  }
  std::filesystem::remove_all(directory);
}

TEST(OpenSavedModelTest, OneInABucketIsRefusedWithWhatToDo) {
  const std::string place = "s3://bucket/model";
  for (const absl::Status& refused :
       {OpenSavedModel(place).status(), ReadModelConfig(place).status(), ReadInitialModel(place).status()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_EQ(refused.message(),
              place +
                  ": a model is read from a directory of a file system only; copy it to one, or if there are "
                  "checkpoints, `holdfast ckpt export " +
                  place + " OUT_DIR` writes one of the newest");
  }
}

// As where a user may not look into the directory, which root may: that is not to say that there is none.
TEST(OpenSavedModelTest, WhatCannotBeLookedAtIsNotMissing) {
  const std::string loop = std::filesystem::path(::testing::TempDir()) / absl::StrCat("loaded_model_loop_", getpid());
  EXPECT_EQ(OpenSavedModel(loop).status().message(), loop + " does not exist");
  std::filesystem::create_symlink(loop, loop);
  EXPECT_EQ(OpenSavedModel(loop).status().message(), loop + ": Too many levels of symbolic links");
  std::filesystem::remove(loop);
}

}  // namespace
}  // namespace holdfast
