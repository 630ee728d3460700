// Proves numbers of the trainer that every world shares, so that comparing worlds cannot show them wrong: a step's
// learning rate and that it is the one applied, and validation as a mean over tokens; and that snapshots survive what
// happens to worlds in which no step was committed.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "framework/train/trainer.h"
#include "models/plan.h"
#include "models/transformer.h"
#include "tests/framework/comm/in_process.h"
#include "tests/framework/train/digest_of.h"
#include "tests/framework/train/tiny_model.h"

namespace holdfast {
namespace {

constexpr int64_t kVocab = 61, kSequence = 12, kBatch = 2;
constexpr size_t kPlenty = size_t{1} << 30;

class TrainerValues : public testing::Test {
 protected:
  static constexpr double kLr = 0.004;

  /// One rank's process, so to speak.
  struct Process {
    explicit Process(int64_t batch = kBatch) : device(MakeCpuDevice(1)) {
      model = MakeTransformer(TinyTransformer(kVocab, kSequence), {.compute_dtype = DType::kF32}, *device).value();
      const PassPlan training = PlanTraining(*model, batch, kSequence);
      TrainerOptions options;
      options.batch = {.sequence_length = kSequence, .microbatch_size = batch, .microbatches = 1};
      options.optimizer.lr = kLr;
      options.optimizer.weight_decay = 0;
      options.schedule = {.name = ScheduleKind::kLinear, .warmup_steps = 4, .min_lr_ratio = 0};
      options.total_steps = 10;
      options.seed = 7;
      options.arena_bytes = training.arena_bytes;
      options.training_schedule = training.schedule;
      options.evaluation_schedule = PlanEvaluation(*model, batch, kSequence).schedule;
      trainer = Trainer::Create(*model, *device, options).value();
    }
    std::unique_ptr<Device> device;
    std::unique_ptr<Model> model;
    std::unique_ptr<Trainer> trainer;
  };

  /// `counted` of its targets count.
  static Microbatch MicrobatchOf(int64_t index, int64_t counted = kBatch * kSequence) {
    Microbatch m{.batch = kBatch, .sequence = kSequence, .inputs = {}, .targets = {}};
    for (int64_t i = 0; i < kBatch * kSequence; ++i) {
      m.inputs.push_back(static_cast<int32_t>((i * 7 + index * 13) % kVocab));
      m.targets.push_back(i < counted ? static_cast<int32_t>((i * 11 + index * 29) % kVocab) : -1);
    }
    return m;
  }

  static StepResult Prepare(Trainer& trainer, int64_t step) {
    const auto result =
        trainer.Prepare({step, {1}}, [&](int64_t) -> absl::StatusOr<Microbatch> { return MicrobatchOf(step); }, {});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : StepResult{};
  }
  static void Step(Trainer& trainer, int64_t step) { trainer.Commit(Prepare(trainer, step)); }

  static std::vector<float> Weights(Process& process) {
    std::vector<float> weights(static_cast<size_t>(process.model->layout().elements()));
    EXPECT_TRUE(
        process.trainer->WithWeights([&](const ReadWeightsFn& read) { return read(0, absl::MakeSpan(weights)); }).ok());
    return weights;
  }
};

TEST_F(TrainerValues, AStepHasTheLearningRateOfItsOwnPlaceInTheSchedule) {
  Process process;
  Trainer& trainer = *process.trainer;
  ASSERT_TRUE(trainer.EnterWorld({}, {}).ok());
  const std::vector<double> parts{1. / 4, 2. / 4, 3. / 4, 1, 5. / 6, 4. / 6, 3. / 6, 2. / 6, 1. / 6, 0};
  for (size_t step = 1; step <= parts.size(); ++step) {
    EXPECT_NEAR(Prepare(trainer, static_cast<int64_t>(step)).lr, kLr * parts[step - 1], 1e-12) << step;
  }
  // AdamW's first update is the learning rate in the direction of each gradient.
  const std::vector<float> before = Weights(process);
  Step(trainer, 1);
  const std::vector<float> after = Weights(process);
  float largest = 0;
  for (size_t i = 0; i < before.size(); ++i) largest = std::max(largest, std::abs(after[i] - before[i]));
  EXPECT_NEAR(largest, kLr / 4, kLr * 1e-3);
}

TEST_F(TrainerValues, WeightsReadInPiecesAreThoseReadAtOnce) {
  Process process;
  ASSERT_TRUE(process.trainer->EnterWorld({}, {}).ok());
  const std::vector<float> whole = Weights(process);
  std::vector<float> pieces(whole.size());
  const absl::Status status = process.trainer->WithWeights([&](const ReadWeightsFn& read) {
    for (size_t first = 0, size = 1; first < pieces.size(); first += size, size = size * 3 + 1) {
      size = std::min(size, pieces.size() - first);
      const absl::Status piece = read(static_cast<int64_t>(first), absl::MakeSpan(pieces).subspan(first, size));
      if (!piece.ok()) return piece;
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(pieces == whole);
}

// A step whose second sequence is not to be learned is a step without it.
TEST_F(TrainerValues, AStepIsTheMeanOverWhatIsToBeLearned) {
  Process two, one(1);
  std::vector<StepResult> results;
  for (auto& [process, rows] : {std::pair(&two, kBatch * kSequence), std::pair(&one, kSequence)}) {
    const auto source = [rows = rows](int64_t) -> absl::StatusOr<Microbatch> {
      Microbatch m = MicrobatchOf(1, kSequence);
      m.batch = rows / kSequence;
      m.inputs.resize(static_cast<size_t>(rows));
      m.targets.resize(static_cast<size_t>(rows));
      return m;
    };
    ASSERT_TRUE(process->trainer->EnterWorld({}, {}).ok());
    const auto result = process->trainer->Prepare({1, {1}}, source, {});
    ASSERT_TRUE(result.ok()) << result.status();
    results.push_back(*result);
    process->trainer->Commit(*result);
  }
  EXPECT_EQ(results[0].counted, kSequence);
  ASSERT_EQ(results[0].figures.size(), 1u);
  EXPECT_EQ(results[0].figures[0], (Figure{.name = "learned_tokens", .values = {double{kSequence}}}));
  EXPECT_TRUE(results[1].figures.empty()) << "where all tokens are learned nothing is said of it";
  EXPECT_NEAR(results[0].loss, results[1].loss, 1e-6);
  EXPECT_NEAR(results[0].grad_norm / results[1].grad_norm, 1, 1e-5);
  const std::vector<float> with = Weights(two), without = Weights(one);
  float largest = 0;
  for (size_t i = 0; i < with.size(); ++i) largest = std::max(largest, std::abs(with[i] - without[i]));
  EXPECT_LT(largest, 1e-5);
}

TEST_F(TrainerValues, AStepWithNothingToLearnChangesNoWeight) {
  Process process;
  ASSERT_TRUE(process.trainer->EnterWorld({}, {}).ok());
  const std::vector<float> before = Weights(process);
  const auto nothing = [](int64_t) -> absl::StatusOr<Microbatch> { return MicrobatchOf(1, 0); };
  const auto result = process.trainer->Prepare({1, {1}}, nothing, {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->loss, 0);
  process.trainer->Commit(*result);
  EXPECT_EQ(Weights(process), before);
}

// Microbatches of 24, 5, 0 and 17 counted tokens.
TEST_F(TrainerValues, ValidationIsAMeanOverTokensNotOverMicrobatches) {
  const std::vector<int64_t> counted{24, 5, 0, 17};
  const auto source = [&](int64_t i) -> absl::StatusOr<Microbatch> {
    return MicrobatchOf(i, counted[static_cast<size_t>(i)]);
  };
  Process one;
  ASSERT_TRUE(one.trainer->EnterWorld({}, {}).ok());
  double sum = 0, tokens = 0;
  for (size_t i = 0; i < counted.size(); ++i) {
    if (counted[i] == 0) continue;
    const auto only = [&](int64_t) { return source(static_cast<int64_t>(i)); };
    sum += one.trainer->Evaluate(1, only, {}).value() * static_cast<double>(counted[i]);
    tokens += static_cast<double>(counted[i]);
  }
  const double expected = sum / tokens;
  const double all = one.trainer->Evaluate(4, source, {}).value();
  EXPECT_NEAR(all, expected, 1e-9);

  Process first, second;
  auto communicators = MakeInProcessWorld(2, 1), groups = MakeInProcessWorld(2, 1);
  std::vector<double> losses(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<size_t>(rank);
      Trainer& trainer = *(rank == 0 ? first : second).trainer;
      WorldCommunicators mine;
      mine.world = std::move(communicators[r]);
      mine.group = std::move(groups[r]);
      TrainerWorld world;
      world.placement = Placement({"a", "b"}, {});
      world.rank = rank;
      ASSERT_TRUE(trainer.EnterWorld(world, std::move(mine)).ok());
      losses[r] = trainer.Evaluate(4, source, {}).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(losses, (std::vector<double>{all, all}));
}

/// Its loss is one, its gradients are what it is told.
class GradientModel final : public LanguageModel {
 public:
  explicit GradientModel(float gradient) : gradient_(gradient), layout_(Layout()) {}
  const ParameterLayout& layout() const override { return layout_; }
  DType compute_dtype() const override { return DType::kF32; }
  absl::Status ForwardBackward(const Batch& batch, const PassContext& context, float* losses) override {
    std::fill_n(losses, batch.batch * batch.sequence, 1.0f);
    const auto gradients = context.store->BeginGradients(0);
    if (!gradients.ok()) return gradients.status();
    std::fill_n((*gradients)[0].f32(), layout_.elements(), gradient_);
    return context.store->EndGradients(0);
  }
  absl::Status Evaluate(const Batch&, const PassContext&, float*) override { return absl::OkStatus(); }
  absl::Status LastLogits(const TokenBatch&, const PassContext&, float*) override { return absl::OkStatus(); }

 private:
  static ParameterLayout Layout() {
    ParameterSpec weight;
    weight.name = "weight";
    weight.shape = Shape({8, 16});
    return ParameterLayout({weight}, {"model"});
  }
  float gradient_;
  ParameterLayout layout_;
};

TEST_F(TrainerValues, AnInfiniteGradientIsNotPreparedThoughTheLossIsFinite) {
  const auto device = MakeCpuDevice(1);
  for (const float gradient : {0.5f, std::numeric_limits<float>::infinity()}) {
    GradientModel model(gradient);
    TrainerOptions options;
    options.batch = {.sequence_length = kSequence, .microbatch_size = kBatch, .microbatches = 1};
    options.total_steps = 1;
    options.arena_bytes = 1024;
    const auto trainer = Trainer::Create(model, *device, options).value();
    ASSERT_TRUE(trainer->EnterWorld({}, {}).ok());
    const auto result =
        trainer->Prepare({1, {1}}, [&](int64_t) -> absl::StatusOr<Microbatch> { return MicrobatchOf(0); }, {});
    EXPECT_EQ(result.ok(), std::isfinite(gradient)) << result.status();
  }
}

// --- snapshots of worlds in which nothing was committed
// ---------------------------------------------------------------

class SnapshotOfAWorld : public TrainerValues {
 protected:
  SnapshotOfAWorld() {
    EXPECT_TRUE(trainer_.EnterWorld({}, {}).ok());
    Step(trainer_, 1);
  }
  /// Of one, from one: the state is copied.
  void Enter(bool source_is_entered) {
    TrainerWorld next;
    next.source = Placement({"local"}, {});
    next.source_ranks = {0};
    next.source_is_entered = source_is_entered;
    ASSERT_TRUE(trainer_.EnterWorld(next, {}).ok());
  }
  uint64_t Read(Snapshot& snapshot) {
    std::vector<uint64_t> digests(process_.model->layout().chunks().size(), 0);
    while (const auto chunk = snapshot.Next()) digests[static_cast<size_t>(chunk->chunk)] = chunk->digest;
    return StateDigest(digests);
  }

  Process process_;
  Trainer& trainer_ = *process_.trainer;
};

TEST_F(SnapshotOfAWorld, OnlyEnteredIsAbandonedWithThatWorld) {
  Enter(/*source_is_entered=*/false);
  const auto snapshot = trainer_.StartSnapshot(kPlenty);
  Enter(/*source_is_entered=*/false);  // anew, from the world before
  ASSERT_TRUE(snapshot->abandoned());
  EXPECT_FALSE(snapshot->Next().has_value());
}

TEST_F(SnapshotOfAWorld, OnlyEnteredLivesOnIfThatWorldIsTheSource) {
  Enter(/*source_is_entered=*/false);
  const uint64_t expected = DigestOf(trainer_);
  const auto snapshot = trainer_.StartSnapshot(kPlenty);
  Enter(/*source_is_entered=*/true);
  ASSERT_FALSE(snapshot->abandoned());
  Step(trainer_, 2);
  EXPECT_EQ(Read(*snapshot), expected);
}

// The state it reads goes away with the second change of the world, so it is copied first.
TEST_F(SnapshotOfAWorld, IsCopiedBeforeAnEnteredWorldTakesTheSourcesPlace) {
  const uint64_t expected = DigestOf(trainer_);
  const auto snapshot = trainer_.StartSnapshot(kPlenty);
  Enter(/*source_is_entered=*/false);
  EXPECT_EQ(snapshot->stall_seconds(), 0) << "it is still there";
  Enter(/*source_is_entered=*/true);
  ASSERT_FALSE(snapshot->abandoned());
  ASSERT_GT(snapshot->stall_seconds(), 0) << "nothing was copied";
  EXPECT_EQ(Read(*snapshot), expected);
}

}  // namespace
}  // namespace holdfast
