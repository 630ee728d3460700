// Proves that the map to Hugging Face's names covers every row of every parameter once, with the names and shapes that
// transformers uses, and that config.json survives writing and reading and refuses what is not supported.
#include "models/families/huggingface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/config/model_size.h"
#include "models/families/families.h"
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
    std::set<std::pair<std::string, int64_t>> places;
    std::map<std::string, int64_t> unfilled;  // elements of tensors
    for (const ExternalTensor& tensor : HuggingFaceTensorMap(config, layout)) {
      const ParameterSpec& p = layout.parameters()[tensor.parameter];
      EXPECT_TRUE(places.emplace(tensor.name, tensor.file_row).second) << tensor.name;
      EXPECT_EQ(tensor.first_row, next_row[tensor.parameter]) << tensor.name;
      unfilled.emplace(tensor.name, tensor.shape.elements()).first->second -=
          tensor.num_rows * (p.is_matrix() ? p.shape.cols() : 1);
      const bool joined = config.family == "gpt_oss" && tensor.name.find(".mlp.experts.") != std::string::npos;
      EXPECT_EQ(tensor.shape.rank(), p.shape.rank() + (joined ? 1 : 0)) << tensor.name;
      EXPECT_FALSE(IsIgnorableHuggingFaceTensor(config, tensor.name)) << tensor.name;
      for (const ExternalRows& other : tensor.others) {
        EXPECT_FALSE(IsIgnorableHuggingFaceTensor(config, other.name)) << other.name;
      }
      next_row[tensor.parameter] += tensor.num_rows;
    }
    for (const auto& [tensor, elements] : unfilled) EXPECT_EQ(elements, 0) << tensor;
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
  ASSERT_EQ(qkv.others.size(), 1u);
  EXPECT_EQ(qkv.others[0].name, "h.1.attn.c_attn.weight");
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

TEST(HuggingFaceTest, QwenNamesAndShapes) {
  const TensorMap two = HuggingFaceTensorMap(TinyQwen2(), TransformerLayout(TinyQwen2()));
  EXPECT_EQ(Named(two, "model.layers.1.self_attn.k_proj.bias").first_row, 32);
  EXPECT_EQ(Named(two, "model.layers.1.self_attn.k_proj.bias").shape, Shape{16});
  EXPECT_TRUE(std::none_of(two.begin(), two.end(), [](const ExternalTensor& tensor) {
    return tensor.name.find("o_proj.bias") != std::string::npos || tensor.name.find("norm.bias") != std::string::npos;
  }));
  const TensorMap three = HuggingFaceTensorMap(TinyQwen3(), TransformerLayout(TinyQwen3()));
  EXPECT_EQ(Named(three, "model.layers.0.self_attn.q_norm.weight").shape, Shape{8});
  EXPECT_EQ(Named(three, "model.layers.0.self_attn.k_norm.weight").shape, Shape{8});
}

TEST(HuggingFaceTest, PhiNamesAndShapes) {
  const ParameterLayout layout = TransformerLayout(TinyPhi3());
  const TensorMap map = HuggingFaceTensorMap(TinyPhi3(), layout);
  const ExternalTensor& qkv = Named(map, "model.layers.1.self_attn.qkv_proj.weight");
  EXPECT_EQ(qkv.shape, (Shape{64, 20}));
  EXPECT_EQ(layout.parameters()[qkv.parameter].name, "blocks.1.attention.qkv.weight");
  EXPECT_EQ(Named(map, "model.layers.0.mlp.gate_up_proj.weight").shape, (Shape{56, 20}));
  EXPECT_EQ(Named(map, "model.layers.0.mlp.down_proj.weight").shape, (Shape{20, 28}));
  EXPECT_EQ(map.size(), layout.parameters().size());
}

TEST(HuggingFaceTest, ExpertsAreFoundByThemselvesAndStacked) {
  const auto expect = [](const ExternalTensor& tensor, const std::string& stacked, int64_t row, const Shape& shape) {
    const auto found = std::find_if(tensor.others.begin(), tensor.others.end(),
                                    [&](const ExternalRows& rows) { return rows.name == stacked; });
    ASSERT_NE(found, tensor.others.end()) << tensor.name;
    EXPECT_EQ(found->first_row, row);
    EXPECT_EQ(found->shape, shape);
  };
  const TensorMap mixtral = HuggingFaceTensorMap(TinyMixtral(), TransformerLayout(TinyMixtral()));
  const ExternalTensor& w3 = Named(mixtral, "model.layers.1.block_sparse_moe.experts.4.w3.weight");
  EXPECT_EQ(w3.shape, (Shape{12, 20}));
  expect(w3, "model.layers.1.mlp.experts.gate_up_proj", 4 * 24 + 12, {5, 24, 20});
  expect(w3, "layers.1.mlp.experts.gate_up_proj", 4 * 24 + 12, {5, 24, 20});
  expect(Named(mixtral, "model.layers.0.block_sparse_moe.experts.2.w2.weight"), "model.layers.0.mlp.experts.down_proj",
         2 * 20, {5, 20, 12});
  expect(Named(mixtral, "model.layers.0.block_sparse_moe.gate.weight"), "model.layers.0.mlp.gate.weight", 0, {5, 20});
  const TensorMap qwen = HuggingFaceTensorMap(TinyQwen2Moe(), TransformerLayout(TinyQwen2Moe()));
  EXPECT_EQ(Named(qwen, "model.layers.0.mlp.shared_expert_gate.weight").shape, (Shape{1, 20}));
  EXPECT_EQ(Named(qwen, "model.layers.0.mlp.shared_expert.up_proj.weight").first_row, 20);
  EXPECT_EQ(Named(qwen, "model.layers.1.mlp.up_proj.weight").shape, (Shape{28, 20}));  // the dense layer
  expect(Named(qwen, "model.layers.2.mlp.experts.3.up_proj.weight"), "model.layers.2.mlp.experts.gate_up_proj",
         3 * 24 + 12, {5, 24, 20});
  const TensorMap olmoe = HuggingFaceTensorMap(TinyOlmoe(), TransformerLayout(TinyOlmoe()));
  EXPECT_EQ(Named(olmoe, "model.layers.0.self_attn.q_norm.weight").shape, Shape{32});
  EXPECT_EQ(Named(olmoe, "model.layers.0.self_attn.k_norm.weight").shape, Shape{16});
}

TEST(HuggingFaceTest, LayersWithExpertsAreEveryNthOrRefused) {
  const auto layers = [](const std::string& more) {
    const auto read = ParseHuggingFaceConfig(
        R"({"model_type": "qwen3_moe", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 6,
            "num_attention_heads": 4, "intermediate_size": 128, )" +
            more + "}",
        "config.json");
    return read.ok() ? absl::StrCat(read->model.first_expert_layer, "/", read->model.expert_layer_step)
                     : std::string(read.status().message());
  };
  EXPECT_EQ(layers(R"("mlp_only_layers": [])"), "1/1");
  EXPECT_EQ(layers(R"("decoder_sparse_step": 2)"), "2/2");
  EXPECT_EQ(layers(R"("mlp_only_layers": [0, 1])"), "3/1");
  EXPECT_EQ(layers(R"("decoder_sparse_step": 2, "mlp_only_layers": [0, 1])"), "4/2");
  EXPECT_EQ(layers(R"("decoder_sparse_step": 6)"), "6/1");
  EXPECT_THAT(layers(R"("mlp_only_layers": [3])"), ::testing::HasSubstr("mlp_only_layers = [3] is not supported"));
  EXPECT_THAT(layers(R"("mlp_only_layers": [6])"), ::testing::HasSubstr("mlp_only_layers"));
  EXPECT_THAT(layers(R"("mlp_only_layers": 3)"), ::testing::HasSubstr("mlp_only_layers"));
  EXPECT_THAT(layers(R"("decoder_sparse_step": 7)"), ::testing::HasSubstr("decoder_sparse_step"));
  EXPECT_THAT(layers(R"("num_experts": 4, "num_local_experts": 5)"), ::testing::HasSubstr("num_local_experts"));
  EXPECT_THAT(layers(R"("num_experts": 4)"), ::testing::HasSubstr("experts_per_token 8 is more than num_experts 4"));
}

// Also of a family whose files cannot say it: then they are not written.
TEST(HuggingFaceTest, WindowsOfSomeLayersSurviveInEveryFamily) {
  for (auto [name, config] : TinyModels()) {
    config.sliding_window = 3;
    for (const auto& [first, step] : {std::pair<int64_t, int64_t>{2, 0}, {1, 2}, {2, 2}}) {
      config.first_window_layer = first;
      config.full_attention_step = step;
      const auto read = ParseHuggingFaceConfig(HuggingFaceConfigJson(config, {}), "config.json");
      ASSERT_TRUE(read.ok()) << name << ": " << read.status();
      for (int64_t layer = 1; layer <= config.num_layers; ++layer) {
        EXPECT_EQ(read->model.WindowOf(layer), config.WindowOf(layer))
            << name << ", first_window_layer " << first << ", full_attention_step " << step << ", layer " << layer;
      }
    }
  }
}

TEST(HuggingFaceTest, ConfigSurvivesWritingAndReading) {
  for (const auto& [name, config] : TinyModels()) {
    const std::string text = HuggingFaceConfigJson(config, {.bytes = true});
    const auto read = ParseHuggingFaceConfig(text, "config.json");
    ASSERT_TRUE(read.ok()) << name << ": " << read.status();
    EXPECT_TRUE(read->byte_tokenizer);
    ModelConfig expected = config;
    // What belongs to a run, not to a model.
    expected.dropout = expected.expert_capacity = expected.router_jitter = 0;
    expected.router_balance_loss = expected.router_z_loss = 0;
    expected.router_balance = RouterBalanceKind::kPerLayer;
    ModelConfig actual = read->model;
    EXPECT_EQ(HuggingFaceConfigJson(actual, {}), HuggingFaceConfigJson(expected, {})) << name;
    if (expected.position == PositionKind::kLearned) actual.rope_theta = expected.rope_theta;  // GPT-2 has none
    EXPECT_EQ(actual, expected) << name;
  }
  EXPECT_FALSE(ParseHuggingFaceConfig(HuggingFaceConfigJson(TinyGpt2(), {}), "")->byte_tokenizer);
  ModelConfig jitter = TinyMixtral();  // whose files have a key for it
  jitter.router_jitter = 0.125;
  EXPECT_EQ(ParseHuggingFaceConfig(HuggingFaceConfigJson(jitter, {}), "")->model, jitter);
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
      {R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0})", "rope_scaling: low_freq_factor is missing",
       kInvalid},
      {R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1,
                           "original_max_position_embeddings": 8})",
       "rope_low_freq_factor", kInvalid},
      {R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                           "original_max_position_embeddings": 8, "attention_factor": 2})",
       R"(rope_scaling: "attention_factor" = 2)", kUnimplemented},
      {R"("rope_scaling": {"rope_type": "longrope"})", R"(rope_scaling: rope_type = "longrope")", kUnimplemented},
      {R"("rope_scaling": {"type": "dynamic", "factor": 2.0})", R"(rope_scaling: type = "dynamic")", kUnimplemented},
      {R"("rope_scaling": {"rope_type": "dynamic", "factor": 2.0})", "for those the model is the same without",
       kUnimplemented},
      {R"("rope_scaling": {"rope_type": "linear", "type": "longrope", "factor": 2})",
       R"(rope_scaling: type = "longrope")", kUnimplemented},
      {R"("rope_scaling": {"type": "linear"})", "rope_scaling: factor is missing", kInvalid},
      {R"("rope_scaling": {"type": "linear", "factor": 0.5})", "rope_factor", kInvalid},
      {R"("rope_scaling": {"type": "linear", "factor": 2, "beta_fast": 32})", R"(rope_scaling: "beta_fast" = 32)",
       kUnimplemented},
      {R"("rope_scaling": {"type": "yarn", "factor": null})", "rope_scaling: factor is missing", kInvalid},
      {R"("rope_scaling": {"type": "yarn", "factor": 2, "beta_slow": 40})", "rope_beta_slow", kInvalid},
      {R"("rope_scaling": {"type": "yarn", "factor": 2, "attention_factor": 0})", "attention_factor is 0", kInvalid},
      {R"("rope_scaling": {"type": "yarn", "factor": 2, "truncate": 1})", "truncate is 1", kInvalid},
      {R"("rope_scaling": {"type": "yarn", "factor": 2, "mrope_section": [8]})", "mrope_section", kUnimplemented},
      {R"("rope_theta": 1, "rope_scaling": {"type": "yarn", "factor": 2})", "rope_theta", kInvalid},
      {R"("rope_scaling": {"factor": 2.0})", R"(rope_scaling: "factor" = 2.0)", kUnimplemented},
      {R"("rope_parameters": {"rope_type": "longrope"})", "rope_parameters", kUnimplemented},
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
      {R"("layer_types": ["full_attention"])", "layer_types has length 1, num_hidden_layers is 2", kInvalid},
      {R"("attention_bias": 1)", "attention_bias", kInvalid},
      {R"("rope_interleaved": true)", "rope_interleaved", kUnimplemented},
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
        R"("max_sequence_length": 4096, "is_llama_config": true, "rope_interleaved": false)",
        R"("unsloth_fixed": true, "unsloth_version": "2025.1.5", "transformers.js_config": {"dtype": "q4"})",
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
    if (ExactFamily(config) == nullptr) continue;
    const Json written = Json::parse(HuggingFaceConfigJson(config, tokenizer));
    EXPECT_EQ(written["bos_token_id"], 3) << name;
    EXPECT_EQ(written["eos_token_id"], 4) << name;
    EXPECT_TRUE(Json::parse(HuggingFaceConfigJson(config, {}))["eos_token_id"].is_null()) << name;
  }
  EXPECT_EQ(Json::parse(HuggingFaceGenerationConfigJson(tokenizer, "")),
            Json({{"bos_token_id", 3}, {"eos_token_id", 4}}));
  const Json settings = Json::parse(HuggingFaceTokenizerConfigJson(TinyLlama(), tokenizer, ""));
  EXPECT_EQ(settings["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(settings["eos_token"], "</s>");
  EXPECT_EQ(settings["model_max_length"], TinyLlama().max_sequence_length);
}

// Else transformers pads with another token, and trains routers on with its default.
TEST(HuggingFaceTest, PaddingAndAuxiliaryLossStayAsTheOriginalHasThem) {
  for (const auto& [name, config] : TinyModels()) {
    const Family* family = ExactFamily(config);
    if (family == nullptr) continue;
    const Json of_router = {{"output_router_logits", true}, {"router_aux_loss_coef", 0.02}};
    Json original = {{"model_type", family->model_type()}, {"pad_token_id", config.vocab_size - 1}};
    original.update(of_router);
    const auto written = [&model = config](const std::string& text) {
      return Json::parse(HuggingFaceConfigJson(model, {}, "", text));
    };
    Json expected = written("");
    EXPECT_TRUE(expected.contains("pad_token_id") && expected["pad_token_id"].is_null())
        << name << ": that of phi3 would be 32000, that of gemma3 a token that is trained";
    EXPECT_FALSE(expected.contains("router_aux_loss_coef")) << name;
    for (const char* broken : {"[]", "{", "7"}) EXPECT_EQ(written(broken), expected) << name;
    expected["pad_token_id"] = config.vocab_size - 1;
    if (config.num_experts > 0) expected.update(of_router);
    EXPECT_EQ(written(original.dump()), expected) << name;
    const auto again = ParseHuggingFaceConfig(expected.dump(), "config.json");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->model, ParseHuggingFaceConfig(HuggingFaceConfigJson(config, {}), "config.json")->model) << name;
    original["model_type"] = "of a dense model";
    for (const char* key : {"output_router_logits", "router_aux_loss_coef"}) expected.erase(key);
    EXPECT_EQ(written(original.dump()), expected) << name;
  }
}

TEST(HuggingFaceTest, NothingIsTakenOverThatIsNotOfItsType) {
  const int64_t vocabulary = TinyMixtral().vocab_size;
  const auto written = [](const char* key, const Json& value) {
    const Json original = {{"model_type", "mixtral"}, {key, value}};
    return Json::parse(HuggingFaceConfigJson(TinyMixtral(), {}, "", original.dump()))[key];
  };
  for (const Json& value : std::vector<Json>{-1, vocabulary, UINT64_MAX, 1.5, "1", true, {1}, nullptr}) {
    EXPECT_TRUE(written("pad_token_id", value).is_null()) << value;
  }
  for (const Json& value : std::vector<Json>{-0.01, 1000.5, "0.02", true, {0.02}, nullptr}) {
    EXPECT_TRUE(written("router_aux_loss_coef", value).is_null()) << value;
  }
  for (const Json& value : std::vector<Json>{0, 1, 0.001, 1000})
    EXPECT_EQ(written("router_aux_loss_coef", value), value);
  for (const Json& value : std::vector<Json>{1, "true", nullptr}) {
    EXPECT_TRUE(written("output_router_logits", value).is_null()) << value;
  }
  EXPECT_EQ(written("output_router_logits", false), false);
}

// As transformers does with a model that has no generation_config.json.
TEST(HuggingFaceTest, EndsAndPaddingOfAConfigJsonMakeAGenerationConfigJson) {
  const auto implied = [](const char* text) { return Json::parse(ImpliedGenerationConfigJson(text, 10)); };
  EXPECT_EQ(implied(R"({"eos_token_id": 9, "pad_token_id": 0, "bos_token_id": 1, "temperature": 2})"),
            Json::parse(R"({"eos_token_id": [9], "pad_token_id": 0})"));
  EXPECT_EQ(implied(R"({"eos_token_id": [4, -1, "3", 10, 2.5, 7], "pad_token_id": 10})"),
            Json::parse(R"({"eos_token_id": [4, 7]})"));
  for (const char* none : {"", "[]", "{", "{}", R"({"eos_token_id": null, "pad_token_id": null})"}) {
    EXPECT_EQ(implied(none), Json::object()) << none;
  }
  const SavedTokenizer tokenizer{.eos = SpecialToken{7, "<|im_end|>"}};
  const std::string original = ImpliedGenerationConfigJson(R"({"eos_token_id": [4, 7], "pad_token_id": 3})", 10);
  EXPECT_EQ(Json::parse(HuggingFaceGenerationConfigJson(tokenizer, original)),
            Json::parse(R"({"bos_token_id": null, "eos_token_id": [4, 7], "pad_token_id": 3})"));
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
  for (const char* of_class : {"PreTrainedTokenizerFast", "TokenizersBackend"}) {
    const SpecialTokenTexts left_out =
        ReadTokenizerConfigJson(absl::StrCat(R"({"tokenizer_class": ")", of_class, "\"}"));
    EXPECT_EQ(left_out.bos, "") << of_class;
    EXPECT_EQ(left_out.eos, std::nullopt) << of_class;  // something has to end a text
  }
  EXPECT_EQ(ReadTokenizerConfigJson(R"({"tokenizer_class": "GPT2Tokenizer"})").bos, std::nullopt);
  EXPECT_EQ(ReadTokenizerConfigJson(R"({"tokenizer_class": "TokenizersBackend", "bos_token": "<s>"})").bos, "<s>");
  for (const char* broken : {"", "[]", "{", "7"})
    EXPECT_EQ(ReadTokenizerConfigJson(broken).eos, std::nullopt) << broken;
}

constexpr char kLlama3Rope[] = R"("rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.5,
    "high_freq_factor": 5.0, "original_max_position_embeddings": 4000)";

TEST(HuggingFaceTest, ReadsTheScalingOfRotaryAngles) {
  const std::string scaling = absl::StrCat("\"rope_theta\": 5e5, \"rope_scaling\": {", kLlama3Rope, "}");
  const std::string parameters = absl::StrCat("\"rope_parameters\": {\"rope_theta\": 5e5, ", kLlama3Rope, "}");
  for (const std::string& more : {scaling, parameters, scaling + ", " + parameters}) {
    const auto read = Llama(more);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->model.rope_theta, 5e5);
    EXPECT_EQ(read->model.rope_scaling, RopeScaling::kLlama3);
    EXPECT_EQ(read->model.rope_factor, 32);
    EXPECT_EQ(read->model.rope_low_freq_factor, 1.5);
    EXPECT_EQ(read->model.rope_high_freq_factor, 5);
    EXPECT_EQ(read->model.rope_original_length, 4000);
  }
  const auto other = Llama(absl::StrCat(parameters, R"(, "rope_scaling": {"rope_type": "default"})"));
  EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(other.status().message()), ::testing::HasSubstr("rope_scaling"));
}

TEST(HuggingFaceTest, TheLengthBesideTheRotaryAnglesMustBeThatOfTheirScaling) {
  const std::string scaled = absl::StrCat("\"rope_scaling\": {", kLlama3Rope, "}");
  EXPECT_EQ(Llama(scaled + R"(, "original_max_position_embeddings": 4000)")->model.rope_original_length, 4000);
  const auto other = Llama(scaled + R"(, "original_max_position_embeddings": 8000)");
  EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(other.status().message()),
              ::testing::HasSubstr("original_max_position_embeddings differs from 4000"));
  EXPECT_TRUE(Llama(R"("original_max_position_embeddings": 8000)").ok()) << "without scaling it decides nothing";
}

/// What a Llama with this object has, wherever transformers has it.
ModelConfig WithRope(const std::string& object, const std::string& more = "") {
  const auto read = Llama(absl::StrCat("\"rope_scaling\": {", object, "}", more));
  EXPECT_TRUE(read.ok()) << read.status();
  const auto newer = Llama(absl::StrCat("\"rope_parameters\": {", object, "}", more));
  EXPECT_TRUE(newer.ok()) << newer.status();
  if (!read.ok() || !newer.ok()) return {};
  EXPECT_EQ(read->model, newer->model) << object;
  return read->model;
}

TEST(HuggingFaceTest, ReadsLinearScaling) {
  for (const char* type :
       {R"("type": "linear")", R"("rope_type": "linear")", R"("rope_type": "linear", "type": "linear")",
        R"("rope_type": "linear", "type": "default")"}) {
    const ModelConfig model = WithRope(absl::StrCat(type, R"(, "factor": 4.0)"));
    EXPECT_EQ(model.rope_scaling, RopeScaling::kLinear) << type;
    EXPECT_EQ(model.rope_factor, 4) << type;
  }
  EXPECT_EQ(WithRope(R"("type": "linear", "rope_type": "default")").rope_scaling, RopeScaling::kNone);
  const std::string length = R"(, "original_max_position_embeddings": 4000)";
  EXPECT_EQ(WithRope(R"("type": "linear", "factor": 4.0)", length).rope_factor, 4) << "it has no such length";
}

TEST(HuggingFaceTest, ReadsYarn) {
  const ModelConfig qwen = WithRope(R"("type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768)",
                                    R"(, "max_position_embeddings": 131072)");
  EXPECT_EQ(qwen.rope_scaling, RopeScaling::kYarn);
  EXPECT_EQ(qwen.rope_factor, 4);
  EXPECT_EQ(qwen.rope_original_length, 32768);
  EXPECT_EQ(qwen.rope_beta_fast, 32);
  EXPECT_EQ(qwen.rope_beta_slow, 1);
  EXPECT_TRUE(qwen.rope_truncate);
  EXPECT_EQ(qwen.rope_attention_factor, 0);
  const ModelConfig all = WithRope(R"("rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 4096,
      "beta_fast": 16, "beta_slow": 2.5, "truncate": false, "attention_factor": 0.75, "mscale": 1, "mscale_all_dim": 2,
      "finetuned": true)");
  EXPECT_EQ(all.rope_beta_fast, 16);
  EXPECT_EQ(all.rope_beta_slow, 2.5);
  EXPECT_FALSE(all.rope_truncate);
  EXPECT_EQ(all.rope_attention_factor, 0.75);
  const std::string yarn = R"("rope_type": "yarn", "factor": 40)";
  EXPECT_NEAR(WithRope(yarn + R"(, "mscale": 1.0, "mscale_all_dim": 0.707)").rope_attention_factor, 1.0857263992561355,
              1e-12);
  EXPECT_EQ(WithRope(yarn + R"(, "mscale": 1.0, "mscale_all_dim": 1.0)").rope_attention_factor, 1);
  EXPECT_EQ(WithRope(yarn + R"(, "mscale": 2.0)").rope_attention_factor, 0) << "transformers wants both";
  EXPECT_EQ(WithRope(yarn + R"(, "mscale": 2.0, "mscale_all_dim": 0)").rope_attention_factor, 0);
  EXPECT_EQ(WithRope(yarn, R"(, "max_position_embeddings": 512)").rope_original_length, 512);
  EXPECT_FALSE(Llama(absl::StrCat("\"rope_scaling\": {", yarn, R"(}, "original_max_position_embeddings": 256)")).ok())
      << "version 4 would take max_position_embeddings";
}

absl::StatusOr<HuggingFaceConfig> OfType(const std::string& type, const std::string& more) {
  return ParseHuggingFaceConfig(absl::StrCat(R"({"model_type": ")", type, R"(", "vocab_size": 100, "hidden_size": 256,
      "num_hidden_layers": 2, "num_attention_heads": 32, "intermediate_size": 128)",
                                             more.empty() ? "" : ", ", more, "}"),
                                "dir/config.json");
}

TEST(HuggingFaceTest, FamiliesHaveTheirOwnDefaults) {
  const auto mistral = OfType("mistral", ""), qwen2 = OfType("qwen2", ""), qwen3 = OfType("qwen3", "");
  ASSERT_TRUE(mistral.ok() && qwen2.ok() && qwen3.ok()) << mistral.status() << qwen2.status() << qwen3.status();
  EXPECT_EQ(mistral->model.num_kv_heads, 8);
  EXPECT_EQ(mistral->model.max_sequence_length, 131072);
  EXPECT_EQ(mistral->model.sliding_window, 4096);
  EXPECT_EQ(OfType("mistral", R"("sliding_window": null, "num_key_value_heads": null)")->model.sliding_window, 0);
  EXPECT_EQ(OfType("mistral", R"("num_key_value_heads": null)")->model.num_kv_heads, 32);
  EXPECT_EQ(OfType("mistral", R"("sliding_window": 100)")->model.sliding_window, 100);
  EXPECT_TRUE(qwen2->model.qkv_bias);
  EXPECT_FALSE(qwen2->model.qk_norm);
  EXPECT_EQ(qwen2->model.head_dim, 8);
  EXPECT_EQ(qwen2->model.sliding_window, 0);
  EXPECT_TRUE(qwen3->model.qk_norm);
  EXPECT_FALSE(qwen3->model.qkv_bias);
  EXPECT_EQ(qwen3->model.head_dim, 128);
}

TEST(HuggingFaceTest, BiasesOfAttentionAndMlpAreApart) {
  const auto of_llama = [](const std::string& attention, const std::string& mlp) {
    const auto read = Llama(absl::StrCat("\"attention_bias\": ", attention, ", \"mlp_bias\": ", mlp));
    EXPECT_TRUE(read.ok()) << read.status();
    const Json written = Json::parse(HuggingFaceConfigJson(read->model, {}));
    EXPECT_EQ(written["attention_bias"], attention == "true");
    EXPECT_EQ(written["mlp_bias"], mlp == "true");
    return read->model;
  };
  EXPECT_TRUE(of_llama("true", "true").bias);
  const ModelConfig attention = of_llama("true", "false"), mlp = of_llama("false", "true");
  EXPECT_TRUE(attention.attention_bias && !attention.mlp_bias && !attention.bias);
  EXPECT_TRUE(mlp.mlp_bias && !mlp.attention_bias && !mlp.bias);
  EXPECT_FALSE(of_llama("false", "false").HasQkvBias());
  const TensorMap of_attention = HuggingFaceTensorMap(attention, TransformerLayout(attention));
  EXPECT_EQ(Named(of_attention, "model.layers.1.self_attn.o_proj.bias").shape, Shape{64});
  EXPECT_EQ(Named(of_attention, "model.layers.1.self_attn.v_proj.bias").first_row, 128);
  const TensorMap of_mlp = HuggingFaceTensorMap(mlp, TransformerLayout(mlp));
  EXPECT_EQ(Named(of_mlp, "model.layers.0.mlp.up_proj.bias").first_row, 128);
  EXPECT_EQ(Named(of_mlp, "model.layers.0.mlp.down_proj.bias").shape, Shape{64});
  EXPECT_EQ(of_mlp.size(), of_attention.size() - 2) << "three biases a layer, not four";
  for (const char* type : {"qwen3", "qwen3_moe", "olmoe", "olmo2"}) {
    const auto read = OfType(type, R"("attention_bias": true)");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read->model.attention_bias) << type;
    EXPECT_EQ(Json::parse(HuggingFaceConfigJson(read->model, {}))["attention_bias"], true) << type;
  }
}

std::vector<int64_t> LayersWithWindow(const ModelConfig& model) {
  std::vector<int64_t> layers;
  for (int64_t layer = 1; layer <= model.num_layers; ++layer) {
    if (model.WindowOf(layer) > 0) layers.push_back(layer);
  }
  return layers;
}

TEST(HuggingFaceTest, LayersOfAQwenWithAWindowAreReadOrRefused) {
  for (const char* type : {"qwen2", "qwen3"}) {
    const auto windows = [&](const std::string& more) {
      const auto read = OfType(type, R"("num_hidden_layers": 5, )" + more);
      if (!read.ok()) return std::string(read.status().message());
      std::vector<int64_t> of_layers;
      for (int64_t layer = 1; layer <= 5; ++layer) of_layers.push_back(read->model.WindowOf(layer));
      const auto again = ParseHuggingFaceConfig(HuggingFaceConfigJson(read->model, {}), "x");
      EXPECT_TRUE(again.ok() && again->model == read->model) << again.status();
      return absl::StrJoin(of_layers, " ");
    };
    const std::string slides = R"("use_sliding_window": true, "sliding_window": 77)";
    const auto layers = [](const std::string& kinds) {
      std::vector<std::string> words;
      for (const char kind : kinds) words.push_back(kind == 's' ? "\"sliding_attention\"" : "\"full_attention\"");
      return absl::StrCat("\"layer_types\": [", absl::StrJoin(words, ", "), "]");
    };
    EXPECT_EQ(windows(R"("sliding_window": 77, "max_window_layers": 0)"), "0 0 0 0 0");  // not in use
    EXPECT_EQ(windows(slides), "0 0 0 0 0");                                             // from layer 28 on
    EXPECT_EQ(windows(slides + R"(, "max_window_layers": 0)"), "77 77 77 77 77");
    EXPECT_EQ(windows(slides + R"(, "max_window_layers": 2)"), "0 0 77 77 77");
    EXPECT_EQ(windows(slides + R"(, "max_window_layers": 4)"), "0 0 0 0 77");
    EXPECT_EQ(windows(slides + R"(, "max_window_layers": 5)"), "0 0 0 0 0");
    EXPECT_EQ(windows(R"("use_sliding_window": true, "sliding_window": null, "max_window_layers": 0)"), "0 0 0 0 0");
    EXPECT_EQ(windows(slides + R"(, "max_window_layers": 28, )" + layers("sssss")), "77 77 77 77 77");
    EXPECT_EQ(windows(slides + R"(, "max_window_layers": 0, )" + layers("fffff")), "0 0 0 0 0");
    EXPECT_EQ(windows(slides + ", " + layers("ffsss")), "0 0 77 77 77");
    EXPECT_EQ(windows(slides + ", " + layers("sssfs")), "77 77 77 0 77");
    EXPECT_EQ(windows(slides + ", " + layers("fsfsf")), "0 77 0 77 0");
    EXPECT_EQ(windows(slides + ", " + layers("ssssf")), "77 77 77 77 0");
    const std::string supported =
        " is not supported: sliding_attention may be all layers from some layer on, or all of these but every n-th; "
        "after the layers before it, layer ";
    for (const auto& [kinds, end] :
         {std::pair("sffff", "3 would be sliding_attention"), std::pair("sffsf", "3 would be sliding_attention"),
          std::pair("ssfsf", "5 would be sliding_attention"), std::pair("sfssf", "4 would be full_attention")}) {
      EXPECT_THAT(windows(slides + ", " + layers(kinds)), ::testing::EndsWith(supported + end)) << kinds;
    }
    EXPECT_THAT(windows(layers("sssss")),
                ::testing::EndsWith(" is not supported: there is no window for sliding_attention"));
    for (const std::string kinds : {"fff", "sss"}) {
      EXPECT_THAT(windows(slides + ", " + layers(kinds)),
                  ::testing::HasSubstr("layer_types has length 3, num_hidden_layers is 5"));
    }
    EXPECT_THAT(windows(R"("layer_types": ["chunked_attention", "full_attention"])"),
                ::testing::HasSubstr("layer_types"));
  }
}

/// What is wrong with a Phi-3 that has four frequencies, or what it reads of LongRoPE.
std::string LongRopeOf(const std::string& more, const std::string& lists = R"("short_factor": [1, 1.1, 1.25, 2],
                                                                              "long_factor": [1, 2.5, 8, 30.5])") {
  const auto read = OfType("phi3", absl::StrCat(R"("rope_scaling": {)", lists, more));
  if (!read.ok()) return std::string(read.status().message());
  const ModelConfig& c = read->model;
  EXPECT_EQ(c.rope_scaling, RopeScaling::kLongRope);
  EXPECT_EQ(c.rope_short_factors, (std::vector<double>{1, 1.1, 1.25, 2}));
  EXPECT_EQ(c.rope_long_factors, (std::vector<double>{1, 2.5, 8, 30.5}));
  return absl::StrCat(c.rope_factor, " ", c.rope_attention_factor, " ", c.rope_original_length);
}

TEST(HuggingFaceTest, ReadsLongRope) {
  using ::testing::HasSubstr;
  for (const std::string type :
       {R"("type": "longrope")", R"("type": "su")", R"("rope_type": "longrope", "type": "su")", R"("type": "yarn")",
        R"("rope_type": "yarn")", R"("rope_type": "yarn", "type": "longrope")"}) {
    EXPECT_EQ(LongRopeOf(absl::StrCat(", ", type, "}")), "1 0 4096");
    EXPECT_EQ(LongRopeOf(absl::StrCat(", ", type, R"(}, "max_position_embeddings": 131072)")), "32 0 4096");
  }
  const std::string end = R"(, "type": "longrope"}, "max_position_embeddings": 96)";
  const std::string beside = R"(, "original_max_position_embeddings": 24)";
  EXPECT_EQ(LongRopeOf(end), "1 0 4096") << "a longer one is no scaling";
  EXPECT_EQ(LongRopeOf(end + beside), "4 0 24");
  EXPECT_EQ(LongRopeOf(beside + end + beside), "4 0 24");
  EXPECT_EQ(LongRopeOf(R"(, "factor": 5, "attention_factor": 0.9)" + end + beside), "5 0.9 24");
  EXPECT_THAT(LongRopeOf(beside + end), HasSubstr("original_max_position_embeddings differs from 24"))
      << "without the one beside it is 4096";
  EXPECT_THAT(LongRopeOf(R"(, "beta_fast": 32)" + end), HasSubstr(R"("beta_fast" = 32 is not known)"));
  EXPECT_THAT(LongRopeOf(end, R"("long_factor": [1, 2.5, 8, 30.5])"), HasSubstr("rope_short_factors has 0"));
  EXPECT_THAT(LongRopeOf(end, R"("short_factor": [1, 1, 1, 1], "long_factor": [1, 2, 3])"),
              HasSubstr("each of the 4 rotary frequencies of a head, rope_long_factors has 3"));
  for (const char* list : {"2", R"([1, 1, 1, "2"])", "[1, 1, 1, -2]", "[1, 1, 1, 0]", "[1, 1, 1, null]"}) {
    EXPECT_THAT(LongRopeOf(end, absl::StrCat(R"("short_factor": [1, 1, 1, 1], "long_factor": )", list)),
                HasSubstr("rope_scaling: long_factor is"))
        << list;
  }
  for (const std::string type : {"linear", "llama3", "dynamic"}) {
    EXPECT_THAT(LongRopeOf(absl::StrCat(R"(, "type": ")", type, "\"}")),
                HasSubstr(absl::StrCat("rope_scaling: type = \"", type, "\" is not supported")));
  }
}

// transformers before 5 takes no other keys.
TEST(HuggingFaceTest, LongRopeIsWrittenForOlderVersionsWhereTheyHaveIt) {
  ModelConfig config = TinyPhi4Mini();
  const auto keys = [&] {
    const Json rope = Json::parse(HuggingFaceConfigJson(config, {}))["rope_scaling"];
    std::vector<std::string> names;
    for (const auto& [key, value] : rope.items()) names.push_back(key);
    return names;
  };
  EXPECT_THAT(keys(), ::testing::ElementsAre("long_factor", "short_factor", "type"));
  config.rope_factor = 4;
  EXPECT_THAT(keys(), ::testing::ElementsAre("factor", "long_factor", "short_factor", "type"));
  config.rope_factor = TinyPhi4Mini().rope_factor;
  config.rope_attention_factor = 1.5;
  EXPECT_THAT(keys(), ::testing::ElementsAre("attention_factor", "long_factor", "short_factor", "type"));
  EXPECT_EQ(ParseHuggingFaceConfig(HuggingFaceConfigJson(config, {}), "")->model, config);
}

TEST(HuggingFaceTest, EveryFamilyRefusesWhatItDoesNotKnow) {
  for (const char* type : {"phi3", "llama", "mistral", "qwen2", "qwen3", "olmo2", "olmo3"}) {
    for (const char* more :
         {R"("num_experts": 8)", R"("num_local_experts": 8)", R"("query_pre_attn_scalar": 256)", R"("mup": 1)",
          R"("hidden_act": "gelu")", R"("architectures": ["SomethingElse"])", R"("quantization_config": {"bits": 4})",
          R"("rope_scaling": {"rope_type": "longrope", "factor": 4.0})"}) {
      if (type == std::string("phi3") && std::string(more).starts_with(R"("rope_scaling")")) continue;
      const auto read = OfType(type, more);
      EXPECT_EQ(read.status().code(), absl::StatusCode::kUnimplemented) << type << " " << more;
      const std::string key = std::string(more).substr(1, std::string(more).find('"', 1) - 1);
      EXPECT_THAT(std::string(read.status().message()), ::testing::HasSubstr(key)) << type;
    }
  }
  for (const char* type : {"deepseek_v3", "gemma3", "qwen3_next"}) {
    EXPECT_THAT(std::string(OfType(type, "").status().message()),
                ::testing::HasSubstr("is not supported; there are gpt2, llama, mistral, "))
        << type;
  }
  EXPECT_EQ(ParseHuggingFaceConfig(R"({"model_type": 5})", "c.json").status().message(),
            "c.json: model_type is 5, not a string");
  EXPECT_EQ(OfType("olmoe", R"("clip_qkv": 8.0)")->model.clip_qkv, 8);
  EXPECT_THAT(std::string(OfType("olmoe", R"("clip_qkv": 0)").status().message()), ::testing::HasSubstr("clip_qkv"));
  EXPECT_EQ(OfType("mixtral", R"("router_jitter_noise": 0.125)")->model.router_jitter, 0.125);
  EXPECT_THAT(std::string(OfType("mixtral", R"("router_jitter_noise": -1)").status().message()),
              ::testing::HasSubstr("router_jitter_noise"));
  EXPECT_THAT(std::string(OfType("qwen2_moe", R"("use_sliding_window": true)").status().message()),
              ::testing::HasSubstr("use_sliding_window"));
  EXPECT_THAT(std::string(OfType("qwen2_moe", R"("layer_types": [])").status().message()),
              ::testing::HasSubstr("layer_types has length 0, num_hidden_layers is 2"));
  for (const char* more : {R"("attention_bias": true)", R"("mlp_bias": true)", R"("lm_head_bias": true)",
                           R"("full_attn_mod": 2)", R"("interpolate_factor": 4)"}) {
    EXPECT_EQ(OfType("phi3", more).status().code(), absl::StatusCode::kUnimplemented) << more;
  }
  EXPECT_TRUE(OfType("qwen2", R"("dual_chunk_attention_config": {"chunk_size": 262144})").ok());
  EXPECT_EQ(OfType("qwen3_moe", R"("use_qk_norm": false)").status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(OfType("qwen3_moe", R"("shared_expert_intermediate_size": 8)").status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(OfType("mistral", R"("attention_bias": true)").status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(OfType("mistral", R"("layer_types": ["full_attention", "full_attention"])").status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(HuggingFaceTest, PublishedFilesOfGemma3AreRead) {
  constexpr char kCommon[] = R"("architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "attn_logit_softcapping": null, "bos_token_id": 2, "eos_token_id": [1, 106],
      "final_logit_softcapping": null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
      "initializer_range": 0.02, "max_position_embeddings": 32768, "model_type": "gemma3_text",
      "num_attention_heads": 4, "num_key_value_heads": 1, "pad_token_id": 0, "query_pre_attn_scalar": 256,
      "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000,
      "sliding_window": 512, "use_cache": true, "vocab_size": 262144)";
  const auto read = [&](const std::string& keys) {
    const auto parsed = ParseHuggingFaceConfig(absl::StrCat("{", kCommon, ", ", keys, "}"), "config.json");
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return parsed->model;
  };
  std::vector<std::string> types;
  for (int layer = 1; layer <= 18; ++layer) {
    types.emplace_back(layer % 6 == 0 ? "\"full_attention\"" : "\"sliding_attention\"");
  }
  const ModelConfig of_270m =
      read(absl::StrCat(R"("_sliding_window_pattern": 6, "dtype": "bfloat16", "hidden_size": 640,
      "intermediate_size": 2048, "num_hidden_layers": 18, "use_bidirectional_attention": false, "layer_types": [)",
                        absl::StrJoin(types, ", "), "]"));
  const ModelConfig of_1b = read(R"("cache_implementation": "hybrid", "hidden_size": 1152, "intermediate_size": 6912,
      "num_hidden_layers": 26, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
      "transformers_version": "4.50.0.dev0")");
  for (const ModelConfig& model : {of_270m, of_1b}) {
    EXPECT_EQ(model.full_attention_step, 6);
    EXPECT_EQ(model.window_rope_theta, 10000);
    EXPECT_TRUE(model.tie_embeddings);
  }
  EXPECT_EQ(TransformerLayout(of_270m).elements(), 268'098'176);
  EXPECT_EQ(TransformerLayout(of_1b).elements(), 999'885'952);
}

// With the keys of files as their makers published them.
TEST(HuggingFaceTest, PublishedFilesAreRead) {
  constexpr char kCommon[] =
      R"("attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": [2, 3], "hidden_act": "silu",
      "initializer_range": 0.02, "torch_dtype": "bfloat16", "transformers_version": "4.40.0", "use_cache": true)";
  const auto read = [&](const std::string& keys) {
    const auto parsed = ParseHuggingFaceConfig(absl::StrCat("{", kCommon, ", ", keys, "}"), "config.json");
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return parsed.ok() ? parsed->model : ModelConfig();
  };
  const ModelConfig llama = read(R"("architectures": ["LlamaForCausalLM"], "attention_bias": false, "head_dim": 64,
      "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
      "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
      "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0,
      "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
      "tie_word_embeddings": true, "vocab_size": 128256)");
  EXPECT_EQ(llama.rope_factor, 32);
  const ModelConfig smollm = read(R"("architectures": ["LlamaForCausalLM"], "attention_bias": false, "hidden_size": 576,
      "intermediate_size": 1536, "is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false,
      "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
      "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
      "rope_theta": 100000, "tie_word_embeddings": true, "transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}},
      "vocab_size": 49152)");
  EXPECT_EQ(smollm.rope_theta, 1e5);
  const ModelConfig mistral = read(R"("architectures": ["MistralForCausalLM"], "hidden_size": 4096,
      "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
      "sliding_window": 4096, "tie_word_embeddings": false, "vocab_size": 32000)");
  EXPECT_EQ(mistral.sliding_window, 4096);
  const ModelConfig phi3 = read(R"("architectures": ["Phi3ForCausalLM"], "attention_bias": false,
      "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "embd_pdrop": 0.0, "hidden_size": 3072,
      "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "phi3", "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 32, "original_max_position_embeddings": 4096, "pad_token_id": 32000,
      "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0, "sliding_window": 2047,
      "tie_word_embeddings": false, "vocab_size": 32064)");
  EXPECT_EQ(phi3.sliding_window, 2047);
  EXPECT_EQ(phi3.head_dim, 96);
  EXPECT_EQ(phi3.rope_dim, 0);
  const ModelConfig phi4_mini = read(absl::StrCat(
      R"("architectures": ["Phi3ForCausalLM"], "attention_bias": false,
      "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "embd_pdrop": 0.0, "full_attn_mod": 1,
      "hidden_size": 3072, "intermediate_size": 8192, "interpolate_factor": 1, "lm_head_bias": false,
      "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "phi3", "num_attention_heads": 24,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "original_max_position_embeddings": 4096,
      "pad_token_id": 199999, "partial_rotary_factor": 0.75, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
      "rope_scaling": {"long_factor": )",
      Json(std::vector<double>(48, 2.5)).dump(), R"(, "short_factor": )", Json(std::vector<double>(48, 1)).dump(),
      R"(, "type": "longrope"}, "rope_theta": 10000.0, "sliding_window": 262144,
      "tie_word_embeddings": true, "vocab_size": 200064)"));
  EXPECT_EQ(phi4_mini.rope_dim, 96);
  EXPECT_EQ(phi4_mini.rope_factor, 32);
  EXPECT_TRUE(phi4_mini.tie_embeddings);
  const ModelConfig qwen2 =
      read(R"("architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "intermediate_size": 4864,
      "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
      "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
      "sliding_window": 32768, "tie_word_embeddings": true, "use_mrope": false, "use_sliding_window": false,
      "vocab_size": 151936)");
  EXPECT_EQ(qwen2.head_dim, 64);
  EXPECT_EQ(qwen2.sliding_window, 0);
  const ModelConfig qwen3 = read(R"("architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 128,
      "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28,
      "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
      "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936)");
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_EQ(qwen3.rope_theta, 1e6);
  const ModelConfig mixtral = read(R"("architectures": ["MixtralForCausalLM"], "hidden_size": 4096,
      "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32,
      "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
      "output_router_logits": false, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02,
      "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 32000)");
  EXPECT_EQ(mixtral.num_experts, 8);
  EXPECT_EQ(mixtral.expert_intermediate_size, 14336);
  EXPECT_EQ(mixtral.sliding_window, 0);
  const ModelConfig qwen3_moe = read(R"("architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false,
      "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144,
      "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe",
      "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
      "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": false,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
      "sliding_window": null, "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936)");
  EXPECT_EQ(qwen3_moe.expert_intermediate_size, 768);
  EXPECT_TRUE(qwen3_moe.router_normalize);
  const ModelConfig coder = read(R"("architectures": ["Qwen3MoeForCausalLM"], "decoder_sparse_step": 1, "head_dim": 128,
      "hidden_size": 2048, "intermediate_size": 5472, "max_position_embeddings": 262144, "max_window_layers": 28,
      "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": true,
      "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
      "num_key_value_heads": 4, "output_router_logits": false, "qkv_bias": false, "rms_norm_eps": 1e-06,
      "rope_scaling": null, "rope_theta": 10000000, "router_aux_loss_coef": 0.0, "shared_expert_intermediate_size": 0,
      "sliding_window": null, "tie_word_embeddings": false, "use_qk_norm": true, "use_sliding_window": false,
      "vocab_size": 151936)");
  EXPECT_EQ(coder.rope_theta, 1e7);
  const ModelConfig qwen2_moe = read(R"("architectures": ["Qwen2MoeForCausalLM"], "decoder_sparse_step": 1,
      "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21,
      "model_type": "qwen2_moe", "moe_intermediate_size": 1408, "norm_topk_prob": false, "num_attention_heads": 16,
      "num_experts": 60, "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16,
      "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
      "shared_expert_intermediate_size": 5632, "sliding_window": 32768, "tie_word_embeddings": false,
      "use_sliding_window": false, "vocab_size": 151936)");
  EXPECT_EQ(qwen2_moe.shared_expert_intermediate_size, 5632);
  EXPECT_FALSE(qwen2_moe.router_normalize);
  const ModelConfig olmoe = read(R"("architectures": ["OlmoeForCausalLM"], "attention_bias": false, "clip_qkv": null,
      "hidden_size": 2048, "intermediate_size": 1024, "max_position_embeddings": 4096, "model_type": "olmoe",
      "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8,
      "num_hidden_layers": 16, "num_key_value_heads": 16, "output_router_logits": false, "rms_norm_eps": 1e-05,
      "rope_scaling": null, "rope_theta": 10000.0, "router_aux_loss_coef": 0.01, "tie_word_embeddings": false,
      "vocab_size": 50304)");
  EXPECT_TRUE(olmoe.qk_norm_joint);
  EXPECT_EQ(olmoe.expert_intermediate_size, 1024);
  const ModelConfig olmo2 = read(R"("architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "hidden_size": 4096,
      "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "olmo2", "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 100277, "rms_norm_eps": 1e-06,
      "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false, "vocab_size": 100352)");
  EXPECT_EQ(olmo2.norm_position, NormPosition::kAfter);
  EXPECT_TRUE(olmo2.qk_norm && olmo2.qk_norm_joint);
  EXPECT_EQ(TransformerLayout(olmo2).elements(), 7'298'617'344);
  const ModelConfig olmo3 = read(R"("architectures": ["Olmo3ForCausalLM"], "attention_bias": false, "hidden_size": 4096,
      "intermediate_size": 11008, "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention",
      "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
      "max_position_embeddings": 65536, "model_type": "olmo3", "num_attention_heads": 32, "num_hidden_layers": 8,
      "num_key_value_heads": 32, "pad_token_id": 100277, "rms_norm_eps": 1e-06, "rope_scaling": {
      "attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0,
      "original_max_position_embeddings": 8192, "rope_type": "yarn"}, "rope_theta": 500000, "sliding_window": 4096,
      "tie_word_embeddings": false, "vocab_size": 100278)");
  EXPECT_EQ(olmo3.full_attention_step, 4);
  EXPECT_EQ(olmo3.rope_scaling_layers, RopeScalingLayers::kFullAttention);
  const ModelConfig glm = read(R"("architectures": ["Glm4MoeForCausalLM"], "attention_bias": true,
      "first_k_dense_replace": 1, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 10944,
      "max_position_embeddings": 131072, "model_type": "glm4_moe", "moe_intermediate_size": 1408, "n_group": 1,
      "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 96,
      "num_experts_per_tok": 8, "num_hidden_layers": 46, "num_key_value_heads": 8, "num_nextn_predict_layers": 1,
      "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000,
      "routed_scaling_factor": 1.0, "tie_word_embeddings": false, "topk_group": 1, "use_qk_norm": false,
      "vocab_size": 151552)");
  EXPECT_EQ(glm.rope_dim, 64);
  EXPECT_EQ(glm.first_expert_layer, 2);
  EXPECT_EQ(glm.shared_expert_intermediate_size, 1408);
  EXPECT_TRUE(glm.router_bias && glm.qkv_bias && !glm.qk_norm);
  const ModelConfig gpt_oss = read(R"("architectures": ["GptOssForCausalLM"], "attention_bias": true,
      "experts_per_token": 4, "head_dim": 64, "hidden_size": 2880, "initial_context_length": 4096,
      "intermediate_size": 2880, "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
      "full_attention"], "max_position_embeddings": 131072, "model_type": "gpt_oss", "num_attention_heads": 64,
      "num_experts_per_tok": 4, "num_hidden_layers": 4, "num_key_value_heads": 8, "num_local_experts": 32,
      "output_router_logits": false, "pad_token_id": 199999, "quantization_config": {"modules_to_not_convert":
      ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
      "quant_method": "mxfp4"}, "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0,
      "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false},
      "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0,
      "tie_word_embeddings": false, "vocab_size": 201088)");
  EXPECT_EQ(gpt_oss.full_attention_step, 2);
  EXPECT_EQ(gpt_oss.num_experts, 32);
  EXPECT_FALSE(gpt_oss.rope_truncate);
  // Of 24 layers it would be 20'914'757'184, as the published one has.
  EXPECT_EQ(TransformerLayout(gpt_oss).elements(), 4'451'017'664);
}

TEST(HuggingFaceTest, NormsOfAnOlmo2StandAtTheEndOfBranches) {
  const ParameterLayout layout = TransformerLayout(TinyOlmo2());
  const TensorMap map = HuggingFaceTensorMap(TinyOlmo2(), layout);
  const auto ours = [&](const char* theirs) {
    return layout.parameters()[static_cast<size_t>(Named(map, theirs).parameter)].name;
  };
  EXPECT_EQ(ours("model.layers.1.post_attention_layernorm.weight"), "blocks.1.norm1.weight");
  EXPECT_EQ(ours("model.layers.1.post_feedforward_layernorm.weight"), "blocks.1.norm2.weight");
  EXPECT_EQ(ours("model.norm.weight"), "final_norm.weight");
  EXPECT_EQ(Named(map, "model.layers.0.self_attn.k_norm.weight").shape, Shape{16});
  EXPECT_TRUE(std::none_of(map.begin(), map.end(), [](const ExternalTensor& tensor) {
    return tensor.name.find("input_layernorm") != std::string::npos;
  }));
}

TEST(HuggingFaceTest, AnglesOfAnOlmo3AreScaledInLayersWithoutAWindow) {
  const auto read = [](const std::string& more) { return OfType("olmo3", R"("num_hidden_layers": 5, )" + more); };
  const auto error = [&](const std::string& more) { return std::string(read(more).status().message()); };
  const auto of_kinds = [](const std::string& full, const std::string& sliding) {
    return absl::StrCat(R"("rope_parameters": {"full_attention": {)", full, R"(}, "sliding_attention": {)", sliding,
                        "}}");
  };
  const std::string yarn = R"("rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16)";
  const std::string plain = R"("rope_type": "default")", theta = R"(, "rope_theta": 1000)";
  const ModelConfig usual = read(R"("rope_scaling": null)")->model;
  EXPECT_THAT(LayersWithWindow(usual), ::testing::ElementsAre(1, 2, 3, 5));
  EXPECT_EQ(usual.sliding_window, 4096);
  EXPECT_EQ(usual.rope_theta, 500000);
  for (const std::string& more : {absl::StrCat(R"("rope_theta": 500000, "rope_scaling": {)", yarn, "}"),
                                  of_kinds(yarn, plain), of_kinds(yarn + theta, plain + theta)}) {
    const auto scaled = read(more);
    ASSERT_TRUE(scaled.ok()) << scaled.status();
    EXPECT_EQ(scaled->model.rope_scaling, RopeScaling::kYarn);
    EXPECT_EQ(scaled->model.rope_theta, more.find(theta) == std::string::npos ? 500000 : 1000);
    for (int64_t layer = 1; layer <= 5; ++layer) EXPECT_EQ(scaled->model.ScalesRope(layer), layer == 4) << layer;
    const Json written = Json::parse(HuggingFaceConfigJson(scaled->model, {}));
    EXPECT_EQ(written["rope_parameters"]["full_attention"]["rope_type"], "yarn");
    EXPECT_EQ(written["rope_parameters"]["sliding_attention"],
              Json({{"rope_type", "default"}, {"rope_theta", scaled->model.rope_theta}}));
    EXPECT_EQ(written["rope_scaling"]["rope_type"], "yarn");  // where transformers 4 looks
  }
  EXPECT_THAT(error(of_kinds(yarn, yarn)), ::testing::HasSubstr("must have the base of those without, unscaled"));
  EXPECT_THAT(error(of_kinds(plain + theta, plain)), ::testing::HasSubstr("must have the base of those without"));
  EXPECT_THAT(error(R"("rope_theta": 1000)"), ::testing::HasSubstr("rope_theta = 1000 is not supported without"));
  EXPECT_THAT(error(R"("rope_theta": 2000, )" + of_kinds(plain + theta, plain + theta)),
              ::testing::HasSubstr("has rope_theta 1000, but rope_theta beside it is 2000"));
  EXPECT_THAT(error(absl::StrCat(R"("rope_parameters": {)", plain, theta, "}")),
              ::testing::HasSubstr("rope_parameters: full_attention is not an object"));
  EXPECT_THAT(error(R"("rope_parameters": {"full_attention": {}, "sliding_attention": {}, "chunked_attention": {}})"),
              ::testing::HasSubstr("chunked_attention"));
  EXPECT_THAT(error(R"("sliding_window": null)"), ::testing::HasSubstr("sliding_window is null"));
  ModelConfig full = TinyOlmo2();
  full.family = "olmo3";
  full.rope_scaling_layers = RopeScalingLayers::kFullAttention;
  const Json written = Json::parse(HuggingFaceConfigJson(full, {}));
  EXPECT_EQ(written["layer_types"], Json({"full_attention", "full_attention"}));
  EXPECT_EQ(written["sliding_window"], 4096);  // transformers 5 fails without one
  EXPECT_EQ(ParseHuggingFaceConfig(written.dump(), "x")->model, full);
}

TEST(HuggingFaceTest, NormsOfAGemma3StandBeforeAndAfterAndAreSavedLessOne) {
  const ParameterLayout layout = TransformerLayout(TinyGemma3());
  const TensorMap map = HuggingFaceTensorMap(TinyGemma3(), layout);
  const auto ours = [&](const char* theirs) {
    return layout.parameters()[static_cast<size_t>(Named(map, theirs).parameter)].name;
  };
  EXPECT_EQ(ours("model.layers.1.input_layernorm.weight"), "blocks.1.norm1.weight");
  EXPECT_EQ(ours("model.layers.1.post_attention_layernorm.weight"), "blocks.1.norm1_after.weight");
  EXPECT_EQ(ours("model.layers.1.pre_feedforward_layernorm.weight"), "blocks.1.norm2.weight");
  EXPECT_EQ(ours("model.layers.1.post_feedforward_layernorm.weight"), "blocks.1.norm2_after.weight");
  EXPECT_EQ(ours("model.layers.2.self_attn.k_norm.weight"), "blocks.2.attention.k_norm.weight");
  EXPECT_EQ(ours("model.layers.0.mlp.up_proj.weight"), "blocks.0.mlp.gate_up.weight");
  EXPECT_EQ(Named(map, "model.embed_tokens.weight").duplicate, "lm_head.weight");
  for (const ExternalTensor& tensor : map) {
    EXPECT_EQ(tensor.subtracted, tensor.shape.rank() == 1 ? 1 : 0) << tensor.name;
  }
  ModelConfig own = TinyGemma3();
  own.clip_qkv = 1;
  for (const ExternalTensor& tensor : HuggingFaceTensorMap(own, layout)) EXPECT_EQ(tensor.subtracted, 0);
}

TEST(HuggingFaceTest, BasesAndWindowsOfAGemma3AreFoundWhereverTheyAre) {
  const auto read = [](const std::string& more) {
    return OfType("gemma3_text", absl::StrCat(R"("num_hidden_layers": 7)", more.empty() ? "" : ", ", more));
  };
  const auto error = [&](const std::string& more) { return std::string(read(more).status().message()); };
  const auto of_kinds = [](const std::string& full, const std::string& sliding) {
    return absl::StrCat(R"("rope_parameters": {"full_attention": {)", full, R"(}, "sliding_attention": {)", sliding,
                        "}}");
  };
  const ModelConfig usual = read("")->model;
  EXPECT_EQ(usual.family, "gemma3");
  EXPECT_THAT(LayersWithWindow(usual), ::testing::ElementsAre(1, 2, 3, 4, 5, 7));
  EXPECT_EQ(usual.sliding_window, 4096);
  EXPECT_EQ(usual.rope_theta, 1e6);
  EXPECT_EQ(usual.window_rope_theta, 1e4);
  EXPECT_EQ(usual.head_dim, 256);
  EXPECT_EQ(usual.num_kv_heads, 4);
  EXPECT_TRUE(usual.tie_embeddings && usual.scale_embeddings && usual.qk_norm);
  const std::string linear = R"("rope_type": "linear", "factor": 8.0)", plain = R"("rope_type": "default")";
  for (const std::string& more :
       {absl::StrCat(R"("rope_theta": 2e5, "rope_local_base_freq": 3e3, "rope_scaling": {)", linear, "}"),
        of_kinds(linear + R"(, "rope_theta": 2e5)", plain + R"(, "rope_theta": 3e3)"),
        absl::StrCat(R"("rope_theta": 2e5, "rope_local_base_freq": 3e3, )", of_kinds(linear, plain))}) {
    const auto scaled = read(more);
    ASSERT_TRUE(scaled.ok()) << scaled.status();
    EXPECT_EQ(scaled->model.rope_scaling, RopeScaling::kLinear);
    EXPECT_EQ(scaled->model.rope_factor, 8);
    EXPECT_EQ(scaled->model.rope_theta, 2e5);
    EXPECT_EQ(scaled->model.window_rope_theta, 3e3);
    for (int64_t layer = 1; layer <= 7; ++layer) EXPECT_EQ(scaled->model.ScalesRope(layer), layer == 6) << layer;
    const Json written = Json::parse(HuggingFaceConfigJson(scaled->model, {}));
    EXPECT_EQ(written["model_type"], "gemma3_text");
    EXPECT_EQ(written["hidden_activation"], "gelu_pytorch_tanh");
    EXPECT_FALSE(written.contains("hidden_act"));
    EXPECT_EQ(written["query_pre_attn_scalar"], 256);
    EXPECT_EQ(written["rope_parameters"]["full_attention"],
              Json({{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 2e5}}));
    EXPECT_EQ(written["rope_parameters"]["sliding_attention"], Json({{"rope_type", "default"}, {"rope_theta", 3e3}}));
    // Where transformers 4 looks.
    EXPECT_EQ(written["rope_theta"], 2e5);
    EXPECT_EQ(written["rope_local_base_freq"], 3e3);
    EXPECT_EQ(written["rope_scaling"]["rope_type"], "linear");
    EXPECT_EQ(written["sliding_window_pattern"], 6);
  }
  EXPECT_EQ(read(of_kinds(plain, plain))->model, usual);
  EXPECT_THAT(error(of_kinds(linear, linear)),
              ::testing::HasSubstr("angles of layers with a window must not be scaled"));
  EXPECT_THAT(
      error(R"("rope_local_base_freq": 100, )" + of_kinds(plain, plain + R"(, "rope_theta": 3e3)")),
      ::testing::HasSubstr("has rope_theta 3000 of sliding_attention, but rope_local_base_freq beside it is 100"));
  EXPECT_THAT(error(R"("rope_theta": 100, )" + of_kinds(plain + R"(, "rope_theta": 3e3)", plain)),
              ::testing::HasSubstr("has rope_theta 3000, but rope_theta beside it is 100"));
  EXPECT_THAT(LayersWithWindow(read(R"("sliding_window_pattern": 3)")->model), ::testing::ElementsAre(1, 2, 4, 5, 7));
  for (const char* full : {R"("sliding_window_pattern": 1)",
                           R"("layer_types": ["full_attention", "full_attention", "full_attention", "full_attention",
                              "full_attention", "full_attention", "full_attention"])"}) {
    const ModelConfig model = read(full)->model;
    EXPECT_THAT(LayersWithWindow(model), ::testing::ElementsAre());
    EXPECT_EQ(model.window_rope_theta, 0);
    const std::string written = HuggingFaceConfigJson(model, {});
    EXPECT_EQ(Json::parse(written)["sliding_window_pattern"], 1);
    EXPECT_EQ(ParseHuggingFaceConfig(written, "x")->model, model);
  }
  ModelConfig one_base = usual;
  one_base.window_rope_theta = 0;
  one_base.full_attention_step = 0;
  const std::string written = HuggingFaceConfigJson(one_base, {});
  EXPECT_EQ(Json::parse(written)["rope_local_base_freq"], 1e6);
  EXPECT_EQ(Json::parse(written)["sliding_window_pattern"], 8);
  EXPECT_EQ(ParseHuggingFaceConfig(written, "x")->model, one_base);
}

TEST(HuggingFaceTest, WhatOnlyOtherGemmasHaveIsRefused) {
  const auto error = [](const std::string& more) {
    return std::string(OfType("gemma3_text", more).status().message());
  };
  EXPECT_EQ(error(R"("attn_logit_softcapping": null, "final_logit_softcapping": null, "cache_implementation": "hybrid",
                     "use_bidirectional_attention": false, "_sliding_window_pattern": 6)"),
            "");
  for (const char* more :
       {R"("attn_logit_softcapping": 50.0)", R"("final_logit_softcapping": 30.0)",
        R"("use_bidirectional_attention": true)", R"("hidden_activation": "gelu")", R"("hidden_act": "silu")",
        R"("query_pre_attn_scalar": 168)", R"("architectures": ["Gemma3ForConditionalGeneration"])"}) {
    const std::string key = std::string(more).substr(1, std::string(more).find('"', 1) - 1);
    EXPECT_EQ(OfType("gemma3_text", more).status().code(), absl::StatusCode::kUnimplemented) << more;
    EXPECT_THAT(error(more), ::testing::HasSubstr(key)) << more;
  }
  EXPECT_THAT(error(R"("query_pre_attn_scalar": 168)"),
              ::testing::HasSubstr("= 168 is not supported: attention divides by sqrt(head_dim), and head_dim is 256"));
  EXPECT_THAT(error(R"("head_dim": 128)"), ::testing::HasSubstr("query_pre_attn_scalar = missing is not supported"));
  EXPECT_EQ(error(R"("head_dim": 128, "query_pre_attn_scalar": 128)"), "");
  EXPECT_THAT(error(R"("sliding_window": null)"), ::testing::HasSubstr("sliding_window is null"));
  EXPECT_THAT(std::string(OfType("gemma3", R"("vision_config": {}, "text_config": {})").status().message()),
              ::testing::HasSubstr("model_type = \"gemma3\" is not supported, as it has a vision_config"));
}

TEST(HuggingFaceTest, GlmNamesAndLayersBehindTheLast) {
  const ModelConfig config = TinyGlm4Moe();
  const TensorMap map = HuggingFaceTensorMap(config, TransformerLayout(config));
  EXPECT_EQ(Named(map, "model.layers.1.mlp.gate.e_score_correction_bias").shape, Shape{6});
  EXPECT_TRUE(Named(map, "model.layers.1.mlp.gate.e_score_correction_bias").fp32);
  EXPECT_EQ(Named(map, "model.layers.1.mlp.gate.weight").shape, (Shape{6, 20}));
  EXPECT_FALSE(Named(map, "model.layers.1.mlp.gate.weight").fp32);
  EXPECT_EQ(Named(map, "model.layers.2.mlp.shared_experts.up_proj.weight").first_row, 24);
  EXPECT_EQ(Named(map, "model.layers.0.mlp.down_proj.weight").shape, (Shape{20, 28}));
  EXPECT_TRUE(IsIgnorableHuggingFaceTensor(config, "model.layers.3.mlp.gate.weight"));
  EXPECT_TRUE(IsIgnorableHuggingFaceTensor(config, "model.layers.10.eh_proj.weight"));
  EXPECT_FALSE(IsIgnorableHuggingFaceTensor(config, "model.layers.2.eh_proj.weight"));
  EXPECT_FALSE(IsIgnorableHuggingFaceTensor(TinyQwen3Moe(), "model.layers.3.mlp.gate.weight"));
}

TEST(HuggingFaceTest, ExpertsOfAGptOssAreJoined) {
  ModelConfig config = TinyGptOss();  // experts 12 wide, 20 values a token
  config.num_layers = 3;
  config.num_experts = 5;
  const ParameterLayout layout = TransformerLayout(config);
  const TensorMap map = HuggingFaceTensorMap(config, layout);
  const auto part = [&](const std::string& ours, int64_t first_row) {
    const int parameter = layout.Find(ours);
    const auto found = std::find_if(map.begin(), map.end(), [&](const ExternalTensor& tensor) {
      return tensor.parameter == parameter && tensor.first_row == first_row;
    });
    EXPECT_TRUE(parameter >= 0 && found != map.end()) << ours;
    return found != map.end() ? *found : ExternalTensor();
  };
  const auto where = [](const ExternalTensor& tensor) {
    return absl::StrCat(tensor.name, " ", tensor.shape.ToString(), " ", tensor.file_row, " ", tensor.row_step, " ",
                        tensor.num_rows, tensor.transposed ? " transposed" : "");
  };
  const std::string experts = "model.layers.1.mlp.experts.";
  EXPECT_EQ(where(part("blocks.1.experts.3.gate_up.weight", 0)),
            experts + "gate_up_proj [5, 20, 24] 72 2 12 transposed");
  EXPECT_EQ(where(part("blocks.1.experts.3.gate_up.weight", 12)),
            experts + "gate_up_proj [5, 20, 24] 73 2 12 transposed");
  EXPECT_EQ(where(part("blocks.1.experts.3.gate_up.bias", 12)),
            experts + "gate_up_proj_bias [5, 24] 73 2 12 transposed");
  EXPECT_EQ(where(part("blocks.1.experts.3.down.weight", 0)), experts + "down_proj [5, 12, 20] 60 1 20 transposed");
  EXPECT_EQ(where(part("blocks.1.experts.3.down.bias", 0)), experts + "down_proj_bias [5, 20] 60 1 20 transposed");
  EXPECT_EQ(where(part("blocks.1.experts.router.weight", 0)), "model.layers.1.mlp.router.weight [5, 20] 0 1 5");
  EXPECT_EQ(where(part("blocks.1.experts.router.bias", 0)), "model.layers.1.mlp.router.bias [5] 0 1 5");
  EXPECT_EQ(where(part("blocks.2.attention.sinks", 0)), "model.layers.2.self_attn.sinks [4] 0 1 4");
  EXPECT_EQ(where(part("blocks.2.attention.out.bias", 0)), "model.layers.2.self_attn.o_proj.bias [20] 0 1 20");
  const ExternalTensor bare = part("blocks.1.experts.3.gate_up.weight", 12);
  ASSERT_EQ(bare.others.size(), 1u) << "rows of 20 values are no blocks of MXFP4";
  EXPECT_EQ(bare.others[0].name, "layers.1.mlp.experts.gate_up_proj");
  EXPECT_TRUE(bare.others[0].transposed);
  EXPECT_EQ(bare.others[0].first_row, 73);
  EXPECT_EQ(bare.others[0].row_step, 2);
}

TEST(HuggingFaceTest, ExpertsOfAGptOssMayBeInMxfp4) {
  ModelConfig config = TinyGptOss();  // of 4 experts
  config.hidden_size = 64;
  const ParameterLayout layout = TransformerLayout(config);
  for (const ExternalTensor& tensor : HuggingFaceTensorMap(config, layout)) {
    const std::string& ours = layout.parameters()[static_cast<size_t>(tensor.parameter)].name;
    const auto in_blocks = std::find_if(tensor.others.begin(), tensor.others.end(),
                                        [](const ExternalRows& rows) { return !rows.scales.empty(); });
    const bool expected = ours.ends_with(".gate_up.weight");  // of down a row has 12 values
    ASSERT_EQ(in_blocks != tensor.others.end(), expected) << ours;
    if (!expected) continue;
    EXPECT_EQ(in_blocks->name, tensor.name + "_blocks");
    EXPECT_EQ(in_blocks->scales, tensor.name + "_scales");
    EXPECT_EQ(in_blocks->shape, (Shape{4, 24, 64}));
    EXPECT_EQ(in_blocks->first_row, tensor.file_row);
    EXPECT_EQ(in_blocks->row_step, 2);
    EXPECT_FALSE(in_blocks->transposed);
  }
}

TEST(HuggingFaceTest, KeysOfAGptOssAreReadOrRefused) {
  const auto read = [](const std::string& more) { return OfType("gpt_oss", R"("num_hidden_layers": 5, )" + more); };
  const auto error = [&](const std::string& more) { return std::string(read(more).status().message()); };
  const ModelConfig usual = read(R"("num_local_experts": 32)").value().model;
  EXPECT_THAT(LayersWithWindow(usual), ::testing::ElementsAre(1, 3, 5));
  EXPECT_EQ(usual.sliding_window, 128);
  EXPECT_EQ(usual.rope_theta, 150000);
  EXPECT_EQ(usual.rope_scaling, RopeScaling::kYarn) << "that of the published models, where a file says nothing";
  EXPECT_EQ(usual.rope_factor, 32);
  EXPECT_EQ(usual.rope_original_length, 4096);
  EXPECT_FALSE(usual.rope_truncate);
  EXPECT_EQ(usual.num_experts, 32);
  EXPECT_EQ(usual.experts_per_token, 4);
  EXPECT_EQ(usual.expert_intermediate_size, 128);
  EXPECT_EQ(usual.num_kv_heads, 8);
  EXPECT_EQ(usual.head_dim, 64);
  EXPECT_EQ(usual.swiglu_limit, 7);
  EXPECT_TRUE(usual.attention_bias && usual.attention_sinks && usual.expert_bias && usual.router_normalize);
  const ModelConfig other = read(R"("attention_bias": false, "swiglu_limit": 3.5, "swiglu_alpha": 1.702,
      "num_experts": 6, "num_experts_per_tok": 2, "experts_per_token": 2, "sliding_window": 9,
      "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}, "initial_context_length": 12)")
                                .value()
                                .model;
  EXPECT_FALSE(other.attention_bias);
  EXPECT_EQ(other.swiglu_limit, 3.5);
  EXPECT_EQ(other.num_experts, 6);
  EXPECT_EQ(other.sliding_window, 9);
  EXPECT_EQ(other.rope_scaling, RopeScaling::kNone);
  const Json written = Json::parse(HuggingFaceConfigJson(other, {}));
  EXPECT_TRUE(written.contains("rope_scaling") && written["rope_scaling"].is_null()) << "transformers 4 has YaRN";
  EXPECT_FALSE(written.contains("quantization_config"));
  EXPECT_THAT(error(R"("swiglu_alpha": 1.5)"),
              ::testing::HasSubstr("swiglu_alpha = 1.5 is not supported; it may be 1.702"));
  EXPECT_THAT(error(R"("swiglu_limit": 0)"), ::testing::HasSubstr("swiglu_limit is 0"));
  EXPECT_THAT(error(R"("experts_per_token": 3)"),
              ::testing::HasSubstr("experts_per_token is 3, but num_experts_per_tok is 4"));
  EXPECT_THAT(error(R"("initial_context_length": 8192)"),
              ::testing::HasSubstr("is 8192, but original_max_position_embeddings is 4096"));
  EXPECT_THAT(error(R"("rope_scaling": null)"), ::testing::HasSubstr("rope_scaling = null is not supported without"));
  EXPECT_THAT(error(R"("sliding_window": null)"), ::testing::HasSubstr("sliding_window is null"));
  EXPECT_TRUE(read(R"("quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})").ok());
  for (const char* other_method : {R"({"quant_method": "awq"})", R"({})", R"("mxfp4")", R"({"quant_method": 4})"}) {
    EXPECT_THAT(error(absl::StrCat(R"("quantization_config": )", other_method)),
                ::testing::HasSubstr("quantization_config = "))
        << other_method;
  }
}

TEST(HuggingFaceTest, ThePartOfAHeadThatIsTurnedIsReadAsTransformersDoes) {
  const auto turned = [](const std::string& more) {
    const auto read = OfType("glm4_moe", more);
    return read.ok() ? std::to_string(read->model.rope_dim) : std::string(read.status().message());
  };
  EXPECT_EQ(turned(R"("head_dim": 32)"), "16");
  EXPECT_EQ(turned(R"("head_dim": 32, "partial_rotary_factor": 0.25)"), "8");
  EXPECT_EQ(turned(R"("head_dim": 32, "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.25})"),
            "8");
  const auto both = [&](const char* inside) {
    return turned(absl::StrCat(R"("head_dim": 32, "partial_rotary_factor": 0.25, "rope_parameters": {)",
                               R"("rope_theta": 10000.0, "partial_rotary_factor": )", inside, "}"));
  };
  EXPECT_EQ(both("0.25"), "8");
  EXPECT_THAT(both("0.5"),
              ::testing::HasSubstr("has partial_rotary_factor 0.5, but partial_rotary_factor beside it is 0.25"));
  EXPECT_EQ(turned(R"("head_dim": 32, "partial_rotary_factor": 1.0)"), "0");
  EXPECT_EQ(turned(R"("head_dim": 24, "partial_rotary_factor": 0.7)"), "16");  // 16.8
  EXPECT_THAT(turned(R"("head_dim": 32, "partial_rotary_factor": 1.5)"), ::testing::HasSubstr("rope_dim"));
  EXPECT_THAT(turned(R"("head_dim": 24, "partial_rotary_factor": 0.4)"), ::testing::HasSubstr("rope_dim must be even"));
  EXPECT_THAT(turned(R"("head_dim": 32, "partial_rotary_factor": 0.01)"),
              ::testing::HasSubstr("partial_rotary_factor"));
  for (int64_t width = 8; width <= 256; width += 8) {  // what is written is read as it was
    for (int64_t dim = 2; dim <= width; dim += 2) {
      ModelConfig config = width % 16 == 0 ? TinyGlm4Moe() : TinyPhi3();
      config.head_dim = width;
      config.rope_dim = dim == width ? 0 : dim;
      const auto read = ParseHuggingFaceConfig(HuggingFaceConfigJson(config, {}), "config.json");
      ASSERT_TRUE(read.ok()) << read.status();
      ASSERT_EQ(read->model.rope_dim, config.rope_dim) << width;
    }
  }
}

// LlamaConfig of transformers 5.24 refuses these two, MistralConfig and Qwen3Config do not (tried with each).
TEST(FamiliesTest, WhatTransformersRefusesOfALlamaIsNamed) {
  const auto refused = [](ModelConfig config, const std::string& family) {
    config.family = family;
    EXPECT_EQ(FindFamily(family)->InexpressibleKey(config), "") << family;
    return FindFamily(family)->RefusedBecause(config);
  };
  ModelConfig config = TinyLlama();
  EXPECT_EQ(refused(config, "llama"), "");
  config.head_dim = 16;
  config.num_heads = 3;
  config.num_kv_heads = 1;
  config.hidden_size = 40;
  EXPECT_EQ(refused(config, "llama"), "model.hidden_size is not a multiple of model.num_heads");
  EXPECT_EQ(refused(config, "mistral"), "");
  config.hidden_size = 48;
  EXPECT_EQ(refused(config, "llama"), "");
  config.init_std = 1.5;
  EXPECT_EQ(refused(config, "llama"), "model.init_std is above 1");
}

// Phi3Config of transformers 5.24 refuses it (tried).
TEST(FamiliesTest, LongRopeOfOtherHeadsIsRefusedByTransformers) {
  ModelConfig config = TinyPhi4Mini();
  EXPECT_EQ(FindFamily("phi3")->RefusedBecause(config),
            "model.rope_scaling is longrope, and model.head_dim not model.hidden_size / model.num_heads");
  config.hidden_size = config.num_heads * config.head_dim;
  EXPECT_EQ(FindFamily("phi3")->RefusedBecause(config), "");
  EXPECT_EQ(FindFamily("phi3")->RefusedBecause(TinyPhi3()), "");
}

// A family's files say what its preset asks for; what they cannot say is saved in our own format and named.
TEST(FamiliesTest, WhatAFamilyCannotSayIsNamed) {
  const auto inexpressible = [](ModelConfig config, const std::string& family) {
    config.family = family;
    const std::string key = FindFamily(family)->InexpressibleKey(config);
    EXPECT_EQ(ExactFamily(config) == nullptr, !key.empty()) << family;
    return key;
  };
  EXPECT_EQ(inexpressible(TinyGpt2(), "gpt2"), "");
  EXPECT_EQ(inexpressible(TinyLlama31(), "llama"), "");
  EXPECT_EQ(inexpressible(TinyMistral(), "mistral"), "");
  EXPECT_EQ(inexpressible(TinyPhi3(), "phi3"), "");
  EXPECT_EQ(inexpressible(TinyPhi4Mini(), "phi3"), "");
  EXPECT_EQ(inexpressible(TinyLlama31(), "phi3"), "rope_scaling");
  EXPECT_EQ(inexpressible(TinyQwen3(), "phi3"), "qk_norm");
  EXPECT_EQ(inexpressible(TinyPhi4Mini(), "llama"), "rope_dim");
  EXPECT_EQ(inexpressible(TinyQwen2(), "qwen2"), "");
  EXPECT_EQ(inexpressible(TinyQwen3(), "qwen3"), "");
  EXPECT_EQ(inexpressible(TinyLlama(), "gpt2"), "position");
  EXPECT_EQ(inexpressible(TinyGpt2(), "llama"), "position");
  EXPECT_EQ(inexpressible(TinyMistral(), "llama"), "sliding_window");
  for (ModelConfig after : {TinyGpt2(), TinyLlama(), TinyGlm4Moe()}) {
    after.norm_position = NormPosition::kAfter;
    EXPECT_EQ(inexpressible(after, after.family), "norm_position");
  }
  for (const char* family : {"gpt2", "llama", "mistral", "phi3", "qwen2", "qwen3", "olmo2", "olmo3"}) {
    ModelConfig geglu = FindFamily(family)->preset();
    geglu.activation = ActivationKind::kGeglu;
    EXPECT_EQ(inexpressible(geglu, family), "activation");
  }
  for (ModelConfig scaled : {TinyGpt2(), TinyLlama(), TinyGlm4Moe(), TinyPhi3()}) {
    scaled.scale_embeddings = true;
    EXPECT_EQ(inexpressible(scaled, scaled.family), "scale_embeddings");
  }
  for (ModelConfig based : {TinyMistral(), TinyOlmo3(), TinyQwen3SomeWindows()}) {
    based.window_rope_theta = 50;
    EXPECT_EQ(inexpressible(based, based.family), "window_rope_theta");
  }
  EXPECT_EQ(inexpressible(TinyQwen2(), "llama"), "qkv_bias");
  EXPECT_EQ(inexpressible(TinyQwen3(), "llama"), "qk_norm");
  EXPECT_EQ(inexpressible(TinyLlamaLinear(), "llama"), "");
  EXPECT_EQ(inexpressible(TinyLlamaYarn(), "llama"), "");
  EXPECT_EQ(inexpressible(TinyQwen3Yarn(), "qwen3"), "");
  EXPECT_EQ(inexpressible(TinyQwen3SomeWindows(), "qwen3"), "");
  ModelConfig windows = TinyMistral();
  windows.full_attention_step = 3;  // of two layers
  EXPECT_EQ(inexpressible(windows, "mistral"), "");
  windows.full_attention_step = 2;
  EXPECT_EQ(inexpressible(windows, "mistral"), "full_attention_step");
  windows.first_window_layer = 2;
  for (const char* family : {"mistral", "phi3"}) EXPECT_EQ(inexpressible(windows, family), "first_window_layer");
  EXPECT_EQ(inexpressible(TinyLlamaLinear(), "mistral"), "attention_bias");
  EXPECT_EQ(inexpressible(TinyLlamaYarn(), "mistral"), "mlp_bias");
  EXPECT_EQ(inexpressible(TinyLlama(), "qwen2"), "qkv_bias");
  EXPECT_EQ(inexpressible(TinyLlama(), "qwen3"), "qk_norm");
  EXPECT_EQ(inexpressible(TinyQwen3(), "mistral"), "qk_norm");
  EXPECT_EQ(inexpressible(TinyMixtral(), "mixtral"), "");
  EXPECT_EQ(inexpressible(TinyQwen2Moe(), "qwen2_moe"), "");
  EXPECT_EQ(inexpressible(TinyQwen3Moe(), "qwen3_moe"), "");
  EXPECT_EQ(inexpressible(TinyOlmoe(), "olmoe"), "");
  EXPECT_EQ(inexpressible(TinyGlm4Moe(), "glm4_moe"), "");
  EXPECT_EQ(inexpressible(TinyGlm4Moe(), "qwen3_moe"), "rope_dim");
  EXPECT_EQ(inexpressible(TinyQwen3Moe(), "glm4_moe"), "router_score");
  EXPECT_EQ(inexpressible(TinyOlmo2(), "olmo2"), "");
  EXPECT_EQ(inexpressible(TinyOlmo2(), "llama"), "norm_position");
  EXPECT_EQ(inexpressible(TinyLlama(), "olmo2"), "norm_position");
  EXPECT_EQ(inexpressible(TinyOlmo3(), "olmo3"), "");
  EXPECT_EQ(inexpressible(TinyOlmo3(), "olmo2"), "rope_scaling_layers");
  ModelConfig all_scaled = TinyOlmo3();
  all_scaled.rope_scaling_layers = RopeScalingLayers::kAll;
  EXPECT_EQ(inexpressible(all_scaled, "olmo3"), "rope_scaling_layers");
  EXPECT_EQ(inexpressible(all_scaled, "olmo2"), "sliding_window");
  EXPECT_EQ(inexpressible(TinyGemma3(), "gemma3"), "");
  EXPECT_EQ(inexpressible(TinyGemma3(), "olmo3"), "norm_position");
  for (const auto& [key, change] : std::vector<std::pair<const char*, void (*)(ModelConfig*)>>{
           {"norm_position", [](ModelConfig* c) { c->norm_position = NormPosition::kAfter; }},
           {"activation", [](ModelConfig* c) { c->activation = ActivationKind::kSwiglu; }},
           {"scale_embeddings", [](ModelConfig* c) { c->scale_embeddings = false; }},
           {"rope_scaling_layers", [](ModelConfig* c) { c->rope_scaling_layers = RopeScalingLayers::kAll; }},
           {"qk_norm", [](ModelConfig* c) { c->qk_norm = false; }},
           {"mlp_bias", [](ModelConfig* c) { c->mlp_bias = true; }}}) {
    ModelConfig changed = TinyGemma3();
    change(&changed);
    EXPECT_EQ(inexpressible(changed, "gemma3"), key);
    EXPECT_EQ(ParseHuggingFaceConfig(HuggingFaceConfigJson(changed, {}), "x")->model, changed);
  }
  for (const auto& [name, config] : TinyModels()) {
    if (ExactFamily(config) == nullptr || ExactFamily(config)->says_sinks_and_expert_biases()) continue;
    const auto key_of = [&, &config = config](auto&& change) {
      ModelConfig changed = config;
      change(&changed);
      return inexpressible(changed, config.family);
    };
    EXPECT_EQ(key_of([](ModelConfig* c) { c->attention_sinks = true; }), "attention_sinks") << name;
    EXPECT_EQ(key_of([](ModelConfig* c) { c->expert_bias = true; }), "expert_bias") << name;
    EXPECT_EQ(key_of([](ModelConfig* c) { c->swiglu_limit = 7; }), "swiglu_limit") << name;
  }
  EXPECT_EQ(inexpressible(TinyGptOss(), "gpt_oss"), "");
  for (const auto& [key, change] : std::vector<std::pair<const char*, void (*)(ModelConfig*)>>{
           {"attention_sinks", [](ModelConfig* c) { c->attention_sinks = false; }},
           {"expert_bias", [](ModelConfig* c) { c->expert_bias = false; }},
           {"swiglu_limit", [](ModelConfig* c) { c->swiglu_limit = 0; }},
           {"qk_norm", [](ModelConfig* c) { c->qk_norm = true; }},
           {"clip_qkv", [](ModelConfig* c) { c->clip_qkv = 1; }},
           {"router_score", [](ModelConfig* c) { c->router_score = RouterScoreKind::kSigmoid; }},
           {"router_normalize", [](ModelConfig* c) { c->router_normalize = false; }},
           {"router_bias", [](ModelConfig* c) { c->router_bias = true; }},
           {"first_expert_layer", [](ModelConfig* c) { c->first_expert_layer = 2; }},
           {"shared_expert_intermediate_size", [](ModelConfig* c) { c->shared_expert_intermediate_size = 8; }}}) {
    ModelConfig changed = TinyGptOss();
    change(&changed);
    EXPECT_EQ(inexpressible(changed, "gpt_oss"), key);
  }
  ModelConfig of_heads = TinyOlmo2();
  of_heads.qk_norm_joint = false;
  EXPECT_EQ(inexpressible(of_heads, "olmo2"), "qk_norm_joint");
  ModelConfig uneven = TinyGlm4Moe(), long_llama = TinyLlama(), long_glm = TinyGlm4Moe();
  long_llama.rope_scaling = long_glm.rope_scaling = RopeScaling::kLongRope;
  EXPECT_EQ(inexpressible(long_llama, "llama"), "rope_scaling");
  EXPECT_EQ(inexpressible(long_glm, "glm4_moe"), "rope_scaling");
  uneven.shared_expert_intermediate_size += 8;
  EXPECT_EQ(inexpressible(uneven, "glm4_moe"), "shared_expert_intermediate_size");
  EXPECT_EQ(inexpressible(TinyMixtral(), "llama"), "num_experts");
  EXPECT_EQ(inexpressible(TinyLlama(), "mixtral"), "num_experts");
  EXPECT_EQ(inexpressible(TinyMixture(), "mixtral"), "expert_layer_step");
  EXPECT_EQ(inexpressible(TinyQwen3Moe(), "olmoe"), "qk_norm_joint");
  EXPECT_EQ(inexpressible(TinyQwen3Moe(), "qwen2_moe"), "qk_norm");
  EXPECT_EQ(inexpressible(TinyOlmoe(), "qwen3_moe"), "qk_norm_joint");
  EXPECT_EQ(inexpressible(TinyQwen2Moe(), "qwen3_moe"), "qkv_bias");
  ModelConfig sigmoid = TinyMixtral(), unscaled = TinyMixtral();
  sigmoid.router_score = RouterScoreKind::kSigmoid;
  unscaled.router_normalize = false;
  EXPECT_EQ(inexpressible(sigmoid, "mixtral"), "router_score");
  EXPECT_EQ(inexpressible(unscaled, "mixtral"), "router_normalize");
  ModelConfig wide = TinyGpt2();
  wide.head_dim = 16;
  EXPECT_EQ(inexpressible(wide, "gpt2"), "head_dim");
  const Json written = Json::parse(HuggingFaceConfigJson(wide, {}));
  EXPECT_EQ(written["model_type"], "holdfast");
  EXPECT_EQ(written["family"], "gpt2");
  EXPECT_EQ(ParseHuggingFaceConfig(written.dump(), "x")->model, wide);
  for (ModelConfig own : {TinyQwen3Yarn(), TinyLlamaYarn(), TinyQwen3SomeWindows(), TinyPhi4Mini(), TinyLlamaGeglu(),
                          TinyLlamaWindowTheta()}) {
    own.family = "mistral";
    EXPECT_EQ(ParseHuggingFaceConfig(HuggingFaceConfigJson(own, {}), "x")->model, own);
  }
}

/// A model with what the family presets.
ModelConfig OfPreset(const FamilyPreset& preset) {
  ModelConfig config = preset.model;
  config.vocab_size = 8;
  config.num_kv_heads = 12;
  config.head_dim = 64;
  config.intermediate_size = 16;
  if (config.num_experts > 0) config.expert_intermediate_size = 16;
  if (config.shared_expert_gate || config.router_bias) config.shared_expert_intermediate_size = 16;
  return config;
}

TEST(FamiliesTest, FilesSayTheWindowsThatAFamilySaysTheyCan) {
  for (const FamilyPreset& preset : FamilyPresets()) {
    const Family& family = *FindFamily(preset.name);
    ModelConfig all = OfPreset(preset), some = all;
    all.sliding_window = some.sliding_window = 4;
    some.full_attention_step = 3;
    const bool none = family.windows() == Windows::kNone, each = family.windows() == Windows::kSomeLayers;
    EXPECT_EQ(family.InexpressibleKey(all), none ? "sliding_window" : "") << preset.name;
    EXPECT_EQ(family.InexpressibleKey(some), none ? "sliding_window" : each ? "" : "full_attention_step");
    for (const ModelConfig& config : {all, some}) {
      const auto read = ParseHuggingFaceConfig(HuggingFaceConfigJson(config, {}), "x");
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(read->model, config) << preset.name;
    }
  }
}

TEST(FamiliesTest, PresetsAreWhatTheirFilesMean) {
  ASSERT_EQ(Families().size(), FamilyPresets().size());
  for (const FamilyPreset& preset : FamilyPresets()) {
    const ModelConfig config = OfPreset(preset);
    EXPECT_EQ(config.family, preset.name);
    EXPECT_EQ(ExactFamily(config), FindFamily(preset.name)) << preset.name;
    const auto read = ParseHuggingFaceConfig(HuggingFaceConfigJson(config, {}), "x");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->model, config) << preset.name;
  }
  EXPECT_EQ(FindFamily("gpt3"), nullptr);
}

TEST(FamiliesTest, NamesCarryNumbersOver) {
  const ParameterLayout layout({{.name = "blocks.3.experts.17.gate_up.weight", .shape = {4, 5}}}, {"blocks.3"});
  const TensorNames names = {"model.",
                             {{"blocks.#.experts.#.gate_up",
                               {{"layers.#.mlp.experts.#.gate_proj", 2}, {"layers.#.mlp.experts.#.up_proj", 2}}}}};
  const TensorMap map = MakeTensorMap(names, layout);
  ASSERT_EQ(map.size(), 2u);
  EXPECT_EQ(map[1].name, "model.layers.3.mlp.experts.17.up_proj.weight");
  EXPECT_EQ(map[1].first_row, 2);
  EXPECT_EQ(map[1].shape, (Shape{2, 5}));
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
