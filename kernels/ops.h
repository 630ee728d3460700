#pragma once
// Every operation Holdfast runs on device memory: their rules and arguments; ops.def declares them. `Ops` is one
// device's set of operations bound to one stream of it: calls are ordered; on a CPU they have finished when they
// return, on a GPU when the stream has been synchronized.
//
// Rules every implementation keeps:
//   - The result of an operation is a pure function of its arguments: the same bits for any number of threads, and a
//     row's result does not depend on how many other rows the call has (except where the operation sums over rows).
//   - Sums over rows run in a fixed association that depends on the shape only.
//   - Of Gemm on a GPU a row may depend on the number of rows, which choose cuBLASLt's algorithm; training always has
//     those of a microbatch.
//   - Accumulation is in fp32 at least; bf16 is storage. Rounding to bf16 is to nearest even.
//   - Results go to the caller's memory. Working memory comes from the executor or the GPU's queue, small lists (of
//     tasks, of kinds of product) from the heap. Only std::bad_alloc is thrown; a GPU's failures are its stream's to
//     report.
//   - Arguments are the caller's duty; tests/kernels states the supported range.
//
// Shapes in comments: R rows (tokens = B * T), C hidden size, V vocabulary, H query heads, G key/value heads, D head
// size. A `Matrix` may be fp32 or bf16 unless its comment says otherwise; all activations of one call have the same
// dtype.
//
// Example (CPU):
//   auto ops = MakeCpuOps(executor);
//   ops->Gemm({.a = x, .b = w, .transpose_b = true, .c = y, .bias = b});   // y = x w^T + b

#include <algorithm>
#include <array>
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

/// C (M, N) = op(A) (M, K) * op(B) (K, N), then optionally + C, + bias, GELU, or alone times GELU's derivative.
struct GemmArgs {
  ConstMatrix a;  ///< (M, K), or (K, M) if transpose_a
  bool transpose_a = false;
  ConstMatrix b;  ///< (K, N), or (N, K) if transpose_b; its dtype may be another than a's
  bool transpose_b = false;
  Matrix c;                     ///< (M, N); must not overlap a or b
  bool accumulate = false;      ///< add to what c holds; rounded once
  const float* bias = nullptr;  ///< (N), optional: added to every row
  bool gelu = false;            ///< c = gelu(value); tanh form (Hendrycks & Gimpel 2016, section 2)
  Matrix pre_gelu = {};         ///< (M, N) optional with gelu: the value before it, for the backward pass
  /// (M, N) of c's dtype, optional without all of these: c = value * gelu'(gelu_input), as GeluBackward makes it of c.
  ConstMatrix gelu_input = {};
  /// (M) optional with transpose_a: also the sums of a's columns, as ColumnSum makes them. Where a is a gradient, they
  /// are a bias's.
  float* a_sums = nullptr;
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

/// Heads side by side that are turned by rotary angles.
struct RotaryHeads {
  int64_t count = 0;
  int64_t width = 0;   ///< of each
  int64_t turned = 0;  ///< columns of each that are turned, its first; even, at most `width`
};

/// Self-attention over packed projections: each row of `qkv` is H query heads, G key heads, G value heads, D wide each.
/// Query head h reads key/value head h / (H / G) (grouped-query attention, Ainslie et al. 2023). The keys a query sees
/// are one range; blocks of keys that no query of a block sees are neither read nor computed.
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

/// Causal attention of rows that continue sequences whose keys and values are kept: what AttentionForward gives for the
/// same rows within their whole sequences, on a CPU with the same bits (of finite values).
struct CachedAttentionArgs {
  Matrix out;       ///< (R, H * D)
  ConstMatrix qkv;  ///< (R, (H + 2G) * D), as for AttentionForward; its keys and values are put where they belong first
  void* keys = nullptr;    ///< (sequences, G, capacity, D), of the dtype of qkv, and `values` alike; only what lies
  void* values = nullptr;  ///< before a row's own position is read
  int64_t sequences = 0, capacity = 0;
  const int32_t* sequence_of = nullptr;  ///< (R), memory of the device. Rows of one sequence ascend by one position
  const int32_t* position_of = nullptr;  ///< (R), likewise; below capacity
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t window = 0;    ///< as in AttentionShape
  float* lse = nullptr;  ///< (R, H) optional: as AttentionForward writes it
};

/// The activation of a gate (Shazeer 2020).
enum class GateKind : uint8_t {
  kSilu,  ///< x sigmoid(x): SwiGLU
  kGelu,  ///< tanh form, as GeluForward: GeGLU
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

inline constexpr size_t kMaxDigestPlanes = 8;

/// digests[i] = XXH3-64 (with seed 0) of the bytes of chunk i, which is `chunk` values of every plane, the last one
/// what is left: those of plane 0, then of plane 1, ... Equal on every device.
struct ChunkDigestsArgs {
  uint64_t* digests = nullptr;
  std::array<const float*, kMaxDigestPlanes> planes = {};  ///< (n) each
  int num_planes = 0;
  int64_t n = 0, chunk = 0;  ///< the planes of a chunk: below 4 GiB
};

class Ops {
 public:
  virtual ~Ops() = default;

#define HOLDFAST_OPERATION(name, parameters, arguments) virtual void name parameters = 0
#include "kernels/ops.def"
};

/// Operations on CPU memory, run by `executor` (which must outlive them). `arithmetic` must be one that CpuHas.
std::unique_ptr<Ops> MakeCpuOps(Executor& executor, Arithmetic arithmetic = Arithmetic::kPortable);

/// The instruction sets that CPU kernels are compiled for and this processor has, the one they use first, e.g.
/// "AVX-512", "AVX2". It decides no bit but through CpuHas (kernels/arithmetic.h).
std::vector<std::string> CpuInstructionSets();

/// Makes CPU kernels of this process use the named set ("": the best again; in capitals or not); false if the processor
/// does not have it. To compare them; not while a kernel runs.
bool UseCpuInstructionSet(std::string_view name);

}  // namespace holdfast::kernels
