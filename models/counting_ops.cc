#include "models/counting_ops.h"

#include <algorithm>

namespace holdfast {
namespace {

/// One of attention's products over the part of T x T that is seen, its edges as lines: all heads and sequences.
double ProductFlops(const kernels::AttentionShape& shape) {
  const auto length = static_cast<double>(shape.sequence);
  const double beyond = shape.window > 0 ? std::max(0.0, length - static_cast<double>(shape.window)) : 0.0;
  const double pairs = (shape.causal ? length * length / 2 : length * length) - beyond * beyond / 2;
  return 2.0 * static_cast<double>(shape.batch * shape.num_heads * shape.head_dim) * pairs;
}

}  // namespace

void CountingOps::Gemm(const kernels::GemmArgs& args) {
  const int64_t inner = args.transpose_a ? args.a.rows : args.a.cols;
  flops_ += 2.0 * static_cast<double>(args.c.rows) * static_cast<double>(args.c.cols) * static_cast<double>(inner);
}

void CountingOps::ExpertGemm(const kernels::ExpertGemmArgs& args, const kernels::ExpertRows&) {
  flops_ +=
      2.0 * static_cast<double>(args.c.rows) * static_cast<double>(args.c.cols) * static_cast<double>(args.a.cols);
}

void CountingOps::ExpertGradient(const kernels::ExpertGradientArgs& args, const kernels::ExpertRows&) {
  flops_ +=
      2.0 * static_cast<double>(args.a.rows) * static_cast<double>(args.a.cols) * static_cast<double>(args.b.cols);
}

void CountingOps::AttentionForward(kernels::Matrix, float*, kernels::ConstMatrix,
                                   const kernels::AttentionShape& shape) {
  flops_ += 2 * ProductFlops(shape);  // Q K^T and P V
}

void CountingOps::AttentionBackward(kernels::Matrix, kernels::ConstMatrix, kernels::ConstMatrix, const float*,
                                    kernels::ConstMatrix, const kernels::AttentionShape& shape) {
  flops_ += 5 * ProductFlops(shape);  // Q K^T again, dO V^T, and the gradients of Q, K and V
}

}  // namespace holdfast
