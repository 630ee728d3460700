// A config becomes data, device, model and trainer, or an error that says what is wrong; a process that only starts a
// run reads no token for it. Also what of a config is resolved before that: its GEMM table, its arithmetic.

#include "models/runtime/training_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/out_of_memory.h"
#include "framework/storage/atomic_file.h"
#include "models/runtime/gemm_table.h"
#include "models/runtime/make_model.h"
#include "models/runtime/memory_estimate.h"
#include "models/runtime/run_device.h"
#include "tests/models/runtime/tiny_run.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

using TrainingRuntimeTest = TinyRun;

TEST_F(TrainingRuntimeTest, OpensWhatTheConfigSays) {
  const Config config = ConfigOf({"data.validation=[" + (root_ / "train.bin") + "]"});
  const auto runtime = OpenTraining(config, {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  EXPECT_EQ((*runtime)->data.training.num_tokens(), 4000);
  EXPECT_TRUE((*runtime)->data.validation.has_value());
  ASSERT_NE((*runtime)->trainer, nullptr);
  const TrainingOutline opened = OutlineOf(**runtime);
  const auto checked = CheckTraining(config, 1);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->device, opened.device);
  EXPECT_EQ(checked->layout.elements(), opened.layout.elements());
  EXPECT_EQ(checked->data.tokens, opened.data.tokens);
  EXPECT_EQ(checked->data.samples, opened.data.samples);
}

TEST_F(TrainingRuntimeTest, OnlyAWorkerReadsTokens) {
  const Config config = ConfigOf();
  ASSERT_TRUE(OpenTraining(config, {}).ok());
  WriteTokens("train.bin", kVocabulary);
  EXPECT_TRUE(absl::IsOutOfRange(OpenTraining(config, {}).status()));
  EXPECT_TRUE(CheckTraining(config, 2).ok());
}

TEST_F(TrainingRuntimeTest, TheDataDigestIsOfTokensNotOfPlaces) {
  WriteTokens("copy.bin", 97);
  WriteTokens("other.bin", 98);
  const auto digest = [&](const std::string& name) {
    return OpenTrainingData(ConfigOf({"data.train=[" + (root_ / name) + "]"}))->digest();
  };
  EXPECT_EQ(digest("train.bin"), digest("copy.bin"));
  EXPECT_NE(digest("train.bin"), digest("other.bin"));
}

// Before the first step, not by the first validation after hours of training.
TEST_F(TrainingRuntimeTest, ValidationWithNothingThatIsLearnedIsRefused) {
  constexpr int64_t kTokens = 200;
  const auto open = [&](int64_t learned, const std::string& limit) {
    LocalFileAccess files;
    auto writer = TokenFileWriter::Create(files, root_ / "masked.bin", {.bytes_per_token = 4, .has_marks = true});
    EXPECT_TRUE(writer.ok()) << writer.status();
    std::vector<uint32_t> tokens(kTokens, kNotLearned | 5);
    if (learned >= 0) tokens[static_cast<size_t>(learned)] = 5;
    EXPECT_TRUE((*writer)->AppendMarked(tokens).ok());
    EXPECT_TRUE((*writer)->Finish().ok());
    return OpenTrainingData(ConfigOf({"data.validation=[" + (root_ / "masked.bin") + "]", limit})).status();
  };
  const absl::Status none = open(-1, "train.validation_microbatches=0");
  EXPECT_TRUE(absl::IsFailedPrecondition(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("no token that is learned in the 6 microbatches"));
  // Two samples of 16 targets to a microbatch, which are the inputs moved by one.
  EXPECT_TRUE(open(33, "train.validation_microbatches=2").ok());
  EXPECT_TRUE(open(64, "train.validation_microbatches=2").ok());
  const absl::Status beyond = open(65, "train.validation_microbatches=2");
  EXPECT_TRUE(absl::IsFailedPrecondition(beyond)) << beyond;
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("or raise train.validation_microbatches"));
  EXPECT_TRUE(open(65, "train.validation_microbatches=0").ok());
}

TEST_F(TrainingRuntimeTest, TooLittleMemoryIsToldWithItsLargestParts) {
  const MemoryEstimate estimate{.weights = 1e18};
  const absl::Status status = CheckHostMemory(estimate, {}, 2);
  EXPECT_TRUE(IsOutOfMemory(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("each worker of this run needs"));
  // Workers of the smallest model are processes, too.
  const absl::Status many = CheckHostMemory(MemoryEstimate{.weights = 1}, {}, 10'000'000);
  EXPECT_TRUE(IsOutOfMemory(many)) << many;
  EXPECT_THAT(std::string(many.message()), HasSubstr("start fewer workers on this machine"));
  const auto device = MakeDevice({});
  ASSERT_TRUE(device.ok()) << device.status();
  const auto model = MakeModel(ConfigOf({}), **device);
  ASSERT_TRUE(model.ok()) << model.status();
  const absl::Status evaluated = CheckHostMemory("my_model", (*model)->layout(), DType::kBF16, size_t{1} << 60);
  EXPECT_TRUE(IsOutOfMemory(evaluated)) << evaluated;
  EXPECT_THAT(
      std::string(evaluated.message()),
      ::testing::AllOf(HasSubstr("my_model needs "), HasSubstr("available; shorter or fewer sequences take less")));
  const absl::Status in_fp32 = CheckHostMemory("my_model", (*model)->layout(), DType::kF32, size_t{1} << 60);
  EXPECT_THAT(std::string(in_fp32.message()), HasSubstr("available; --dtype bf16 and shorter or fewer"));
}

// A tied embedding larger than all blocks: beside the sum, what a pass has open is no more than one gradient of the
// model.
TEST_F(TrainingRuntimeTest, AGradientThatIsOpenIsCountedOnce) {
  Config config = ConfigOf({"model.vocab_size=4096", "model.tie_embeddings=true", "model.num_layers=4",
                            "train.recompute=block", "batch.gradient_sum=chains"});
  const auto device = MakeDevice(config.train);
  ASSERT_TRUE(device.ok()) << device.status();
  const auto model = MakeModel(config, **device);
  ASSERT_TRUE(model.ok()) << model.status();
  const ParameterLayout& layout = (*model)->layout();
  const auto bytes = static_cast<double>(layout.elements()) * 4;
  const UnitSchedule schedule = PlanTraining(**model, 2, 16).schedule;
  config.batch.microbatches = 1;
  EXPECT_EQ(EstimateMemory(config, layout, 0, schedule).gradients, bytes);
  config.batch.microbatches = 2;
  const double gradients = EstimateMemory(config, layout, 0, schedule).gradients;
  EXPECT_GE(gradients, bytes);
  EXPECT_LE(gradients, 2 * bytes) << "a block of two is added up in one sum";
}

TEST_F(TrainingRuntimeTest, WorkersThatShareNoGpuAreCountedByMachine) {
  Config config = ConfigOf();
  config.parallel.transport = Transport::kNccl;
  EXPECT_TRUE(CheckGpus(config, 0).ok()) << "none of them is here";
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckGpus(config, 1 << 20)));
  EXPECT_EQ(WorkersOnGpuOf({.workers_here = 1}), 1);
}

TEST_F(TrainingRuntimeTest, AutoKeepsTheArithmeticOfTheRunThatIsThere) {
  Config before = ConfigOf();
  before.train.arithmetic = ArithmeticChoice::kPortable;
  ASSERT_TRUE(WriteFileAtomically(root_ / "config.yaml", PrintConfig(before)).ok());
  TrainConfig train = before.train;
  train.arithmetic = ArithmeticChoice::kAuto;
  ASSERT_TRUE(ResolveArithmetic(&train, root_ / "config.yaml").ok());
  EXPECT_EQ(train.arithmetic, ArithmeticChoice::kPortable);
  train.arithmetic = ArithmeticChoice::kAuto;
  ASSERT_TRUE(ResolveArithmetic(&train, "").ok());
  EXPECT_NE(train.arithmetic, ArithmeticChoice::kAuto) << "a resolved config names what was taken";
}

TEST_F(TrainingRuntimeTest, AGemmTableIsTheOneThatTheConfigWasResolvedWith) {
  TrainConfig train;
  EXPECT_EQ(ReadGemmTable(train).value(), "");
  train.gemm_table = root_ / "table";
  EXPECT_THAT(std::string(ResolveGemmTable(&train).message()), HasSubstr("holdfast tune"));
  ASSERT_TRUE(WriteFileAtomically(train.gemm_table, "products").ok());
  ASSERT_TRUE(ResolveGemmTable(&train).ok());
  EXPECT_EQ(train.gemm_table_digest, GemmTableDigest("products"));
  EXPECT_EQ(ReadGemmTable(train).value(), "products");
  ASSERT_TRUE(WriteFileAtomically(train.gemm_table, "others").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(ReadGemmTable(train).status()));
}

}  // namespace
}  // namespace holdfast
