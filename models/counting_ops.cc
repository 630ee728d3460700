#include "models/counting_ops.h"

namespace holdfast {
namespace {

/// One of attention's products over the causal half of T x T, all heads and sequences.
double CausalProductFlops(const kernels::AttentionShape& shape) {
  const double pairs = static_cast<double>(shape.sequence) * static_cast<double>(shape.sequence) / 2;
  return 2.0 * static_cast<double>(shape.batch * shape.num_heads * shape.head_dim) * pairs;
}

}  // namespace

void CountingOps::Gemm(const kernels::GemmArgs& args) {
  const int64_t inner = args.transpose_a ? args.a.rows : args.a.cols;
  flops_ += 2.0 * static_cast<double>(args.c.rows) * static_cast<double>(args.c.cols) * static_cast<double>(inner);
}

void CountingOps::AttentionForward(kernels::Matrix, float*, kernels::ConstMatrix,
                                   const kernels::AttentionShape& shape) {
  flops_ += 2 * CausalProductFlops(shape);  // Q K^T and P V
}

void CountingOps::AttentionBackward(kernels::Matrix, kernels::ConstMatrix, kernels::ConstMatrix, const float*,
                                    kernels::ConstMatrix, const kernels::AttentionShape& shape) {
  flops_ += 5 * CausalProductFlops(shape);  // Q K^T again, dO V^T, and the gradients of Q, K and V
}

}  // namespace holdfast
