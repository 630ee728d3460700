// Proves parity with PyTorch: tiny models of every family saved by `transformers`, loaded as any saved model is, give
// PyTorch's logits, loss, gradients of every parameter, and ten training steps, and two of them ten steps with a
// schedule and dropout, by every optimizer; and that `transformers` makes of exports the logits that they have here.
// tests/golden/make_model_golden.py, make_training_golden.py, make_optimizer_golden.py, make_mxfp4_golden.py and
// make_export_golden.py make the files and say what is in them; try_models.py runs this on models that are not kept
// here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_slices.h"
#include "framework/train/trainer.h"
#include "models/families/huggingface.h"
#include "models/plan.h"
#include "models/transformer.h"
#include "tests/checkpoint/load_weights.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

constexpr int64_t kBatch = 2, kSteps = 10;

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// In the Frobenius norm, as what follows.
double Distance(const std::vector<float>& actual, const std::vector<float>& expected) {
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) sum += std::pow(static_cast<double>(actual.at(i)) - expected[i], 2);
  return std::sqrt(sum);
}
double Norm(const std::vector<float>& values) { return Distance(values, std::vector<float>(values.size())); }
double RelativeError(const std::vector<float>& actual, const std::vector<float>& expected) {
  return Distance(actual, expected) / Norm(expected);
}

/// What a training pass gives.
struct Passed {
  std::vector<float> losses, gradients;
  StatisticsLayout layout;
  std::vector<uint64_t> statistics;

  template <typename T>
  T* Of(size_t statistic) {
    return layout.At<T>(statistics.data(), statistic);
  }
};

class GoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(SourceDir() + "/tests/golden") / GetParam();
    const auto parsed = ParseHuggingFaceConfig(ReadText(directory_ + "/config.json"), directory_ + "/config.json");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    config_ = parsed->model;
    config_.router_bias_rate = 0;  // PyTorch does not move it
    auto golden = SafetensorsReader::Open(directory_ + "/golden.safetensors");
    ASSERT_TRUE(golden.ok()) << golden.status();
    golden_ = std::move(*golden);
    const SafetensorsEntry& inputs = golden_->entries().at("inputs");
    ASSERT_EQ(inputs.shape.at(0), kBatch);
    length_ = inputs.shape.at(1);
  }

  std::vector<float> Golden(const std::string& name, int64_t first, int64_t count) const {
    std::vector<float> values(count);
    const absl::Status status = golden_->Read(name, first, absl::MakeSpan(values));
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }

  std::vector<int32_t> GoldenTokens(const std::string& name, int64_t first) const {
    const std::vector<float> values = Golden(name, first, num_tokens());
    return {values.begin(), values.end()};
  }

  /// Where the golden file has a tensor: under its name, or stacked with others.
  ExternalTensor InGolden(const std::string& prefix, const ExternalTensor& tensor) const {
    ExternalTensor found = tensor;
    found.name = prefix + tensor.name;
    if (golden_->entries().contains(found.name)) return found;
    for (const ExternalRows& other : tensor.others) {
      found.name = prefix + other.name;
      found.file_row = other.first_row;
      found.shape = other.shape;
      found.row_step = other.row_step;
      found.transposed = other.transposed;
      if (golden_->entries().contains(found.name)) return found;
    }
    return tensor;
  }

  /// "<prefix><external name>" of every parameter, or of its gradient, as one flat vector in canonical order.
  std::vector<float> GoldenParameters(const ParameterLayout& layout, const std::string& prefix) const {
    std::vector<float> flat(layout.elements());
    for (const ExternalTensor& t : HuggingFaceTensorMap(config_, layout)) {
      const ParameterSpec& p = layout.parameters()[t.parameter];
      const int64_t cols = p.is_matrix() ? p.shape.cols() : 1;
      const ExternalTensor from = InGolden(prefix, t);
      const FilePlace place = PlaceOf(from, cols);
      std::vector<float> values = Golden(from.name, 0, from.shape.elements());
      if (!prefix.ends_with("grad.")) {
        for (float& value : values) value += t.subtracted;
      }
      for (int64_t r = 0; r < t.num_rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          flat[p.offset + (t.first_row + r) * cols + c] = values[place.first + r * place.row_step + c * place.col_step];
        }
      }
    }
    return flat;
  }

  std::vector<float> LoadedWeights(const ParameterLayout& layout) const { return LoadedWeights(layout, directory_); }
  std::vector<float> LoadedWeights(const ParameterLayout& layout, const std::string& directory) const {
    std::vector<float> values(layout.elements());
    const absl::Status status = LoadWeights(
        directory, layout, HuggingFaceTensorMap(config_, layout),
        [&](const std::string& name) { return IsIgnorableHuggingFaceTensor(config_, name); }, absl::MakeSpan(values));
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }

  void ExpectLogits();
  void ExpectLossAndGradients(DType dtype);
  /// Of the golden file's first tokens, in fp32.
  Passed ForwardBackward();
  /// The trainer's weights are the golden file's "final." ones.
  void ExpectWeights(Trainer& trainer, const ParameterLayout& layout);
  /// Warm-up, cosine decay, clipping, three microbatches a step, and dropout by masks that make_training_golden.py made
  /// from the documented key: `file` of the model's directory has what comes of it.
  void ExpectTraining(const OptimizerConfig& optimizer, const std::string& file);
  /// These values are the golden file's parameters with this prefix.
  void ExpectParameters(std::vector<float> weights, const std::string& prefix, const ParameterLayout& layout);
  /// Not kept here, but made by try_models.py.
  static bool IsTried() { return std::filesystem::path(GetParam()).is_absolute(); }
  int64_t num_tokens() const { return kBatch * length_; }
  /// Of which bf16 sends tokens on the edge to other experts, and an expert with few tokens has gradients that all but
  /// cancel, which AdamW scales up to full steps.
  bool mixture() const { return config_.num_experts > 0; }

  int64_t length_ = 0;  // of every sequence
  std::string directory_;
  ModelConfig config_;
  std::unique_ptr<SafetensorsReader> golden_;
};

ReadWeightsFn ReaderOf(const std::vector<float>& values) {
  return [values](int64_t first, absl::Span<float> out) {
    std::copy_n(values.begin() + first, out.size(), out.begin());
    return absl::OkStatus();
  };
}

/// The loaded model with a store of its own.
struct Loaded {
  Loaded(const ModelConfig& config, DType dtype, const std::vector<float>& values)
      : device(MakeCpuDevice(2)),
        stream(device->CreateStream().value()),
        model(MakeTransformer(config, {.compute_dtype = dtype}, *device).value()),
        planes(LayoutOf(*MakeOptimizer({}), model->layout())),
        placed(PlacedState::Create(planes, dtype, {.placement = Placement({"local"}, {}), .rank = 0, .parallel = {}},
                                   {}, *device, *stream, progress)
                   .value()) {
    EXPECT_TRUE(placed->state().SetWeights(ReaderOf(values)).ok());
    EXPECT_TRUE(placed->store().BeginStep(ReductionPlan({1}, ReductionMode::kPieces, SumOrder::Tree()), {}, {}).ok());
    placed->store().BeginWaves(0);
  }

  std::vector<float> Gradients() {
    std::vector<float> all;
    for (const GradientPiece& piece : placed->store().Gradients()) {
      all.insert(all.end(), piece.gradient, piece.gradient + piece.elements.size());
    }
    return all;
  }

  PassContext Context(Arena& arena, float loss_scale = 0) {
    return {.ops = &stream->ops(),
            .arena = &arena,
            .store = &placed->store().lane(),
            .random = {},
            .loss_scale = loss_scale};
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<LanguageModel> model;
  StateLayout planes;
  StepProgress progress;
  std::unique_ptr<PlacedState> placed;
};

Passed GoldenTest::ForwardBackward() {
  const std::vector<int32_t> inputs = GoldenTokens("inputs", 0), targets = GoldenTokens("targets", 0);
  const TokenBatch batch{.inputs = inputs.data(), .targets = targets.data(), .batch = kBatch, .sequence = length_};
  Loaded loaded(config_, DType::kF32, LoadedWeights(TransformerLayout(config_)));
  Arena arena = Arena::Create(*loaded.device, PlanTraining(*loaded.model, kBatch, length_).arena_bytes).value();
  Passed passed{.losses = std::vector<float>(num_tokens()),
                .gradients = {},
                .layout = loaded.model->statistics(),
                .statistics = std::vector<uint64_t>(loaded.model->statistics().size())};
  PassContext context = loaded.Context(arena, 1.0f / static_cast<float>(num_tokens()));
  context.statistics = passed.statistics.data();
  const absl::Status status = loaded.model->ForwardBackward(batch, context, passed.losses.data());
  EXPECT_TRUE(status.ok()) << status;
  passed.gradients = loaded.Gradients();
  return passed;
}

void GoldenTest::ExpectLogits() {
  Loaded loaded(config_, DType::kF32, LoadedWeights(TransformerLayout(config_)));
  const std::vector<int32_t> inputs = GoldenTokens("inputs", 0);
  const int64_t vocab = config_.vocab_size;
  for (int64_t length = 1; length <= length_; ++length) {  // the last token of every prefix
    std::vector<int32_t> prefixes;
    std::vector<float> logits(kBatch * vocab), expected;
    for (int64_t b = 0; b < kBatch; ++b) {
      prefixes.insert(prefixes.end(), inputs.begin() + b * length_, inputs.begin() + b * length_ + length);
      const std::vector<float> row = Golden("logits", (b * length_ + length - 1) * vocab, vocab);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    const TokenBatch batch{.inputs = prefixes.data(), .targets = nullptr, .batch = kBatch, .sequence = length};
    Arena arena = Arena::Create(*loaded.device, PlanLastLogits(*loaded.model, kBatch, length).arena_bytes).value();
    ASSERT_TRUE(loaded.model->LastLogits(batch, loaded.Context(arena), logits.data()).ok());
    EXPECT_LT(RelativeError(logits, expected), 3e-6) << "prefix of " << length;
  }
}

void GoldenTest::ExpectWeights(Trainer& trainer, const ParameterLayout& layout) {
  std::vector<float> weights(layout.elements());
  ASSERT_TRUE(trainer.WithWeights([&](const ReadWeightsFn& read) { return read(0, absl::MakeSpan(weights)); }).ok());
  ExpectParameters(std::move(weights), "final.", layout);
}

void GoldenTest::ExpectParameters(std::vector<float> weights, const std::string& prefix,
                                  const ParameterLayout& layout) {
  std::vector<float> expected = GoldenParameters(layout, prefix);
  // A key bias shifts all scores of a query alike, so its gradient is zero but for rounding, which AdamW scales up to
  // full steps in a direction of chance: nothing to compare. (With rotary positions it would have a gradient.)
  for (const ParameterSpec& p : layout.parameters()) {
    if (config_.position == PositionKind::kRope || !p.name.ends_with("attention.qkv.bias")) continue;
    const int64_t first = p.offset + config_.num_heads * config_.head_dim;
    for (int64_t i = first; i < first + config_.num_kv_heads * config_.head_dim; ++i) weights[i] = expected[i] = 0;
  }
  for (const ParameterSpec& p : layout.parameters()) {
    const auto of = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + p.offset, all.begin() + p.offset + p.shape.elements());
    };
    EXPECT_LT(RelativeError(of(weights), of(expected)), mixture() ? 3e-4 : 1e-4) << p.name;
  }
  EXPECT_LT(RelativeError(weights, expected), mixture() ? 3e-5 : 1e-5);
}

TEST_P(GoldenTest, Logits) { ExpectLogits(); }

void GoldenTest::ExpectLossAndGradients(DType dtype) {
  const bool exact = dtype == DType::kF32;
  const ParameterLayout layout = TransformerLayout(config_);
  const std::vector<float> expected = GoldenParameters(layout, "grad.");
  const std::vector<int32_t> inputs = GoldenTokens("inputs", 0), targets = GoldenTokens("targets", 0);
  const TokenBatch batch{.inputs = inputs.data(), .targets = targets.data(), .batch = kBatch, .sequence = length_};
  Loaded loaded(config_, dtype, LoadedWeights(layout));
  Arena arena = Arena::Create(*loaded.device, PlanTraining(*loaded.model, kBatch, length_).arena_bytes).value();
  std::vector<float> losses(num_tokens());
  ASSERT_TRUE(
      loaded.model
          ->ForwardBackward(batch, loaded.Context(arena, 1.0f / static_cast<float>(num_tokens())), losses.data())
          .ok());
  double loss = 0;
  for (float l : losses) loss += l / static_cast<double>(num_tokens());
  EXPECT_NEAR(loss, Golden("loss", 0, 1)[0], exact ? 5e-6 : 0.05);
  const std::vector<float> gradients = loaded.Gradients();
  const double norm = Norm(expected);
  const bool both = config_.norm_position == NormPosition::kBoth;
  for (const ParameterSpec& p : layout.parameters()) {
    if (!exact && mixture()) break;
    const auto of = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + p.offset, all.begin() + p.offset + p.shape.elements());
    };
    // Some gradients are nothing but rounding: of a router whose one choice has the weight 1 always.
    const double rounding = 1e-7 * norm, p_norm = Norm(of(expected));
    EXPECT_LE(Distance(of(gradients), of(expected)), (exact ? 1e-5 : both ? 0.2 : 0.08) * p_norm + rounding) << p.name;
  }
  // A group of experts on the edge takes all of its own with it. Norms at the end of branches round once more each way;
  // with others before, PyTorch's own gradients in bf16 of a model that is 20 wide are off by 0.07, in fp32 by 2e-6.
  const double dense = both ? 0.11 : config_.norm_position == NormPosition::kAfter ? 0.045 : 0.03;
  // Beside attention with sinks, whose output is rounded twice; PyTorch's own are off by 0.087 there.
  const double of_mixture = config_.router_groups > 1 ? 0.12 : config_.attention_sinks ? 0.085 : 0.06;
  const double in_bf16 = mixture() ? of_mixture : dense;
  EXPECT_LT(Distance(gradients, expected), norm * (!exact ? in_bf16 : both ? 6e-6 : 3e-6));
}

TEST_P(GoldenTest, LossAndGradients) { ExpectLossAndGradients(DType::kF32); }

TEST_P(GoldenTest, LossAndGradientsInBf16) {
  if (mixture() && IsTried()) GTEST_SKIP() << "how many tokens go to other experts is known of no other model";
  ExpectLossAndGradients(DType::kBF16);
}

TEST_P(GoldenTest, TenTrainingSteps) {
  std::vector<float> adamw{1e-2F, 1e-8F};
  if (golden_->entries().contains("steps.adamw")) adamw = Golden("steps.adamw", 0, 2);
  const auto device = MakeCpuDevice(2);
  const auto model = MakeTransformer(config_, {.compute_dtype = DType::kF32}, *device).value();
  TrainerOptions options{
      .batch = {.sequence_length = length_, .microbatch_size = kBatch, .microbatches = 1},
      .optimizer =
          {.lr = adamw[0], .beta1 = 0.9, .beta2 = 0.95, .eps = adamw[1], .weight_decay = 0.1, .grad_clip_norm = 1.0},
      .schedule = {.name = ScheduleKind::kConstant, .warmup_steps = 0},
      .total_steps = kSteps,
      .arena_bytes = PlanTraining(*model, kBatch, length_).arena_bytes,
      .initial_weights = ReaderOf(LoadedWeights(model->layout()))};
  const auto trainer = Trainer::Create(*model, *device, options).value();
  ASSERT_TRUE(trainer->EnterWorld({}, {}).ok());
  const std::vector<float> losses = Golden("steps.losses", 0, kSteps), norms = Golden("steps.norms", 0, kSteps);
  for (int64_t i = 0; i < kSteps; ++i) {
    const auto source = [&](int64_t) -> absl::StatusOr<Microbatch> {
      return Microbatch{.batch = kBatch,
                        .sequence = length_,
                        .inputs = GoldenTokens("steps.inputs", i * num_tokens()),
                        .targets = GoldenTokens("steps.targets", i * num_tokens()),
                        .step = static_cast<uint32_t>(i + 1)};
    };
    const auto result = trainer->Prepare({i + 1, {1}}, source, {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_NEAR(result->loss, losses[i], 1e-5 * losses[i]) << "step " << i + 1;
    EXPECT_NEAR(result->grad_norm, norms[i], 3e-5 * norms[i]) << "step " << i + 1;
    trainer->Commit(*result);
  }
  ExpectWeights(*trainer, model->layout());
}

void GoldenTest::ExpectTraining(const OptimizerConfig& optimizer, const std::string& file) {
  constexpr int64_t kMicrobatches = 3;
  config_.dropout = 0.15;
  const auto device = MakeCpuDevice(2);
  const auto model = MakeTransformer(config_, {.compute_dtype = DType::kF32}, *device).value();
  TrainerOptions options{
      .batch = {.sequence_length = length_, .microbatch_size = kBatch, .microbatches = kMicrobatches},
      .optimizer = optimizer,
      .schedule = {.name = ScheduleKind::kCosine, .warmup_steps = 4, .min_lr_ratio = 0.1},
      .total_steps = kSteps,
      .seed = 0x9E3779B97F4A7C15,
      .arena_bytes = PlanTraining(*model, kBatch, length_).arena_bytes,
      .initial_weights = ReaderOf(LoadedWeights(model->layout()))};
  const auto trainer = Trainer::Create(*model, *device, options).value();
  ASSERT_TRUE(trainer->EnterWorld({}, {}).ok());
  golden_ = SafetensorsReader::Open(directory_ + "/" + file).value();
  const std::vector<float> losses = Golden("losses", 0, kSteps), norms = Golden("norms", 0, kSteps),
                           lrs = Golden("lrs", 0, kSteps);
  for (int64_t i = 0; i < kSteps; ++i) {
    const auto source = [&](int64_t index) -> absl::StatusOr<Microbatch> {
      const int64_t first = (i * kMicrobatches + index) * num_tokens();
      return Microbatch{.batch = kBatch,
                        .sequence = length_,
                        .inputs = GoldenTokens("inputs", first),
                        .targets = GoldenTokens("targets", first),
                        .step = static_cast<uint32_t>(i + 1),
                        .index = static_cast<uint32_t>(index)};
    };
    const auto result = trainer->Prepare({i + 1, {kMicrobatches}}, source, {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_NEAR(result->loss, losses[i], 1e-5 * losses[i]) << "step " << i + 1;
    EXPECT_NEAR(result->grad_norm, norms[i], 3e-5 * norms[i]) << "step " << i + 1;
    EXPECT_NEAR(result->lr, lrs[i], 1e-6 * lrs[i]) << "step " << i + 1;
    trainer->Commit(*result);
  }
  ExpectWeights(*trainer, model->layout());
  if (optimizer.ema_decay == 0) return;
  std::vector<float> average;  // the last plane
  for (int chunk = 0; chunk < static_cast<int>(model->layout().chunks().size()); ++chunk) {
    const Chunk& what = model->layout().chunks()[chunk];
    std::vector<float> values(trainer->state_layout().ChunkBytes(what) / sizeof(float));
    trainer->state().ReadChunk(chunk, reinterpret_cast<std::byte*>(values.data()));
    average.insert(average.end(), values.end() - what.elements, values.end());
  }
  ExpectParameters(std::move(average), "ema.", model->layout());
}

/// What a training pass does with experts besides the model's own arithmetic (tests/golden/make_mixture_golden.py).
class MixtureGoldenTest : public GoldenTest {
 protected:
  void SetUp() override {
    GoldenTest::SetUp();
    mixture_ = SafetensorsReader::Open(directory_ + "/mixture.safetensors").value();
  }
  /// A pass, after which Golden is of mixture.safetensors.
  Passed RunPass() {
    Passed passed = ForwardBackward();
    golden_ = std::move(mixture_);
    return passed;
  }

 private:
  std::unique_ptr<SafetensorsReader> mixture_;
};

TEST_P(MixtureGoldenTest, Capacity) {
  config_.expert_capacity = 0.75;
  Passed passed = RunPass();
  double loss = 0;
  for (float l : passed.losses) loss += l / static_cast<double>(num_tokens());
  EXPECT_NEAR(loss, Golden("capacity.loss", 0, 1)[0], 5e-6);
  const std::vector<float> dropped = Golden("capacity.dropped", 0, config_.NumExpertLayers());
  for (size_t layer = 0; layer < dropped.size(); ++layer) {
    EXPECT_EQ(static_cast<float>(passed.Of<int64_t>(4)[layer]), dropped[layer]);
  }
  EXPECT_LT(RelativeError(passed.gradients, GoldenParameters(TransformerLayout(config_), "capacity.grad.")), 3e-6);
}

TEST_P(MixtureGoldenTest, LossOfAllLayersPooled) {
  config_.router_balance_loss = 0.25;
  config_.router_balance = RouterBalanceKind::kPooled;
  ASSERT_EQ(config_.NumExpertLayers(), 2);
  Passed passed = RunPass();
  EXPECT_NEAR((passed.Of<double>(0)[0] + passed.Of<double>(0)[1]) / 2, Golden("aux_loss", 0, 1)[0], 1e-5);
  EXPECT_LT(RelativeError(passed.gradients, GoldenParameters(TransformerLayout(config_), "aux.grad.")), 3e-6);
}

INSTANTIATE_TEST_SUITE_P(Models, MixtureGoldenTest, ::testing::Values("tiny_mixtral"),
                         [](const auto& tested) { return tested.param; });

/// transformers pools the layers of a model; of a model with one layer of experts, a mean over layers is the same.
class AuxiliaryLossGoldenTest : public GoldenTest {};

TEST_P(AuxiliaryLossGoldenTest, LossAndGradients) {
  if (!mixture()) GTEST_SKIP() << "no experts";
  if (config_.family == "glm4_moe") GTEST_SKIP() << "transformers computes no such loss";
  config_.router_balance_loss = 0.25;
  const int64_t layers = config_.NumExpertLayers();
  if (layers > 1) config_.router_balance = RouterBalanceKind::kPooled;
  const ParameterLayout layout = TransformerLayout(config_);
  Passed passed = ForwardBackward();
  const double* loss = passed.Of<double>(0);
  const double expected = Golden("aux_loss", 0, 1)[0];
  EXPECT_NEAR(std::accumulate(loss, loss + layers, 0.0) / static_cast<double>(layers), expected, 1e-5 * expected);
  EXPECT_LT(RelativeError(passed.gradients, GoldenParameters(layout, "aux.grad.")), 3e-6);
  if (config_.experts_per_token == config_.num_experts) return;  // then all loads are equal: a constant
  EXPECT_GT(RelativeError(passed.gradients, GoldenParameters(layout, "grad.")), 1e-3);  // it does matter
}

INSTANTIATE_TEST_SUITE_P(Models, AuxiliaryLossGoldenTest, ::testing::Values("tiny_qwen3_moe"),
                         [](const auto& tested) { return tested.param; });

/// Directories that tests/golden/try_models.py has made, as HOLDFAST_TRIED_MODELS lists them: "/a/x:/a/y".
std::vector<std::string> TriedModels() {
  const char* listed = std::getenv("HOLDFAST_TRIED_MODELS");
  return absl::StrSplit(listed != nullptr ? listed : "", ':', absl::SkipEmpty());
}
std::string TriedName(const ::testing::TestParamInfo<std::string>& tested) {
  return std::filesystem::path(tested.param).filename();
}

INSTANTIATE_TEST_SUITE_P(Tried, AuxiliaryLossGoldenTest, ::testing::ValuesIn(TriedModels()), TriedName);
INSTANTIATE_TEST_SUITE_P(Tried, GoldenTest, ::testing::ValuesIn(TriedModels()), TriedName);

class StackedGoldenTest : public GoldenTest {};

TEST_P(StackedGoldenTest, WeightsAreThoseOfTheExpertsByThemselves) {
  const ParameterLayout layout = TransformerLayout(config_);
  EXPECT_EQ(LoadedWeights(layout, directory_ + "/stacked"), LoadedWeights(layout));
}

// As if the files lacked one of six.
TEST_P(StackedGoldenTest, AMissingExpertIsNamed) {
  ++config_.num_experts;
  const ParameterLayout layout = TransformerLayout(config_);
  std::vector<float> values(layout.elements());
  const auto load = [&](const std::string& directory) {
    return std::string(
        LoadWeights(directory, layout, HuggingFaceTensorMap(config_, layout), nullptr, absl::MakeSpan(values))
            .message());
  };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const std::string missing = load(directory_), stacked = load(directory_ + "/stacked");
  EXPECT_TRUE(contains(missing, "model.layers.0.block_sparse_moe.experts.5.w1.weight\" is missing")) << missing;
  EXPECT_TRUE(contains(stacked, "model.layers.0.mlp.experts.gate_up_proj\" has shape [5, 32, 32]")) << stacked;
}

INSTANTIATE_TEST_SUITE_P(Models, StackedGoldenTest, ::testing::Values("tiny_mixtral"),
                         [](const auto& tested) { return tested.param; });

/// Experts in MXFP4, and what `transformers` makes of them (tests/golden/make_mxfp4_golden.py).
class Mxfp4GoldenTest : public GoldenTest {};

TEST_P(Mxfp4GoldenTest, WeightsAreThoseOfTransformers) {
  const ParameterLayout layout = TransformerLayout(config_);
  const std::vector<float> weights = LoadedWeights(layout);
  int compared = 0;
  for (const ExternalTensor& tensor : HuggingFaceTensorMap(config_, layout)) {
    const std::string name = "values." + tensor.name;
    if (!golden_->entries().contains(name)) continue;
    const ParameterSpec& p = layout.parameters()[tensor.parameter];
    const FilePlace place = PlaceOf(tensor, p.shape.cols());
    const std::vector<float> values = Golden(name, 0, tensor.shape.elements());
    const float* const ours = &weights[p.offset + tensor.first_row * p.shape.cols()];
    for (int64_t r = 0; r < tensor.num_rows; ++r) {
      for (int64_t c = 0; c < p.shape.cols(); ++c) {
        ASSERT_EQ(ours[r * p.shape.cols() + c], values[place.first + r * place.row_step + c * place.col_step])
            << p.name << ", row " << tensor.first_row + r << ", column " << c;
      }
    }
    ++compared;
  }
  EXPECT_EQ(compared, 2 * 3 * 3) << "gates, what they multiply, and down of three experts in two layers";
}

TEST_P(Mxfp4GoldenTest, Logits) { ExpectLogits(); }

INSTANTIATE_TEST_SUITE_P(Models, Mxfp4GoldenTest, ::testing::Values("mxfp4_gpt_oss"),
                         [](const auto& tested) { return tested.param; });

class TrainingGoldenTest : public GoldenTest {};

TEST_P(TrainingGoldenTest, ScheduleAndDropout) {
  ExpectTraining({.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .grad_clip_norm = 1.0},
                 "training.safetensors");
}

TEST_P(TrainingGoldenTest, Muon) {
  ExpectTraining({.name = OptimizerKind::kMuon, .lr = 1e-2, .momentum = 0.95, .weight_decay = 0.1, .ema_decay = 0.9},
                 "training_muon.safetensors");
}

class LionGoldenTest : public GoldenTest {};

TEST_P(LionGoldenTest, Lion) {
  ExpectTraining({.name = OptimizerKind::kLion, .lr = 1e-2, .beta2 = 0.99, .weight_decay = 0.1, .ema_decay = 0.9},
                 "training_lion.safetensors");
}

INSTANTIATE_TEST_SUITE_P(Models, LionGoldenTest, ::testing::Values("tiny_llama"),
                         [](const auto& tested) { return tested.param; });

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest,
                         ::testing::Values("tiny_gpt2", "tiny_llama", "tiny_llama31", "tiny_llama_linear",
                                           "tiny_llama_yarn", "tiny_qwen3_yarn", "tiny_mistral", "tiny_phi3",
                                           "tiny_phi4_mini", "tiny_qwen2", "tiny_qwen2_window", "tiny_qwen3",
                                           "tiny_qwen3_window", "tiny_mixtral", "tiny_qwen2_moe", "tiny_qwen3_moe",
                                           "tiny_olmoe", "tiny_olmoe_clip", "tiny_glm4_moe", "tiny_olmo2", "tiny_olmo3",
                                           "tiny_gemma3", "tiny_gpt_oss"),
                         [](const auto& tested) { return tested.param; });

INSTANTIATE_TEST_SUITE_P(Models, TrainingGoldenTest, ::testing::Values("tiny_gpt2", "tiny_llama"),
                         [](const auto& tested) { return tested.param; });

/// Models that Holdfast saved, with the logits of `transformers` (tests/golden/make_export_golden.py).
class ExportGoldenTest : public GoldenTest {};

TEST_P(ExportGoldenTest, Logits) { ExpectLogits(); }

INSTANTIATE_TEST_SUITE_P(Models, ExportGoldenTest,
                         ::testing::Values("exported_gpt2", "exported_llama", "exported_llama31", "exported_mistral",
                                           "exported_qwen2", "exported_qwen3", "exported_mixtral", "exported_qwen2_moe",
                                           "exported_qwen3_moe", "exported_olmoe", "exported_glm4_moe", "exported_phi3",
                                           "exported_gpt_oss"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace holdfast
