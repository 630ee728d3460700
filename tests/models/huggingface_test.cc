// Proves that the map to Hugging Face's names covers every row of every parameter once, with the names and shapes that
// transformers uses, and that config.json survives writing and reading and refuses what is not supported.
#include "models/huggingface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "models/huggingface_format.h"
#include "nlohmann/json.hpp"
#include "tests/models/test_models.h"

namespace holdfast {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;

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
    const std::string text = HuggingFaceConfigJson(config, {.bytes = true});
    const auto read = ParseHuggingFaceConfig(text, "config.json");
    ASSERT_TRUE(read.ok()) << name << ": " << read.status();
    EXPECT_TRUE(read->byte_tokenizer);
    ModelConfig expected = config;
    expected.dropout = 0;  // belongs to a run, not to a model
    ModelConfig actual = read->model;
    EXPECT_EQ(HuggingFaceConfigJson(actual, {}), HuggingFaceConfigJson(expected, {})) << name;
    EXPECT_EQ(actual.position, expected.position) << name;
    EXPECT_EQ(actual.norm, expected.norm) << name;
    EXPECT_EQ(actual.activation, expected.activation) << name;
    EXPECT_EQ(actual.bias, expected.bias) << name;
    EXPECT_EQ(actual.num_kv_heads, expected.num_kv_heads) << name;
    EXPECT_EQ(actual.head_dim, expected.head_dim) << name;
    EXPECT_EQ(actual.norm_eps, expected.norm_eps) << name;
  }
  EXPECT_FALSE(ParseHuggingFaceConfig(HuggingFaceConfigJson(TinyGpt2(), {}), "")->byte_tokenizer);
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
  constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const Case cases[] = {
      {R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0})", R"(rope_scaling: rope_type = "llama3")",
       kUnimplemented},
      {R"("rope_scaling": {"type": "linear", "factor": 2.0})", R"(rope_scaling: type = "linear")", kUnimplemented},
      {R"("rope_scaling": {"factor": 2.0})", R"(rope_scaling: "factor" = 2.0)", kUnimplemented},
      {R"("rope_parameters": {"rope_type": "yarn"})", "rope_parameters", kUnimplemented},
      {R"("rope_parameters": {"full_attention": {"rope_theta": 1e6}})", "full_attention", kUnimplemented},
      {R"("rope_parameters": {"partial_rotary_factor": 0.5})", "partial_rotary_factor", kUnimplemented},
      {R"("rope_parameters": 3)", "rope_parameters", kInvalid},
      {R"("rope_theta": 2e5, "rope_parameters": {"rope_theta": 3e5})", "rope_theta", kInvalid},
      {R"("rope_theta": -1)", "rope_theta", kInvalid},
      {R"("partial_rotary_factor": 0.5)", "partial_rotary_factor", kUnimplemented},
      {R"("hidden_act": "relu")", "hidden_act", kUnimplemented},
      {R"("sliding_window": 4096)", "sliding_window", kUnimplemented},
      {R"("use_sliding_window": true)", "use_sliding_window", kUnimplemented},
      {R"("layer_types": ["full_attention", "sliding_attention"])", "layer_types", kUnimplemented},
      {R"("attention_bias": true)", "mlp_bias", kInvalid},
      {R"("quantization_config": {})", "quantization_config", kUnimplemented},
      {R"("architectures": ["LlamaForSequenceClassification"])", "architectures", kUnimplemented},
      {R"("is_encoder_decoder": true)", "is_encoder_decoder", kUnimplemented},
      {R"("pruned_heads": {"1": [0]})", "pruned_heads", kUnimplemented},
      {R"("logits_scaling": 8.0)", "logits_scaling", kUnimplemented},
      {R"("is_causal": false)", "is_causal", kUnimplemented},
      {R"("num_key_value_heads": 3)", "num_attention_heads", kInvalid},
      {R"("head_dim": "wide")", "head_dim", kInvalid},
      {R"("head_dim": 1e30)", "head_dim", kInvalid},
      {R"("head_dim": 12)", "head_dim", kInvalid},
      {R"("max_position_embeddings": 0)", "max_position_embeddings", kInvalid},
      {R"("max_position_embeddings": 10000000)", "max_sequence_length", kInvalid},
      {R"("rms_norm_eps": 2)", "norm_eps", kInvalid},
      {R"("tie_word_embeddings": 1)", "tie_word_embeddings", kInvalid},
  };
  for (const Case& c : cases) {
    const auto read = Llama(c.more);
    EXPECT_EQ(read.status().code(), c.code) << c.more << ": " << read.status();
    EXPECT_THAT(std::string(read.status().message()), ::testing::HasSubstr(c.field)) << c.more;
    EXPECT_THAT(std::string(read.status().message()), ::testing::HasSubstr("dir/config.json")) << c.more;
  }
  const auto both = Llama(R"("logits_scaling": 8.0, "hidden_act": "relu")");
  EXPECT_THAT(std::string(both.status().message()),
              AllOf(::testing::HasSubstr("logits_scaling"), ::testing::HasSubstr("hidden_act")));
}

TEST(HuggingFaceTest, HarmlessKeysPass) {
  for (const char* more :
       {R"("torch_dtype": "bfloat16", "_name_or_path": "x", "eos_token_id": [2, 3], "pretraining_tp": 2)",
        R"("sliding_window": 0)", R"("sliding_window": null)", R"("use_sliding_window": false, "sliding_window": 4096)",
        R"("layer_types": ["full_attention", "full_attention"])", R"("something_new": null)",
        R"("architectures": ["LlamaForCausalLM"], "temperature": 0.6, "id2label": {"0": "a"})",
        R"("rope_theta": 2e5, "rope_parameters": {"rope_theta": 2e5, "rope_type": "default"})"}) {
    EXPECT_TRUE(Llama(more).ok()) << more << ": " << Llama(more).status();
  }
}

TEST(HuggingFaceTest, RefusesNonsense) {
  EXPECT_EQ(ParseHuggingFaceConfig("{", "x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseHuggingFaceConfig("[]", "x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseHuggingFaceConfig("{}", "x").status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ParseHuggingFaceConfig(R"({"model_type": "gpt2"})", "x").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseHuggingFaceConfig(R"({"model_type": "mamba"})", "x").status().code(),
            absl::StatusCode::kUnimplemented);
  const std::string deep = absl::StrCat(R"("rope_scaling": )", std::string(200'000, '['), std::string(200'000, ']'));
  EXPECT_EQ(Llama(deep).status().code(), absl::StatusCode::kInvalidArgument);
  const std::string wide = absl::StrCat(R"("rope_scaling": ")", std::string(500'000, 'x'), "\"");
  EXPECT_LT(Llama(wide).status().message().size(), 1000);
  EXPECT_EQ(ParseHuggingFaceConfig(R"({"model_type": "gpt2", "vocab_size": 10, "n_positions": 8, "n_embd": 16,
                                       "n_layer": 1, "n_head": 2, "n_ctx": 16})",
                                   "x")
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
}

TEST(HuggingFaceTest, SpecialTokensStandInEveryFile) {
  const SavedTokenizer tokenizer{.bos = SpecialToken{3, "<s>"}, .eos = SpecialToken{4, "</s>"}};
  for (const auto& [name, config] : TinyModels()) {
    if (FormatOf(config) == ExternalFormat::kHoldfast) continue;
    const Json written = Json::parse(HuggingFaceConfigJson(config, tokenizer));
    EXPECT_EQ(written["bos_token_id"], 3) << name;
    EXPECT_EQ(written["eos_token_id"], 4) << name;
    EXPECT_TRUE(Json::parse(HuggingFaceConfigJson(config, {}))["eos_token_id"].is_null()) << name;
  }
  EXPECT_EQ(Json::parse(HuggingFaceGenerationConfigJson(tokenizer)), Json({{"bos_token_id", 3}, {"eos_token_id", 4}}));
  const Json settings = Json::parse(HuggingFaceTokenizerConfigJson(TinyLlama(), tokenizer, ""));
  EXPECT_EQ(settings["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(settings["eos_token"], "</s>");
  EXPECT_EQ(settings["model_max_length"], TinyLlama().max_sequence_length);
}

TEST(HuggingFaceTest, SettingsOfTheTokenizerStay) {
  const std::string original = R"({"tokenizer_class": "TokenizersBackend", "auto_map": {"x": "y"}, "chat_template": "t",
                                   "eos_token": {"content": "<|im_end|>", "lstrip": false}, "bos_token": null})";
  EXPECT_EQ(ReadTokenizerConfigJson(original).eos, "<|im_end|>");
  EXPECT_EQ(ReadTokenizerConfigJson(original).bos, "");
  const SavedTokenizer tokenizer{.eos = SpecialToken{9, "<|im_end|>"}};
  const Json settings = Json::parse(HuggingFaceTokenizerConfigJson(TinyLlama(), tokenizer, original));
  EXPECT_EQ(settings["chat_template"], "t");
  EXPECT_EQ(settings["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_FALSE(settings.contains("auto_map"));
  for (const char* broken : {"", "[]", "{", "7"}) EXPECT_EQ(ReadTokenizerConfigJson(broken).eos, "") << broken;
}

TEST(HuggingFaceTest, MatrixElementsAreThoseOfTheLayout) {
  for (const auto& [name, config] : TinyModels()) {
    int64_t elements = 0;
    const ParameterLayout layout = TransformerLayout(config);
    for (const ParameterSpec& p : layout.parameters()) elements += p.is_matrix() ? p.shape.elements() : 0;
    EXPECT_EQ(MatrixElements(config), elements) << name;
  }
}

}  // namespace
}  // namespace holdfast
