#include "models/head.h"

#include <algorithm>

#include "framework/base/status.h"

namespace holdfast {
namespace {

/// Logits start every row at a multiple of 64 bytes, whatever the vocabulary.
constexpr int64_t kStrideElements = 16;

int64_t LogitsStride(int64_t vocab_size) {
  return (vocab_size + kStrideElements - 1) / kStrideElements * kStrideElements;
}

/// The matrix for gradients in the memory of fp32 logits.
kernels::Matrix InPlace(const kernels::Matrix& logits, DType dtype) {
  const int64_t scale = dtype == DType::kBF16 ? 2 : 1;
  return {logits.data, dtype, logits.rows, logits.cols, logits.stride * scale};
}

}  // namespace

Head::Head(ParameterBuilder& builder, const ModelConfig& config, int64_t rows)
    : vocab_size_(config.vocab_size),
      block_rows_(rows),
      norm_(builder, "final_norm", config, ParameterRole::kFinalNorm) {
  if (!config.tie_embeddings) {
    projection_ =
        builder.AddMatrix("head.weight", config.vocab_size, config.hidden_size,
                          static_cast<float>(config.zero_init_head ? 0 : config.init_std), ParameterRole::kHead);
  }
}

Tensor Head::AllocateLogits(const Pass& pass) const {
  return pass.arena->Allocate(DType::kF32, {std::min(block_rows_, pass.rows()), LogitsStride(vocab_size_)});
}

kernels::Matrix Head::Logits(const Pass& pass, const Tensor& projection, kernels::ConstMatrix hidden,
                             const Tensor& scratch) const {
  const kernels::Matrix logits{scratch.data, DType::kF32, hidden.rows, vocab_size_, scratch.shape.cols()};
  pass.ops->Gemm({.a = hidden, .b = projection.matrix(), .transpose_b = true, .c = logits, .pre_gelu = {}});
  return logits;
}

absl::Status Head::Losses(const Pass& pass, UnitTensors weights, const Tensor& projection, const ResidualStream& in,
                          const int32_t* targets, float* losses, LanguageModel::SeeLogits see) const {
  ArenaScope scope(*pass.arena);
  const NormActivations stats = norm_.Allocate(pass, pass.rows());
  const Tensor hidden = pass.Activation(in.residual.cols);
  norm_.Forward(pass, weights, in, stats, in.residual, hidden.matrix());
  const Tensor scratch = AllocateLogits(pass);
  for (int64_t first = 0; first < pass.rows(); first += block_rows_) {
    const int64_t count = std::min(block_rows_, pass.rows() - first);
    const kernels::Matrix logits = Logits(pass, projection, Rows(hidden, first, count), scratch);
    pass.ops->SoftmaxCrossEntropy(Advance(losses, first), {}, logits, Advance(targets, first), 0);
    RETURN_IF_ERROR(see(logits));
  }
  return absl::OkStatus();
}

void Head::LossesAndGradients(const Pass& pass, UnitTensors weights, UnitTensors gradients, const Tensor& projection,
                              const Tensor& d_projection, const ResidualStream& in, const Tensor& sum,
                              const int32_t* targets, float loss_scale, float* losses, const Tensor& gradient) const {
  ArenaScope scope(*pass.arena);
  const NormActivations stats = norm_.Allocate(pass, pass.rows());
  const Tensor hidden = pass.Activation(in.residual.cols);
  norm_.Forward(pass, weights, in, stats, sum.matrix(), hidden.matrix());
  const Tensor scratch = AllocateLogits(pass);
  for (int64_t first = 0; first < pass.rows(); first += block_rows_) {
    const int64_t count = std::min(block_rows_, pass.rows() - first);
    const kernels::Matrix chunk = Rows(hidden, first, count);
    const kernels::Matrix logits = Logits(pass, projection, chunk, scratch);
    const kernels::Matrix d_logits = InPlace(logits, pass.dtype);
    pass.ops->SoftmaxCrossEntropy(Advance(losses, first), d_logits, logits, Advance(targets, first), loss_scale);
    if (Wanted(d_projection)) {
      pass.ops->Gemm({.a = d_logits,
                      .transpose_a = true,
                      .b = chunk,
                      .c = d_projection.matrix(),
                      .accumulate = first > 0,
                      .pre_gelu = {}});
    }
    pass.ops->Gemm({.a = d_logits, .b = projection.matrix(), .c = chunk, .pre_gelu = {}});  // d_hidden over hidden
  }
  norm_.Backward(pass, weights, gradients, sum.matrix(), stats, hidden.matrix(), {}, gradient.matrix());
}

void Head::LastLogits(const Pass& pass, UnitTensors weights, const Tensor& projection, const ResidualStream& in,
                      float* logits) const {
  ArenaScope scope(*pass.arena);
  // The last rows of all sequences as a matrix: the same memory with a stride of T rows.
  const auto last = [&](kernels::Matrix m) {
    const int64_t bytes = (pass.sequence - 1) * m.stride * static_cast<int64_t>(kernels::SizeOf(m.dtype));
    return kernels::Matrix{Advance(static_cast<char*>(m.data), bytes), m.dtype, pass.batch, m.cols,
                           m.stride * pass.sequence};
  };
  ResidualStream last_rows = in;
  last_rows.residual = last(in.residual);
  last_rows.branch = last(in.branch);
  const NormActivations stats = norm_.Allocate(pass, pass.batch);
  const Tensor hidden = pass.arena->Allocate(pass.dtype, {pass.batch, in.residual.cols});
  norm_.Forward(pass, weights, last_rows, stats, last_rows.residual, hidden.matrix());
  pass.ops->Gemm({.a = hidden.matrix(),
                  .b = projection.matrix(),
                  .transpose_b = true,
                  .c = {logits, DType::kF32, pass.batch, vocab_size_, vocab_size_},
                  .pre_gelu = {}});
}

}  // namespace holdfast
