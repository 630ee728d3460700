// Proves that PrintConfig gives back every value exactly, with every field of the table set at random, and that hostile
// or broken text ends in an error, never in a crash.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/config/config_table.h"
#include "framework/config/enums.h"
#include "framework/config/load.h"
#include "framework/config/yaml_tree.h"
#include "models/families/families.h"
#include "tests/framework/base/slower.h"

namespace holdfast {
namespace {

using Random = std::mt19937_64;

std::string RandomText(Random& random) {
  const std::vector<std::string> pieces = {"a",   " ", "\"", "\\", "'", ": ", " #", "%", "é", "日本", "null",
                                           "1e3", "-", "{",  "]",  ",", "&",  "*",  "!", "~", "\\n"};
  std::string text = "x";
  for (uint64_t i = random() % 12; i > 0; --i) {
    text += pieces[random() % pieces.size()];
  }
  return text;
}

struct Randomize {
  Random& random;
  void operator()(const NumbersValue& v) {
    v.value->resize(1 + random() % 3);
    for (double& number : *v.value) (*this)(DoubleValue{&number, v.min, v.max});
  }
  void operator()(const IntValue& v) { *v.value = std::uniform_int_distribution<int64_t>(v.min, v.max)(random); }
  void operator()(const SeedValue& v) { *v.value = random(); }
  void operator()(const DoubleValue& v) {
    const double exponent = std::uniform_real_distribution<double>(-40, 12)(random);
    const double x = std::pow(10.0, exponent);
    *v.value = random() % 8 == 0 ? v.max : random() % 8 == 0 ? v.min : std::clamp(x, v.min, v.max);
  }
  void operator()(const BoolValue& v) { *v.value = random() % 2 == 0; }
  void operator()(const ChoiceValue& v) { v.set(v.choices[random() % v.choices.size()]); }
  void operator()(const StringValue& v) {
    *v.value = v.rule == StringRule::kFileName ? "run-" + std::to_string(random() % 99) : RandomText(random);
  }
  void operator()(const ListValue& v) {
    v.value->assign(1 + random() % 3, "");
    for (std::string& item : *v.value) {
      item = v.choices.empty() ? RandomText(random) : v.choices[random() % v.choices.size()];
    }
  }
};

TEST(RoundTripTest, RandomConfigsComeBackExactly) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Config config;
    for (Section& section : ConfigTable(&config, {"gpt2", "qwen3"})) {
      for (Field& field : section.fields) std::visit(Randomize{random}, field.value);
    }
    // What the checks across keys want.
    config.train.init_from = "model";
    if (random() % 2 == 0) config.lora.rank = 0;
    if (config.lora.rank == 0) {
      config.lora = {};
    } else {
      config.train.freeze.clear();
      config.train.only.clear();
    }
    config.lora.dropout = 0;  // of some targets
    config.parallel.experts = ExpertPlacement::kGather;
    config.parallel.overlap_microbatches = false;
    if (config.parallel.sharding == Sharding::kNoShard) config.parallel.replicas = 1;
    config.model.num_kv_heads = config.model.num_heads;
    config.model.head_dim = 8 + 8 * static_cast<int64_t>(random() % 32);
    config.model.intermediate_size += 1;
    config.model.hidden_size = 8 + config.model.hidden_size % 8185;  // on a GPU
    config.model.num_layers = 1 + config.model.num_layers % 32;      // or it has too many parameters
    config.model.expert_intermediate_size %= 4096;
    if (config.model.num_heads * config.model.head_dim > 8192) config.model.qk_norm_joint = false;
    if (config.lora.rank > 0) config.model.parametrization = Parametrization::kStandard;
    const bool standard = config.model.parametrization == Parametrization::kStandard;
    const bool completep = config.model.parametrization == Parametrization::kCompleteP;
    config.model.base_hidden_size = standard ? 0 : 1 + config.model.base_hidden_size / 2;
    config.model.zero_init_head = config.model.zero_init_head && !config.model.tie_embeddings;
    config.model.base_num_layers = completep ? 1 + config.model.base_num_layers / 2 : 0;
    if (completep) config.model.norm_position = NormPosition::kBefore;
    config.model.scale_embeddings = config.model.scale_embeddings && standard;
    config.model.base_head_dim = standard || random() % 2 == 0 ? 0 : config.model.head_dim;
    config.model.qk_norm = config.model.qk_norm || config.model.qk_norm_joint;
    config.model.activation = ActivationKind::kSwiglu;  // of experts
    config.model.bias = config.model.mlp_bias = false;
    config.model.num_experts =
        std::clamp<int64_t>(config.model.num_experts, 1, (int64_t{1} << 20) / config.model.num_layers);
    config.model.expert_intermediate_size = std::max<int64_t>(config.model.expert_intermediate_size, 1);
    config.model.shared_expert_intermediate_size = std::max<int64_t>(config.model.shared_expert_intermediate_size, 1);
    config.model.experts_per_token = config.model.router_groups = config.model.router_groups_chosen = 1;
    if (!config.model.router_bias) config.model.router_bias_rate = ModelConfig().router_bias_rate;
    config.model.first_expert_layer = config.model.num_layers;
    config.model.first_window_layer =
        config.model.sliding_window == 0 ? 1 : 1 + config.model.first_window_layer % config.model.num_layers;
    if (config.model.sliding_window == 0 || config.model.full_attention_step == 1) config.model.full_attention_step = 0;
    const bool rope = config.model.position == PositionKind::kRope;
    if (!rope) config.model.rope_scaling = RopeScaling::kNone;
    const bool window_theta = rope && config.model.sliding_window > 0 && random() % 2 == 0;
    config.model.window_rope_theta = window_theta ? 2 + config.model.window_rope_theta / 2 : 0;
    config.model.rope_dim = rope ? 2 * (config.model.rope_dim % (config.model.head_dim / 2)) : 0;
    config.model.rope_high_freq_factor = 1 + config.model.rope_low_freq_factor / 2;
    config.model.rope_low_freq_factor = 1e-3;
    config.model.rope_beta_fast = 1 + config.model.rope_beta_slow / 2;
    config.model.rope_beta_slow = 1e-3;
    const ModelConfig usual;
    const bool longrope = config.model.rope_scaling == RopeScaling::kLongRope;
    if (config.model.rope_scaling != RopeScaling::kYarn) {
      config.model.rope_beta_fast = usual.rope_beta_fast;
      config.model.rope_beta_slow = usual.rope_beta_slow;
      config.model.rope_truncate = usual.rope_truncate;
      if (!longrope) config.model.rope_attention_factor = usual.rope_attention_factor;
    } else {
      config.model.rope_theta = std::max(config.model.rope_theta, 2.0);
    }
    const auto frequencies = static_cast<size_t>(longrope ? config.model.TurnedDim() / 2 : 0);
    config.model.rope_short_factors.resize(frequencies, 1.5);
    config.model.rope_long_factors.resize(frequencies, 1.0 / 3);
    if (longrope) config.model.rope_original_length = std::max<int64_t>(config.model.rope_original_length, 2);
    if (config.model.rope_scaling == RopeScaling::kLinear || config.model.rope_scaling == RopeScaling::kYarn ||
        longrope) {
      config.model.rope_low_freq_factor = usual.rope_low_freq_factor;
      config.model.rope_high_freq_factor = usual.rope_high_freq_factor;
    }
    if (config.model.rope_scaling == RopeScaling::kLinear) {
      config.model.rope_original_length = usual.rope_original_length;
    }
    config.batch = {.sequence_length = 64, .microbatch_size = 3, .microbatches = 5};
    config.model.max_sequence_length = 64;
    config.train.steps = int64_t{1} << 40;
    config.train.device = DeviceKind::kCuda;
    config.train.gemm_table.insert(0, "t");
    config.train.arithmetic = ArithmeticChoice::kAuto;
    config.optimizer.name = OptimizerKind::kMuon;  // which has all keys
    for (std::string& item : config.optimizer.lr_factors) item = absl::StrCat("p", item, "=0.25");
    config.schedule.warmup_steps = 1;
    config.schedule.decay_steps = config.schedule.name == ScheduleKind::kConstant ? 0 : 1;
    config.schedule.total_steps = config.train.steps;
    if (config.schedule.name == ScheduleKind::kConstant) config.schedule.min_lr_ratio = ScheduleConfig().min_lr_ratio;
    if (config.checkpoint.compression == CheckpointCompression::kNone) config.checkpoint.compression_level = 1;
    if (config.parallel.transport == Transport::kNccl) config.train.device = DeviceKind::kCuda;
    if (config.parallel.transport != Transport::kGloo) config.parallel.encrypt = false;
    ElasticConfig& elastic = config.elastic;
    elastic.heartbeat_timeout_ms = elastic.heartbeat_interval_ms + 1;
    elastic.collective_timeout_ms = elastic.heartbeat_timeout_ms + 1;
    elastic.kill_timeout_ms = elastic.collective_timeout_ms + 1;
    elastic.min_workers = 1;
    elastic.max_workers = elastic.workers;
    config.checkpoint.every = CheckpointEvery::kAuto;
    (seed % 2 == 0 ? config.checkpoint.every_steps : config.checkpoint.every_seconds) = 0;
    config.checkpoint.s3.endpoint.insert(0, "https://");
    config.data.s3.endpoint.insert(0, "https://");
    const std::string printed = PrintConfig(config);
    const absl::StatusOr<Config> again = ParseConfig(printed, "printed", {}, {.families = FamilyPresets()});
    ASSERT_TRUE(again.ok()) << again.status().message() << "\n" << printed;
    EXPECT_TRUE(*again == config) << printed << "\n---\n" << PrintConfig(*again);
  }
}

TEST(RoundTripTest, ManyLongPaths) {
  Config config;
  config.model.vocab_size = 1;
  config.train.steps = 1;
  config.data.train.assign(500, std::string(1500, 'p'));
  const absl::StatusOr<Config> again = ParseConfig(PrintConfig(config), "printed", {}, {.families = FamilyPresets()});
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->data.train, config.data.train);
}

TEST(RoundTripTest, NamesOfEnums) {
  EXPECT_STREQ(Name(PositionKind::kRope), "rope");
  EXPECT_STREQ(Name(ScheduleKind::kWsd), "wsd");
  EXPECT_STREQ(Name(ComputeDType::kF32), "f32");
}

std::string ErrorOf(const std::string& text) {
  return std::string(ParseConfig(text, "c.yaml", {}, {.families = FamilyPresets()}).status().message());
}

std::string Repeated(const std::string& piece, size_t bytes) {
  std::string text;
  while (text.size() + piece.size() <= bytes) text += piece;
  return text;
}

TEST(RoundTripTest, APrintedConfigHasEachKeyOnceWithItsValue) {
  Config config;
  config.run.name = "a";
  config.data.train = {"x: y.bin", "- z"};
  config.optimizer.no_decay = {};
  const auto values = ValuesByKey(PrintConfig(config));
  size_t keys = 0;
  for (const Section& section : ConfigTable(&config)) {
    for (const std::string& key : section.Keys())
      EXPECT_EQ(values.count(absl::StrCat(section.name, ".", key)), 1) << key;
    keys += section.fields.size();
  }
  EXPECT_EQ(values.size(), keys);
  EXPECT_EQ(values.at("run.name"), "\"a\"");
  EXPECT_EQ(values.at("data.train"), "\"x: y.bin\", \"- z\"");
  EXPECT_EQ(values.at("optimizer.no_decay"), "[]");
  EXPECT_EQ(values.at("train.steps"), "0");
}

TEST(HostileTextTest, AliasesTagsAndDepthAreRefused) {
  EXPECT_NE(ErrorOf("a: &x [1]\nb: [*x, *x]\n").find("c.yaml:2: aliases"), std::string::npos);
  EXPECT_NE(ErrorOf("run: {name: !!binary abc}\n").find("c.yaml:1: tags"), std::string::npos);
  EXPECT_NE(ErrorOf("run: {name: [[[[[[1]]]]]]}\n").find("c.yaml:1: YAML syntax: nested too deeply"),
            std::string::npos);
  EXPECT_EQ(ErrorOf(std::string("run:\n  name: a\0b", 16)),
            "c.yaml:2: control character 0x00; this is not a text file");
  for (const std::string begin : {"\xff\xfe", "\xfe\xff"}) {
    EXPECT_EQ(ErrorOf(begin), "c.yaml:1: UTF-16; save the file as UTF-8");
    EXPECT_EQ(ErrorOf(begin + std::string("r\0u\0n\0", 6)), "c.yaml:1: UTF-16; save the file as UTF-8");
  }
  EXPECT_EQ(ErrorOf(std::string(kMaxConfigBytes + 1, ' ')),
            "c.yaml: larger than 1048576 bytes; this is not a config file");
}

TEST(HostileTextTest, LargeRepeatedTextIsRefused) {
  for (const std::string piece : {"[", "{",   "- ",  "a: ", "? ", "\"",    "a\n", "a: 1\n", "[a, ",        "'", "|\n",
                                  "#", "&a ", "*a ", "!a ", "%",  "---\n", ": ",  "\n",     "a: {b: 1}\n", ", "}) {
    SCOPED_TRACE(piece);
    EXPECT_NE(ErrorOf(Repeated(piece, kMaxConfigBytes / 8)), "");
  }
}

TEST(HostileTextTest, AFloodOfErrorsIsCutOff) {
  const std::string errors = ErrorOf("run:\n" + Repeated("  x: 1\n", 10000));
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 100);
  EXPECT_NE(errors.find("\nc.yaml: and "), std::string::npos);
}

TEST(HostileTextTest, DamagedConfigsNeverCrash) {
  Config config;
  config.data.train = {"a.bin"};
  const std::string good = PrintConfig(config);
  const std::string bytes = ":-[]{}#&*!|>'\"%@`,?\n\t 0aZ.~\x80";
  Random random(7);
  for (int i = 0; i < 2000 / kSlower; ++i) {
    std::string text = good;
    for (uint64_t edits = 1 + random() % 6; edits > 0; --edits) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0) text.erase(at, 1 + random() % 20);
      if (text.empty()) break;
      text.insert(random() % text.size(), 1, bytes[random() % bytes.size()]);
    }
    (void)ParseConfig(text, "c.yaml", {"data.train=" + text.substr(0, 9)}, {.families = FamilyPresets()});
  }
}

}  // namespace
}  // namespace holdfast
