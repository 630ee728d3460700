#pragma once
// Initial values and rates that follow from a model's sizes, so that the learning rate and init_std that are best for a
// base model are best for a larger one: muP of width (Yang et al. 2022, arXiv 2203.03466, tables 3 and 8), CompleteP of
// width and depth (Dey et al. 2025, arXiv 2505.01618, table 1, alpha = 1). With n = hidden_size / base_hidden_size and
// l = num_layers / base_num_layers (muP: 1):
//
//                              times    init     rate of        epsilon
//                                       std      AdamW, Lion    of AdamW
//   embeddings                 1        1        1              1 / n
//   matrices in blocks         1        n^-1/2   1 / n          1 / (n l)
//   those that end a branch    1 / l    n^-1/2   1 / n          1 / (n l)
//   routers, shared gates      1 / n    1        1              1 / (n l)
//   head                       1 / n    1        1              1 / n
//   norms, biases in blocks    1        1        1              1 / (n l)
//   biases that end a branch   1 / l    1        1              1 / (n l)
//   final norm                 1        1        1              1 / n
//
// "times" is what the model multiplies what comes of the parameter by. No model here does: a parameter W that is
// multiplied by m is the parameter m W whose initial values and rate are m times as large and whose epsilon is 1 / m of
// it (a symmetry of Adam, Lion and Muon; arXiv 2203.03466). So kernels, passes and saved files know nothing of all
// this, and an exported model is right as it is. Where head and embedding are one table, the head's multiplier is the
// final norm's. Rate times weight decay is that of the base everywhere. In the norm of the gradient a parameter counts
// as W, so grad_clip_norm means what it does in the papers.
//
// - A base model is a standard one: what ends a branch begins with init_std / sqrt(2 base_num_layers), then times 1 /
// l.
//   With muP, which says nothing of depth, it is init_std / sqrt(2 num_layers).
// - With norms at the end of branches (norm_position after, both) a norm sets how large a branch is. So what ends a
//   branch begins with init_std, and CompleteP is refused, as the norm would undo its 1 / l.
// - All widths of a block (heads, MLPs, each expert) are taken to grow with hidden_size. The number of experts, and of
//   those that a token goes to, is not: routers go from a width to a number, as the head does.
// - Attention is to be divided by head_dim / sqrt(base_head_dim); the kernels divide by sqrt(head_dim). What is left,
//   sqrt(base_head_dim / head_dim), is the multiplier of the norm of query, which has to be there if they differ.
// - Yang et al. (appendix D.2) advise a head that begins with zeros: what a random one adds by chance becomes less with
//   n, so that a small model is not like a large one (zero_init_head). It is the model's affair, not a factor.
// - Muon's update of a matrix has the spectral norm 0.2 sqrt(max(rows, columns)), which grows as sqrt(n), where
//   sqrt(rows / columns) is wanted, which stays (Yang et al. 2023, arXiv 2310.17813): its rate is n^-1/2. Like Adam's
//   it does not depend on how large a gradient is, so depth is the same to both.

#include <cstdint>

#include "framework/config/config.h"
#include "framework/nn/layout.h"

namespace holdfast {

/// What a parameter is to the model.
enum class ParameterRole : uint8_t {
  kEmbedding,     // of tokens, of positions; perhaps the head, too
  kHidden,        // a matrix in a block, also of an expert
  kBranchOutput,  // one whose product is added to the residual stream
  kRouter,        // from a hidden vector to a few numbers that choose or weigh experts
  kHead,
  kVector,      // of a block: weight or bias of a norm, bias of a kHidden or of a router, attention sinks
  kQueryNorm,   // weight of the norm of query
  kBranchBias,  // of a kBranchOutput
  kFinalNorm,
  kAdapter,  // has no rules
};

/// Whether it is a matrix between hidden vectors, which Muon takes.
inline bool IsHidden(ParameterRole role) {
  return role == ParameterRole::kHidden || role == ParameterRole::kBranchOutput;
}

/// Of a parameter as it is here, m W: what its standard values are multiplied by.
struct ParameterFactors {
  double multiplier = 1;  // m
  double init = 1, lr = 1, decay = 1, eps = 1;

  bool operator==(const ParameterFactors&) const = default;
};

/// `config` is resolved and valid.
ParameterFactors FactorsOf(ParameterRole role, const ModelConfig& config, OptimizerKind optimizer);

void Scale(const ParameterFactors& factors, ParameterSpec* spec);

}  // namespace holdfast
