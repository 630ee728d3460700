#include "framework/tensor/kernel_digest.h"

#include <bit>
#include <deque>
#include <vector>

#include "framework/base/thread_pool.h"
#include "kernels/ops.h"
#include "kernels/portable_math.h"
#include "xxhash.h"

namespace holdfast {
namespace {

using kernels::ConstMatrix;
using kernels::DType;
using kernels::Matrix;

// Sizes with odd ends: no multiple of any vector or tile but head_dim's 8.
constexpr int64_t kBatch = 2, kSequence = 101, kRows = kBatch * kSequence, kHeads = 2, kHeadDim = 24;
constexpr int64_t kCols = kHeads * kHeadDim, kInner = 83, kVocabulary = 1031;
constexpr float kDropoutRate = 0.1f;

/// Operations of one arithmetic on matrices that it owns.
class Workload {
 public:
  explicit Workload(kernels::Arithmetic arithmetic) : ops_(kernels::MakeCpuOps(pool_, arithmetic)) {}

  uint64_t Run() {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      Products(dtype);
      Norms(dtype);
      Attention(dtype);
      Embedding(dtype);
      Activations(dtype);
      Loss(dtype);
    }
    Update();
    ScalarFunctions();
    uint64_t digest = 0;
    for (const std::vector<float>& memory : memory_) {
      digest = XXH3_64bits_withSeed(memory.data(), memory.size() * sizeof(float), digest);
    }
    return digest;
  }

 private:
  /// A matrix of normal values, different for every call.
  Matrix New(DType dtype, int64_t rows, int64_t cols, float stddev = 1.0f) {
    float* values = NewVector(rows * cols, stddev);
    if (dtype == DType::kF32) return {values, dtype, rows, cols, cols};
    auto* bf16 = reinterpret_cast<uint16_t*>(NewVector(rows * cols));
    ops_->CastToBf16(bf16, values, rows * cols);
    return {bf16, dtype, rows, cols, cols};
  }
  float* NewVector(int64_t n, float stddev = 1.0f) {
    memory_.emplace_back(static_cast<size_t>(n));
    ops_->FillNormal(memory_.back().data(), n, 0, stddev, {.seed = memory_.size(), .site = 1});
    return memory_.back().data();
  }
  kernels::Dropout NewDropout() { return {kDropoutRate, {.seed = 7, .site = static_cast<uint32_t>(memory_.size())}}; }

  void Products(DType dtype) {
    for (bool transpose_a : {false, true}) {
      for (bool transpose_b : {false, true}) {
        kernels::GemmArgs args;
        args.transpose_a = transpose_a;
        args.transpose_b = transpose_b;
        args.a = transpose_a ? New(dtype, kVocabulary, kCols) : New(dtype, kCols, kVocabulary);
        args.b = transpose_b ? New(dtype, kInner, kVocabulary) : New(dtype, kVocabulary, kInner);
        args.c = New(transpose_a ? DType::kF32 : dtype, kCols, kInner);
        args.accumulate = transpose_a;
        args.bias = transpose_b ? NewVector(kInner) : nullptr;
        args.gelu = transpose_b;
        if (transpose_b) args.pre_gelu = New(dtype, kCols, kInner);
        ops_->Gemm(args);
      }
    }
    ops_->ColumnSum(NewVector(kInner), New(dtype, kRows, kInner));
  }

  void Norms(DType dtype) {
    for (kernels::NormKind kind : {kernels::NormKind::kLayerNorm, kernels::NormKind::kRmsNorm}) {
      const bool centered = kind == kernels::NormKind::kLayerNorm;
      const kernels::NormParams params{kind, 1e-5f, NewVector(kInner), centered ? NewVector(kInner) : nullptr};
      const kernels::NormStats stats{NewVector(kRows), NewVector(kRows)};
      const Matrix residual = New(dtype, kRows, kInner);
      ops_->NormForward(New(dtype, kRows, kInner), residual, stats, residual, New(dtype, kRows, kInner), params,
                        NewDropout());
      ops_->NormBackward(New(dtype, kRows, kInner), NewVector(kInner), NewVector(kInner), New(dtype, kRows, kInner),
                         New(dtype, kRows, kInner), residual, stats, params);
    }
  }

  void Attention(DType dtype) {
    const kernels::AttentionShape shape{kBatch, kSequence, kHeads, 1, kHeadDim, NewDropout()};
    const Matrix qkv = New(dtype, kRows, (kHeads + 2) * kHeadDim), out = New(dtype, kRows, kCols);
    float* lse = NewVector(kBatch * kHeads * kSequence);
    ops_->Rope(qkv, NewVector(kSequence * kHeadDim), {kHeads + 1, kHeadDim, kHeadDim}, kSequence, false);
    ops_->AttentionForward(out, lse, qkv, shape);
    ops_->AttentionBackward(New(dtype, kRows, (kHeads + 2) * kHeadDim), New(dtype, kRows, kCols), out, lse, qkv, shape);
  }

  void Embedding(DType dtype) {
    const std::vector<int32_t> tokens = Tokens();
    const kernels::Dropout dropout = NewDropout();
    const Matrix out = New(dtype, kRows, kInner);
    ops_->EmbeddingForward(out, tokens.data(), New(dtype, kVocabulary, kInner), New(dtype, kSequence, kInner),
                           kSequence, dropout, 1);
    ops_->EmbeddingBackward(New(DType::kF32, kVocabulary, kInner), New(DType::kF32, kSequence, kInner), tokens.data(),
                            out, kSequence, dropout, 1);
    ops_->ApplyDropout(New(dtype, kRows, kInner), out, dropout);
  }

  void Activations(DType dtype) {
    ops_->GeluBackward(New(dtype, kRows, kInner), New(dtype, kRows, kInner), New(dtype, kRows, kInner, 3.0f));
    const Matrix gate_up = New(dtype, kRows, 2 * kInner, 3.0f);
    constexpr kernels::GateKind kKind = kernels::GateKind::kSilu;
    ops_->GatedForward(New(dtype, kRows, kInner), gate_up, kKind);
    ops_->GatedBackward(New(dtype, kRows, 2 * kInner), New(dtype, kRows, kInner), gate_up, kKind);
  }

  void Loss(DType dtype) {
    const std::vector<int32_t> targets = Tokens();
    ops_->SoftmaxCrossEntropy(NewVector(kRows), New(dtype, kRows, kVocabulary),
                              New(DType::kF32, kRows, kVocabulary, 3.0f), targets.data(), 0.01f);
  }

  void Update() {
    constexpr int64_t kElements = 1237;
    kernels::AdamWArgs args{.n = kElements,
                            .weight = NewVector(kElements),
                            .exp_avg = NewVector(kElements, 0.1f),
                            .exp_avg_sq = NewVector(kElements),
                            .grad = NewVector(kElements),
                            .weight_bf16 = reinterpret_cast<uint16_t*>(NewVector(kElements)),
                            .grad_scale = 0.7f,
                            .lr = 1e-3f,
                            .beta1 = 0.9f,
                            .beta2 = 0.95f,
                            .eps = 1e-8f,
                            .weight_decay = 0.1f,
                            .bias_correction1 = 0.5f,
                            .bias_correction2_sqrt = 0.4f};
    for (int64_t i = 0; i < kElements; ++i) args.exp_avg_sq[i] *= args.exp_avg_sq[i];
    ops_->AdamW(args);  // Lion and Axpby came later: maps like it, and the digests that runs have stored stay theirs
    ops_->Add(args.weight, args.grad, kElements);
    const int64_t offsets[] = {0, 700, kElements};
    ops_->ChunkSumSquares(reinterpret_cast<double*>(NewVector(4)), args.weight, offsets, 2);
    float* const widened = NewVector(kElements);
    for (int64_t i = 0; i < kElements; ++i) widened[i] = std::bit_cast<float>(uint32_t{args.weight_bf16[i]} << 16);
  }

  void ScalarFunctions() {
    float* values = NewVector(500);
    for (int64_t i = 0; i + 4 < 500; i += 5) {
      const double x = double{values[i]} * 10;
      const portable::SineCosine turned = portable::SinCos(x * 1000);
      values[i] = static_cast<float>(portable::Exp(x));
      values[i + 1] = static_cast<float>(portable::Log(x * x));
      values[i + 2] = static_cast<float>(turned.sine);
      values[i + 3] = static_cast<float>(turned.cosine);
      values[i + 4] = static_cast<float>(portable::IntegerPower(0.999, static_cast<uint64_t>(x * x)));
    }
  }

  std::vector<int32_t> Tokens() const {
    std::vector<int32_t> tokens(kRows);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i * 7 % kVocabulary);
    return tokens;
  }

  ThreadPool pool_{1};
  std::unique_ptr<kernels::Ops> ops_;
  std::deque<std::vector<float>> memory_;
};

}  // namespace

uint64_t KernelDigest(kernels::Arithmetic arithmetic) { return Workload(arithmetic).Run(); }

}  // namespace holdfast
