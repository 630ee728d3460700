#pragma once
// Arguments of the operations of mixture-of-experts layers (kernels/ops.h). E experts, k chosen by each of R rows
// (tokens), S = R * k choices; C hidden size, F width of an expert.
//
// Choices are numbered in two ways. By row: choice r * k + j is row r's j-th expert, experts of a row ascending. By
// slot: all choices of expert 0 by ascending row, then those of expert 1, ...: the rows of the expert's product. So
// every sum over a row's experts goes by ascending expert, every sum over an expert's rows by ascending row, and no
// result depends on where an expert is computed. Choices that an expert has no room for (RouterShape::capacity) are
// dropped: they have the last slots, and add nothing to anything.

#include <cstdint>

#include "kernels/types.h"

namespace holdfast::kernels {

inline constexpr int64_t kMaxExperts = 4096;
inline constexpr int64_t kMaxExpertsPerRow = 64;

enum class RouterScore : uint8_t {
  kSoftmax,  ///< over all experts (Mixtral, Qwen, OLMoE)
  kSigmoid,  ///< of each expert (DeepSeek V3, arXiv 2412.19437, section 2.1.2)
};

/// How a row chooses its experts, and what they weigh.
struct RouterShape {
  int64_t num_experts = 0;  ///< E, at most kMaxExperts
  int64_t chosen = 0;       ///< k, at most kMaxExpertsPerRow
  RouterScore score = RouterScore::kSoftmax;
  bool normalize = true;        ///< a weight is score / sum of the chosen scores, else the score
  float scale = 1;              ///< and times this
  const float* bias = nullptr;  ///< (E) optional: added to scores for choosing only
  int64_t groups = 1;           ///< experts in groups of E / groups neighbours ...
  int64_t groups_chosen = 1;    ///< ... of which only those with the largest sums of their two best may be chosen
  int64_t capacity = 0;         ///< rows that an expert takes: those with the largest weights; 0 = all that chose it
};

/// What a router gives for R rows. Ties go to the lower index, of experts as of groups; NaN ranks as -infinity does.
struct RouterOut {
  float* scores = nullptr;     ///< (R, E)
  int32_t* experts = nullptr;  ///< (R, k), ascending in each row
  float* weights = nullptr;    ///< (R, k)
  float* lse = nullptr;        ///< (R) log of the sum of exp(logits)
};

/// Gradients of a router's logits: of the weights of its choices, and of the auxiliary losses
///   balance: sum over rows of <slope, probabilities>, slope (E) constant (Fedus et al. 2021, section 2.2)
///   z:       z_scale * sum over rows of lse^2 (Zoph et al. 2022, section 3.2)
/// Probabilities are softmax(logits), or with sigmoid scores these / their sum.
struct RouterBackwardArgs {
  Matrix d_logits;  ///< (R, E) fp32
  ConstMatrix logits;
  RouterOut forward;
  const float* d_weights = nullptr;  ///< (R, k)
  const float* slope = nullptr;      ///< (E) optional
  float z_scale = 0;
};

/// What is told of a router's choices of R rows, and the slope of their balance loss. Sums are in double, over experts
/// and then over rows, both ascending.
struct RouterReportArgs {
  ConstMatrix logits;  ///< (R, E) fp32
  RouterOut forward;
  const int32_t* counts = nullptr;  ///< (E), see SortedChoices
  const int32_t* pooled = nullptr;  ///< (pooled_layers, E) optional: such counts, whose mean the balance loss goes by
  int64_t pooled_layers = 1;
  float* slope = nullptr;  ///< (E) optional: slope_scale * counts, or their mean
  float slope_scale = 0;
  int64_t* load = nullptr;           ///< (E) optional: counts; with it all of
  double* balance = nullptr;         ///< E / R^2 * sum over rows of <counts or their mean, probabilities>
  double* z = nullptr;               ///< mean of lse^2
  double* entropy = nullptr;         ///< mean of that of softmax(logits), in nats
  const int32_t* offsets = nullptr;  ///< (E + 1), see ExpertRows; for
  int64_t* dropped = nullptr;        ///< optional: choices that were dropped
};

/// What SortChoices writes; see ExpertRows.
struct SortedChoices {
  int32_t* offsets = nullptr;  ///< (E + 1)
  int32_t* choices = nullptr;  ///< (S)
  int32_t* slot_of = nullptr;  ///< (S)
  int32_t* counts = nullptr;   ///< (E) optional: rows that chose each expert, whether it took them or not
};

/// Choices in the order of slots.
struct ExpertRows {
  int64_t num_experts = 0;
  int64_t chosen = 0;                ///< k
  int64_t slots = 0;                 ///< S
  const int32_t* offsets = nullptr;  ///< (E + 1): slots [offsets[e], offsets[e + 1]) are expert e's, the rest dropped
  const int32_t* choices = nullptr;  ///< (S): the choice in each slot
  const int32_t* slot_of = nullptr;  ///< (S): the slot of each choice
};

/// C (S, N) = for the rows of each expert, a op(B of the expert): products of one layer in one call. Rows of dropped
/// choices are not written.
struct ExpertGemmArgs {
  ConstMatrix a;  ///< (S, K), rows by slot; b has its dtype
  ConstMatrix b;  ///< of expert 0: (K, N), or (N, K) if transpose_b
  bool transpose_b = false;
  int64_t b_step = 0;       ///< elements from one expert's matrix to the next one's
  Matrix c;                 ///< (S, N), of a's dtype or fp32
  bool accumulate = false;  ///< add to what c holds; rounded once
  /// (N) of expert 0, optional, not with accumulate: each row of c = fma(weight, bias, sum in fp32), rounded once.
  const float* bias = nullptr;
  int64_t bias_step = 0;                ///< elements from one expert's bias to the next one's
  const float* bias_weights = nullptr;  ///< (R, k) optional: weight is that of the slot's choice, else 1
};

/// For each expert, C of the expert (M, N) fp32 = sum over its rows of a^T b; zeros for an expert without rows.
struct ExpertGradientArgs {
  ConstMatrix a;  ///< (S, M), rows by slot
  ConstMatrix b;  ///< (S, N), rows by slot, of a's dtype
  Matrix c;       ///< of expert 0
  int64_t c_step = 0;
};

/// For each expert, d_bias (N) = sum over its rows of d_out, times the weight of the slot's choice if there are
/// weights; zeros for an expert without rows. On a GPU 128 of its rows at a time are added up in eight parts, each of
/// every eighth row, and then their sums likewise. With d_weights, d_weights[choice] += <d_out, bias> of each slot that
/// is not dropped.
struct ExpertBiasBackwardArgs {
  ConstMatrix d_out;               ///< (S, N)
  const float* weights = nullptr;  ///< (R, k) optional
  float* d_bias = nullptr;         ///< (N) of expert 0, optional
  int64_t d_bias_step = 0;
  const float* bias = nullptr;  ///< (N) of expert 0, for
  int64_t bias_step = 0;
  float* d_weights = nullptr;  ///< (R, k) optional
};

}  // namespace holdfast::kernels
