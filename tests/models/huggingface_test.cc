// Proves that the map to Hugging Face's names covers every row of every parameter once, with the names and shapes that
// transformers uses, and that config.json survives writing and reading and refuses what is not supported.
#include "models/huggingface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/models/test_models.h"

namespace holdfast {
namespace {

TEST(HuggingFaceTest, MapCoversEveryRowOnce) {
  for (const auto& [name, config] : TinyModels()) {
    const ParameterLayout layout = TransformerLayout(config);
    std::map<int, int64_t> next_row;
    std::set<std::string> names;
    for (const ExternalTensor& tensor : HuggingFaceTensorMap(config, layout)) {
      const ParameterSpec& p = layout.parameters()[tensor.parameter];
      EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
      EXPECT_EQ(tensor.first_row, next_row[tensor.parameter]) << tensor.name;
      EXPECT_EQ(tensor.shape.elements(), tensor.num_rows * (p.is_matrix() ? p.shape.cols() : 1)) << tensor.name;
      EXPECT_EQ(tensor.shape.rank(), p.shape.rank()) << tensor.name;
      EXPECT_FALSE(IsIgnorableHuggingFaceTensor(config, tensor.name)) << tensor.name;
      EXPECT_FALSE(IsIgnorableHuggingFaceTensor(config, tensor.alias)) << tensor.alias;
      next_row[tensor.parameter] += tensor.num_rows;
    }
    EXPECT_EQ(next_row.size(), layout.parameters().size()) << name;
    for (const auto& [parameter, rows] : next_row) {
      const ParameterSpec& p = layout.parameters()[parameter];
      EXPECT_EQ(rows, p.is_matrix() ? p.shape.rows() : p.shape.elements()) << p.name;
    }
  }
}

const ExternalTensor& Named(const TensorMap& map, const std::string& name) {
  static const ExternalTensor none{};
  for (const ExternalTensor& tensor : map) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << name << " is not in the map";
  return none;
}

TEST(HuggingFaceTest, Gpt2NamesAndShapes) {
  const ParameterLayout layout = TransformerLayout(TinyGpt2());
  const TensorMap map = HuggingFaceTensorMap(TinyGpt2(), layout);
  const ExternalTensor& qkv = Named(map, "transformer.h.1.attn.c_attn.weight");
  EXPECT_TRUE(qkv.transposed);
  EXPECT_EQ(qkv.shape, (Shape{24, 72}));
  EXPECT_EQ(qkv.alias, "h.1.attn.c_attn.weight");
  EXPECT_EQ(layout.parameters()[qkv.parameter].name, "blocks.1.attention.qkv.weight");
  EXPECT_EQ(Named(map, "transformer.wte.weight").shape, (Shape{19, 24}));
  EXPECT_FALSE(Named(map, "transformer.wpe.weight").transposed);
  EXPECT_EQ(Named(map, "transformer.h.0.mlp.c_fc.bias").shape, Shape{40});
  EXPECT_TRUE(IsIgnorableHuggingFaceTensor(TinyGpt2(), "h.0.attn.bias"));
  EXPECT_TRUE(IsIgnorableHuggingFaceTensor(TinyGpt2(), "lm_head.weight"));
}

TEST(HuggingFaceTest, LlamaNamesAndShapes) {
  const ParameterLayout layout = TransformerLayout(TinyLlama());
  const TensorMap map = HuggingFaceTensorMap(TinyLlama(), layout);
  const ExternalTensor& value = Named(map, "model.layers.0.self_attn.v_proj.weight");
  EXPECT_EQ(value.shape, (Shape{16, 20}));
  EXPECT_EQ(value.first_row, 32 + 16);
  const ExternalTensor& up = Named(map, "model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(up.first_row, 28);  // below the gate
  EXPECT_FALSE(up.transposed);
  EXPECT_EQ(Named(map, "lm_head.weight").shape, (Shape{23, 20}));
  EXPECT_FALSE(IsIgnorableHuggingFaceTensor(TinyLlama(), "lm_head.weight"));
  EXPECT_TRUE(IsIgnorableHuggingFaceTensor(TinyLlama(), "model.layers.0.self_attn.rotary_emb.inv_freq"));
}

TEST(HuggingFaceTest, ConfigSurvivesWritingAndReading) {
  for (const auto& [name, config] : TinyModels()) {
    const std::string text = HuggingFaceConfigJson(config, "bytes");
    const auto read = ParseHuggingFaceConfig(text, "config.json");
    ASSERT_TRUE(read.ok()) << name << ": " << read.status();
    EXPECT_TRUE(read->byte_tokenizer);
    ModelConfig expected = config;
    expected.dropout = 0;  // belongs to a run, not to a model
    ModelConfig actual = read->model;
    EXPECT_EQ(HuggingFaceConfigJson(actual, ""), HuggingFaceConfigJson(expected, "")) << name;
    EXPECT_EQ(actual.position, expected.position) << name;
    EXPECT_EQ(actual.norm, expected.norm) << name;
    EXPECT_EQ(actual.activation, expected.activation) << name;
    EXPECT_EQ(actual.bias, expected.bias) << name;
    EXPECT_EQ(actual.num_kv_heads, expected.num_kv_heads) << name;
    EXPECT_EQ(actual.head_dim, expected.head_dim) << name;
    EXPECT_EQ(actual.norm_eps, expected.norm_eps) << name;
  }
  EXPECT_FALSE(ParseHuggingFaceConfig(HuggingFaceConfigJson(TinyGpt2(), "tokenizer.json"), "")->byte_tokenizer);
}

constexpr char kLlama[] = R"("model_type": "llama", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2,
                             "num_attention_heads": 4, "intermediate_size": 128)";

absl::StatusOr<HuggingFaceConfig> Llama(const std::string& more) {
  return ParseHuggingFaceConfig(absl::StrCat("{", kLlama, more.empty() ? "" : ", ", more, "}"), "dir/config.json");
}

TEST(HuggingFaceTest, FindsRopeThetaWhereverItIs) {
  EXPECT_EQ(Llama("")->model.rope_theta, 10000);
  EXPECT_EQ(Llama(R"("rope_theta": 5e5)")->model.rope_theta, 5e5);
  EXPECT_EQ(Llama(R"("rope_parameters": {"rope_theta": 2e5, "rope_type": "default"})")->model.rope_theta, 2e5);
  EXPECT_EQ(Llama(R"("rope_theta": 3e5, "rope_scaling": null)")->model.rope_theta, 3e5);
  EXPECT_EQ(Llama("")->model.num_kv_heads, 4);
  EXPECT_EQ(Llama("")->model.head_dim, 16);
}

TEST(HuggingFaceTest, RefusesNamingTheField) {
  struct Case {
    std::string more, field;
    absl::StatusCode code;
  };
  const Case cases[] = {
      {R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0})", "rope_scaling", absl::StatusCode::kUnimplemented},
      {R"("rope_parameters": {"rope_type": "yarn"})", "rope_parameters", absl::StatusCode::kUnimplemented},
      {R"("rope_parameters": 3)", "rope_parameters", absl::StatusCode::kInvalidArgument},
      {R"("rope_theta": -1)", "rope_theta", absl::StatusCode::kInvalidArgument},
      {R"("hidden_act": "relu")", "hidden_act", absl::StatusCode::kUnimplemented},
      {R"("sliding_window": 4096)", "sliding_window", absl::StatusCode::kUnimplemented},
      {R"("attention_bias": true)", "mlp_bias", absl::StatusCode::kUnimplemented},
      {R"("quantization_config": {})", "quantization_config", absl::StatusCode::kUnimplemented},
      {R"("num_key_value_heads": 3)", "num_attention_heads", absl::StatusCode::kInvalidArgument},
      {R"("head_dim": "wide")", "head_dim", absl::StatusCode::kInvalidArgument},
      {R"("head_dim": 1e30)", "head_dim", absl::StatusCode::kInvalidArgument},
      {R"("max_position_embeddings": 0)", "max_position_embeddings", absl::StatusCode::kInvalidArgument},
      {R"("tie_word_embeddings": 1)", "tie_word_embeddings", absl::StatusCode::kInvalidArgument},
  };
  for (const Case& c : cases) {
    const auto read = Llama(c.more);
    EXPECT_EQ(read.status().code(), c.code) << c.more << ": " << read.status();
    EXPECT_THAT(std::string(read.status().message()), ::testing::HasSubstr(c.field)) << c.more;
    EXPECT_THAT(std::string(read.status().message()), ::testing::HasSubstr("dir/config.json")) << c.more;
  }
  EXPECT_EQ(ParseHuggingFaceConfig("{", "x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseHuggingFaceConfig("[]", "x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseHuggingFaceConfig("{}", "x").status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ParseHuggingFaceConfig(R"({"model_type": "gpt2"})", "x").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseHuggingFaceConfig(R"({"model_type": "mamba"})", "x").status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace holdfast
