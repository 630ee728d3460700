// Proves what the CPU's tests do not ask of CUDA kernels, emulated and on a GPU: whole packets, which a model's aligned
// rows are moved in, give the bits of single elements and the CPU's values, rows that are too wide for a packet a
// thread or for shared memory come out right, as do vocabularies of GPT-2 and Llama 3, tokens that occur often are all
// added, and weights start as they do on a CPU.

#include <deque>
#include <functional>
#include <numeric>

#include "tests/kernels/cuda/cpu_reference.h"
#include "tests/kernels/kernel_test_util.h"

namespace holdfast::kernels {
namespace {

/// Matrices of a call, in which rows start where a wide access may or do not.
class Arena {
 public:
  explicit Arena(bool aligned) : aligned_(aligned) {}

  TestMatrix& New(DType dtype, int64_t rows, int64_t cols) {
    return matrices_.emplace_back(dtype, rows, cols, (cols + 7) / 8 * 8 + (aligned_ ? 0 : 5));
  }
  TestMatrix& Random(Rng& rng, DType dtype, int64_t rows, int64_t cols) {
    TestMatrix& m = New(dtype, rows, cols);
    m.Fill(rng);
    return m;
  }
  std::vector<float> Values() const {
    std::vector<float> all;
    for (const TestMatrix& m : matrices_) {
      const auto values = m.Values();
      all.insert(all.end(), values.begin(), values.end());
      EXPECT_TRUE(m.PaddingIntact());
    }
    return all;
  }

 private:
  bool aligned_;
  std::deque<TestMatrix> matrices_;
};

using Call = std::function<void(TestOps& ops, Arena& arena, Rng& rng)>;

std::vector<float> Run(TestOps& ops, bool aligned, const Call& call) {
  Rng rng(5);
  Arena arena(aligned);
  call(ops, arena, rng);
  return arena.Values();
}

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

/// The same bits for aligned rows and others, and the CPU's values.
void Check(const Call& call, double tolerance) {
  TestOps ops(1), cpu(MakeCpuReference());
  const auto values = Run(ops, true, call);
  ExpectSameBits(values, Run(ops, false, call));
  EXPECT_LE(MaxError(values, Run(cpu, true, call)), tolerance);
}

void ExpectTheCpusValues(bool aligned, const Call& call, double tolerance) {
  TestOps ops(1), cpu(MakeCpuReference());
  EXPECT_LE(MaxError(Run(ops, aligned, call), Run(cpu, aligned, call)), tolerance) << aligned;
}

double Tolerance(DType dtype) { return dtype == DType::kF32 ? 1e-5 : 1.0 / 128; }

std::vector<int32_t> SkewedTokens(Rng& rng, int64_t rows) {
  std::vector<int32_t> tokens;
  for (int64_t r = 0; r < rows; ++r) {
    tokens.push_back(static_cast<int32_t>(rng() % 3 == 0 ? rng() % 40 : rng() % 4 == 0 ? 7 : 20));
  }
  return tokens;
}

class Shapes : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Both, Shapes, ::testing::Values(DType::kF32, DType::kBF16));

TEST_P(Shapes, Elementwise) {
  const DType dtype = GetParam();
  for (const int64_t cols : {8, 200, 264, 2176}) {
    Check(
        [&](TestOps& ops, Arena& arena, Rng& rng) {
          const auto random = [&](int64_t width) -> TestMatrix& { return arena.Random(rng, dtype, 37, width); };
          TestMatrix &x = random(cols), &dy = random(cols), &both = random(2 * cols);
          ops->ApplyDropout(random(cols).view(), x.view(), {0.2f, {.seed = 3}});
          ops->AddDropout(random(cols).view(), x.view(), {0.2f, {.seed = 4}});
          ops->GeluForward(random(cols).view(), x.view());
          ops->GeluBackward(random(cols).view(), dy.view(), x.view());
          for (const GateKind kind : {GateKind::kSilu, GateKind::kGelu}) {
            ops->GatedForward(random(cols).view(), both.view(), kind);
            ops->GatedBackward(random(2 * cols).view(), dy.view(), both.view(), kind);
          }
          std::vector<float> sums(static_cast<size_t>(cols));
          ops->ColumnSum(sums.data(), x.view());
          arena.New(DType::kF32, 1, cols).Set(sums);
        },
        Tolerance(dtype));
  }
}

TEST_P(Shapes, Rope) {
  for (const auto& [head_dim, turned] :
       std::vector<std::pair<int64_t, int64_t>>{{16, 16}, {64, 64}, {64, 32}, {20, 16}}) {
    Check(
        [&, head_dim = head_dim, turned = turned](TestOps& ops, Arena& arena, Rng& rng) {
          TestMatrix& x = arena.Random(rng, GetParam(), 35, 5 * head_dim);
          const auto table = RandomVector(rng, 7 * turned);
          ops->Rope(x.view(), table.data(), {3, head_dim, turned}, 7, false);
        },
        Tolerance(GetParam()));
  }
}

TEST_P(Shapes, Norm) {
  const DType dtype = GetParam();
  for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    for (const auto& [rows, cols] :
         std::vector<std::pair<int64_t, int64_t>>{{301, 40}, {9, 768}, {3, 4104}, {3, 8192}}) {
      Check(
          [&](TestOps& ops, Arena& arena, Rng& rng) {
            const auto random = [&]() -> TestMatrix& { return arena.Random(rng, dtype, rows, cols); };
            TestMatrix &residual = random(), &branch = random(), &out = random(), &d_residual = random(),
                       &dy = random();
            const bool centered = kind == NormKind::kLayerNorm;
            const auto weight = RandomVector(rng, cols), bias = RandomVector(rng, cols);
            const NormParams params = {kind, 1e-5f, weight.data(), centered ? bias.data() : nullptr};
            std::vector<float> mean(static_cast<size_t>(rows)), rstd(mean.size());
            std::vector<float> d_weight(weight.size()), d_bias(weight.size());
            const NormStats stats = {mean.data(), rstd.data()};
            ops->NormForward(out.view(), residual.view(), stats, residual.view(), branch.view(), params,
                             {0.1f, {.seed = 8}});
            ops->NormBackward(d_residual.view(), d_weight.data(), centered ? d_bias.data() : nullptr, d_residual.view(),
                              dy.view(), residual.view(), stats, params);
            for (const auto* values : {&mean, &rstd}) arena.New(DType::kF32, 1, rows).Set(*values);
            for (const auto* values : {&d_weight, &d_bias}) arena.New(DType::kF32, 1, cols).Set(*values);
          },
          Tolerance(dtype));
    }
  }
}

TEST_P(Shapes, Embedding) {
  const DType dtype = GetParam();
  for (const int64_t rows : {1, 32, 1000}) {
    for (const int64_t cols : {8, 264}) {
      Check(
          [&](TestOps& ops, Arena& arena, Rng& rng) {
            TestMatrix &table = arena.Random(rng, dtype, 40, cols), &positions = arena.Random(rng, dtype, 25, cols);
            TestMatrix &d_table = arena.Random(rng, DType::kF32, 40, cols), &out = arena.New(dtype, rows, cols);
            TestMatrix& d_positions = arena.Random(rng, DType::kF32, 25, cols);
            const auto tokens = SkewedTokens(rng, rows);
            const Dropout dropout = {0.1f, {.seed = 2}};
            ops->EmbeddingForward(out.view(), tokens.data(), table.view(), positions.view(), 25, dropout, 1.5f);
            ops->EmbeddingBackward(d_table.view(), d_positions.view(), tokens.data(), out.view(), 25, dropout, 1.5f);
          },
          Tolerance(dtype));
    }
  }
}

// Tokens of a whole vocabulary, its last one among them.
TEST_P(Shapes, EmbeddingOfAWholeVocabulary) {
  const DType dtype = GetParam();
  for (const int64_t vocabulary : {50257, 128256}) {
    Check(
        [&](TestOps& ops, Arena& arena, Rng& rng) {
          constexpr int64_t kRows = 200, kCols = 8;
          TestMatrix& table = arena.Random(rng, dtype, vocabulary, kCols);
          TestMatrix &d_table = arena.Random(rng, DType::kF32, vocabulary, kCols),
                     &out = arena.New(dtype, kRows, kCols);
          std::vector<int32_t> tokens = {static_cast<int32_t>(vocabulary - 1), 0};
          while (tokens.size() < kRows) {
            tokens.push_back(static_cast<int32_t>(rng() % static_cast<uint64_t>(vocabulary)));
          }
          ops->EmbeddingForward(out.view(), tokens.data(), table.view(), {}, 1, {}, 1.5f);
          ops->EmbeddingBackward(d_table.view(), {}, tokens.data(), out.view(), 1, {}, 1.5f);
        },
        Tolerance(dtype));
  }
}

// Where a token's rows land is settled by atomics; in which order they are added must not be.
TEST(EmbeddingBackwardOrder, IsThatOfTheRowsInChunksOf32) {
  if (TestsRunOnCpu()) GTEST_SKIP() << "a CPU adds them one after the other";
  constexpr int64_t kRows = 1500, kVocabulary = 40;
  Rng rng(NewSeed());
  TestMatrix table(DType::kF32, kVocabulary, 1), d_out(DType::kF32, kRows, 1);
  table.Fill(rng);
  d_out.Fill(rng);
  const auto tokens = SkewedTokens(rng, kRows);
  auto expected = table.Values();
  std::vector<float> chunk(kVocabulary);
  std::vector<int> count(kVocabulary);
  for (int64_t r = 0; r < kRows; ++r) {
    const auto t = static_cast<size_t>(tokens[static_cast<size_t>(r)]);
    if (count[t] % 32 == 0) {
      if (count[t] > 32) expected[t] += chunk[t];
      chunk[t] = 0;
    }
    (count[t]++ < 32 ? expected : chunk)[t] += d_out.Get(r, 0);
  }
  for (size_t t = 0; t < kVocabulary; ++t) {
    if (count[t] > 32) expected[t] += chunk[t];
  }
  TestOps(1)->EmbeddingBackward(table.view(), {}, tokens.data(), d_out.view(), 1, {}, 1);
  ExpectSameBits(table.Values(), expected);
}

// Of layers with experts, where rows go to their slots and come back; the widest are those of gpt-oss 20B.
TEST_P(Shapes, ExpertRows) {
  const DType dtype = GetParam();
  for (const int64_t cols : {8, 264, 2880}) {
    Check(
        [&](TestOps& ops, Arena& arena, Rng& rng) {
          constexpr int64_t kRows = 45;
          const RouterShape shape{.num_experts = 4, .chosen = 2};
          std::vector<int32_t> experts, offsets(5), choices(2 * kRows), slot_of(choices.size());
          for (int64_t r = 0; r < kRows; ++r) {
            const auto first = static_cast<int32_t>(rng() % 3);
            experts.insert(experts.end(), {first, first + 1});
          }
          const auto weights = RandomVector(rng, 2 * kRows);
          ops->SortChoices({offsets.data(), choices.data(), slot_of.data()}, experts.data(), weights.data(), kRows,
                           shape);
          const ExpertRows rows{.num_experts = 4,
                                .chosen = 2,
                                .slots = 2 * kRows,
                                .offsets = offsets.data(),
                                .choices = choices.data(),
                                .slot_of = slot_of.data()};
          const auto new_slots = [&](int64_t width) -> TestMatrix& { return arena.New(dtype, rows.slots, width); };
          TestMatrix &x = arena.Random(rng, dtype, kRows, 2 * cols), &gathered = new_slots(2 * cols);
          TestMatrix &act = new_slots(cols), &d_both = new_slots(2 * cols),
                     &last = arena.Random(rng, dtype, kRows, cols);
          ops->GatherRows(gathered.view(), x.view(), rows);
          ops->ExpertSwigluForward(act.view(), gathered.view(), weights.data(), 0, rows);
          ops->CombineRows(last.view(), act.view(), last.view(), rows);
          std::vector<float> d_weights(weights.size());
          ops->ExpertSwigluBackward(d_both.view(), d_weights.data(), act.view(), gathered.view(), weights.data(), 0,
                                    rows);
          arena.New(DType::kF32, 1, rows.slots).Set(d_weights);
          TestMatrix &limited = new_slots(cols), &d_limited = new_slots(2 * cols);
          ops->ExpertSwigluForward(limited.view(), gathered.view(), weights.data(), 0.5f, rows);
          ops->ExpertSwigluBackward(d_limited.view(), d_weights.data(), act.view(), gathered.view(), weights.data(),
                                    0.5f, rows);
          const Matrix bias = arena.Random(rng, DType::kF32, 4, cols).view();
          const Matrix d_bias = arena.New(DType::kF32, 4, cols).view();
          ops->ExpertBiasBackward({.d_out = act.view(),
                                   .weights = weights.data(),
                                   .d_bias = static_cast<float*>(d_bias.data),
                                   .d_bias_step = d_bias.stride,
                                   .bias = static_cast<const float*>(bias.data),
                                   .bias_step = bias.stride,
                                   .d_weights = d_weights.data()},
                                  rows);
          arena.New(DType::kF32, 1, rows.slots).Set(d_weights);
        },
        Tolerance(dtype));
  }
}

// As wide as the projection down of gpt-oss 20B. Aligned rows of bf16 are multiplied on tensor cores, so their bits are
// not those of others.
TEST_P(Shapes, BiasesInProductsOfExperts) {
  const Call call = [](TestOps& ops, Arena& arena, Rng& rng) {
    constexpr int64_t kExperts = 3, kIn = 64, kOut = 2880;
    const std::vector<int32_t> offsets = {0, 70, 70, 202};
    std::vector<int32_t> choices(202);
    std::iota(choices.rbegin(), choices.rend(), 0);
    const ExpertRows rows{
        .num_experts = kExperts, .chosen = 2, .slots = 202, .offsets = offsets.data(), .choices = choices.data()};
    const auto weights = RandomVector(rng, rows.slots);
    const ConstMatrix x = arena.Random(rng, GetParam(), rows.slots, kIn).view();
    TestMatrix& matrices = arena.New(GetParam(), kExperts * kOut, kIn);
    matrices.Fill(rng, 0.1f);
    ConstMatrix first = matrices.view();
    first.rows = kOut;
    const Matrix bias = arena.Random(rng, DType::kF32, kExperts, kOut).view();
    for (const float* of_choices : {static_cast<const float*>(nullptr), weights.data()}) {
      ops->ExpertGemm({.a = x,
                       .b = first,
                       .transpose_b = true,
                       .b_step = kOut * first.stride,
                       .c = arena.New(GetParam(), rows.slots, kOut).view(),
                       .bias = static_cast<const float*>(bias.data),
                       .bias_step = bias.stride,
                       .bias_weights = of_choices},
                      rows);
    }
  };
  for (const bool aligned : {true, false}) ExpectTheCpusValues(aligned, call, Tolerance(GetParam()));
}

TEST_P(Shapes, AttentionSinks) {
  for (const auto& [heads, head_dim] :
       std::vector<std::pair<int64_t, int64_t>>{{3, 8}, {3, 40}, {3, 256}, {64, 64}}) {  // the last are of gpt-oss
    Check(
        [&, heads = heads, head_dim = head_dim](TestOps& ops, Arena& arena, Rng& rng) {
          constexpr int64_t kBatch = 2, kSequence = 161;
          const AttentionShape shape{.batch = kBatch,
                                     .sequence = kSequence,
                                     .num_heads = heads,
                                     .num_kv_heads = 1,
                                     .head_dim = head_dim,
                                     .dropout = {}};
          TestMatrix& out = arena.Random(rng, GetParam(), kBatch * kSequence, heads * head_dim);
          TestMatrix& d_out = arena.New(GetParam(), kBatch * kSequence, heads * head_dim);
          d_out.Fill(rng, 0.1f);
          std::vector<float> lse = RandomVector(rng, kBatch * heads * kSequence, 2.0f),
                             d_sinks(static_cast<size_t>(heads));
          const std::vector<float> sinks = RandomVector(rng, heads, 2.0f);
          ops->SinkForward(out.view(), lse.data(), sinks.data(), shape);
          ops->SinkBackward(d_sinks.data(), d_out.view(), out.view(), lse.data(), sinks.data(), shape);
          arena.New(DType::kF32, 1, std::ssize(lse)).Set(lse);
          arena.New(DType::kF32, 1, heads).Set(d_sinks);
        },
        Tolerance(GetParam()));
  }
}

// Optimizers and sums of vectors that begin where a wide access may, as pieces of a model's parameters do, or not.
TEST(Vectors, HaveTheBitsOfTheCpuWhereverTheyBegin) {
  for (const int64_t n : {3, 256, 70001}) {
    Check(
        [&](TestOps& ops, Arena& arena, Rng& rng) {
          const auto second_row = [](TestMatrix& two_rows) {
            const Matrix all = two_rows.view();
            return static_cast<char*>(all.data) + static_cast<size_t>(all.stride) * SizeOf(all.dtype);
          };
          const auto random = [&] {
            return reinterpret_cast<float*>(second_row(arena.Random(rng, DType::kF32, 2, n)));
          };
          const auto bf16 = [&] {
            return reinterpret_cast<uint16_t*>(second_row(arena.Random(rng, DType::kBF16, 2, n)));
          };
          float *weight = random(), *moment = random(), *square = random(), *grad = random();
          ops->Axpby(square, 1.0f, square, 3.0f, grad, n);
          ops->CastToBf16(bf16(), square, n);
          ops->Add(weight, grad, n);
          ops->Axpby(square, 0.0f, square, 0.5f, square, n);
          for (int64_t i = 0; i < n; ++i) square[i] = std::abs(square[i]);
          ops->AdamW({.n = n,
                      .weight = weight,
                      .exp_avg = moment,
                      .exp_avg_sq = square,
                      .grad = grad,
                      .weight_bf16 = bf16(),
                      .grad_scale = 0.7f,
                      .lr = 1e-2f,
                      .beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .eps = 1e-8f,
                      .weight_decay = 0.1f,
                      .bias_correction1 = 0.1f,
                      .bias_correction2_sqrt = 0.2f});
          ops->Lion({.n = n,
                     .weight = weight,
                     .exp_avg = moment,
                     .grad = grad,
                     .weight_bf16 = bf16(),
                     .grad_scale = 0.7f,
                     .lr = 1e-2f,
                     .beta1 = 0.9f,
                     .beta2 = 0.95f,
                     .weight_decay = 0.1f});
          const int64_t offsets[] = {0, 1, n / 2, n};
          std::vector<double> sums(3);
          ops->ChunkSumSquares(sums.data(), grad, offsets, 3);
          arena.New(DType::kF32, 1, 3).Set(std::vector<float>(sums.begin(), sums.end()));
        },
        1e-6);
  }
}

TEST_P(Shapes, CrossEntropy) {
  // A row of 12288 takes the shared memory that is there without asking; the last two do not fit at all.
  for (const int64_t cols : {40, 5003, 12288, 50257, 60007, 128256}) {
    Check(
        [&](TestOps& ops, Arena& arena, Rng& rng) {
          TestMatrix& logits = arena.Random(rng, DType::kF32, 3, cols);
          TestMatrix& gradient = arena.New(GetParam(), 3, cols);
          const std::vector<int32_t> targets = {static_cast<int32_t>(cols - 1), -5, 17};
          std::vector<float> losses(3);
          ops->SoftmaxCrossEntropy(losses.data(), gradient.view(), logits.view(), targets.data(), 4.0f);
          arena.New(DType::kF32, 1, 3).Set(losses);

          TestMatrix in_place = logits;
          Matrix view = in_place.view();
          view.dtype = GetParam();
          view.stride *= static_cast<int64_t>(4 / SizeOf(view.dtype));
          ops->SoftmaxCrossEntropy(losses.data(), view, in_place.view(), targets.data(), 4.0f);
          for (int64_t r = 0; r < 3; ++r) {
            const auto row = [&](const Matrix& m) {
              return static_cast<char*>(m.data) + static_cast<size_t>(r * m.stride) * SizeOf(m.dtype);
            };
            const size_t bytes = static_cast<size_t>(cols) * SizeOf(view.dtype);
            EXPECT_EQ(std::memcmp(row(view), row(gradient.view()), bytes), 0) << "in place, " << r;
          }
        },
        Tolerance(GetParam()));
  }
}

TEST(FillNormalOnBoth, HasTheSameBits) {
  TestOps ops(1), on_cpu(MakeCpuReference());
  for (const int64_t first : {int64_t{0}, int64_t{3}, (int64_t{1} << 34) - 50}) {
    std::vector<float> ours(50001), cpu(50001);
    ops->FillNormal(ours.data(), 50001, first, 0.02f, {.seed = 11, .site = 3});
    on_cpu->FillNormal(cpu.data(), 50001, first, 0.02f, {.seed = 11, .site = 3});
    ExpectSameBits(ours, cpu);
  }
}

}  // namespace
}  // namespace holdfast::kernels
