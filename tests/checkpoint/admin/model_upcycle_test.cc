// Proves that a model with experts that is made of a dense one gives the same logits, in every family that there is one
// for, with its weights in one file or in many, that its experts are copies and its routers a function of the seed; and
// that whatever does not fit is named, with nothing left behind.

#include "checkpoint/admin/model_upcycle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <stop_token>

#include "checkpoint/model_directory.h"
#include "checkpoint/saved_model.h"
#include "models/families/huggingface.h"
#include "models/runtime/initial_weights.h"
#include "models/runtime/loaded_model.h"
#include "models/runtime/saved_model_files.h"
#include "models/transformer.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/models/runtime/next_logits.h"
#include "tests/models/test_models.h"

namespace holdfast {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class ModelUpcycleTest : public testing::Test {
 protected:
  void Save(const ModelConfig& config, std::vector<float> values, FileDType dtype, const SavedModelFiles& files) {
    const ParameterLayout layout = TransformerLayout(config);
    const auto read = [&](int64_t first, absl::Span<float> out) {
      std::copy_n(values.begin() + first, out.size(), out.begin());
      return absl::OkStatus();
    };
    const absl::Status saved =
        SaveModel(options_.dense, layout, HuggingFaceTensorMap(config, layout), read, dtype, files);
    ASSERT_TRUE(saved.ok()) << saved;
  }
  void Save(const ModelConfig& config, std::vector<float> values, FileDType dtype = FileDType::kF32) {
    Save(config, std::move(values), dtype, {HuggingFaceConfigJson(config, {}), {}});
  }
  void SaveRandom(const ModelConfig& config, FileDType dtype = FileDType::kF32) {
    Save(config, RandomWeights(TransformerLayout(config), 3), dtype);
  }

  std::string ErrorOf(const ModelConfig& config) {
    SaveRandom(config);
    const auto made = UpcycleModel(options_, nullptr);
    EXPECT_FALSE(fs::exists(options_.output));
    return std::string(made.status().message());
  }

  std::vector<float> Logits(const std::string& directory, const std::vector<int32_t>& tokens) {
    const auto model = LoadSavedModel(directory, {.compute_dtype = ComputeDType::kF32, .threads = 1});
    EXPECT_TRUE(model.ok()) << model.status();
    return NextLogits(**model, tokens).value();
  }

  /// Of the model that was made.
  std::vector<float> Values(const ModelConfig& config, const std::string& directory) {
    Config from;
    from.model = config;
    from.train.init_from = directory;
    const ParameterLayout layout = TransformerLayout(config);
    const ReadWeightsFn read = OpenInitialWeights(from, layout).value();
    std::vector<float> values(static_cast<size_t>(layout.elements()));
    for (const ParameterSpec& spec : layout.parameters()) {
      const auto part =
          absl::MakeSpan(values).subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.shape.elements()));
      EXPECT_TRUE(read(spec.offset, part).ok());
    }
    return values;
  }

  TemporaryDirectory root_;
  UpcycleOptions options_{.dense = root_ / "dense", .output = root_ / "moe", .experts = 5, .experts_per_token = 3};
};

// The tokens of the quickstart's model are bytes, and FINE_TUNING.md puts a chat template beside them.
TEST_F(ModelUpcycleTest, KeepsTheChatTemplateOfAModelOfBytes) {
  ModelConfig bytes = TinyLlama();
  bytes.vocab_size = 256;
  for (const std::string name : {"", "chat_template.jinja", "tokenizer_config.json"}) {
    fs::remove_all(options_.dense);
    fs::remove_all(options_.output);
    const auto files = MakeSavedModelFiles(bytes, "bytes", FileDType::kF32);
    ASSERT_TRUE(files.ok()) << files.status();
    Save(bytes, RandomWeights(TransformerLayout(bytes), 3), FileDType::kF32, *files);
    const std::string text = name == "tokenizer_config.json" ? R"({"chat_template": "{{ 1 }}"})" : "{{ 1 }}";
    if (!name.empty()) std::ofstream(fs::path(options_.dense) / name) << text;
    const absl::StatusOr<ModelConfig> made = UpcycleModel(options_, nullptr);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(HoldsChatTemplate(options_.output), !name.empty()) << name;
    EXPECT_TRUE(fs::exists(fs::path(options_.output) / "tokenizer.json")) << name;
  }
}

TEST_F(ModelUpcycleTest, WhatIsNoModelIsNamedWithWhatToDo) {
  const auto error = [&] { return std::string(UpcycleModel(options_, nullptr).status().message()); };
  EXPECT_EQ(error(), options_.dense + " does not exist");
  fs::create_directories(options_.dense);
  EXPECT_THAT(error(), HasSubstr("is no saved model: it has no config.json; of a run or its checkpoints `holdfast"));
  std::ofstream(fs::path(options_.dense) / kAdapterConfigFile) << "{}";
  EXPECT_THAT(error(), HasSubstr("holds adapters, not a model: `holdfast ckpt export RUN OUT_DIR --merge` writes"));
  options_.dense = "";
  EXPECT_EQ(error(), "the name of the dense model is empty");
}

TEST_F(ModelUpcycleTest, GivesTheDenseModelsLogitsInEveryFamily) {
  ModelConfig llama31 = TinyLlama31(), tied = TinyLlama(), sinks = TinyLlama(), qwen_sinks = TinyQwen2();
  tied.tie_embeddings = sinks.attention_sinks = qwen_sinks.attention_sinks = true;  // with sinks in our own form
  const std::vector<std::pair<ModelConfig, std::string>> models = {
      {TinyLlama(), "mixtral"},   {llama31, "mixtral"},       {tied, "mixtral"},  {TinyMistral(), "mixtral"},
      {TinyQwen2(), "qwen2_moe"}, {TinyQwen3(), "qwen3_moe"}, {sinks, "mixtral"}, {qwen_sinks, "qwen2_moe"}};
  for (const auto& [dense, family] : models) {
    fs::remove_all(options_.dense);
    fs::remove_all(options_.output);
    SaveRandom(dense);
    const absl::StatusOr<ModelConfig> made = UpcycleModel(options_, nullptr);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->family, family);
    for (const size_t length : {1u, 4u, 9u}) {
      std::vector<int32_t> tokens;
      for (size_t i = 0; i < length; ++i) tokens.push_back(static_cast<int32_t>((7 * i + 3) % dense.vocab_size));
      const std::vector<float> expected = Logits(options_.dense, tokens), logits = Logits(options_.output, tokens);
      ASSERT_EQ(logits.size(), expected.size());
      double largest = 0;
      for (const float logit : expected) largest = std::max(largest, std::abs(double{logit}));
      for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 1e-5 * std::max(1.0, largest));
    }
  }
}

TEST_F(ModelUpcycleTest, ExpertsAreCopiesAndRoutersFollowTheSeed) {
  SaveRandom(TinyLlama());
  const ModelConfig config = UpcycleModel(options_, nullptr).value();
  const std::vector<float> values = Values(config, options_.output);
  const ParameterLayout layout = TransformerLayout(config), dense = TransformerLayout(TinyLlama());
  const std::vector<float> dense_values = RandomWeights(dense, 3);
  for (const ParameterSpec& p : layout.parameters()) {
    const std::vector<float> here(values.begin() + p.offset, values.begin() + p.offset + p.shape.elements());
    if (p.name == "blocks.1.experts.4.down.weight") {
      const ParameterSpec& mlp = dense.parameters()[static_cast<size_t>(dense.Find("blocks.1.mlp.down.weight"))];
      EXPECT_EQ(here, std::vector<float>(dense_values.begin() + mlp.offset,
                                         dense_values.begin() + mlp.offset + mlp.shape.elements()));
    }
    if (p.name != "blocks.1.experts.router.weight") continue;
    double square = 0;
    for (const float v : here) square += double{v} * v;
    EXPECT_NEAR(std::sqrt(square / static_cast<double>(here.size())), 0.02, 0.008);
  }
  const auto router = [&](const char* name) {
    const ParameterSpec& p = layout.parameters()[static_cast<size_t>(layout.Find(name))];
    return std::vector<float>(values.begin() + p.offset, values.begin() + p.offset + p.shape.elements());
  };
  EXPECT_NE(router("blocks.0.experts.router.weight"), router("blocks.1.experts.router.weight"));
  fs::rename(options_.output, root_ / "first");
  ASSERT_TRUE(UpcycleModel(options_, nullptr).ok());
  EXPECT_EQ(Values(config, options_.output), values);
  fs::remove_all(options_.output);
  options_.seed = 1;
  ASSERT_TRUE(UpcycleModel(options_, nullptr).ok());
  EXPECT_NE(Values(config, options_.output), values);
}

TEST_F(ModelUpcycleTest, ShardsAndKeepsTheDType) {
  SaveRandom(TinyLlama(), FileDType::kBF16);
  options_.max_file_bytes = 4000;
  const ModelConfig config = UpcycleModel(options_, nullptr).value();
  EXPECT_TRUE(fs::exists(options_.output + "/" + kWeightsIndexFile));
  const ModelDirectory model = ModelDirectory::Open(options_.output).value();
  for (const auto& [name, file] : model.tensors()) EXPECT_EQ(file->entries().at(name).dtype, FileDType::kBF16) << name;
  const std::vector<float> sharded = Values(config, options_.output);
  fs::remove_all(options_.output);
  options_.max_file_bytes = 0;
  ASSERT_TRUE(UpcycleModel(options_, nullptr).ok());
  EXPECT_EQ(Values(config, options_.output), sharded);
}

TEST_F(ModelUpcycleTest, NamesWhatDoesNotFit) {
  EXPECT_THAT(ErrorOf(TinyMixtral()), HasSubstr("the model has 5 experts already"));
  EXPECT_THAT(ErrorOf(TinyGpt2()),
              HasSubstr("no family with experts for a model of family gpt2, as experts are SwiGLU"));
  EXPECT_THAT(ErrorOf(TinyOlmo2()), HasSubstr("of family olmo2, as none has norms at the end of branches; there is"));
  EXPECT_THAT(ErrorOf(TinyPhi3()), HasSubstr("of family phi3, as Phi's own (PhiMoE), with LayerNorm"));
  ModelConfig biased = TinyLlama(), window = TinyQwen2();
  biased.bias = true;
  window.sliding_window = 4;
  EXPECT_THAT(ErrorOf(biased), HasSubstr("experts are SwiGLU layers, which have biases by model.expert_bias"));
  EXPECT_THAT(ErrorOf(TinyLlamaLinear()), HasSubstr("model.attention_bias has a value that a mixtral cannot have"));
  EXPECT_THAT(ErrorOf(TinyLlamaYarn()), HasSubstr("experts are SwiGLU layers, which have biases by model.expert_bias"));
  EXPECT_THAT(ErrorOf(window), HasSubstr("model.sliding_window has a value that a qwen2_moe cannot have"));
  options_.experts_per_token = 6;
  EXPECT_THAT(ErrorOf(TinyLlama()), HasSubstr("experts_per_token 6 is more than num_experts 5"));
}

TEST_F(ModelUpcycleTest, LeavesNothingHalfWritten) {
  ModelConfig dense = TinyLlama();
  std::vector<float> values = RandomWeights(TransformerLayout(dense), 3);
  values.back() = 1e38f;  // fits fp32 and not fp16
  Save(dense, values);
  options_.dtype = FileDType::kF16;
  options_.max_file_bytes = 4000;
  EXPECT_THAT(std::string(UpcycleModel(options_, nullptr).status().message()), HasSubstr("cannot be saved as F16"));
  EXPECT_FALSE(fs::exists(options_.output));
}

TEST_F(ModelUpcycleTest, AStopLeavesNothing) {
  SaveRandom(TinyLlama());
  std::stop_source stop;
  options_.stop = stop.get_token();
  const auto stops = [&](uint64_t done, uint64_t /*total*/) {
    if (done > 0) stop.request_stop();
  };
  EXPECT_EQ(UpcycleModel(options_, stops).status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(fs::exists(options_.output));
}

TEST_F(ModelUpcycleTest, WritesOverNothing) {
  SaveRandom(TinyLlama());
  fs::create_directories(options_.output);
  ASSERT_TRUE(UpcycleModel(options_, nullptr).ok());  // an empty directory is none
  const absl::Status again = UpcycleModel(options_, nullptr).status();
  EXPECT_TRUE(absl::IsAlreadyExists(again)) << again;
  options_.dense = root_ / "nowhere";
  options_.output = root_ / "other";
  EXPECT_TRUE(absl::IsNotFound(UpcycleModel(options_, nullptr).status()));
}

}  // namespace
}  // namespace holdfast
