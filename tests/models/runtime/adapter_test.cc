// Proves parity with PEFT: adapters that it saved are read, give its logits when merged, have its gradients, and train
// as it trains them, for families with separate and fused projections; what is written is read back; and adapters for
// another model, or of a kind that there is not, are refused with nothing taken over.
// tests/golden/make_peft_golden.py makes the files and says what is in them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "framework/train/trainer.h"
#include "models/plan.h"
#include "models/runtime/adapter_files.h"
#include "models/runtime/initial_adapters.h"
#include "models/runtime/initial_model.h"
#include "models/runtime/initial_weights.h"
#include "models/runtime/loaded_model.h"
#include "models/runtime/make_model.h"
#include "models/runtime/trained_parameters.h"
#include "models/runtime/trainer_options.h"
#include "models/transformer.h"
#include "tests/models/runtime/next_logits.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr int64_t kSteps = 10, kMicrobatches = 3, kBatch = 2, kLength = 13;

std::string ReadText(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

double RelativeError(const std::vector<float>& actual, const std::vector<float>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(static_cast<double>(actual.at(i)) - static_cast<double>(expected[i]), 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(difference / norm);
}

/// What config.lora says of their target_modules; those of GPT-2 and Phi-3 go by other names.
std::vector<std::string> TargetsOf(const json& adapter) {
  std::vector<std::string> targets = adapter["target_modules"];
  for (const char* fused : {"c_attn", "qkv_proj"}) {
    if (std::find(targets.begin(), targets.end(), fused) != targets.end()) return {"attention", "mlp"};
  }
  for (const std::string parameter : adapter["target_parameters"]) {
    const auto contains = [&](const char* part) { return parameter.find(part) != std::string::npos; };
    targets.push_back(contains("shared_expert_gate.") ? "shared_expert_gate"
                      : contains("shared_expert")     ? "shared_expert"
                      : contains("experts.")          ? "experts"
                      : contains("mlp.gate.")         ? "router"
                      : contains("mlp.router.")       ? "router"
                                                      : "mlp");
  }
  return targets;
}

class AdapterTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    base_ = absl::StrCat(SourceDir(), "/tests/golden/", GetParam());
    directory_ = fs::path(::testing::TempDir()) / absl::StrCat("adapter_test_", GetParam(), "_", getpid());
    fs::remove_all(directory_);
    fs::copy(base_ + "/peft", directory_);
    json adapter = json::parse(ReadText(directory_ / "adapter_config.json"));
    adapter["base_model_name_or_path"] = base_;
    Write(adapter);
    golden_ = SafetensorsReader::Open(directory_ / "peft.safetensors").value();
    config_.model = ReadModelConfig(base_).value().model;
    config_.train.init_from = base_;
    config_.train.compute_dtype = ComputeDType::kF32;
    config_.train.threads = 2;
    config_.batch = {.sequence_length = kLength, .microbatch_size = kBatch, .microbatches = kMicrobatches};
    config_.lora = {.rank = adapter["r"],
                    .alpha = adapter["lora_alpha"],
                    .rslora = adapter["use_rslora"],
                    .targets = TargetsOf(adapter)};
    config_.optimizer = {
        .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .grad_clip_norm = 1.0};
    config_.schedule = {.name = ScheduleKind::kConstant};
  }
  void TearDown() override { fs::remove_all(directory_); }

  void Write(const json& adapter) { std::ofstream(directory_ / "adapter_config.json") << adapter.dump(); }

  std::vector<float> Golden(const std::string& name, int64_t first, int64_t count) const {
    std::vector<float> values(static_cast<size_t>(count));
    EXPECT_TRUE(golden_->Read(name, first, absl::MakeSpan(values)).ok()) << name;
    return values;
  }
  std::vector<int32_t> Tokens(const std::string& name, int64_t microbatch) const {
    const std::vector<float> values = Golden(name, microbatch * kBatch * kLength, kBatch * kLength);
    return {values.begin(), values.end()};
  }

  /// The base, with adapters from tensors of `file` whose names begin with `prefix`.
  ReadWeightsFn Values(const ParameterLayout& layout, const SafetensorsReader& file, const std::string& prefix) const {
    const ReadWeightsFn base = OpenInitialWeights(config_, layout).value();
    std::vector<float> adapters(static_cast<size_t>(layout.elements()));
    const std::vector<AdapterTensor> tensors = AdapterTensors(config_, layout).value();
    for (const AdapterTensor& t : tensors) {
      std::vector<float> values(static_cast<size_t>(t.shape.elements()));
      EXPECT_TRUE(file.Read(prefix + t.name, 0, absl::MakeSpan(values)).ok()) << t.name;
      for (const AdapterTensor::Piece& piece : t.pieces) {
        const ParameterSpec& spec = layout.parameters()[static_cast<size_t>(piece.parameter)];
        const int64_t cols = spec.shape.cols();
        for (int64_t i = 0; i < piece.rows * cols; ++i) {
          adapters[static_cast<size_t>(spec.offset + piece.first_row * cols + i)] =
              values[static_cast<size_t>(piece.elements.At(i))];
        }
      }
    }
    return [base, adapters, layout](int64_t first, absl::Span<float> out) {
      if (!layout.parameters()[static_cast<size_t>(ParameterAt(layout, first))].adapter) return base(first, out);
      std::copy_n(adapters.begin() + first, out.size(), out.begin());
      return absl::OkStatus();
    };
  }

  std::string base_;
  fs::path directory_;
  Config config_;
  std::unique_ptr<SafetensorsReader> golden_;
};

TEST_P(AdapterTest, LogitsAreThoseOfPeft) {
  const auto loaded = LoadSavedModel(directory_, {.compute_dtype = ComputeDType::kF32, .threads = 2});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<int32_t> inputs = Tokens("inputs", 0);
  const int64_t vocab = config_.model.vocab_size;
  for (int64_t b = 0; b < kBatch; ++b) {
    const auto logits =
        NextLogits(**loaded, absl::MakeConstSpan(inputs).subspan(static_cast<size_t>(b * kLength), kLength));
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_LT(RelativeError(*logits, Golden("logits", ((b + 1) * kLength - 1) * vocab, vocab)), 1e-5);
  }
}

TEST_P(AdapterTest, TrainsAsPeft) {
  const auto device = MakeCpuDevice(2);
  for (const RecomputeMode recompute : {RecomputeMode::kNone, RecomputeMode::kBlock}) {
    config_.train.recompute = recompute;
    const auto model = MakeModel(config_, *device).value();
    const PassPlan plan = PlanTraining(*model, kBatch, kLength);
    const auto file = SafetensorsReader::Open(directory_ / "adapter_model.safetensors").value();
    const TrainerOptions options{.batch = config_.batch,
                                 .optimizer = config_.optimizer,
                                 .schedule = config_.schedule,
                                 .total_steps = kSteps,
                                 .arena_bytes = plan.arena_bytes,
                                 .training_schedule = plan.schedule,
                                 .initial_weights = Values(model->layout(), *file, "")};
    const auto trainer = Trainer::Create(*model, *device, options).value();
    ASSERT_TRUE(trainer->EnterWorld({}, {}).ok());
    const std::vector<float> losses = Golden("losses", 0, kSteps), norms = Golden("norms", 0, kSteps);
    for (int64_t i = 0; i < kSteps; ++i) {
      const auto source = [&](int64_t index) -> absl::StatusOr<CpuBatch> {
        return CpuBatch(Microbatch{.batch = kBatch,
                                   .sequence = kLength,
                                   .inputs = Tokens("inputs", i * kMicrobatches + index),
                                   .targets = Tokens("targets", i * kMicrobatches + index),
                                   .step = static_cast<uint32_t>(i + 1),
                                   .index = static_cast<uint32_t>(index)});
      };
      const auto result = trainer->Prepare({i + 1, {kMicrobatches}}, source, {});
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_NEAR(result->loss, losses[static_cast<size_t>(i)], 1e-5 * 5) << "step " << i + 1;
      EXPECT_NEAR(result->grad_norm, norms[static_cast<size_t>(i)], 1e-4 * norms[static_cast<size_t>(i)])
          << "step " << i + 1;
      trainer->Commit(*result);
    }
    const ReadWeightsFn expected = Values(model->layout(), *golden_, "final.");
    const absl::Status compared = trainer->WithWeights([&](const ReadWeightsFn& read) -> absl::Status {
      for (const ParameterSpec& spec : model->layout().parameters()) {
        std::vector<float> ours(static_cast<size_t>(spec.shape.elements())), theirs(ours.size());
        RETURN_IF_ERROR(read(spec.offset, absl::MakeSpan(ours)));
        RETURN_IF_ERROR(expected(spec.offset, absl::MakeSpan(theirs)));
        EXPECT_LE(RelativeError(ours, theirs), spec.adapter ? 1e-3 : 0) << spec.name;
      }
      return absl::OkStatus();
    });
    EXPECT_TRUE(compared.ok()) << compared;
  }
}

TEST_P(AdapterTest, ARunBeginsWithThem) {
  config_.lora.init_from = directory_.string();
  const absl::Status resolved = ResolveAdapterDigest(&config_);
  ASSERT_TRUE(resolved.ok()) << resolved;
  EXPECT_EQ(config_.lora.init_digest.size(), 16u);
  const auto device = MakeCpuDevice(2);
  const auto model = MakeModel(config_, *device).value();
  const auto options = MakeTrainerOptions(config_, *model);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_FALSE(options->begins_random);
  const auto file = SafetensorsReader::Open(directory_ / "adapter_model.safetensors").value();
  const ReadWeightsFn expected = Values(model->layout(), *file, "");
  for (const ParameterSpec& spec : model->layout().parameters()) {
    std::vector<float> ours(static_cast<size_t>(spec.shape.elements())), theirs(ours.size());
    ASSERT_TRUE(options->initial_weights(spec.offset, absl::MakeSpan(ours)).ok());
    ASSERT_TRUE(expected(spec.offset, absl::MakeSpan(theirs)).ok());
    EXPECT_EQ(ours, theirs) << spec.name;
    if (!spec.adapter) continue;
    const int64_t last = spec.shape.elements() - spec.shape.cols();  // a piece of it, as a chunk is
    ours.resize(static_cast<size_t>(spec.shape.cols()));
    ASSERT_TRUE(options->initial_weights(spec.offset + last, absl::MakeSpan(ours)).ok());
    EXPECT_TRUE(std::equal(ours.begin(), ours.end(), theirs.begin() + last)) << spec.name;
  }
}

// A world that begins anew without a checkpoint needs them again.
TEST_P(AdapterTest, ARunHoldsThemNoLongerThanUntilItsStateIsThere) {
  config_.lora.init_from = directory_.string();
  ASSERT_EQ(std::string(ResolveAdapterDigest(&config_).message()), "");
  const auto device = MakeCpuDevice(2);
  const auto model = MakeModel(config_, *device).value();
  const TrainerOptions options = MakeTrainerOptions(config_, *model).value();
  const auto read = [&] {
    std::vector<float> all;
    for (const ParameterSpec& spec : model->layout().parameters()) {
      if (!spec.adapter) continue;
      std::vector<float> values(static_cast<size_t>(spec.shape.elements()));
      const absl::Status status = options.initial_weights(spec.offset, absl::MakeSpan(values));
      EXPECT_TRUE(status.ok()) << status;
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const fs::path file = directory_ / "adapter_model.safetensors", away = directory_ / "away";
  fs::rename(file, away);
  const std::vector<float> first = read();  // of what was read when they were opened
  fs::rename(away, file);
  const auto trainer = Trainer::Create(*model, *device, options).value();
  ASSERT_TRUE(trainer->EnterWorld({}, {}).ok());
  fs::rename(file, away);
  const auto parameters = model->layout().parameters();
  const auto adapter =
      std::find_if(parameters.begin(), parameters.end(), [](const ParameterSpec& spec) { return spec.adapter; });
  std::vector<float> values(static_cast<size_t>(adapter->shape.elements()));
  EXPECT_FALSE(options.initial_weights(adapter->offset, absl::MakeSpan(values)).ok()) << "they are in memory";
  fs::rename(away, file);
  EXPECT_EQ(read(), first);
  ASSERT_TRUE(trainer->EnterWorld({}, {}).ok());
}

TEST_P(AdapterTest, WhatIsWrittenIsWhatPeftWrote) {
  const ParameterLayout layout = TransformerLayout(config_.model, LoraOptionsOf(config_).value());
  const auto file = SafetensorsReader::Open(directory_ / "adapter_model.safetensors").value();
  const std::string copy = directory_ / "copy";
  const absl::Status saved = SaveAdapter(copy, config_, layout, Values(layout, *file, ""), FileDType::kF32);
  ASSERT_TRUE(saved.ok()) << saved;
  const auto read_back = SafetensorsReader::Open(copy + "/adapter_model.safetensors").value();
  EXPECT_EQ(read_back->entries().size(), file->entries().size());
  for (const auto& [name, entry] : file->entries()) {
    ASSERT_TRUE(read_back->entries().contains(name)) << name;
    EXPECT_EQ(read_back->entries().at(name).shape, entry.shape);
    std::vector<float> ours((entry.end - entry.begin) / 4), theirs(ours.size());
    ASSERT_TRUE(read_back->Read(name, 0, absl::MakeSpan(ours)).ok());
    ASSERT_TRUE(file->Read(name, 0, absl::MakeSpan(theirs)).ok());
    EXPECT_EQ(ours, theirs) << name;
  }
  const json ours = json::parse(ReadText(copy + "/adapter_config.json"));
  const json theirs = json::parse(ReadText(directory_ / "adapter_config.json"));
  EXPECT_EQ(ours.value("target_parameters", json()), theirs["target_parameters"]);
  for (const char* key : {"peft_type", "task_type", "r", "use_rslora", "fan_in_fan_out", "target_modules", "bias"}) {
    EXPECT_EQ(ours[key], theirs[key]) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterTest,
                         ::testing::Values("tiny_llama", "tiny_gpt2", "tiny_phi3", "tiny_qwen2", "tiny_qwen3",
                                           "tiny_mixtral", "tiny_qwen2_moe", "tiny_qwen3_moe", "tiny_olmoe",
                                           "tiny_glm4_moe", "tiny_olmo2", "tiny_gemma3", "tiny_gpt_oss"),
                         [](const auto& model) { return model.param; });

// What all-linear is for a mixture, where gate and up of experts have twice the rank, with other patterns besides.
TEST(PatternsTest, LogitsAreThoseOfPeft) {
  const std::string base = absl::StrCat(SourceDir(), "/tests/golden/tiny_mixtral");
  const fs::path directory = fs::path(::testing::TempDir()) / absl::StrCat("patterns_test_", getpid());
  fs::remove_all(directory);
  fs::copy(base + "/peft_patterns", directory);
  json adapter = json::parse(ReadText(directory / "adapter_config.json"));
  adapter["base_model_name_or_path"] = base;
  const auto golden = SafetensorsReader::Open(directory / "peft.safetensors").value();
  std::vector<float> values(static_cast<size_t>(kBatch * kLength));
  ASSERT_TRUE(golden->Read("inputs", 0, absl::MakeSpan(values)).ok());
  const std::vector<int32_t> inputs(values.begin(), values.end());
  const auto error = [&] {
    std::ofstream(directory / "adapter_config.json") << adapter.dump();
    const auto loaded = LoadSavedModel(directory, {.compute_dtype = ComputeDType::kF32, .threads = 2});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (!loaded.ok()) return 1.0;
    const int64_t vocab = (*loaded)->config.vocab_size;
    const auto logits = NextLogits(**loaded, absl::MakeConstSpan(inputs).first(static_cast<size_t>(kLength)));
    std::vector<float> expected(static_cast<size_t>(vocab));
    EXPECT_TRUE(logits.ok()) << logits.status();
    EXPECT_TRUE(golden->Read("logits", (kLength - 1) * vocab, absl::MakeSpan(expected)).ok());
    return logits.ok() ? RelativeError(*logits, expected) : 1.0;
  };
  EXPECT_LT(error(), 1e-5);
  const json alphas = adapter["alpha_pattern"];
  ASSERT_EQ(alphas.size(), 3u) << "experts, and two that its maker asked for";
  for (const auto& [pattern, alpha] : alphas.items()) {
    adapter["alpha_pattern"] = alphas;
    adapter["alpha_pattern"].erase(pattern);
    EXPECT_GT(error(), 1e-4) << pattern << " counts";
  }
  fs::remove_all(directory);
}

class BadAdapterTest : public AdapterTest {
 protected:
  std::string Error() const {
    const auto loaded = LoadSavedModel(directory_, {});
    return loaded.ok() ? "loaded" : std::string(loaded.status().message());
  }

  /// With tensors of ones besides.
  std::string ErrorWith(const std::vector<SafetensorsWriter::Entry>& more) const {
    const fs::path path = directory_ / "adapter_model.safetensors", original = directory_ / "original.safetensors";
    if (!fs::exists(original)) fs::rename(path, original);
    const auto file = SafetensorsReader::Open(original).value();
    std::vector<SafetensorsWriter::Entry> entries;
    for (const auto& [name, entry] : file->entries()) entries.push_back({name, entry.dtype, entry.shape});
    entries.insert(entries.end(), more.begin(), more.end());
    const auto writer = SafetensorsWriter::Create(path, entries, {}).value();
    for (const SafetensorsWriter::Entry& entry : entries) {
      int64_t elements = 1;
      for (const int64_t size : entry.shape) elements *= size;
      std::vector<float> values(static_cast<size_t>(elements), 1.0f);
      if (file->entries().contains(entry.name)) {
        EXPECT_TRUE(file->Read(entry.name, 0, absl::MakeSpan(values)).ok());
      }
      EXPECT_TRUE(writer->Append(values).ok());
    }
    EXPECT_TRUE(writer->Finish().ok());
    return Error();
  }

  /// The two matrices of one.
  static std::vector<SafetensorsWriter::Entry> Pair(const std::string& module, const std::vector<int64_t>& a,
                                                    const std::vector<int64_t>& b) {
    const std::string name = "base_model.model." + module;
    return {{name + ".lora_A.weight", FileDType::kF32, a}, {name + ".lora_B.weight", FileDType::kF32, b}};
  }
};

// `sample` took the adapters then, and train.init_from the model.
TEST_P(BadAdapterTest, AModelBesideThemIsRefused) {
  fs::copy(base_ + "/config.json", directory_);
  EXPECT_EQ(Error(), "loaded") << "others write the base's config.json beside adapters";
  const auto initial = [&] { return std::string(ReadInitialModel(directory_).status().message()); };
  EXPECT_NE(initial().find("holds adapters, not a model"), std::string::npos) << initial();
  std::ofstream(directory_ / "model.safetensors") << "weights";
  for (const std::string& error : {Error(), initial()}) {
    EXPECT_NE(error.find("holds a model (config.json) and adapters (adapter_config.json)"), std::string::npos) << error;
  }
  fs::remove(directory_ / "adapter_config.json");
  EXPECT_EQ(Error().find("adapters"), std::string::npos) << Error();
}

TEST_P(BadAdapterTest, IsRefusedByName) {
  const json good = json::parse(ReadText(directory_ / "adapter_config.json"));
  const auto with = [&](const char* key, const json& value) {
    json changed = good;
    changed[key] = value;
    Write(changed);
    return Error();
  };
  const auto expect = [](const std::string& error, const std::string& part) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  expect(with("peft_type", "IA3"), "peft_type is not LORA");
  expect(with("use_dora", true), "use_dora true is not supported");
  expect(with("rank_pattern", {{"q_proj", 4}}), ", r 4: the adapters are for another model");
  expect(with("rank_pattern", {{"q_proj", 3.5}}),
         "rank_pattern \"q_proj\" is 3.5, not a whole number from 1 to 16777216");
  expect(with("rank_pattern", {{"q_proj", 0}}), "rank_pattern \"q_proj\" is 0, not a whole number");
  expect(with("rank_pattern", "q_proj"), "rank_pattern is no object of at most 4096 patterns");
  expect(
      with("rank_pattern", {{".*proj", 3}, {"q_proj", 4}}),
      "rank_pattern: the patterns \".*proj\" and \"q_proj\" say different things of model.layers.0.self_attn.q_proj");
  expect(with("alpha_pattern", {{"(q|k)_proj", 4}}),
         "is not supported: \"(q|k)_proj\" is more than a name with . and .*");
  expect(with("alpha_pattern", {{"q_proj", "4"}}), "alpha_pattern \"q_proj\" is \"4\", not a number from");
  expect(with("bias", "all"), "bias \"all\" is not supported");
  expect(with("init_lora_weights", "pissa"), "init_lora_weights \"pissa\" is not supported");
  expect(with("modules_to_save", json::array({"lm_head"})), "modules_to_save");
  expect(with("a_new_kind", 3), "a_new_kind 3 is not supported");
  const std::string range = ", not a whole number from 1 to 16777216";
  expect(with("r", nullptr), "adapter_config.json: r is missing");
  expect(with("r", "three"), "r is \"three\"" + range);
  expect(with("r", 3.5), "r is 3.5" + range);
  expect(with("r", true), "r is true" + range);
  expect(with("r", 0), "r is 0" + range);
  expect(with("r", -3), "r is -3" + range);
  expect(with("r", 1e30), "r is 1e+30" + range);
  expect(with("lora_alpha", nullptr), "lora_alpha is missing");
  expect(with("lora_alpha", "7"), "lora_alpha is \"7\", not a number from -1e+09 to 1e+09");
  expect(with("lora_alpha", 1e300), "lora_alpha is 1e+300, not a number");
  expect(with("use_rslora", "false"), "use_rslora is \"false\", neither true nor false");
  expect(with("use_rslora", 0), "use_rslora is 0, neither true nor false");
  expect(with("r", 5), "the adapters are for another model");
  expect(with("base_model_name_or_path", nullptr), "base_model_name_or_path names no directory");
  expect(with("base_model_name_or_path", absl::StrCat(SourceDir(), "/tests/golden/tiny_gpt2")),
         "the adapters are for another model");
  std::ofstream(directory_ / "adapter_config.json") << std::string(100, '[');
  expect(Error(), "adapter_config.json: JSON nested deeper than 16");
  for (const json& modules : {json("all-linear"), json(".*proj"), json(nullptr), json::array({"elsewhere"})}) {
    EXPECT_EQ(with("target_modules", modules), "loaded") << "which have adapters is in the tensors' names";
  }
  Write(good);
  EXPECT_EQ(Error(), "loaded");
  fs::resize_file(directory_ / "adapter_model.safetensors", 3000);
  expect(Error(), "adapter_model.safetensors");
}

// With save_embedding_layers as it is by default PEFT saves the head, too, where it has an adapter.
TEST_P(BadAdapterTest, OfTheHeadWithoutItOnly) {
  const ModelConfig& model = config_.model;
  auto head = Pair("lm_head", {config_.lora.rank, model.hidden_size}, {model.vocab_size, config_.lora.rank});
  EXPECT_EQ(ErrorWith(head), "loaded");
  head.push_back(
      {"base_model.model.lm_head.base_layer.weight", FileDType::kF32, {model.vocab_size, model.hidden_size}});
  EXPECT_THAT(ErrorWith(head), HasSubstr("lm_head.base_layer.weight is no matrix of an adapter, but the layer itself"));
  EXPECT_THAT(ErrorWith({{"base_model.model.model.embed_tokens.lora_embedding_A", FileDType::kF32, {3, 61}}}),
              HasSubstr("lora_embedding_A is no matrix of an adapter that is supported: the table of tokens has none"));
}

TEST_P(BadAdapterTest, ForWeightsThatWereReplaced) {
  config_.train.init_digest = "0123456789abcdef";
  const ParameterLayout layout = TransformerLayout(config_.model, LoraOptionsOf(config_).value());
  EXPECT_EQ(OpenInitialWeights(config_, layout).status().code(), absl::StatusCode::kFailedPrecondition);
  const auto zeros = [](int64_t, absl::Span<float> out) {
    std::fill(out.begin(), out.end(), 0.0f);
    return absl::OkStatus();
  };
  ASSERT_TRUE(SaveAdapter(directory_, config_, layout, zeros, FileDType::kF32).ok());
  EXPECT_NE(Error().find("were trained on weights with the digest 0123456789abcdef"), std::string::npos) << Error();
}

TEST_P(BadAdapterTest, ARunDoesNotBeginWithOthersThanItsConfigSays) {
  config_.lora.init_from = directory_.string();
  const auto error_with = [&](const auto& change) {
    Config changed = config_;
    change(&changed.lora);
    return std::string(ResolveAdapterDigest(&changed).message());
  };
  EXPECT_EQ(error_with([](LoraConfig*) {}), "");
  const std::string set = "set lora.rank: 3, lora.alpha: 7, lora.rslora: false (adapter_config.json), not lora.rank: ";
  EXPECT_THAT(error_with([](LoraConfig* lora) { lora->rank = 4; }), HasSubstr(set + "4, lora.alpha: 7"));
  EXPECT_THAT(error_with([](LoraConfig* lora) { lora->alpha = 14; }), HasSubstr(set + "3, lora.alpha: 14"));
  EXPECT_THAT(error_with([](LoraConfig* lora) { lora->rslora = true; }), HasSubstr("lora.rslora: true"));
  EXPECT_THAT(error_with([](LoraConfig* lora) {
                lora->targets = {"attention", "down_proj"};
              }),
              HasSubstr("has adapters for model.layers.0.mlp.gate_proj and 3 more, and lora.targets has none: set "
                        "lora.targets: [attention, mlp]"));
  EXPECT_THAT(error_with([](LoraConfig* lora) { lora->init_digest = "0123456789abcdef"; }),
              HasSubstr("these are others than the run began with"));
  EXPECT_THAT(error_with([&](LoraConfig* lora) { lora->init_from = base_; }),
              HasSubstr("lora.init_from: " + base_ + " holds no adapters: it has no adapter_config.json"));
  json adapter = json::parse(ReadText(directory_ / "adapter_config.json"));
  adapter["alpha_pattern"] = {{"k_proj", 14}};
  Write(adapter);
  EXPECT_THAT(
      error_with([](LoraConfig*) {}),
      HasSubstr("model.layers.0.mlp.down_proj has rank 3 and scale 2.33333, but model.layers.0.self_attn.k_proj "
                "has rank 3 and scale 4.66667; a run trains adapters that are alike in both"));
  adapter["alpha_pattern"] = {{".*", 14}};
  Write(adapter);
  EXPECT_EQ(error_with([](LoraConfig* lora) { lora->alpha = 14; }), "");
  for (const double alpha : {14.000001, 2.2360679775, 1e-4 / 3, 123456.7}) {
    adapter["alpha_pattern"] = {{".*", alpha}};
    Write(adapter);
    const std::string error = error_with([](LoraConfig*) {});
    const std::string key = "set lora.rank: 3, lora.alpha: ";
    const size_t at = error.find(key);
    ASSERT_NE(at, std::string::npos) << error;
    const double said = std::stod(error.substr(at + key.size()));
    EXPECT_EQ(error_with([&](LoraConfig* lora) { lora->alpha = said; }), "") << error;
  }
  adapter["alpha_pattern"] = {{".*", 14}};
  Write(adapter);
  fs::resize_file(directory_ / "adapter_model.safetensors", 3000);
  EXPECT_THAT(error_with([](LoraConfig*) {}), HasSubstr("adapter_model.safetensors"));
}

TEST_P(BadAdapterTest, ForAModelOfAnotherNameARunBeginsWithAWarning) {
  config_.lora.init_from = directory_.string();
  const fs::path place = directory_ / "here", cache = directory_ / "models--org--tiny--small/snapshots/0123";
  fs::create_directories(cache.parent_path());
  for (const fs::path& link : {place, cache}) fs::create_directory_symlink(base_, link);
  json adapter = json::parse(ReadText(directory_ / "adapter_config.json"));
  const auto warning = [&](const json& base, const fs::path& init_from) {
    adapter["base_model_name_or_path"] = base;
    Write(adapter);
    Config config = config_;
    config.train.init_from = init_from.string();
    ::testing::internal::CaptureStderr();
    const absl::Status resolved = ResolveAdapterDigest(&config);
    EXPECT_TRUE(resolved.ok()) << resolved;
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(warning("org/other", base_), HasSubstr("are for the model org/other (adapter_config.json), and "
                                                     "train.init_from is " +
                                                     base_ + ": if that is another one"));
  EXPECT_THAT(warning("/models/other/", place), HasSubstr("are for the model /models/other/ (adapter"));
  for (const auto& [base, init_from] : {std::pair<json, fs::path>{"org/" + GetParam(), base_},
                                        {"Org/Tiny_Llama", base_ + "/"},
                                        {"/models/" + GetParam() + "/", base_},
                                        {"org/here", place},
                                        {base_, place},
                                        {"org/small", cache},
                                        {"", place},
                                        {nullptr, place}}) {
    EXPECT_EQ(warning(base, init_from), "") << base << " " << init_from;
  }
  const ParameterLayout layout = TransformerLayout(config_.model, LoraOptionsOf(config_).value());
  const auto zeros = [](int64_t, absl::Span<float> out) {
    std::fill(out.begin(), out.end(), 0.0f);
    return absl::OkStatus();
  };
  config_.train.init_digest = InitialWeightsDigest(config_).value();
  ASSERT_TRUE(SaveAdapter(directory_, config_, layout, zeros, FileDType::kF32).ok());
  adapter = json::parse(ReadText(directory_ / "adapter_config.json"));
  EXPECT_EQ(warning("where/it/was", base_), "") << "a digest of our own run says that it is this model";
}

// As those of TRL have it, with tokens for padding: it has more than these models have.
TEST_P(BadAdapterTest, ATokenizerBesideThatDoesNotFitIsNotUsed) {
  fs::copy(absl::StrCat(SourceDir(), "/tests/framework/data/golden/tokenizer_gpt2_style.json"),
           directory_ / "tokenizer.json");
  ::testing::internal::CaptureStderr();
  const auto opened = OpenSavedModel(directory_);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("beside the adapters is not used"));
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->tokenizer, nullptr);
  EXPECT_EQ(opened->tokenizer_directory, base_);
}

// Of other adapters, or of a model that was here: these have that of their model.
TEST_P(BadAdapterTest, ATokenizerOfOthersGoes) {
  fs::copy(absl::StrCat(SourceDir(), "/tests/framework/data/golden/tokenizer_gpt2_style.json"),
           directory_ / "tokenizer.json");
  const ParameterLayout layout = TransformerLayout(config_.model, LoraOptionsOf(config_).value());
  const auto zeros = [](int64_t, absl::Span<float> out) {
    std::fill(out.begin(), out.end(), 0.0f);
    return absl::OkStatus();
  };
  ASSERT_TRUE(SaveAdapter(directory_, config_, layout, zeros, FileDType::kF32).ok());
  EXPECT_FALSE(fs::exists(directory_ / "tokenizer.json"));
  EXPECT_EQ(Error(), "loaded");
}

// A pattern is the end of a name, from a point on, or the whole of it.
TEST_P(BadAdapterTest, PatternsThatMatchNothingOrSayTheSameChangeNothing) {
  json adapter = json::parse(ReadText(directory_ / "adapter_config.json"));
  adapter["rank_pattern"] = {{"proj", 9},
                             {"q_pro", 9},
                             {"^q_proj", 9},
                             {"q_proj", 3},
                             {"layers\\.1..*", 3},
                             {"^model.layers.0.self_attn.q_proj", 3},
                             {".*\\.gate_up_proj", 9}};
  adapter["alpha_pattern"] = {{"elsewhere", 1}};
  Write(adapter);
  EXPECT_EQ(Error(), "loaded");
}

INSTANTIATE_TEST_SUITE_P(Llama, BadAdapterTest, ::testing::Values("tiny_llama"));

class SomeLayersTest : public BadAdapterTest {};

TEST_P(SomeLayersTest, AreSaidWhereARunWouldHaveOthers) {
  config_.lora.init_from = directory_.string();
  ASSERT_EQ(std::string(ResolveAdapterDigest(&config_).message()), "");
  config_.lora.targets = {"attention"};
  config_.lora.init_digest.clear();
  EXPECT_THAT(std::string(ResolveAdapterDigest(&config_).message()),
              HasSubstr("has adapters for model.layers.0.mlp.down_proj and 1 more, and lora.targets has none; has none "
                        "for model.layers.0.self_attn.k_proj and 3 more, and lora.targets has: set lora.targets: "
                        "[q_proj, v_proj, down_proj]"));
}

INSTANTIATE_TEST_SUITE_P(Qwen2, SomeLayersTest, ::testing::Values("tiny_qwen2"));

class TiedAdapterTest : public BadAdapterTest {};

TEST_P(TiedAdapterTest, OfTheHeadIsRefused) {
  const ModelConfig& model = config_.model;
  EXPECT_THAT(ErrorWith(Pair("lm_head", {config_.lora.rank, model.hidden_size}, {model.vocab_size, config_.lora.rank})),
              HasSubstr("lm_head has an adapter, but no weights of its own: they are the table of tokens"));
}

INSTANTIATE_TEST_SUITE_P(Qwen2, TiedAdapterTest, ::testing::Values("tiny_qwen2"));

class BadExpertAdapterTest : public BadAdapterTest {};

TEST_P(BadExpertAdapterTest, IsRefusedByName) {
  const json good = json::parse(ReadText(directory_ / "adapter_config.json"));
  const auto with = [&](const json& parameters) {
    json changed = good;
    changed["target_parameters"] = parameters;
    Write(changed);
    return Error();
  };
  const std::string layer = "model.layers.0.mlp.experts", other = ": the adapters are for another model";
  EXPECT_THAT(with("experts"), HasSubstr("target_parameters is no list of names"));
  EXPECT_THAT(with({"mlp.gate.weight"}), HasSubstr(layer + " is no layer of it" + other));
  // Of two that are adapted the first is the inner one, of one there is no inner one: of this file no part fits.
  EXPECT_THAT(with({"mlp.experts.down_proj"}), HasSubstr(other));
  json few = good;
  few["base_model_name_or_path"] = absl::StrCat(SourceDir(), "/tests/golden/tiny_olmoe");  // of 8 experts, not 5
  Write(few);
  EXPECT_THAT(Error(),
              HasSubstr(layer + " has adapters [10, 16] and [32, 10], its weight is [8, 32, 16], r 2" + other));
  EXPECT_EQ(with({"gate_up_proj", "mlp.experts.down_proj"}), "loaded");
}

// Mixtral's router has an older name, and its experts have names of their own.
TEST_P(BadExpertAdapterTest, TwoForOneLayerAreRefused) {
  const auto file = SafetensorsReader::Open(directory_ / "adapter_model.safetensors").value();
  const std::string layer = "model.layers.0.", gate = "base_model.model." + layer + "mlp.gate.";
  const auto& router_a = file->entries().at(gate + "lora_A.weight").shape;
  const auto& router_b = file->entries().at(gate + "lora_B.weight").shape;
  EXPECT_THAT(ErrorWith(Pair(layer + "block_sparse_moe.gate", router_a, router_b)),
              HasSubstr("are two adapters for one layer"));
  const ModelConfig& model = config_.model;
  const int64_t rank = config_.lora.rank, width = model.expert_intermediate_size;
  EXPECT_THAT(ErrorWith(Pair(layer + "block_sparse_moe.experts.1.w1", {rank, model.hidden_size}, {width, rank})),
              HasSubstr("are two adapters for one layer"));
}

INSTANTIATE_TEST_SUITE_P(Mixtral, BadExpertAdapterTest, ::testing::Values("tiny_mixtral"));

}  // namespace
}  // namespace holdfast
