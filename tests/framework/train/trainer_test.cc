// Proves the promise of the trainer at world size one: loss bits, gradient-norm bits and state digest depend on neither
// the number of threads, nor recomputation, nor the loader's threads, nor on steps that were begun and abandoned, nor,
// in portable arithmetic, on the processor: they are those of golden/portable_bits.txt, which every machine must give.

#include "framework/train/trainer.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "framework/data/loader.h"
#include "framework/tensor/kernel_digest.h"
#include "gtest/gtest.h"
#include "models/plan.h"
#include "models/transformer.h"
#include "tests/framework/base/temporary_directory.h"
#include "tests/framework/train/digest_of.h"
#include "tests/paths.h"

namespace holdfast {
namespace {

constexpr int64_t kVocab = 61, kSequence = 24, kSteps = 6;

std::string TokenPath() {
  static const TemporaryDirectory directory;
  static const std::string path = [] {
    std::string p = directory / "tokens.bin";
    LocalFileAccess files;
    auto writer = TokenFileWriter::Create(files, p, kVocab).value();
    std::vector<int32_t> tokens(2000);
    uint32_t state = 1;
    for (int32_t& token : tokens) {
      state = state * 1664525u + 1013904223u;
      token = static_cast<int32_t>((state >> 16) % 17 * 3 % kVocab);  // skewed, so that there is something to learn
    }
    EXPECT_TRUE(writer->Append(tokens).ok());
    EXPECT_TRUE(writer->Finish().ok());
    return p;
  }();
  return path;
}

struct Setting {
  std::string family = "gpt2";
  DType dtype = DType::kBF16;
  kernels::Arithmetic arithmetic = kernels::Arithmetic::kPortable;
  int threads = 1;
  bool recompute = false;
  int loader_threads = 1;
  int64_t microbatches = 3;
  double dropout = 0.1;
  bool abandon_each_step_once = false;
};

ModelConfig TinyModel(const Setting& setting) {
  ModelConfig m;
  m.family = setting.family;
  m.vocab_size = kVocab;
  m.max_sequence_length = kSequence;
  m.num_layers = 2;
  m.hidden_size = 32;
  m.num_heads = 4;
  m.num_kv_heads = 4;
  m.head_dim = 8;
  m.intermediate_size = 96;
  m.dropout = setting.dropout;
  if (setting.family == "qwen2_moe") {
    m.num_experts = 5;
    m.experts_per_token = 2;
    m.expert_intermediate_size = 40;
    m.shared_expert_intermediate_size = 24;
    m.shared_expert_gate = true;
  }
  if (setting.family != "gpt2") {
    m.num_kv_heads = 2;
    m.position = PositionKind::kRope;
    m.norm = NormType::kRmsNorm;
    m.activation = ActivationKind::kSwiglu;
    m.bias = false;
    m.tie_embeddings = false;
  }
  return m;
}

struct Trace {
  std::vector<uint32_t> loss_bits, norm_bits;
  std::vector<uint64_t> digests;
  std::vector<float> losses;
  friend bool operator==(const Trace& a, const Trace& b) {
    return a.loss_bits == b.loss_bits && a.norm_bits == b.norm_bits && a.digests == b.digests;
  }
};

Trace Train(const Setting& setting, int64_t steps = kSteps) {
  const auto device = MakeCpuDevice(setting.threads, setting.arithmetic);
  const auto model = MakeTransformer(TinyModel(setting),
                                     {.compute_dtype = setting.dtype, .recompute_blocks = setting.recompute}, *device)
                         .value();
  TrainerOptions options;
  options.batch = {.sequence_length = kSequence, .microbatch_size = 2, .microbatches = setting.microbatches};
  options.optimizer.lr = 3e-3;
  options.schedule.warmup_steps = 2;
  options.total_steps = steps;
  options.seed = 42;
  options.arena_bytes = PlanTraining(*model, 2, kSequence).arena_bytes;
  const auto trainer = Trainer::Create(*model, *device, options).value();
  EXPECT_TRUE(trainer->EnterWorld({}, {}).ok());

  const std::vector<std::string> paths{TokenPath()};
  const Dataset data = Dataset::Open(paths, kSequence, kVocab).value();
  const SampleOrder order(data.num_samples(), options.seed, true);
  const BatchShape shape{setting.microbatches, 2};
  Loader loader(data, order, {.shape = shape, .threads = setting.loader_threads});

  Trace trace;
  for (int64_t step = 1; step <= steps; ++step) {
    if (setting.abandon_each_step_once) {
      std::stop_source stop;
      const auto abandoned = trainer->Prepare(
          {step, {setting.microbatches}},
          [&](int64_t i) -> absl::StatusOr<Microbatch> {
            if (i + 1 == setting.microbatches) stop.request_stop();
            return ReadMicrobatch(data, order, shape, step, i);
          },
          stop.get_token());
      EXPECT_TRUE(absl::IsCancelled(abandoned.status())) << abandoned.status();
    }
    const auto result =
        trainer->Prepare({step, {setting.microbatches}}, [&](int64_t i) { return loader.Next(step, i, {}); }, {});
    EXPECT_TRUE(result.ok()) << result.status();
    trainer->Commit(*result);
    trace.losses.push_back(result->loss);
    trace.loss_bits.push_back(std::bit_cast<uint32_t>(result->loss));
    trace.norm_bits.push_back(std::bit_cast<uint32_t>(result->grad_norm));
    trace.digests.push_back(DigestOf(*trainer));
  }
  return trace;
}

class BitEquality : public ::testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  Setting Base() const { return {.family = std::get<0>(GetParam()), .dtype = std::get<1>(GetParam())}; }
  void ExpectSame(const std::function<void(Setting&)>& change) {
    Setting changed = Base();
    change(changed);
    EXPECT_TRUE(Train(Base()) == Train(changed));
  }
};

TEST_P(BitEquality, Threads) {
  for (const int threads : {2, 3, 5}) ExpectSame([&](Setting& s) { s.threads = threads; });
}
TEST_P(BitEquality, Recomputation) {
  ExpectSame([](Setting& s) { s.recompute = true; });
}
TEST_P(BitEquality, LoaderThreads) {
  for (const int threads : {0, 4}) ExpectSame([&](Setting& s) { s.loader_threads = threads; });
}
TEST_P(BitEquality, AbandonedSteps) {
  ExpectSame([](Setting& s) { s.abandon_each_step_once = true; });
}

TEST_P(BitEquality, InstructionSets) {
  const Trace base = Train(Base());
  for (const std::string& name : kernels::CpuInstructionSets()) {
    ASSERT_TRUE(kernels::UseCpuInstructionSet(name));
    EXPECT_TRUE(Train(Base()) == base) << name;
  }
  ASSERT_TRUE(kernels::UseCpuInstructionSet(""));
}
TEST_P(BitEquality, NativeArithmeticWithAnyThreads) {
  const kernels::Arithmetic native = kernels::FastestArithmetic();
  if (native == kernels::Arithmetic::kPortable) GTEST_SKIP() << "this processor has no bf16 instructions that pay";
  Setting one = Base(), three = Base();
  one.arithmetic = three.arithmetic = native;
  three.threads = 3;
  const Trace trace = Train(one);
  EXPECT_TRUE(trace == Train(three));
  EXPECT_EQ(trace == Train(Base()), Base().dtype == DType::kF32);  // fp32 products are portable always
}

INSTANTIATE_TEST_SUITE_P(Families, BitEquality,
                         ::testing::Combine(::testing::Values(std::string("gpt2"), std::string("llama"),
                                                              std::string("qwen2_moe")),
                                            ::testing::Values(DType::kBF16, DType::kF32)));

// What training and every kernel compute, as text. HOLDFAST_REMAKE_GOLDEN=1 writes it anew, for a change that moves
// bits on purpose.
TEST(Trainer, PortableBitsAreThoseOfEveryProcessor) {
  std::string bits = absl::StrFormat("kernels portable %016x\n", KernelDigest(kernels::Arithmetic::kPortable));
  for (const std::string family : {"gpt2", "llama"}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      const Trace trace = Train({.family = family, .dtype = dtype, .threads = 2});
      for (size_t i = 0; i < trace.digests.size(); ++i) {
        absl::StrAppendFormat(&bits, "%s %s step %d loss %08x grad_norm %08x state %016x\n", family,
                              dtype == DType::kF32 ? "f32" : "bf16", i + 1, trace.loss_bits[i], trace.norm_bits[i],
                              trace.digests[i]);
      }
    }
  }
  const std::string path = SourceDir() + "/tests/golden/portable_bits.txt";
  if (std::getenv("HOLDFAST_REMAKE_GOLDEN") != nullptr) std::ofstream(path) << bits;
  std::ifstream file(path);
  EXPECT_EQ(bits, std::string(std::istreambuf_iterator<char>(file), {}));
}

TEST(Trainer, ArithmeticsHaveDifferentKernelDigests) {
  EXPECT_EQ(KernelDigest(kernels::Arithmetic::kPortable), KernelDigest(kernels::Arithmetic::kPortable));
  if (!kernels::CpuHas(kernels::Arithmetic::kAvx512Bf16)) GTEST_SKIP() << "this processor has no AVX512_BF16";
  EXPECT_NE(KernelDigest(kernels::Arithmetic::kPortable), KernelDigest(kernels::Arithmetic::kAvx512Bf16));
}

TEST(Trainer, DifferentSettingsDoDiffer) {  // else the tests above could not fail
  const Trace base = Train({});
  EXPECT_FALSE(base == Train({.dropout = 0.2}));
  EXPECT_FALSE(base == Train({.dtype = DType::kF32}));
  EXPECT_FALSE(base == Train({.microbatches = 2}));
}

TEST(Trainer, Learns) {
  const Trace trace = Train({.dropout = 0}, 60);
  EXPECT_NEAR(trace.losses.front(), std::log(kVocab), 0.3);
  EXPECT_LT(trace.losses.back(), trace.losses.front() - 0.8);
}

TEST(Trainer, ADivergedStepIsNamed) {
  const auto device = MakeCpuDevice(1);
  const auto model = MakeTransformer(TinyModel({}), {}, *device).value();
  TrainerOptions options;
  options.batch = {.sequence_length = kSequence, .microbatch_size = 2, .microbatches = 1};
  options.total_steps = 1;
  options.arena_bytes = PlanTraining(*model, 2, kSequence).arena_bytes;
  options.initial_weights = [](int64_t, absl::Span<float> out) {
    std::fill(out.begin(), out.end(), NAN);
    return absl::OkStatus();
  };
  const auto trainer = Trainer::Create(*model, *device, options).value();
  ASSERT_TRUE(trainer->EnterWorld({}, {}).ok());
  const std::vector<std::string> paths{TokenPath()};
  const Dataset data = Dataset::Open(paths, kSequence, kVocab).value();
  const SampleOrder order(data.num_samples(), 1, true);
  const auto result = trainer->Prepare({1, {1}},
                                       [&](int64_t i) {
                                         return ReadMicrobatch(data, order, {1, 2}, 1, i);
                                       },
                                       {});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(result.status().message().find("step 1 diverged"), absl::string_view::npos) << result.status();
}

}  // namespace
}  // namespace holdfast
