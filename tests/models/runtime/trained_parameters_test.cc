// Proves that patterns, layer decay and exceptions from decay become the rates of a model's parameters, alike whether
// they are adapters or not; that without them all stays as it is; and that a pattern of nothing is refused by name.

#include "models/runtime/trained_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "models/families/families.h"
#include "models/runtime/make_model.h"
#include "tests/models/runtime/tiny_run.h"

namespace holdfast {
namespace {

class TrainedParametersTest : public TinyRun {
 protected:
  std::map<std::string, ParameterSpec> ParametersOf(const Config& config) {
    const auto model = MakeModel(config, *device_);
    EXPECT_TRUE(model.ok()) << model.status();
    std::map<std::string, ParameterSpec> specs;
    if (!model.ok()) return specs;
    for (const ParameterSpec& spec : (*model)->layout().parameters()) specs.emplace(spec.name, spec);
    return specs;
  }

  const std::unique_ptr<Device> device_ = MakeCpuDevice(1);
};

TEST_F(TrainedParametersTest, WithoutKeysNothingChanges) {
  const Config config = ConfigOf();
  EXPECT_TRUE(RatesOf(config).value() == nullptr);
  for (const auto& [name, spec] : ParametersOf(config)) {
    EXPECT_EQ(spec.lr_factor, 1.0f) << name;
    EXPECT_EQ(spec.decay, spec.is_matrix()) << name;
  }
}

TEST_F(TrainedParametersTest, TheFirstPatternThatMatchesCounts) {
  const auto specs = ParametersOf(ConfigOf({"model.num_layers=2", "optimizer.no_decay=['embedding.*']",
                                            "optimizer.lr_factors=['*.1.attention.*=0.5', 'blocks.*=3', '*norm*=7']"}));
  for (const auto& [name, spec] : specs) {
    const bool block = name.starts_with("blocks."), first = name.starts_with("blocks.1.attention.");
    EXPECT_EQ(spec.lr_factor, first ? 0.5f : block ? 3.0f : name.starts_with("final_norm.") ? 7.0f : 1.0f) << name;
    EXPECT_EQ(spec.decay, spec.is_matrix() && !name.starts_with("embedding.")) << name;
  }
}

TEST_F(TrainedParametersTest, FactorsAreTimesThoseOfTheParametrization) {
  for (const char* optimizer : {"adamw", "muon"}) {
    const double hidden = optimizer == std::string("muon") ? 0.5 : 0.25;
    const auto specs = ParametersOf(
        ConfigOf({"model.parametrization=mup", "model.base_hidden_size=8", absl::StrCat("optimizer.name=", optimizer),
                  "optimizer.lr_factors=['*.mlp.*=4', 'embedding.*=3']"}));
    EXPECT_EQ(specs.at("blocks.0.mlp.down.weight").lr_factor, 4 * hidden);
    EXPECT_EQ(specs.at("blocks.0.mlp.down.weight").decay_factor, 1 / hidden);
    EXPECT_EQ(specs.at("blocks.0.attention.out.weight").lr_factor, hidden);
    EXPECT_EQ(specs.at("embedding.tokens.weight").lr_factor, 3);
    EXPECT_EQ(specs.at("head.weight").lr_factor, 0.25);
  }
}

TEST_F(TrainedParametersTest, LayersBelowTheHeadAreSlower) {
  const auto specs =
      ParametersOf(ConfigOf({"model.num_layers=3", "optimizer.layer_decay=0.5", "optimizer.lr_factors=['*.mlp.*=4']"}));
  for (const auto& [name, spec] : specs) {
    const float layer = name.starts_with("embedding.")  ? 0.0625f
                        : name.starts_with("blocks.0.") ? 0.125f
                        : name.starts_with("blocks.1.") ? 0.25f
                        : name.starts_with("blocks.2.") ? 0.5f
                                                        : 1.0f;
    EXPECT_EQ(spec.lr_factor, name.find(".mlp.") == std::string::npos ? layer : 4 * layer) << name;
  }
  EXPECT_EQ(specs.count("final_norm.weight"), 1u);
}

TEST_F(TrainedParametersTest, AdaptersHaveRatesToo) {
  Config config = ConfigOf({"optimizer.lr_factors=['*.lora_b=16']"});
  EXPECT_EQ(RatesOf(config).status().code(), absl::StatusCode::kInvalidArgument);  // there are none yet
  config.lora = {.rank = 2, .targets = {"attention"}};
  int b = 0;
  for (const auto& [name, spec] : ParametersOf(config)) {
    EXPECT_EQ(spec.lr_factor, name.ends_with(".lora_b") ? 16.0f : 1.0f) << name;
    b += name.ends_with(".lora_b") ? 1 : 0;
  }
  EXPECT_GT(b, 0);
}

TEST_F(TrainedParametersTest, ARateThatRoundsToNothingIsRefused) {
  EXPECT_TRUE(RatesOf(ConfigOf({"optimizer.lr_factors=['embedding.*=0']"})).ok());
  const absl::Status small = RatesOf(ConfigOf({"optimizer.lr_factors=['embedding.*=1e-30']"})).status();
  EXPECT_NE(small.message().find("embedding.tokens.weight would be 1e-30 times"), std::string::npos) << small;
  Config steep = ConfigOf({"model.num_layers=12", "optimizer.layer_decay=0.001"});
  EXPECT_FALSE(RatesOf(steep).ok());
  steep.train.freeze = {"embedding.*", "blocks.?.*"};
  EXPECT_TRUE(RatesOf(steep).ok()) << "what is frozen needs no rate";
}

TEST_F(TrainedParametersTest, APatternOfNothingIsRefused) {
  const std::string where = "; `holdfast validate` lists their names, * stands for any characters";
  EXPECT_EQ(
      RatesOf(ConfigOf({"optimizer.lr_factors=['*=2', 'final_norm.weigt=0.1']"})).status().message(),
      "optimizer.lr_factors: 'final_norm.weigt' matches no parameter (did you mean 'final_norm.weight'?)" + where);
  EXPECT_EQ(MakeModel(ConfigOf({"optimizer.no_decay=['zzz*']"}), *device_).status().message(),
            "optimizer.no_decay: 'zzz*' matches no parameter" + where);
}

TEST_F(TrainedParametersTest, AFactorThatDecidesNothingIsRefused) {
  const std::string never =
      "' never counts: patterns before it match all that it does, and the first counts; put it before them";
  EXPECT_EQ(RatesOf(ConfigOf({"optimizer.lr_factors=['*=0.1', 'embedding.*=3']"})).status().message(),
            "optimizer.lr_factors: 'embedding.*" + never);
  EXPECT_TRUE(RatesOf(ConfigOf({"optimizer.lr_factors=['embedding.*=3', '*=0.1']"})).ok());

  Config config = ConfigOf({"optimizer.lr_factors=['embedding.*=3', '*=0.1']"});
  config.train.freeze = {"embedding.*"};
  EXPECT_EQ(RatesOf(config).status().message(),
            "optimizer.lr_factors: 'embedding.*' matches only parameters that are not trained; leave it out");

  std::vector<std::string> mixture = {"model.activation=swiglu",
                                      "model.bias=false",
                                      "model.num_experts=4",
                                      "model.experts_per_token=2",
                                      "model.expert_intermediate_size=8",
                                      "model.router_bias=true",
                                      "optimizer.lr_factors=['*router*=3']"};
  EXPECT_TRUE(RatesOf(ConfigOf(mixture)).ok()) << "routers have a rate";
  mixture.back() = "optimizer.lr_factors=['*router_bias=3']";
  EXPECT_EQ(RatesOf(ConfigOf(mixture)).status().message(),
            "optimizer.lr_factors: '*router_bias' matches biases of routers, which no learning rate moves; set "
            "model.router_bias_rate");
  config.train.freeze = {"head.*"};
  EXPECT_TRUE(RatesOf(config).ok());
  config.train.freeze = {};
  config.lora = {.rank = 2, .targets = {"attention"}};
  EXPECT_FALSE(RatesOf(config).ok()) << "adapters are all that is trained";
  config.optimizer.lr_factors = {"*.lora_b=16", "*.lora_a=2"};
  EXPECT_TRUE(RatesOf(config).ok());
}

TEST_F(TrainedParametersTest, AllThatIsWrongIsSaidAtOnce) {
  const auto said = [](const Config& config) {
    std::vector<std::string> lines;
    for (const Violation& v : TrainedParameterViolations(config))
      lines.push_back(absl::StrJoin(v.keys, " ") + ": " + v.message.substr(0, 10));
    return lines;
  };
  EXPECT_THAT(said(ConfigOf({"optimizer.lr_factors=['yyy=2', '*=1', 'xxx=2']", "optimizer.no_decay=['zzz*']"})),
              testing::ElementsAre("optimizer.lr_factors: 'yyy' matc", "optimizer.lr_factors: 'xxx' matc",
                                   "optimizer.no_decay: 'zzz*' mat"));
  Config config = ConfigOf({});
  config.train.freeze = {"xxx"};
  config.train.only = {"yyy"};
  EXPECT_THAT(said(config), testing::ElementsAre("train.freeze: 'xxx' matc", "train.only: 'yyy' matc"));
  config.train.freeze = {"*"};
  config.train.only = {};
  EXPECT_THAT(said(config), testing::ElementsAre("train.freeze train.only: nothing is"));
  config.train.freeze = {};
  config.lora = {.rank = 2, .targets = {"attention", "router", "shared_expert"}};
  EXPECT_THAT(said(config), testing::ElementsAre("lora.targets: router: th", "lora.targets: shared_exp"));
  EXPECT_THAT(said(ConfigOf({})), testing::IsEmpty());
}

TEST_F(TrainedParametersTest, ALayerThatTheModelHasNotHasNoAdapter) {
  const auto error_of = [&](const std::vector<std::string>& settings, const std::string& target) {
    Config config = ConfigOf(settings);
    config.lora = {.rank = 2, .targets = {"attention", target}};
    const auto options = LoraOptionsOf(config);
    return options.ok() ? "none" : std::string(options.status().message());
  };
  const std::vector<std::string> dense, experts = {"model.activation=swiglu", "model.bias=false", "model.num_experts=4",
                                                   "model.experts_per_token=2", "model.expert_intermediate_size=8"};
  std::vector<std::string> shared = experts;
  shared.emplace_back("model.shared_expert_intermediate_size=8");
  for (const char* target : {"experts", "router"}) {
    EXPECT_EQ(error_of(dense, target), std::string("lora.targets: ") + target + ": this model has no experts");
    EXPECT_EQ(error_of(experts, target), "none");
  }
  EXPECT_EQ(error_of(experts, "shared_expert"), "lora.targets: shared_expert: this model has no shared expert");
  EXPECT_EQ(error_of(shared, "shared_expert"), "none");
  shared.insert(shared.end(),
                {"model.family=qwen2_moe", "model.shared_expert_gate=true", "model.router_normalize=false"});
  EXPECT_EQ(error_of(shared, "shared_expert"), "none");
  shared.back() = "model.shared_expert_gate=false";
  EXPECT_EQ(error_of(shared, "shared_expert_gate"),
            "lora.targets: shared_expert_gate: this model has no shared expert with a gate");
  EXPECT_EQ(error_of(experts, "mlp"),
            "lora.targets: every MLP of this model is a mixture of experts; name experts, router or shared_expert");
}

TEST_F(TrainedParametersTest, PartsOfOneLayerHaveOneAdapter) {
  const auto error_of = [&](const std::string& family, const std::vector<std::string>& targets) {
    Config config = ConfigOf({absl::StrCat("model.family=", family)});
    config.lora = {.rank = 2, .targets = targets};
    const auto options = LoraOptionsOf(config);
    return options.ok() ? "none" : std::string(options.status().message());
  };
  for (const char* alone : {"gate_proj", "up_proj"}) {
    EXPECT_EQ(error_of("llama", {alone}), "none");
    EXPECT_EQ(error_of("phi3", {alone}),
              "lora.targets: gate and up are one layer of this model: name gate_proj and up_proj, or neither");
  }
  EXPECT_EQ(error_of("phi3", {"gate_proj", "up_proj"}), "none");
  EXPECT_THAT(error_of("phi3", {"q_proj"}), testing::HasSubstr("query, key and value are one layer of this model"));
  Config config = ConfigOf({"model.family=phi3"});
  config.lora = {.rank = 2, .targets = {"all-linear"}};
  const auto specs = ParametersOf(config);
  EXPECT_EQ(specs.at("blocks.0.mlp.gate_up.lora_a").shape, (Shape{2, 32}));
  EXPECT_EQ(specs.at("blocks.0.mlp.gate_up.lora_b").shape, (Shape{128, 2}));
  EXPECT_EQ(specs.at("blocks.0.attention.qkv.lora_a").shape, (Shape{2, 32}));
  config.model.family = "llama";
  EXPECT_EQ(ParametersOf(config).at("blocks.0.mlp.gate_up.lora_a").shape, (Shape{4, 32}));
}

// Files of its own form: no other has GeGLU.
TEST_F(TrainedParametersTest, AGegluHasAGateAsASwigluHas) {
  Config config = ConfigOf({"model.family=llama", "model.activation=geglu"});
  config.lora = {.rank = 2, .targets = {"up_proj"}};
  EXPECT_THAT(std::string(LoraOptionsOf(config).status().message()),
              testing::HasSubstr("gate and up are one layer of this model"));
  config.lora.targets = {"mlp"};
  EXPECT_EQ(ParametersOf(config).at("blocks.0.mlp.gate_up.lora_a").shape, (Shape{2, 32}));
}

TEST_F(TrainedParametersTest, GateAndUpAreOneLayerInOurOwnForm) {
  Config config = ConfigOf({"model.family=llama", "model.qk_norm=true"});
  config.lora = {.rank = 2, .targets = {"up_proj"}};
  EXPECT_THAT(std::string(LoraOptionsOf(config).status().message()),
              testing::HasSubstr("gate and up are one layer of this model: name gate_proj and up_proj, or neither"));
  config.lora.targets = {"mlp"};
  const auto dense = ParametersOf(config);
  EXPECT_EQ(dense.at("blocks.0.mlp.gate_up.lora_a").shape, (Shape{2, 32}));
  EXPECT_EQ(dense.at("blocks.0.mlp.gate_up.lora_b").shape, (Shape{128, 2}));
  config = ConfigOf({"model.family=gpt2", "model.num_kv_heads=2"});
  config.lora = {.rank = 2, .targets = {"up_proj"}};
  EXPECT_EQ(ParametersOf(config).count("blocks.0.mlp.up.lora_a"), 1u) << "there is no gate";
  // The first layer has no dense MLP.
  config = ConfigOf({"model.family=llama", "model.num_layers=2", "model.num_experts=4", "model.experts_per_token=2",
                     "model.expert_layer_step=2", "model.expert_intermediate_size=8",
                     "model.shared_expert_intermediate_size=8"});
  config.lora = {.rank = 2, .targets = {"mlp", "shared_expert"}};
  const auto mixture = ParametersOf(config);
  EXPECT_EQ(mixture.at("blocks.0.experts.shared.gate_up.lora_a").shape, (Shape{2, 32}));
  EXPECT_EQ(mixture.at("blocks.0.experts.shared.gate_up.lora_b").shape, (Shape{16, 2}));
  EXPECT_EQ(mixture.at("blocks.1.mlp.gate_up.lora_a").shape, (Shape{2, 32}));
}

// All but the token table, positions and the head, whatever the model has.
TEST_F(TrainedParametersTest, AllLinearIsEveryLinearLayerButTheHead) {
  const std::vector<std::vector<std::string>> models = {
      {},
      {"model.family=gpt2", "model.num_kv_heads=2"},
      {"model.family=qwen2_moe", "model.num_layers=2", "model.first_expert_layer=2", "model.num_experts=4",
       "model.experts_per_token=2", "model.expert_intermediate_size=8", "model.shared_expert_intermediate_size=8"}};
  for (const std::vector<std::string>& settings : models) {
    Config config = ConfigOf(settings);
    config.lora = {.rank = 2, .targets = {"all-linear"}};
    const auto specs = ParametersOf(config);
    for (const auto& [name, spec] : specs) {
      if (!name.starts_with("blocks.") || !spec.is_matrix() || spec.adapter) continue;
      const std::string layer = name.substr(0, name.rfind('.'));
      EXPECT_TRUE(specs.contains(layer + ".lora_a")) << name << " of " << config.model.family;
    }
    EXPECT_TRUE(specs.contains("blocks.0.mlp.down.lora_b")) << config.model.family;
    EXPECT_FALSE(specs.contains("head.lora_a")) << config.model.family;
    EXPECT_FALSE(specs.contains("embedding.tokens.lora_a")) << config.model.family;
  }
}

// Model FLOPs utilisation counted three products of every matrix, also of those that have no gradient.
TEST_F(TrainedParametersTest, APartTakesFewerFlopsThanTheWhole) {
  Config config = ConfigOf({"model.num_layers=2"});
  const double whole = ModelFlopsPerToken(config.model, config.batch.sequence_length);
  EXPECT_EQ(TrainedFlopsPerToken(config), whole);
  Config adapters = config;
  adapters.lora.rank = 1;
  EXPECT_GT(TrainedFlopsPerToken(adapters), 0.66 * whole);
  EXPECT_LT(TrainedFlopsPerToken(adapters), 0.78 * whole) << "two thirds of the products, attention and adapters";
  config.train.only = {"head.*"};
  EXPECT_GT(TrainedFlopsPerToken(config), 0.33 * whole);
  EXPECT_LT(TrainedFlopsPerToken(config), 0.66 * whole) << "all forward, the head back as well";
}

}  // namespace
}  // namespace holdfast
