#include "models/adapter.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace holdfast {
namespace {

/// Of random numbers, beyond those of layers.
constexpr uint32_t kFirstAdapterSite = uint32_t{1} << 24;

int64_t ColumnsOf(const std::vector<Adapter::Segment>& segments) {
  int64_t columns = 0;
  for (const Adapter::Segment& segment : segments) columns += segment.count;
  return columns;
}

}  // namespace

float AdapterInitStd(int64_t in) { return static_cast<float>(1 / std::sqrt(3.0 * static_cast<double>(in))); }

Adapter::Adapter(ParameterBuilder& builder, const std::string& name, int64_t in, std::vector<Segment> segments,
                 bool fp32)
    : segments_(std::move(segments)),
      fp32_(fp32),
      rank_(builder.lora().rank),
      scale_(builder.lora().scale),
      dropout_(builder.lora().dropout),
      site_(kFirstAdapterSite + static_cast<uint32_t>(builder.CountAdapter())),
      a_(builder.AddAdapter(name + ".lora_a", static_cast<int64_t>(segments_.size()) * rank_, in, AdapterInitStd(in),
                            fp32)),
      b_(builder.AddAdapter(name + ".lora_b", ColumnsOf(segments_), rank_, 0, fp32)) {}

kernels::Dropout Adapter::DropoutOf(const Pass& pass) const {
  kernels::Dropout dropout{.rate = pass.training ? dropout_ : 0, .key = pass.random};
  dropout.key.site = site_;
  return dropout;
}

kernels::ConstMatrix Adapter::Input(const Pass& pass, kernels::ConstMatrix x) const {
  const kernels::Dropout dropout = DropoutOf(pass);
  if (dropout.rate == 0) return x;
  const kernels::Matrix dropped = pass.arena->Allocate(x.dtype, {x.rows, x.cols}).matrix();
  pass.ops->ApplyDropout(dropped, x, dropout);
  return dropped;
}

Adapter::Narrow Adapter::Allocate(const Pass& pass, int64_t rows) const {
  const int64_t columns = static_cast<int64_t>(segments_.size()) * rank_;
  const Tensor sums = pass.Floats({rows, columns});
  return {sums, DTypeOf(pass) == DType::kF32 ? sums : pass.arena->Allocate(pass.dtype, {rows, columns})};
}

void Adapter::Scale(const Pass& pass, const Narrow& narrow) const {
  const int64_t n = narrow.sums.shape.elements();
  float* const sums = narrow.sums.f32();
  pass.ops->Axpby(sums, scale_, sums, 0, sums, n);
  if (DTypeOf(pass) == DType::kBF16) pass.ops->CastToBf16(narrow.rounded.bf16(), sums, n);
}

Tensor Adapter::Inner(const Pass& pass, UnitTensors weights, kernels::ConstMatrix input) const {
  const Narrow inner = Allocate(pass, input.rows);
  pass.ops->Gemm(
      {.a = input, .b = weights[a_].matrix(), .transpose_b = true, .c = inner.sums.matrix(), .pre_gelu = {}});
  Scale(pass, inner);
  return inner.rounded;
}

void Adapter::Forward(const Pass& pass, UnitTensors weights, kernels::ConstMatrix x, int64_t first,
                      kernels::Matrix y) const {
  const ArenaScope scope(*pass.arena);
  const Tensor inner = Inner(pass, weights, Input(pass, x));
  int64_t row = 0, column = 0;  // of B, of inner
  for (const Segment& segment : segments_) {
    const int64_t begin = std::max(segment.first, first);
    const int64_t end = std::min(segment.first + segment.count, first + y.cols);
    if (begin < end) {
      pass.ops->Gemm({.a = Columns(inner.matrix(), column, rank_),
                      .b = Rows(weights[b_], row + begin - segment.first, end - begin),
                      .transpose_b = true,
                      .c = Columns(y, begin - first, end - begin),
                      .accumulate = true,
                      .pre_gelu = {}});
    }
    row += segment.count;
    column += rank_;
  }
}

Tensor Adapter::Backward(const Pass& pass, UnitTensors weights, UnitTensors gradients, kernels::ConstMatrix x,
                         kernels::ConstMatrix d_y) const {
  const Narrow d_inner = Allocate(pass, x.rows);
  const ArenaScope scope(*pass.arena);
  const kernels::ConstMatrix input = Input(pass, x);
  const Tensor inner = Inner(pass, weights, input);
  int64_t row = 0, column = 0;
  for (const Segment& segment : segments_) {
    const kernels::ConstMatrix d = Columns(d_y, segment.first, segment.count);
    pass.ops->Gemm({.a = d,
                    .transpose_a = true,
                    .b = Columns(inner.matrix(), column, rank_),
                    .c = Rows(gradients[b_], row, segment.count),
                    .pre_gelu = {}});
    pass.ops->Gemm({.a = d,
                    .b = Rows(weights[b_], row, segment.count),
                    .c = Columns(d_inner.sums.matrix(), column, rank_),
                    .pre_gelu = {}});
    row += segment.count;
    column += rank_;
  }
  Scale(pass, d_inner);
  pass.ops->Gemm(
      {.a = d_inner.rounded.matrix(), .transpose_a = true, .b = input, .c = gradients[a_].matrix(), .pre_gelu = {}});
  return d_inner.rounded;
}

void Adapter::AddInputGradient(const Pass& pass, UnitTensors weights, const Tensor& d_inner,
                               kernels::Matrix d_x) const {
  const kernels::Dropout dropout = DropoutOf(pass);
  if (dropout.rate == 0) {
    pass.ops->Gemm({.a = d_inner.matrix(), .b = weights[a_].matrix(), .c = d_x, .accumulate = true, .pre_gelu = {}});
    return;
  }
  const ArenaScope scope(*pass.arena);
  const kernels::Matrix dropped = pass.arena->Allocate(d_x.dtype, {d_x.rows, d_x.cols}).matrix();
  pass.ops->Gemm({.a = d_inner.matrix(), .b = weights[a_].matrix(), .c = dropped, .pre_gelu = {}});
  pass.ops->AddDropout(d_x, dropped, dropout);
}

}  // namespace holdfast
