// Proves that every file in configs/ loads, survives PrintConfig unchanged, and that the named models have exactly the
// published number of parameters.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/config/load.h"
#include "models/families/families.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

std::string ConfigPath(const std::string& name) { return SourceDir() + "/configs/" + name; }

std::vector<std::string> AllConfigs() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(ConfigPath(""))) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Config Load(const std::string& name) {
  const absl::StatusOr<Config> config = LoadConfig(ConfigPath(name), {}, {.families = FamilyPresets()});
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.value_or(Config{});
}

/// Embeddings (tied), attention, MLP or experts, norms; biases and learned positions as the config says.
int64_t NumParameters(const ModelConfig& m) {
  const int64_t heads = m.num_heads * m.head_dim, kv = m.num_kv_heads * m.head_dim;
  const int64_t matrices = m.HasMlpGate() ? 3 : 2;
  const int64_t norm = m.norm == NormType::kLayerNorm ? 2 * m.hidden_size : m.hidden_size;
  const int64_t mlp = matrices * m.hidden_size * m.intermediate_size;
  const int64_t experts = m.num_experts * m.hidden_size * (1 + 3 * m.expert_intermediate_size);  // in every layer
  int64_t layer = m.hidden_size * (2 * heads + 2 * kv) + (m.num_experts > 0 ? experts : mlp) + 2 * norm;
  if (m.HasQkvBias()) layer += heads + 2 * kv;
  if (m.HasAttentionOutBias()) layer += m.hidden_size;
  if (m.qk_norm) layer += m.qk_norm_joint ? heads + kv : 2 * m.head_dim;
  if (m.attention_sinks) layer += m.num_heads;
  if (m.expert_bias) layer += m.num_experts * (1 + 2 * m.expert_intermediate_size + m.hidden_size);
  if (m.HasMlpBias()) layer += (matrices - 1) * m.intermediate_size + m.hidden_size;
  const int64_t positions = m.position == PositionKind::kLearned ? m.max_sequence_length * m.hidden_size : 0;
  const int64_t embeddings = (m.tie_embeddings ? 1 : 2) * m.vocab_size * m.hidden_size;
  return embeddings + positions + m.num_layers * layer + norm;
}

TEST(ConfigsTest, EveryConfigLoadsAndPrintsToItself) {
  const std::vector<std::string> names = AllConfigs();
  EXPECT_GE(names.size(), 6u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const Config config = Load(name);
    const std::string printed = PrintConfig(config);
    const absl::StatusOr<Config> again = ParseConfig(printed, "printed", {}, {.families = FamilyPresets()});
    ASSERT_TRUE(again.ok()) << again.status().message() << "\n" << printed;
    EXPECT_EQ(*again, config) << printed;
    EXPECT_EQ(PrintConfig(*again), printed);
    EXPECT_EQ(config.run.name + ".yaml", name);
  }
}

TEST(ConfigsTest, NamedModelsHaveThePublishedNumberOfParameters) {
  EXPECT_EQ(NumParameters(Load("gpt2_124m.yaml").model), 124'439'808);
  EXPECT_EQ(NumParameters(Load("gpt2_1558m.yaml").model), 1'557'611'200);
  EXPECT_EQ(NumParameters(Load("llama_1b.yaml").model), 1'235'814'400);
  EXPECT_EQ(NumParameters(Load("qwen2.5_0.5b.yaml").model), 494'032'768);
  EXPECT_EQ(NumParameters(Load("qwen3_0.6b.yaml").model), 596'049'920);
  EXPECT_EQ(NumParameters(Load("mistral_7b.yaml").model), 7'241'732'096);
  EXPECT_EQ(NumParameters(Load("mixtral_8x7b.yaml").model), 46'702'792'704);
  EXPECT_EQ(NumParameters(Load("qwen3_30b_a3b.yaml").model), 30'532'122'624);
  EXPECT_EQ(NumParameters(Load("gpt_oss_20b.yaml").model), 20'914'757'184);
  EXPECT_EQ(NumParameters(Load("olmoe_1b_7b.yaml").model), 6'919'161'856);
}

}  // namespace
}  // namespace holdfast
