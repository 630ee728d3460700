// Proves that a model whose tokens are bytes brings its tokenizer.json into a run wherever its chat template stands, so
// that what is trained from it is saved with the template; and none where it has no template. That an error says where
// the model is, if a run or a file was named; and which tensors are missing, unless the sizes are of a far larger
// model.

#include "models/runtime/initial_model.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/files.h"
#include "gmock/gmock.h"
#include "models/runtime/initial_weights.h"
#include "models/runtime/saved_weights.h"
#include "models/transformer.h"
#include "tests/models/runtime/tiny_run.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

class InitialModelTest : public TinyRun {
 protected:
  void Save(const Config& config) {
    const auto read = [](int64_t, absl::Span<float> out) {
      std::fill(out.begin(), out.end(), 0.5f);
      return absl::OkStatus();
    };
    const auto saved = SaveWeights(root_ / "model", config, TransformerLayout(config.model), read);
    ASSERT_TRUE(saved.ok()) << saved;
  }
  /// What a run that begins with a saved model of bytes takes for data.tokenizer; "none": the bytes.
  std::string Tokenizer() {
    const auto initial = ReadInitialModel(root_ / "model");
    EXPECT_TRUE(initial.ok()) << initial.status();
    return (*initial)->tokenizer.empty() ? "none" : (*initial)->tokenizer;
  }
};

TEST_F(InitialModelTest, AChatTemplateComesWithTheTokenizerFile) {
  namespace fs = std::filesystem;
  const Config config = ConfigOf();
  Save(config);
  EXPECT_EQ(Tokenizer(), "none");
  const std::string file = root_ / "model/tokenizer.json";
  std::ofstream(root_ / "model/chat_template.jinja") << "{{ 1 }}";
  EXPECT_EQ(Tokenizer(), file);
  fs::remove(root_ / "model/chat_template.jinja");
  fs::create_directory(root_ / "model/additional_chat_templates");
  std::ofstream(root_ / "model/additional_chat_templates/tool_use.jinja") << "{{ 1 }}";
  EXPECT_EQ(Tokenizer(), file);
  fs::remove_all(root_ / "model/additional_chat_templates");
  std::ofstream(root_ / "model/tokenizer_config.json") << R"({"chat_template": "{{ 1 }}"})";
  EXPECT_EQ(Tokenizer(), file);
  std::ofstream(root_ / "model/tokenizer_config.json") << R"({"chat_template": null})";
  EXPECT_EQ(Tokenizer(), "none");
}

TEST_F(InitialModelTest, TheModelOfARunIsNamed) {
  std::filesystem::create_directories(root_ / "run/model");
  const auto message = [&] { return std::string(ReadInitialModel(root_ / "run").status().message()); };
  EXPECT_THAT(message(), ::testing::HasSubstr("`holdfast ckpt export"));
  std::ofstream(root_ / "run/model/config.json") << "{}";
  const std::string run = root_ / "run";
  EXPECT_EQ(message(), run + " is no saved model, but holds one: name " + run + "/model");
}

TEST_F(InitialModelTest, OfAFileItsDirectoryIsNamed) {
  Save(ConfigOf());
  const std::string directory = root_ / "model", file = directory + "/model.safetensors";
  EXPECT_EQ(std::string(ReadInitialModel(file).status().message()),
            file + " is a file, and a saved model a directory: name " + directory);
  const std::string other = root_ / "config.yaml";
  std::ofstream(other) << "run:";
  EXPECT_EQ(std::string(ReadInitialModel(other).status().message()),
            other + " is a file, and a saved model a directory")
      << "beside it is none";
}

TEST_F(InitialModelTest, WeightsInMxfp4AreEnough) {
  Config config;
  config.train.init_from = absl::StrCat(SourceDir(), "/tests/golden/mxfp4_gpt_oss");
  const auto initial = ReadInitialModel(config.train.init_from);
  ASSERT_TRUE(initial.ok()) << initial.status();
  config.model = (*initial)->model;
  EXPECT_EQ(std::string(CheckInitialWeights(config).message()), "");
}

TEST_F(InitialModelTest, TensorsThatAreMissingAreNamed) {
  Config config = ConfigOf();
  Save(config);
  config.train.init_from = root_ / "model";
  EXPECT_TRUE(CheckInitialWeights(config).ok());
  const std::string file = root_ / "model/config.json", text = ReadFile(file, 1 << 20).value();
  const auto say_layers = [&](int64_t layers) {
    std::ofstream(file) << absl::StrReplaceAll(
        text, {{"\"num_hidden_layers\": 1", absl::StrCat("\"num_hidden_layers\": ", layers)}});
    config.model.num_layers = layers;
  };
  say_layers(2);
  ASSERT_TRUE(ReadInitialModel(config.train.init_from).ok());
  const absl::Status missing = CheckInitialWeights(config);
  EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(missing.message()),
              ::testing::HasSubstr("tensor \"model.layers.1.mlp.down_proj.weight\" is missing"));
  say_layers(4096);
  EXPECT_THAT(std::string(ReadInitialModel(config.train.init_from).status().message()),
              ::testing::HasSubstr("a model of its sizes has at least"));
}

}  // namespace
}  // namespace holdfast
