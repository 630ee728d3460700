#pragma once
// Every operation Holdfast runs on device memory. `Ops` is one device's set of operations bound to one stream of it:
// calls are ordered; on a CPU they have finished when they return, on a GPU when the stream has been synchronized.
//
// Rules every implementation keeps:
//   - The result of an operation is a pure function of its arguments: the same bits for any number of threads, and a
//     row's result does not depend on how many other rows the call has (except where the operation sums over rows).
//   - Sums over rows run in a fixed association that depends on the shape only.
//   - Of Gemm on a GPU a row may depend on the number of rows, which choose cuBLASLt's algorithm; training always has
//     those of a microbatch.
//   - Accumulation is in fp32 at least; bf16 is storage. Rounding to bf16 is to nearest even.
//   - Nothing is allocated or thrown. Arguments are the caller's duty; tests/kernels states the supported range.
//
// Shapes in comments: R rows (tokens = B * T), C hidden size, V vocabulary, H query heads, G key/value heads, D head
// size. A `Matrix` may be fp32 or bf16 unless its comment says otherwise; all activations of one call have the same
// dtype.
//
// Example (CPU):
//   auto ops = MakeCpuOps(executor);
//   ops->Gemm({.a = x, .b = w, .transpose_b = true, .c = y, .bias = b});   // y = x w^T + b

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/arithmetic.h"
#include "kernels/executor.h"
#include "kernels/experts.h"
#include "kernels/types.h"

namespace holdfast::kernels {

/// C (M, N) = op(A) (M, K) * op(B) (K, N), then optionally + C, + bias, GELU.
struct GemmArgs {
  ConstMatrix a;  ///< (M, K), or (K, M) if transpose_a
  bool transpose_a = false;
  ConstMatrix b;  ///< (K, N), or (N, K) if transpose_b
  bool transpose_b = false;
  Matrix c;                     ///< (M, N); must not overlap a or b
  bool accumulate = false;      ///< add to what c holds (fp32 c only)
  const float* bias = nullptr;  ///< (N), optional: added to every row
  bool gelu = false;            ///< c = gelu(value); tanh form (Hendrycks & Gimpel 2016, section 2)
  Matrix pre_gelu = {};         ///< (M, N) optional with gelu: the value before it, for the backward pass
};

enum class NormKind : uint8_t {
  kLayerNorm,  ///< Ba et al. 2016
  kRmsNorm,    ///< Zhang & Sennrich 2019
};

struct NormParams {
  NormKind kind = NormKind::kLayerNorm;
  float eps = 1e-5f;
  const float* weight = nullptr;  ///< (C)
  const float* bias = nullptr;    ///< (C), null for RMSNorm
  /// Rows are this many groups of C columns side by side, each normalised by itself, with the same weight; more than
  /// one with RMSNorm only, and without a branch.
  int64_t groups = 1;
};

/// What a norm keeps for its backward pass.
struct NormStats {
  float* mean = nullptr;  ///< (R); unused for RMSNorm
  float* rstd = nullptr;  ///< (R * groups)
};

/// Self-attention over packed projections: each row of `qkv` is H query heads, G key heads, G value heads, D wide each.
/// Query head h reads key/value head h / (H / G) (grouped-query attention, Ainslie et al. 2023). The keys a query sees
/// are one run; blocks of keys that no query of a block sees are neither read nor computed.
struct AttentionShape {
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;      ///< a multiple of 8, at most 256
  Dropout dropout;           ///< on the attention probabilities; element index ((b * H + h) * T + i) * T + j
  int64_t window = 0;        ///< a query sees this many keys up to its own, none before them; 0 = no such limit
  bool causal = true;        ///< a query sees no key after its own
  Documents documents = {};  ///< a query sees no key of another document

  /// The same of sequence `b`, as the functions below take it.
  AttentionShape OfSequence(int64_t b) const {
    AttentionShape shape = *this;
    if (documents.begin != nullptr) shape.documents = {documents.begin + b * sequence, documents.end + b * sequence};
    return shape;
  }

  /// Query i sees keys FirstKey(i) .. EndKey(i) - 1; key j is seen by queries FirstQuery(j) .. EndQuery(j) - 1. All of
  /// them ascend. Of queries beyond the sequence they say as much as of its last.
  int64_t FirstKey(int64_t query) const {
    return std::max(window > 0 && query >= window ? query - window + 1 : 0, Begin(query));
  }
  int64_t EndKey(int64_t query) const { return causal ? query + 1 : End(query); }
  int64_t FirstQuery(int64_t key) const { return causal ? key : Begin(key); }
  int64_t EndQuery(int64_t key) const {
    const int64_t end = End(key);
    return window > 0 && key + window < end ? key + window : end;
  }

 private:
  int64_t Begin(int64_t row) const {
    return documents.begin == nullptr ? 0 : documents.begin[std::min(row, sequence - 1)];
  }
  int64_t End(int64_t row) const {
    return documents.end == nullptr ? sequence : documents.end[std::min(row, sequence - 1)];
  }
};

/// One AdamW update (Loshchilov & Hutter 2019, algorithm 2) of n values as a fixed sequence of IEEE-754 binary32
/// operations, equal on every device; see AdamWScalar in kernels/adamw.h, which is the definition.
struct AdamWArgs {
  int64_t n = 0;
  float* weight = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  const float* grad = nullptr;
  uint16_t* weight_bf16 = nullptr;  ///< optional: receives the new weight rounded to bf16
  float grad_scale = 1;             ///< clipping coefficient, applied to grad first
  float lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  float bias_correction1 = 1;       ///< 1 - beta1^step
  float bias_correction2_sqrt = 1;  ///< sqrt(1 - beta2^step)
};

/// One Lion update (Chen et al. 2023, algorithm 2) of n values, equal on every device; see LionScalar in
/// kernels/lion.h, which is the definition.
struct LionArgs {
  int64_t n = 0;
  float* weight = nullptr;
  float* exp_avg = nullptr;
  const float* grad = nullptr;
  uint16_t* weight_bf16 = nullptr;  ///< optional: receives the new weight rounded to bf16
  float grad_scale = 1;             ///< clipping coefficient, applied to grad first
  float lr = 0, beta1 = 0, beta2 = 0, weight_decay = 0;
};

class Ops {
 public:
  virtual ~Ops() = default;

  // --- matrix products -------------------------------------------------------------------------------------------
  virtual void Gemm(const GemmArgs& args) = 0;

  /// out (N) fp32 = sum over rows of in (R, N).
  virtual void ColumnSum(float* out, ConstMatrix in) = 0;

  // --- embedding -------------------------------------------------------------------------------------------------
  /// out (R, C) = dropout(token_table[tokens[r]] + position_table[position of r]). `position_table` (T, C) optional.
  virtual void EmbeddingForward(Matrix out, const int32_t* tokens, ConstMatrix token_table, ConstMatrix position_table,
                                const Positions& positions, const Dropout& dropout) = 0;

  /// Adds the gradients of both tables (fp32) to what they hold. `d_position_table` optional.
  virtual void EmbeddingBackward(Matrix d_token_table, Matrix d_position_table, const int32_t* tokens,
                                 ConstMatrix d_out, const Positions& positions, const Dropout& dropout) = 0;

  // --- normalisation ---------------------------------------------------------------------------------------------
  /// residual_out (R, C) = residual (R, C) + dropout(branch (R, C)); out (R, C) = norm(residual_out).
  /// Without a branch (null data) residual_out is not written and out = norm(residual). residual_out may be residual.
  virtual void NormForward(Matrix out, Matrix residual_out, const NormStats& stats, ConstMatrix residual,
                           ConstMatrix branch, const NormParams& params, const Dropout& dropout) = 0;

  /// d_input (R, C) = d_residual (R, C, optional) + backward of norm at `input` (R, C) for d_out (R, C).
  /// d_weight, d_bias (C, optional) are overwritten. d_input may be d_residual or d_out.
  virtual void NormBackward(Matrix d_input, float* d_weight, float* d_bias, ConstMatrix d_residual, ConstMatrix d_out,
                            ConstMatrix input, const NormStats& stats, const NormParams& params) = 0;

  /// out (R, C) = dropout(in): the backward of a dropout is the same call on the gradient. out may be in.
  virtual void ApplyDropout(Matrix out, ConstMatrix in, const Dropout& dropout) = 0;

  // --- attention -------------------------------------------------------------------------------------------------
  /// Rotates the first `num_heads` heads (D wide) of every row of x (R, >= num_heads * D) in place: pairs (i, i + D/2),
  /// angle position * theta^(-2i/D) (Su et al. 2021, halves as in Llama). `inverse` rotates back, which is the backward
  /// pass. cos_sin (T, D) fp32: D/2 cosines then D/2 sines per position.
  virtual void Rope(Matrix x, const float* cos_sin, int64_t num_heads, int64_t head_dim, const Positions& positions,
                    bool inverse) = 0;

  /// out (R, H * D); lse (B, H, T): log-sum-exp of each query's scaled scores. Scores are scaled by 1 / sqrt(D).
  /// Blocked with an online softmax (Dao et al. 2022); never holds T x T.
  virtual void AttentionForward(Matrix out, float* lse, ConstMatrix qkv, const AttentionShape& shape) = 0;

  /// d_qkv (R, (H + 2G) * D) is overwritten.
  virtual void AttentionBackward(Matrix d_qkv, ConstMatrix d_out, ConstMatrix out, const float* lse, ConstMatrix qkv,
                                 const AttentionShape& shape) = 0;

  /// out (R, C) = in limited to [-limit, limit]. out may be in.
  virtual void Clip(Matrix out, ConstMatrix in, float limit) = 0;
  /// Zeroes d (R, C) where `in` (R, C) is outside of [-limit, limit].
  virtual void ClipBackward(Matrix d, ConstMatrix in, float limit) = 0;

  // --- activations -----------------------------------------------------------------------------------------------
  /// d_in = d_out * gelu'(in), tanh form; d_in may be d_out.
  virtual void GeluBackward(Matrix d_in, ConstMatrix d_out, ConstMatrix in) = 0;

  /// out (R, I) = silu(gate) * up, with gate_up (R, 2I) = [gate | up] (Shazeer 2020).
  virtual void SwigluForward(Matrix out, ConstMatrix gate_up) = 0;
  /// d_gate_up may be gate_up.
  virtual void SwigluBackward(Matrix d_gate_up, ConstMatrix d_out, ConstMatrix gate_up) = 0;

  // --- mixture of experts (experts.h) ----------------------------------------------------------------------------
  /// Chooses the experts of every row of `logits` (R, E) fp32 (Shazeer et al. 2017, section 2.1).
  virtual void RouterForward(const RouterOut& out, ConstMatrix logits, const RouterShape& shape) = 0;
  virtual void RouterBackward(const RouterBackwardArgs& args, const RouterShape& shape) = 0;

  virtual void RouterReport(const RouterReportArgs& args, const RouterShape& shape) = 0;

  /// Puts the choices of `rows` rows, experts (R, k), in the order of slots. Where more than shape.capacity rows chose
  /// an expert, those with the largest weights (R, k) stay, ties to the lower row, NaN last; weights are read only
  /// then.
  virtual void SortChoices(const SortedChoices& out, const int32_t* experts, const float* weights, int64_t rows,
                           const RouterShape& shape) = 0;

  /// out (R, C) fp32 = in (R, C) times JitterFactor of `key` (philox.h), element by element (Fedus et al. 2021, section
  /// 2.4); its backward is the same call on the gradient. out may be in.
  virtual void Jitter(Matrix out, ConstMatrix in, float range, const RandomKey& key) = 0;

  /// out (S, C): row s = in (R, C) [the row of the choice in slot s].
  virtual void GatherRows(Matrix out, ConstMatrix in, const ExpertRows& rows) = 0;

  /// out (R, C): row r = sum over its choices that are not dropped, ascending, of in (S, C) [their slots], then + last
  /// (R, C), optional. Sums are in fp32, rounded once. out may be last.
  virtual void CombineRows(Matrix out, ConstMatrix in, ConstMatrix last, const ExpertRows& rows) = 0;

  virtual void ExpertGemm(const ExpertGemmArgs& args, const ExpertRows& rows) = 0;
  virtual void ExpertGradient(const ExpertGradientArgs& args, const ExpertRows& rows) = 0;

  /// out (S, F) = silu(gate) * up * weight of the slot's choice, gate_up (S, 2F) = [gate | up], weights (R, k). Of
  /// dropped choices nothing is written, but that their d_weights are 0.
  virtual void ExpertSwigluForward(Matrix out, ConstMatrix gate_up, const float* weights, const ExpertRows& rows) = 0;
  /// d_weights (R, k) is overwritten. d_gate_up may be gate_up.
  virtual void ExpertSwigluBackward(Matrix d_gate_up, float* d_weights, ConstMatrix d_out, ConstMatrix gate_up,
                                    const float* weights, const ExpertRows& rows) = 0;

  // --- loss ------------------------------------------------------------------------------------------------------
  /// losses[r] = -log softmax(logits[r])[targets[r]], 0 where targets[r] < 0. logits (R, V) fp32. If d_logits (R, V)
  /// is given, it receives grad_scale * (softmax - onehot) (0 where ignored); its memory may be that of logits (same
  /// start; a bf16 d_logits then has twice the stride in elements).
  virtual void SoftmaxCrossEntropy(float* losses, Matrix d_logits, ConstMatrix logits, const int32_t* targets,
                                   float grad_scale) = 0;

  // --- optimizer and flat vectors --------------------------------------------------------------------------------
  virtual void AdamW(const AdamWArgs& args) = 0;
  virtual void Lion(const LionArgs& args) = 0;

  /// sums[i] = sum of squares of x[offsets[i] .. offsets[i + 1]), in fp64, for i in [0, num_chunks). `offsets` lies in
  /// host memory and is read before the call returns.
  virtual void ChunkSumSquares(double* sums, const float* x, const int64_t* offsets, int64_t num_chunks) = 0;

  /// a[i] += b[i].
  virtual void Add(float* a, const float* b, int64_t n) = 0;
  /// out[i] = fma(alpha, x[i], beta * y[i]), equal on every device. out may be x or y, and x may be y.
  virtual void Axpby(float* out, float alpha, const float* x, float beta, const float* y, int64_t n) = 0;
  virtual void Zero(void* data, size_t bytes) = 0;
  virtual void Copy(void* out, const void* in, size_t bytes) = 0;
  virtual void CastToBf16(uint16_t* out, const float* in, int64_t n) = 0;

  /// out[i] = stddev * z(first + i), z standard normal by Box and Muller (1958) from `key`.
  virtual void FillNormal(float* out, int64_t n, int64_t first, float stddev, const RandomKey& key) = 0;
};

/// Operations on host memory, run by `executor` (which must outlive them). `arithmetic` must be one that CpuHas.
std::unique_ptr<Ops> MakeCpuOps(Executor& executor, Arithmetic arithmetic = Arithmetic::kPortable);

/// The instruction sets that CPU kernels are compiled for and this processor has, the one they use first, e.g. "AVX3",
/// "AVX2". It decides no bit but through CpuHas (kernels/arithmetic.h).
std::vector<std::string> CpuInstructionSets();

/// Makes CPU kernels of this process use the named set ("": the best again); false if the processor does not have it.
/// To compare them; not while a kernel runs.
bool UseCpuInstructionSet(std::string_view name);

}  // namespace holdfast::kernels
